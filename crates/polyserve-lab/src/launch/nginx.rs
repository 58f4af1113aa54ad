//! nginx with one fixed answer, if it is installed. It shows the cost of a request in a well-known server that stores no
//! entities.
//!
//! nginx runs as one process (`master_process off`), so the CPU time of that process is complete, and a kill leaves no
//! process behind.
//!
//! Invariant: nginx writes only to a directory of its own, which is removed with its [`Site`]. Cost: none before the
//! start.
//!
//! The port is selected before the launch, because nginx does not print the port it listens on. If another process
//! takes the port first, the start fails.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{AddressFrom, Launch};
use crate::reference::BODY;

/// The name in tables and flags.
pub const NAME: &str = "nginx";

/// The usual locations of nginx. The last three are rarely in a user's `PATH`.
const PLACES: [&str; 4] = ["nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/local/nginx/sbin/nginx"];

/// Returns the path of the program.
///
/// # Errors
///
/// Returns the reason why nginx does not run.
pub fn program() -> Result<PathBuf, String> {
    let runs = |place: &&str| {
        let mut command = Command::new(place);
        command.arg("-v").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = PLACES.into_iter().find(runs).map(PathBuf::from);
    found.ok_or_else(|| String::from("nginx is not installed"))
}

/// A directory with the files that nginx reads and writes.
#[derive(Debug)]
pub struct Site {
    dir: PathBuf,
}

static SITES: AtomicU64 = AtomicU64::new(0);

impl Site {
    /// Creates a directory among the system's temporary files.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory cannot be created.
    pub fn new() -> io::Result<Self> {
        let number = SITES.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("polyserve-nginx-{}-{number}", std::process::id()));
        fs::create_dir(&dir)?; // fails if the directory exists: another process owns it
        Ok(Self { dir })
    }

    /// Returns the command that starts nginx in this directory, on a port that is free now.
    ///
    /// # Errors
    ///
    /// Returns an error if no port is free, or the configuration cannot be written.
    pub fn launch(&self, program: &Path) -> io::Result<Launch> {
        let addr = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let file = self.dir.join("nginx.conf");
        fs::write(&file, configuration(&self.dir, addr))?;
        let args = ["-e".into(), "stderr".into(), "-p".into(), self.dir.clone().into(), "-c".into(), file.into()];
        let args = args.into_iter().collect::<Vec<OsString>>();
        Ok(Launch { program: program.to_owned(), args, env: Vec::new(), address: AddressFrom::Fixed(addr) })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The configuration. The first notice goes to standard output; nginx prints it after it has bound the port.
fn configuration(dir: &Path, addr: SocketAddr) -> String {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("    {what}_temp_path {}/{what};\n", dir.display()))
        .concat();
    format!(
        "daemon off;\n\
         master_process off;\n\
         pid {dir}/nginx.pid;\n\
         error_log stderr error;\n\
         error_log /dev/stdout notice;\n\
         events {{ worker_connections 16384; multi_accept on; }}\n\
         http {{\n\
         {temporary}    access_log off;\n    \
             server_tokens off;\n    \
             tcp_nodelay on;\n    \
             keepalive_requests 1000000000;\n    \
             keepalive_timeout 60s;\n    \
             default_type application/json;\n    \
             server {{\n        \
                 listen {addr} backlog=4096;\n        \
                 location ~ ^/-?[0-9]+$ {{ return 200 '{BODY}'; }}\n        \
                 location = /welcome {{ return 200 'Welcome!'; }}\n        \
                 location / {{ return 404; }}\n    \
             }}\n\
         }}\n",
        dir = dir.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::process::Process;
    use crate::machine::cores::Cores;
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    fn ask(addr: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(addr).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn it_answers_and_ends_and_leaves_nothing() {
        let program = match program() {
            Ok(program) => program,
            Err(why) => {
                let _ = writeln!(io::stderr(), "it_answers_and_ends_and_leaves_nothing: {why}"); // past the capture of the test harness
                return;
            }
        };
        let site = Site::new().unwrap();
        let process = Process::start(&site.launch(&program).unwrap(), &Cores::available().unwrap()).unwrap();
        let addr = process.addr();
        for (path, status, body) in [("/1", "200", BODY), ("/-17", "200", BODY), ("/welcome", "200", "Welcome!")] {
            let answer = ask(addr, path);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.ends_with(body), "{answer}");
            assert!(answer.contains("Content-Type: application/json\r\n"), "{answer}");
        }
        assert!(ask(addr, "/none").starts_with("HTTP/1.1 404 "));
        process.end().unwrap();
        let dir = site.dir.clone();
        assert!(dir.is_dir());
        drop(site);
        assert!(!dir.exists() && TcpStream::connect(addr).is_err());
    }
}
