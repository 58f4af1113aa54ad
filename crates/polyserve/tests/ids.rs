//! Ids of a program's own types in paths.
#![cfg(all(feature = "threadpool", feature = "memory"))]

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use polyserve::prelude::*;
use polyserve::threadpool::Sequential;
use polyserve_conformance::client::Client;
use serde::{Deserialize, Serialize};

/// An entity with an id of any type.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Thing<I> {
    id: I,
}

impl<I> Identifiable for Thing<I>
where
    I: Clone + Eq + std::hash::Hash + Ord + fmt::Display + FromStr + Send + Sync + Serialize + 'static,
    I: for<'de> Deserialize<'de> + fmt::Debug,
{
    type Id = I;

    fn id(&self) -> &I {
        &self.id
    }
}

/// An id that is read without the white space around it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
struct Trimmed(String);

impl FromStr for Trimmed {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.trim().to_owned()))
    }
}

impl fmt::Display for Trimmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Sends a request, and checks the status of its answer.
fn ask(running: &Running, method: &str, target: &str, body: &str, expected: u16) {
    let length = body.len();
    let request = format!("{method} {target} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n{body}");
    let mut client =
        Client::connect(running.local_addr(), Duration::from_secs(60)).expect("the server accepts connections");
    client.ask(request.as_bytes(), expected);
}

fn serve(service: impl Service) -> Running {
    Sequential::new(ServerConfig::default()).unwrap().serve("127.0.0.1:0", service).unwrap()
}

/// `+5` was a second name of the entity 5: only the published entity rejected it.
#[test]
fn a_number_has_no_plus_sign() {
    let running = serve(EntityService::new(polyserve::memory::Sharded::of::<Thing<u64>>()));
    ask(&running, "PUT", "/5", r#"{"id":5}"#, 201);
    ask(&running, "GET", "/5", "", 200);
    for other in ["/+5", "/%2b5"] {
        ask(&running, "GET", other, "", 400);
    }
}

/// A segment of white space was read as an empty id, and stored: no path names it.
#[test]
fn an_id_that_is_read_as_an_empty_one_is_not_stored() {
    let running = serve(EntityService::new(polyserve::memory::Sharded::of::<Thing<Trimmed>>()));
    ask(&running, "PUT", "/%20", r#"{"id":""}"#, 422);
    ask(&running, "PUT", "/%20a", r#"{"id":"a"}"#, 201);
    ask(&running, "GET", "/a", "", 200);
}
