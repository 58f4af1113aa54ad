//! What a server shows of its connections: the client's address to the service, and counters to its owner.

use std::sync::Arc;

use polyserve_core::{Answer, Connections, Counters, Reply, Request, Service};

use super::limits::BODY_AWAITED;
use super::live::Live;
use super::services::PanickingService;
use super::subject::ServerSubject;
use super::wire::{get, request, with_body};
use crate::property::Outcome;

/// Answers with the address of the request's peer.
struct ShowPeer;

impl Service for ShowPeer {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        Reply::text(request.peer.map_or_else(|| String::from("none"), |peer| peer.to_string())).into()
    }
}

/// A request has the address of its client: the first request of a connection, a later one, and one with a body that comes
/// after its head.
pub fn a_request_has_its_clients_address(subject: &ServerSubject) -> Outcome {
    let live = subject.live(Arc::new(ShowPeer), |_| ());
    for _ in 0..2 {
        let mut client = live.client();
        let address = client.local_addr().expect("the connection stands").to_string();
        assert_eq!(client.ask(&get("/"), 200).text(), address);
        assert_eq!(client.ask(&with_body("POST", "/", "", b"hello"), 200).text(), address);
        client.ask(&request("POST", "/", BODY_AWAITED), 100);
        assert_eq!(client.ask(b"hello", 200).text(), address);
    }
    Outcome::Held
}

/// The counters of a running server follow its connections: the open ones, the answers, the rejections and the panics of the
/// service.
pub fn the_counters_are_live(subject: &ServerSubject) -> Outcome {
    let live = subject.live(PanickingService::shared(), |config| config.max_connections = 1);
    check(&live, [0, 0, 0, 0]);
    let mut client = live.client();
    client.ask(&get("/"), 200);
    check(&live, [1, 1, 0, 0]);
    client.ask(&request("POST", "/", BODY_AWAITED), 100);
    let rejected = u64::from(subject.shape() != Connections::One);
    if rejected > 0 {
        let mut other = live.client();
        let _ = other.send(&get("/")); // an error: the server has rejected this client already
        other.expect_last(503);
    }
    check(&live, [1, 1 + rejected, rejected, 0]);
    // A server that was full a moment ago may announce a close.
    let open = u64::from(!client.ask(b"hello", 200).closes());
    check(&live, [open, 2 + rejected, rejected, 0]);
    drop(client);
    check(&live, [0, 2 + rejected, rejected, 0]);
    for (panics, path) in (1..).zip(["/call", "/later", "/woken"]) {
        live.ask(&get(path), 500);
        check(&live, [0, 2 + rejected + panics, rejected, panics]);
    }
    let drain = live.shutdown();
    assert_eq!(drain.answered, 5 + rejected, "the result of the drain has the same answers");
    Outcome::Held
}

/// Waits until the counters are these: open, answered, rejected, panics. A server may need a moment to count.
#[track_caller]
fn check(live: &Live, [open, answered, rejected, panics]: [u64; 4]) {
    let mut expected = Counters::default();
    (expected.open, expected.answered, expected.rejected, expected.panics) = (open, answered, rejected, panics);
    let seen = live.counters_when(|counters| counters == expected);
    assert_eq!(seen, expected);
}
