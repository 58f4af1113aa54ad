//! How often the codec allocates: for a GET and a PUT of a known id never, for a body in pieces once, and for a refusal once.
//!
//! These tests are a binary of their own because they replace the allocator. Allocations are counted for each thread.
#![forbid(unsafe_code)]

use allocation_counter::measure;
use polyserve_core::overload::{Arrival, Overload, OverloadPolicy, OverloadReason};
use polyserve_core::{Echo, Entity, EntityRepo, EntityService, Routes, ServerConfig};
use polyserve_memory::StdMutex;
use polyserve_serving::http1::{HttpState, Phase, Session, SessionBuffers, SessionStep};
use polyserve_serving::memory::MemoryBudget;

const GET: &[u8] = b"GET /1 HTTP/1.1\r\nHost: localhost:8001\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n";
const ENTITY: &str = r#"{"id":1,"description":"a description","value":6.750847}"#;

/// Serves one read of a kept connection.
fn serve_once(session: &mut Session, buffers: &mut SessionBuffers, server: &HttpState, bytes: &[u8], status: &[u8]) {
    let step = session.receive(bytes, &mut server.turn(buffers));
    assert_eq!(step, SessionStep::Read(Phase::Idle));
    assert!(buffers.out().starts_with(status));
    let length = buffers.out().len();
    session.written(length, buffers);
}

#[test]
fn the_hot_path() {
    let repo = StdMutex::new();
    assert!(repo.put(Entity::new(1, "a description", 60.750847)).is_now());
    let server = HttpState::new(std::sync::Arc::new(EntityService::new(repo)), &ServerConfig::default());
    let (mut session, mut buffers) = (Session::new(), SessionBuffers::new());
    let pipelined = GET.repeat(16);
    let put = format!(
        "PUT / HTTP/1.1\r\nHost: localhost:8001\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{ENTITY}",
        ENTITY.len()
    );
    for (name, bytes, status, answers, allocations) in [
        ("GET", GET, &b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"[..], 1, 0),
        ("16 pipelined GETs", &pipelined, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", 16, 0),
        // The description takes the buffer of the one that the put before has replaced.
        ("PUT of a known id", put.as_bytes(), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", 1, 0),
    ] {
        for _ in 0..8 {
            serve_once(&mut session, &mut buffers, &server, bytes, status); // warm: of heads that differ, the eighth is kept
        }
        session.take_answered();
        let counted = measure(|| {
            for _ in 0..100 {
                serve_once(&mut session, &mut buffers, &server, bytes, status);
            }
        });
        assert_eq!(session.take_answered(), 100 * answers);
        assert_eq!(counted.count_total, 100 * allocations, "allocations of 100 times {name}");
    }
}

#[derive(Debug)]
struct RefusesAll;

impl OverloadPolicy for RefusesAll {
    fn admit(&self, _: &Arrival) -> Result<(), OverloadReason> {
        Err(OverloadReason::Waited)
    }
}

/// Regression test: a refusal was formatted, with six allocations. An overloaded server spends its time on refusals.
#[test]
fn a_refused_request() {
    let config = ServerConfig::default().overload(Overload::own(|| RefusesAll));
    let server = HttpState::new(std::sync::Arc::new(Echo), &config);
    let (mut session, mut buffers) = (Session::new(), SessionBuffers::new());
    let mut serve = || {
        for _ in 0..100 {
            serve_once(&mut session, &mut buffers, &server, GET, b"HTTP/1.1 503 ");
        }
    };
    serve(); // warm
    assert_eq!(measure(serve).count_total, 100, "the list of its fields");
}

/// The same if the memory budget is used up: a server that is short of memory makes many of these refusals.
#[test]
fn a_request_without_memory() {
    let budget = MemoryBudget::new(0);
    drop(budget.refuse()); // warm
    assert_eq!(measure(|| drop(budget.refuse())).count_total, 1, "the list of its fields");
}

/// A service behind a prefix costs no allocation more.
#[test]
fn routes() {
    let repo = StdMutex::new();
    assert!(repo.put(Entity::new(1, "a description", 60.750847)).is_now());
    let routes = Routes::new().at("/a", Echo).unwrap().entities(EntityService::new(repo).at("/a/b").unwrap()).unwrap();
    let server = HttpState::new(std::sync::Arc::new(routes), &ServerConfig::default());
    let (mut session, mut buffers) = (Session::new(), SessionBuffers::new());
    let get = b"GET /a/b/1?query HTTP/1.1\r\nHost: localhost:8001\r\n\r\n";
    let mut serve =
        || serve_once(&mut session, &mut buffers, &server, get, b"HTTP/1.1 200 OK\r\nContent-Type: application/json");
    serve(); // warm
    assert_eq!(measure(serve).count_total, 0);
}

fn announced(length: usize) -> String {
    format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
}

/// Regression test: the buffer of a body of known length started empty and doubled, with eight allocations for this body.
#[test]
fn a_body_in_pieces() {
    const LENGTH: usize = 12 * 1024;
    let server = HttpState::new(std::sync::Arc::new(Echo), &ServerConfig::default());
    let (mut session, mut buffers) = (Session::new(), SessionBuffers::new());
    let mut serve = || {
        assert_eq!(
            session.receive(announced(LENGTH).as_bytes(), &mut server.turn(&mut buffers)),
            SessionStep::Read(Phase::Body)
        );
        let mut step = session.next_step();
        for piece in [b'x'; LENGTH].chunks(100) {
            step = session.receive(piece, &mut server.turn(&mut buffers));
        }
        assert_eq!(step, SessionStep::Read(Phase::Idle));
        assert!(buffers.out().ends_with(&[b'x'; LENGTH]));
        let length = buffers.out().len();
        session.written(length, &mut buffers);
    };
    serve(); // warm
    let formatting = measure(|| drop(announced(LENGTH))).count_total;
    // One allocation each for the head, the body, its reservation, and the state of the pending request.
    assert_eq!(measure(serve).count_total, 4 + formatting);
}

/// A client that announces a large body and does not send it costs little memory.
#[test]
fn an_announced_body_is_not_allocated() {
    let server = HttpState::new(std::sync::Arc::new(Echo), &ServerConfig::default());
    let (mut session, mut buffers) = (Session::new(), SessionBuffers::new());
    let head = announced(ServerConfig::default().max_body);
    for (bytes, limit) in [(head.as_bytes(), 1024), (b"x", 16 * 1024 + 64)] {
        let counted = measure(|| {
            assert_eq!(session.receive(bytes, &mut server.turn(&mut buffers)), SessionStep::Read(Phase::Body));
        });
        assert!(counted.bytes_max <= limit, "{} bytes for {} bytes", counted.bytes_max, bytes.len());
    }
}
