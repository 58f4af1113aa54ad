//! A pool is closed while threads submit. Accepted jobs run once, other jobs are handed back, and every thread ends.

use std::sync::Arc;
use std::time::Duration;

use polyserve_core::sync::model::{PrimitiveFault, clock};
use polyserve_core::sync::{now, thread};
use polyserve_core::{RejectedReason, promise};
use polyserve_serving::executor::{OnFull, PoolConfig, Queue};

use super::{ModelPool, Ran, WORKERS, bounds, for_pools, scenario};

/// A close, and a submitter before, during or after it.
fn a_submitter<P: ModelPool>() {
    let pool = Arc::new(P::make(PoolConfig::new(WORKERS)));
    let ran = Ran::default();
    assert!(pool.execute(ran.job(|| {})).is_ok());
    let submitter = {
        let (pool, ran) = (Arc::clone(&pool), ran.clone());
        thread::spawn(move || match pool.execute(ran.job(|| {})) {
            Ok(()) => 1,
            Err(rejected) => {
                assert_eq!(rejected.reason, RejectedReason::Closed);
                0
            }
        })
    };
    assert_eq!(pool.close(None), 0, "threads were left behind");
    let accepted = submitter.join().unwrap();
    assert_eq!((ran.get(), ran.held()), (1 + accepted, 0), "ran, and left in the pool");
    assert!(pool.execute(ran.job(|| {})).is_err(), "it is closed");
}
for_pools!(
    a_submitter,
    "a close against a submitter",
    bounds([2, 3], [300, 30_000]),
    Some(PrimitiveFault::Notice),
    Some(PrimitiveFault::Notice)
);

/// A close against two submitters, with space for one job. A job that is handed back is complete.
fn a_full_queue<P: ModelPool>() {
    let pool = Arc::new(P::make(PoolConfig::new(1).queue(Queue::Bounded(1))));
    let ran = Ran::default();
    let submit = || {
        let (pool, ran) = (Arc::clone(&pool), ran.clone());
        move || usize::from(pool.execute(ran.job(|| {})).is_ok())
    };
    let submitters = [thread::spawn(submit()), thread::spawn(submit())];
    assert_eq!(pool.close(None), 0, "threads were left behind");
    let accepted: usize = submitters.map(|submitter| submitter.join().unwrap()).iter().sum();
    assert_eq!((ran.get(), ran.held()), (accepted, 0), "ran, and left in the pool");
}
for_pools!(a_full_queue, "a close against two, with room for one", bounds([1, 2], [300, 30_000]), None, None);

/// The deadline passes while the worker runs a job. Queued and later jobs are dropped or handed back, and the thread is
/// left behind.
fn a_deadline<P: ModelPool>() {
    let pool = Arc::new(P::make(PoolConfig::new(1)));
    let ran = Ran::default();
    let ((begun, has_begun), (release, released)) = (promise(()), promise(()));
    let stuck = ran.job(move || {
        let _ = begun.complete(());
        released.wait();
    });
    assert!(pool.execute(stuck).is_ok());
    has_begun.wait();
    let submitter = {
        let (pool, ran) = (Arc::clone(&pool), ran.clone());
        thread::spawn(move || pool.execute(ran.job(|| {})).is_ok())
    };
    let time = thread::spawn(clock::run_out);
    assert_eq!(pool.close(Some(now() + Duration::from_secs(1))), 1, "the worker is in its job");
    submitter.join().unwrap();
    assert_eq!((ran.get(), ran.held()), (1, 1), "ran, and held: the job that the worker is in, and no other");
    let _ = release.complete(());
    time.join().unwrap();
    assert_eq!(pool.close(None), 0, "it ends once its job returns");
    drop(pool);
    assert_eq!((ran.get(), ran.held()), (1, 0), "ran, and left in the pool");
}
for_pools!(
    a_deadline,
    "a close with a deadline",
    bounds([1, 2], [1_500, 20_000]),
    Some(PrimitiveFault::Timeout),
    Some(PrimitiveFault::Timeout)
);

/// The pool is closed while a submitter waits for space.
fn no_space_after_close<P: ModelPool>() {
    let pool =
        Arc::new(P::make(PoolConfig::new(1).queue(Queue::Bounded(1)).on_full(OnFull::Wait(Duration::from_secs(1)))));
    let ran = Ran::default();
    let submitter = {
        let (pool, ran) = (Arc::clone(&pool), ran.clone());
        thread::spawn(move || (0..2).filter(|_| pool.execute(ran.job(|| {})).is_ok()).count())
    };
    assert_eq!(pool.close(None), 0, "threads were left behind");
    let accepted = submitter.join().unwrap();
    assert_eq!((ran.get(), ran.held()), (accepted, 0), "ran, and left in the pool");
}
for_pools!(
    no_space_after_close,
    "a close against a submitter that waits for space",
    bounds([2, 3], [200, 20_000]),
    None,
    None
);

/// A job closes its own pool, and may hold the last handle.
fn its_own_job<P: ModelPool>() {
    let pool = Arc::new(P::make(PoolConfig::new(WORKERS)));
    let ran = Ran::default();
    let (done, left_behind) = promise(0);
    let inner = Arc::clone(&pool);
    let closing = ran.job(move || {
        let _ = done.complete(inner.close(None));
    });
    assert!(pool.execute(closing).is_ok());
    // Submitted before the close, or rejected by it.
    let accepted = usize::from(pool.execute(ran.job(|| {})).is_ok());
    assert_eq!(left_behind.wait(), 1, "its own thread alone");
    pool.close(None);
    drop(pool);
    assert!(ran.get() <= 1 + accepted);
}
for_pools!(
    its_own_job,
    "a close by a job of its own",
    bounds([2, 3], [200, 20_000]),
    Some(PrimitiveFault::Notice),
    None
);
