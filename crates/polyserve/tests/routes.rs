//! `Routes` on every server of the catalog: several services on one kept connection.
#![cfg(all(feature = "threadpool", feature = "memory"))]

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use polyserve::Request;
use polyserve::prelude::*;
use polyserve_conformance::client::Client;

/// Only used if the test fails.
const MAX_WAIT: Duration = Duration::from_secs(60);

const ENTITY: &str = r#"{"id":1,"description":"d","value":2.5}"#;

fn request(method: &str, target: &str, body: &str) -> Vec<u8> {
    format!("{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn check(addr: SocketAddr) {
    let mut client = Client::connect(addr, MAX_WAIT).expect("the server accepts connections");
    let stored = client.ask(&request("PUT", "/entities", ENTITY), 201);
    assert_eq!(stored.header("Location"), Some("/entities/1"));
    assert_eq!(client.ask(&request("GET", "/entities/1", ""), 200).text(), ENTITY);
    assert_eq!(client.ask(&request("GET", "/health?now", ""), 200).text(), "well");
    let refused = client.ask(&request("GET", "/entities/health", ""), 400);
    assert_eq!(refused.header("Content-Type"), Some("application/problem+json"));
    // The head decides, before the body: this service is asked by its head too.
    client.ask(&request("POST", "/entities", "x"), 405);
    for nowhere in ["/", "/1", "/healthy"] {
        let response = client.ask(&request("GET", nowhere, ""), 404);
        assert_eq!(response.header("Content-Type"), Some("application/problem+json"), "{nowhere}");
    }
    let allow = client.ask(&request("OPTIONS", "*", ""), 204).header("Allow").map(str::to_owned);
    assert_eq!(allow.as_deref(), Some("GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH"));
    client.ask(&request("DELETE", "/entities/1", ""), 204);
}

#[test]
fn several_services_share_each_server() -> Result<(), Box<dyn std::error::Error>> {
    for entry in support::servers("several_services_share_each_server") {
        let routes = Routes::new()
            .at("/entities", EntityService::new(Sharded::new()).at("/entities")?)?
            .at("/health", |_: Request<'_>| Reply::text("well"))?;
        let running = entry.build(&ServerConfig::default())?.serve(([127, 0, 0, 1], 0), routes)?;
        check(running.local_addr());
        let drain = running.shutdown()?;
        assert_eq!((drain.answered, drain.cut, drain.stuck), (10, 0, 0), "{}", entry.name);
    }
    Ok(())
}
