//! Cheap requests for a large entity in every store that gives versions: no expensive work, and none on a thread that commits.
#![cfg(all(feature = "threadpool", feature = "memory"))]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use polyserve::http::{Method, Version};
use polyserve::memory::{Actor, Sharded, StdMutex, StdRwlock, TwoLevel};
use polyserve::prelude::*;
use polyserve::{ETag, Head, Headers, Request};
use polyserve_conformance::service::{Counted, cheap_requests_do_no_expensive_work_over};

#[test]
fn cheap_requests_do_no_expensive_work_in_memory() {
    cheap_requests_do_no_expensive_work_over(StdMutex::of::<Counted>());
    cheap_requests_do_no_expensive_work_over(StdRwlock::of::<Counted>());
    cheap_requests_do_no_expensive_work_over(TwoLevel::of::<Counted>());
    cheap_requests_do_no_expensive_work_over(Sharded::of::<Counted>());
    cheap_requests_do_no_expensive_work_over(Actor::of::<Counted>());
    #[cfg(feature = "packed")]
    cheap_requests_do_no_expensive_work_over(polyserve::memory::Packed::of::<Counted>());
    #[cfg(feature = "copy-on-write")]
    cheap_requests_do_no_expensive_work_over(polyserve::memory::CopyOnWrite::of::<Counted>());
    #[cfg(feature = "dashmap")]
    cheap_requests_do_no_expensive_work_over(polyserve::memory::Dashmap::of::<Counted>());
    #[cfg(feature = "papaya")]
    cheap_requests_do_no_expensive_work_over(polyserve::memory::Papaya::of::<Counted>());
    #[cfg(feature = "scc")]
    cheap_requests_do_no_expensive_work_over(polyserve::memory::Scc::of::<Counted>());
    #[cfg(feature = "seqlock")]
    cheap_requests_do_no_expensive_work_over(polyserve::memory::Seqlock::of::<Counted>());
}

/// Regression test: an `If-Match` that did not hold made the thread of the log hash the entity.
#[cfg(feature = "durable")]
#[test]
fn a_false_condition_costs_the_log_nothing() {
    use polyserve::durable::Durable;

    let store = Durable::<_, Counted>::temporary(std::env::temp_dir(), Sharded::of::<Counted>());
    cheap_requests_do_no_expensive_work_over(store.expect("the store opens"));
}

/// Regression test: over a store that answers gets later, the thread of the log hashed the entity for each such `If-Match`, unless a
/// GET had shown the version.
#[cfg(feature = "durable")]
#[test]
fn false_conditions_cost_the_log_one_hash_over_an_actor() {
    use polyserve::durable::Durable;

    let store = Durable::<_, Counted>::temporary(std::env::temp_dir(), Actor::of::<Counted>());
    cheap_requests_do_no_expensive_work_over(store.expect("the store opens"));
}

/// Regression test: a GET that raced with writes showed the tag of another version, so that a later `If-Match` with that tag
/// replaced a version that its client had not seen.
#[test]
fn a_tag_names_the_bytes_of_a_get_that_races_with_writes() {
    const GETS: usize = 1_000;
    fn races_over(repo: impl EntityRepo) {
        let service = EntityService::<_>::new(repo).etags(true);
        let ask = |method, body: &[u8]| {
            let mut in_place = Vec::new();
            let request = Request::new(
                Head { method, target: "/1", version: Version::HTTP_11, headers: Headers::new(&[]), certificate: None },
                body,
            );
            let reply = service.call(request, &mut in_place).wait();
            let tag = reply.etag();
            (tag, reply.into_body().into_bytes(in_place))
        };
        let entity = |n: usize| format!(r#"{{"id":1,"description":"{}","value":0.5}}"#, n.to_string().repeat(5_000));
        ask(&Method::PUT, entity(0).as_bytes());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in (0..10).cycle().take_while(|_| !done.load(Ordering::SeqCst)) {
                    ask(&Method::PUT, entity(n).as_bytes());
                }
            });
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        (0..GETS)
                            .filter(|_| {
                                let (tag, body) = ask(&Method::GET, b"");
                                tag != Some(ETag::of(&body))
                            })
                            .count()
                    })
                })
                .collect();
            let wrong: usize = readers.into_iter().map(|reader| reader.join().expect("a reader panicked")).sum();
            done.store(true, Ordering::SeqCst);
            assert_eq!(wrong, 0, "{wrong} of {} answers have the tag of another version", 3 * GETS);
        });
    }
    races_over(Actor::new());
    races_over(Sharded::new());
    races_over(TwoLevel::new());
}
