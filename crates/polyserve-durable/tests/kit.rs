//! The conformance kit for repos on durable stores, over repos in memory that answer now and later.

use std::env::temp_dir;

use polyserve_conformance::NamedEntity;
use polyserve_conformance::repo::RepoSubject;
use polyserve_conformance::repo_conformance;
use polyserve_core::EntityRepo;
use polyserve_durable::Durable;
use polyserve_memory::{Actor, Ordered, Packed, Sharded};

fn durable<R: EntityRepo>(make: impl Fn() -> R + Send + Sync + 'static) -> RepoSubject {
    RepoSubject::new(move || Durable::temporary(temp_dir(), make()).unwrap()).answers_now_or_later()
}

repo_conformance!(sharded, durable(Sharded::new));
repo_conformance!(packed, durable(Packed::new));
repo_conformance!(ordered, durable(|| Ordered::new(Sharded::new()))); // it can be scanned, also after a reopening
// Each of its puts wakes a thread and waits for the disk.
repo_conformance!(actor, durable(Actor::new).answers_later().many_keys(2_000));
repo_conformance!(
    named,
    RepoSubject::named(|| Durable::temporary(temp_dir(), Sharded::of::<NamedEntity>()).unwrap()).answers_now_or_later()
);
