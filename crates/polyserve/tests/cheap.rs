//! Cheap requests for a large entity in every store that gives versions: no expensive work, and none on a thread that commits.
#![cfg(all(feature = "threadpool", feature = "memory"))]

use polyserve::memory::{CopyOnWrite, Sharded, StdMutex, StdRwlock, TwoLevel};
use polyserve::prelude::*;
use polyserve::threadpool::ThreadPerConnection;
use polyserve_conformance::property::Outcome;
use polyserve_conformance::server::{Counted, ServerSubject, cheap_requests_do_no_expensive_work_over};

fn is_cheap_over(repo: impl EntityRepo<Counted>) {
    let subject = ServerSubject::new(ThreadPerConnection::new);
    assert_eq!(cheap_requests_do_no_expensive_work_over(&subject, repo), Outcome::Held);
}

#[test]
fn cheap_requests_do_no_expensive_work_in_memory() {
    is_cheap_over(StdMutex::of::<Counted>());
    is_cheap_over(StdRwlock::of::<Counted>());
    is_cheap_over(TwoLevel::of::<Counted>());
    is_cheap_over(Sharded::of::<Counted>());
    is_cheap_over(CopyOnWrite::of::<Counted>());
    #[cfg(feature = "dashmap")]
    is_cheap_over(polyserve::memory::Dashmap::of::<Counted>());
    #[cfg(feature = "papaya")]
    is_cheap_over(polyserve::memory::Papaya::of::<Counted>());
    #[cfg(feature = "scc")]
    is_cheap_over(polyserve::memory::Scc::of::<Counted>());
}

/// Regression test: an `If-Match` that did not hold made the thread of the log hash the entity.
#[cfg(feature = "durable")]
#[test]
fn a_false_condition_costs_the_log_nothing() {
    use polyserve::durable::Durable;

    let store = Durable::<_, Counted>::temporary(std::env::temp_dir(), Sharded::of::<Counted>());
    is_cheap_over(store.expect("the store opens"));
}
