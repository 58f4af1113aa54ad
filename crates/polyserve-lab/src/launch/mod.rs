//! Starts the process of a contestant: its command line, its environment, and how it prints the address that it listens
//! on. Any HTTP server can be a contestant.
//!
//! [`process`]: a server process, from start to end. [`line_process`]: a process that exchanges lines with this
//! program. [`foreign`]: the contestants from other projects: [`peers`] in Rust, [`go`], [`nginx`].
//! [`page_twins`]: the twins of the published page servers.
//! [`build`](mod@build): their builds.

pub mod build;
pub mod drain;
pub mod foreign;
pub mod go;
pub mod line_process;
pub mod nginx;
pub mod page_twins;
pub mod peers;
pub mod process;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

/// A process to start. It must listen on a free port that it selects, and exit with code 0 after SIGTERM. It inherits
/// this process's environment.
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
}

/// How a process prints, on its standard output, the address that it listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressFrom {
    /// The JSON of `polyserve serve --json`: `{"listening":"http://127.0.0.1:8001"}`.
    Json,
    /// The first line with this prefix. The rest of the line is the address, with or without `http://`.
    Line(String),
    /// A fixed address that the caller has configured. The process listens once it has printed its first line.
    Fixed(SocketAddr),
}

#[derive(Deserialize)]
struct Listening {
    listening: String,
}

impl Launch {
    /// Returns the address in a line of output, or `None` if the line has none.
    pub fn address(&self, line: &str) -> Option<Result<SocketAddr, String>> {
        let reported = match &self.address {
            AddressFrom::Json => serde_json::from_str::<Listening>(line).ok()?.listening,
            AddressFrom::Line(start) => line.strip_prefix(start.as_str())?.trim().to_owned(),
            AddressFrom::Fixed(addr) => return Some(Ok(*addr)),
        };
        let addr = reported.strip_prefix("http://").unwrap_or(&reported).trim_end_matches('/');
        Some(addr.parse().map_err(|_| format!("it reports that it listens on {reported:?}, which is not an address")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_lines() {
        let launch = |address| Launch { program: "any".into(), args: Vec::new(), env: Vec::new(), address };
        let addr: SocketAddr = "127.0.0.1:8001".parse().unwrap();
        let json = launch(AddressFrom::Json);
        assert_eq!(json.address(r#"{"listening":"http://127.0.0.1:8001"}"#), Some(Ok(addr)));
        assert_eq!(json.address("listening on http://127.0.0.1:8001"), None);
        assert!(json.address(r#"{"listening":"here"}"#).unwrap().unwrap_err().contains("\"here\""));
        let line = launch(AddressFrom::Line("listening on ".into()));
        assert_eq!(line.address("listening on http://127.0.0.1:8001/"), Some(Ok(addr)));
        assert_eq!((line.address("hello"), line.address("listening on 127.0.0.1:8001")), (None, Some(Ok(addr))));
        assert_eq!(launch(AddressFrom::Fixed(addr)).address("any"), Some(Ok(addr)));
    }
}
