//! How often the hot path allocates: a GET never, a PUT of a known id once, for its description.
//!
//! A binary of its own, since it replaces the allocator; one test, so that nothing else runs beside it.
#![forbid(unsafe_code)]

#[path = "entity/repos.rs"]
#[allow(dead_code)]
mod repos;

use allocation_counter::measure;
use polyserve_core::http1::{Env, Phase, Scratch, Session, Want};
use polyserve_core::service::EntityService;
use polyserve_core::{Entity, EntityRepo, ServerConfig};

use repos::MapRepo;

const GET: &[u8] = b"GET /1 HTTP/1.1\r\nHost: localhost:8001\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n";
const ENTITY: &str = r#"{"id":1,"description":"a description","value":6.750847}"#;

/// One keep-alive round of a server.
fn round(session: &mut Session, scratch: &mut Scratch, env: &Env, bytes: &[u8], status: &[u8]) {
    let want = session.receive(bytes, env, scratch);
    assert_eq!(want, Want::Read(Phase::Idle));
    assert!(scratch.out().starts_with(status));
    let all = scratch.out().len();
    session.written(all, scratch);
}

#[test]
fn the_hot_path() {
    let repo = MapRepo::default();
    assert!(repo.put(Entity::new(1, "a description", 60.750847)).is_now());
    let env = Env::new(EntityService::shared(repo), &ServerConfig::default());
    let (mut session, mut scratch) = (Session::new(), Scratch::new());
    let pipelined = GET.repeat(16);
    let put = format!(
        "PUT / HTTP/1.1\r\nHost: localhost:8001\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{ENTITY}",
        ENTITY.len()
    );
    for (name, bytes, status, answers, allocations) in [
        ("GET", GET, &b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"[..], 1, 0),
        ("16 pipelined GETs", &pipelined, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n", 16, 0),
        // The description.
        ("PUT of a known id", put.as_bytes(), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", 1, 1),
    ] {
        round(&mut session, &mut scratch, &env, bytes, status); // warm
        session.take_answered();
        let counted = measure(|| {
            for _ in 0..100 {
                round(&mut session, &mut scratch, &env, bytes, status);
            }
        });
        assert_eq!(session.take_answered(), 100 * answers);
        assert_eq!(counted.count_total, 100 * allocations, "allocations of 100 times {name}");
    }
}
