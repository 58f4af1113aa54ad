//! Starts the process of a contestant: its command line, its environment, and how it prints the address that it listens
//! on. Any HTTP server can be a contestant.
//!
//! `process`: a server process, from start to end. `line_process`: a process that exchanges lines with this
//! program. `build`: a build of a program.

pub(crate) mod build;
pub(crate) mod drain;
pub(crate) mod line_process;
pub(crate) mod process;

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use serde::Deserialize;

/// A process to start. It exits with code 0 after SIGTERM, or by the signal or with code 143 unless it reports its address as JSON. It
/// inherits this process's environment.
///
/// In arguments, variables and files, `{port}` stands for a free port, and `{dir}` for a new directory, which has the
/// files and is removed with the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// The arguments.
    pub args: Vec<OsString>,
    /// Environment variables in addition to the inherited ones.
    pub env: Vec<(OsString, OsString)>,
    /// How the process prints the address that it listens on.
    pub address: AddressFrom,
    /// Names and texts of files.
    pub files: Vec<(String, String)>,
}

/// How a process prints, on its standard output, the address that it listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressFrom {
    /// The JSON of `polyserve serve --json`: `{"listening":"http://127.0.0.1:8001"}`.
    Json,
    /// The first line with this prefix. Unless the launch has a `{port}`, the rest of the line is the address, with or
    /// without `http://` or `https://`.
    Line(String),
    /// The process listens on the `{port}` of the launch. It is ready once it accepts a connection.
    Port,
}

#[derive(Deserialize)]
struct Listening {
    listening: String,
}

/// The port and the directory of one start of a process.
#[derive(Debug)]
pub(crate) struct StartResources {
    /// The address of the `{port}`, if the launch has one.
    pub(crate) addr: Option<SocketAddr>,
    dir: Option<PathBuf>,
}

static STARTS: AtomicU64 = AtomicU64::new(0);

impl Drop for StartResources {
    fn drop(&mut self) {
        if let Some(dir) = &self.dir {
            let _ = fs::remove_dir_all(dir); // the process may have removed it
        }
    }
}

impl Launch {
    /// Selects a port and creates the directory, if the launch has these placeholders. Returns the launch with their values.
    pub(crate) fn prepared(&self) -> io::Result<(Self, StartResources)> {
        let texts =
            || self.args.iter().chain(self.env.iter().map(|(_, value)| value)).map(|text| text.to_string_lossy());
        let has = |name: &str| {
            texts().any(|text| text.contains(name)) || self.files.iter().any(|(_, text)| text.contains(name))
        };
        let (mut launch, mut resources) = (self.clone(), StartResources { addr: None, dir: None });
        if has("{port}") {
            // Another process may take the port first: the start fails then.
            resources.addr = Some(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?);
        }
        if has("{dir}") {
            let number = STARTS.fetch_add(1, Ordering::Relaxed);
            let dir = std::env::temp_dir().join(format!("polyserve-start-{}-{number}", std::process::id()));
            fs::create_dir(&dir)?; // fails if the directory exists: another process owns it
            resources.dir = Some(dir);
        }
        let port = resources.addr.map(|addr| addr.port().to_string()).unwrap_or_default();
        let dir = resources.dir.as_ref().map(|dir| dir.to_string_lossy().into_owned()).unwrap_or_default();
        let fill = |text: &str| text.replace("{port}", &port).replace("{dir}", &dir);
        if resources.addr.is_some() || resources.dir.is_some() {
            for text in launch.args.iter_mut().chain(launch.env.iter_mut().map(|(_, value)| value)) {
                *text = fill(&text.to_string_lossy()).into();
            }
        }
        for (name, text) in resources.dir.iter().flat_map(|_| &self.files) {
            fs::write(PathBuf::from(&dir).join(name), fill(text))?;
        }
        Ok((launch, resources))
    }

    /// Returns the address in a line of output, or `None` if the line has none. `port` is the address of the `{port}`.
    pub(crate) fn address(&self, line: &str, port: Option<SocketAddr>) -> Option<Result<SocketAddr, String>> {
        let reported = match (&self.address, port) {
            (AddressFrom::Json, _) => serde_json::from_str::<Listening>(line).ok()?.listening,
            (AddressFrom::Line(start), Some(addr)) => return line.starts_with(start.as_str()).then_some(Ok(addr)),
            (AddressFrom::Line(start), None) => line.strip_prefix(start.as_str())?.trim().to_owned(),
            (AddressFrom::Port, _) => return None,
        };
        let bare = ["http://", "https://"].into_iter().find_map(|scheme| reported.strip_prefix(scheme));
        let addr = bare.unwrap_or(&reported).trim_end_matches('/');
        Some(addr.parse().map_err(|_| format!("it reports that it listens on {reported:?}, which is not an address")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_lines() {
        let launch = |address| Launch { address, ..crate::fixtures::launch() };
        let addr: SocketAddr = "127.0.0.1:8001".parse().unwrap();
        let json = launch(AddressFrom::Json);
        assert_eq!(json.address(r#"{"listening":"http://127.0.0.1:8001"}"#, None), Some(Ok(addr)));
        assert_eq!(json.address(r#"{"listening":"https://127.0.0.1:8001"}"#, None), Some(Ok(addr)));
        assert_eq!(json.address("listening on http://127.0.0.1:8001", None), None);
        assert!(json.address(r#"{"listening":"here"}"#, None).unwrap().unwrap_err().contains("\"here\""));
        let line = launch(AddressFrom::Line("listening on ".into()));
        assert_eq!(line.address("listening on http://127.0.0.1:8001/", None), Some(Ok(addr)));
        assert_eq!(
            (line.address("hello", None), line.address("listening on 127.0.0.1:8001", None)),
            (None, Some(Ok(addr)))
        );
        assert_eq!(
            (line.address("hello", Some(addr)), line.address("listening on it", Some(addr))),
            (None, Some(Ok(addr)))
        );
    }

    #[test]
    fn a_start_has_a_port_and_a_directory_of_its_own() {
        let launch = Launch {
            args: vec!["-c{dir}/conf".into(), "{port}".into()],
            files: vec![("conf".into(), "listen {port};".into())],
            ..crate::fixtures::launch()
        };
        let ((one, resources), (other, _second)) = (launch.prepared().unwrap(), launch.prepared().unwrap());
        assert_ne!(one.args[0], other.args[0]);
        let file = PathBuf::from(one.args[0].to_str().unwrap().trim_start_matches("-c"));
        let port = resources.addr.unwrap().port();
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("listen {port};"));
        assert_eq!(one.args[1], *port.to_string());
        drop(resources);
        assert!(!file.parent().unwrap().exists());
    }
}
