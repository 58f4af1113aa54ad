//! Promises of these executors about closing, beyond those of the executor kit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use polyserve_core::Job;

use super::support::{bounded, executors};

/// A thread that has reported its end may still destroy its thread-locals. A close waits for that too, if the runtime
/// offers a way to join. The futures crate's pool does not.
#[test]
fn a_close_joins_the_threads() {
    struct Slow(Arc<AtomicUsize>);
    impl Drop for Slow {
        fn drop(&mut self) {
            (0..1_000).for_each(|_| thread::yield_now()); // detects a missing join by chance only
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local! {
        static SLOW: std::cell::RefCell<Option<Slow>> = const { std::cell::RefCell::new(None) };
    }
    let config = bounded(2, 8);
    let all = executors(&config);
    for executor in &all[..3] {
        let (destroyed, all_here) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(2)));
        for _ in 0..2 {
            let (slow, all_here) = (Slow(Arc::clone(&destroyed)), Arc::clone(&all_here));
            executor
                .execute(Job::new(move || {
                    SLOW.set(Some(slow));
                    all_here.wait();
                }))
                .unwrap();
        }
        assert_eq!((executor.close(None), destroyed.load(Ordering::SeqCst)), (0, 2), "{executor:?}");
    }
}
