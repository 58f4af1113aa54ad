//! Allocations of a GET through `EntityService`, for every repo of the catalog: none on the calling thread. A new repo of
//! the catalog is tested too.
//!
//! This file is a binary of its own, because it replaces the allocator. It has one test, so no other test runs meanwhile.
#![cfg(feature = "memory")]

use allocation_counter::measure;
use polyserve::catalog::{Catalog, Promise};
use polyserve::serving::http1::{HttpState, Phase, Session, SessionBuffers, SessionStep};
use polyserve::{Answer, Entity, EntityRepo, EntityService, Lookup, ServerConfig, Visit};

/// The number of counted requests and of ids.
const REQUESTS: i64 = 100;

fn get(id: i64) -> String {
    format!("GET /{id} HTTP/1.1\r\nHost: localhost:8001\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n")
}

/// Sends requests on a kept connection, one after the other. Returns the number of allocations.
fn allocations(server: &HttpState, requests: &[String], status: &[u8]) -> u64 {
    let (mut session, mut buffers) = (Session::new(), SessionBuffers::new());
    let mut serve_all = || {
        for request in requests {
            let step = session.receive(request.as_bytes(), &mut server.turn(&mut buffers));
            assert_eq!(step, SessionStep::Read(Phase::Idle));
            assert!(buffers.out().starts_with(status));
            let written = buffers.out().len();
            session.written(written, &mut buffers);
        }
    };
    serve_all(); // the buffers grow to their final sizes
    measure(serve_all).count_total
}

#[test]
fn no_repo_allocates_for_a_get() {
    let (mut promised, mut checked) = (Vec::new(), Vec::new());
    for entry in Catalog::builtin().repos() {
        if entry.promises(Promise::AnswersNow) {
            promised.push(entry.name.clone());
        }
        let name = &entry.name;
        let repo = entry.build().expect("a repo can be made");
        for id in 0..REQUESTS {
            repo.put(Entity::new(id, format!("entity {id:08}"), 60.750847)).wait().expect("it answers");
        }
        if !repo.get(&1, Visit::new(&mut |_| ())).is_now() {
            println!("{name}: not held to this, for it answers later, and a promise is an allocation");
            continue;
        }
        let absent = measure(|| {
            for id in REQUESTS..2 * REQUESTS {
                let found = repo.get(&id, Visit::new(&mut |_| ()));
                assert!(matches!(found, Answer::Now(Ok(Lookup::Absent))));
            }
        });
        assert_eq!(absent.count_total, 0, "looks for what is not in {name}");
        let server = HttpState::new(std::sync::Arc::new(EntityService::new(repo)), &ServerConfig::default());
        let present: Vec<_> = (0..REQUESTS).map(get).collect();
        assert_eq!(allocations(&server, &present, b"HTTP/1.1 200 OK\r\n"), 0, "GETs of what is in {name}");
        checked.push(name.clone());
    }
    assert!(!checked.is_empty());
    assert_eq!(checked, promised, "those that answer now are those that promise it");
}
