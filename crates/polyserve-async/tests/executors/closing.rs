//! Promises of these executors about closing, beyond those of the executor kit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::Job;
use polyserve_core::sync::lock;

use super::support::{bounded, executors, soon};

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

/// Regression test: a close joined the threads of a runtime without a limit. A thread-local of a job, of which the destructor did not
/// return, held it for ever.
#[test]
fn a_close_with_a_deadline_leaves_a_thread_behind_that_never_ends() {
    /// Ends when the sender of its channel is dropped.
    struct Endless(Arc<Mutex<mpsc::Receiver<()>>>);
    impl Drop for Endless {
        fn drop(&mut self) {
            let _ = lock(&self.0).recv();
        }
    }
    thread_local! {
        static ENDLESS: std::cell::Cell<Option<Endless>> = const { std::cell::Cell::new(None) };
    }
    for executor in executors(&bounded(2, 8)) {
        let ((end, ends), (sender, ran)) = (mpsc::channel(), mpsc::channel());
        let endless = Endless(Arc::new(Mutex::new(ends)));
        let job = Job::new(move || {
            ENDLESS.set(Some(endless));
            sender.send(()).unwrap();
        });
        executor.execute(job).unwrap();
        soon(&ran, "the job");
        let (sender, closed) = mpsc::channel();
        let closing = Arc::clone(&executor);
        thread::spawn(move || sender.send(closing.close(Some(Instant::now() + Duration::from_millis(100)))));
        soon(&closed, &executor);
        drop(end);
    }
}
