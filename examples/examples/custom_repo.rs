//! A custom store: implement `EntityRepo`, check the contract with the conformance kit, serve the store.
//!
//! ```sh
//! cargo run --release --example custom_repo --features kit
//! ```
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use polyserve::env::Settings;
use polyserve::prelude::*;
use polyserve::sync::{read, write};
use polyserve_conformance::property;
use polyserve_conformance::repo::{self, RepoSubject};

/// Entities in the order of their ids, behind one lock.
#[derive(Debug, Default)]
struct Sorted {
    entities: RwLock<BTreeMap<i64, Entity>>,
}

impl EntityRepo for Sorted {
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        // `read` recovers from a poisoned lock: a visit that panics changes no data.
        let entities = read(&self.entities);
        let Some(entity) = entities.get(&id) else { return Answer::Now(Ok(Lookup::Absent)) };
        // The visit runs under the lock. The guard does not leave this function.
        Answer::Now(Ok(visit.show(entity)))
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let mut entities = write(&self.entities);
        // The condition is checked and the entity is stored under one lock.
        if !condition.allows(entities.get(&entity.id)) {
            return Answer::Now(Ok(Conditional::Refused));
        }
        let replaced = entities.insert(entity.id, entity);
        drop(entities); // the old entity is dropped after the lock is released
        Answer::Now(Ok(Conditional::Done(if replaced.is_some() { Put::Replaced } else { Put::Created })))
    }

    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let mut entities = write(&self.entities);
        if entities.get(&id).is_some_and(|stored| !condition.allows(Some(stored))) {
            return Answer::Now(Ok(Conditional::Refused));
        }
        let removed = entities.remove(&id);
        drop(entities);
        Answer::Now(Ok(Conditional::Done(if removed.is_some() { Removed::Removed } else { Removed::Absent })))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(read(&self.entities).len() as u64))
    }
}

fn main() -> anyhow::Result<()> {
    // The kit runs first: a property that needs its own process starts this program again.
    // A test file needs one line: `repo_conformance!(sorted, RepoSubject::new(Sorted::default));`
    let report = property::check("sorted", &RepoSubject::new(Sorted::default), repo::PROPERTIES);
    print!("{report}");
    anyhow::ensure!(report.conforms(), "the repo does not keep the contract");

    // Every server can serve a conforming repo. An `Arc` of a repo is a repo, so the program can use the store too.
    let repo = Arc::new(Sorted::default());
    let _ = repo.put(Entity::new(7, "stored in process", 0.5)).wait()?;
    let signals = Signals::register()?;
    let server = PoolServer::mpsc(ServerConfig::default())?;
    let running = server.serve(Settings::from_env()?.listen, EntityService::new(Arc::clone(&repo)))?;
    println!("listening on http://{}", running.local_addr());
    println!("{}; {} entities are stored", signals.drain(running)?, repo.len().wait()?);
    Ok(())
}

// $ curl -i http://127.0.0.1:8001/7
// HTTP/1.1 200 OK
// Content-Type: application/json
// Content-Length: 54
// Date: Mon, 23 Nov 2026 16:32:53 GMT
//
// {"id":7,"description":"stored in process","value":0.5}
