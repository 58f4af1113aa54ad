//! How a contestant's process is started: a command line, an environment, and how it says where it listens. Anything
//! that speaks HTTP can be one.
//!
//! [`process`]: its life; [`conversation`]: that of one which is talked to. [`foreign`]: everybody who is not ours:
//! [`peers`] in Rust, [`go`], [`nginx`]; [`build`](mod@build): how such are built.

pub mod build;
pub mod conversation;
pub mod drain;
pub mod foreign;
pub mod go;
pub mod nginx;
pub mod peers;
pub mod process;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

/// A process to start. It listens on a port of its own choice, ends well on SIGINT, and inherits this process's
/// environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables beside those that it inherits.
    pub env: Vec<(OsString, OsString)>,
    /// How it says where it listens.
    pub address: AddressFrom,
}

/// How a process says, on its standard output, where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressFrom {
    /// As `polyserve serve --json` does: `{"listening":"http://127.0.0.1:8001"}`.
    Json,
    /// In the first line that begins so; the rest of it is the address, with or without `http://`.
    Line(String),
    /// It listens here, which whoever launches it has seen to, once it has printed its first line.
    Fixed(SocketAddr),
}

#[derive(Deserialize)]
struct Listening {
    listening: String,
}

impl Launch {
    /// The address in a line of its output; `None` where the line says nothing of it.
    pub fn address(&self, line: &str) -> Option<Result<SocketAddr, String>> {
        let said = match &self.address {
            AddressFrom::Json => serde_json::from_str::<Listening>(line).ok()?.listening,
            AddressFrom::Line(start) => line.strip_prefix(start.as_str())?.trim().to_owned(),
            AddressFrom::Fixed(addr) => return Some(Ok(*addr)),
        };
        let addr = said.strip_prefix("http://").unwrap_or(&said).trim_end_matches('/');
        Some(addr.parse().map_err(|_| format!("it says that it listens on {said:?}, which is no address")))
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
