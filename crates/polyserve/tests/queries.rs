//! Bytes of a target that are no text: every server gives the same answer.

mod support;

use std::time::Duration;

use polyserve::memory::{Ordered, StdMutex};
use polyserve::{Entity, EntityRepo as _, EntityService, ServerConfig, ServerExt as _};
use polyserve_conformance::client::Client;

/// A query has any encoded byte (RFC 3986, 2.1), and the entity service ignores the query of an entity. Raw bytes above 127 are in no
/// target (RFC 9112, 3); in a query they pass if they are UTF-8, as some clients send them.
#[test]
fn every_server_takes_the_bytes_of_a_query_alike() {
    for entry in support::servers("every_server_takes_the_bytes_of_a_query_alike") {
        let store = Ordered::new(StdMutex::<Entity>::new());
        store.put(Entity::new(1, "first", 0.5)).wait().expect("it is stored");
        assert!(store.can_scan());
        let server = entry.build(&ServerConfig::default()).expect("it is made");
        let running = server.serve(([127, 0, 0, 1], 0), EntityService::new(store)).expect("it listens");
        for (target, status) in [
            (&b"/1?x=y"[..], 200),
            (b"/1?x=%ff", 200),
            (b"/1?x=%c3%28", 200),
            (b"/1?x=\xc3\xa9", 200),
            (b"/1?x=\xff", 400),
            (b"/1\xff", 400),
            (b"/1\xc3\xa9", 400),
            (b"/%ff", 400),
            (b"/?x=%ff", 200),
            (b"/?limit=%ff", 400),
            (b"/?limit=\xff", 400),
            (b"/?after=%ff", 400),
        ] {
            let mut client = Client::connect(running.local_addr(), Duration::from_secs(60)).expect("it listens");
            client.send(&[b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat()).expect("it reads");
            let shown = target.escape_ascii();
            let answer = client.receive().unwrap_or_else(|error| panic!("{}: {shown}: {error}", entry.name));
            assert_eq!(answer.status, status, "{}: {shown}", entry.name);
        }
        running.shutdown().expect("it ends");
    }
}
