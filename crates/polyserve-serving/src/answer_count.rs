//! The number of answers of a run, which each request adds to.
//!
//! One number for all threads would pass from core to core with each answer, with what lies next to it. So each thread that has buffers
//! of its own adds to a number of its own, and the sum is made when it is asked for.
//!
//! Cost: for an answer a load and a store, neither of which is locked. For a thread, a lock and an allocation at its first answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polyserve_core::sync::{Mutex, lock};

/// The answers of one run.
#[derive(Debug)]
pub(crate) struct AnswerCount {
    /// Told from all other runs of the process.
    run: u64,
    /// Answers of threads without a number of their own.
    shared: AtomicU64,
    threads: Mutex<ThreadCounts>,
}

#[derive(Debug, Default)]
struct ThreadCounts {
    list: Vec<Arc<OwnCount>>,
    /// The answers of threads that are not in the list any more.
    ended: u64,
    /// The list is searched for threads that have ended when it is as long as this.
    search_at: usize,
}

/// The answers of one thread, in a line of the cache of its own. Only that thread writes it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OwnCount(AtomicU64);

/// What a thread adds its answers to.
#[derive(Debug, Default)]
pub(crate) struct AnswerCounter(Option<RunCounter>);

#[derive(Debug)]
struct RunCounter {
    run: u64,
    count: Arc<OwnCount>,
}

impl Default for AnswerCount {
    fn default() -> Self {
        static NEXT_RUN: AtomicU64 = AtomicU64::new(0);
        let run = NEXT_RUN.fetch_add(1, Ordering::Relaxed);
        Self { run, shared: AtomicU64::new(0), threads: Mutex::default() }
    }
}

impl AnswerCount {
    /// Adds the answers of the thread that has this counter.
    #[inline]
    pub(crate) fn add_own(&self, answers: u64, counter: &mut AnswerCounter) {
        match &counter.0 {
            Some(RunCounter { run, count }) if *run == self.run => {
                let before = count.0.load(Ordering::Relaxed);
                count.0.store(before.wrapping_add(answers), Ordering::Relaxed); // no other thread writes it
            }
            _ => self.begin(answers, counter),
        }
    }

    /// Adds the first answers of a thread in this run. A thread that serves two runs in turn has a number in one of them only.
    #[inline(never)]
    fn begin(&self, answers: u64, counter: &mut AnswerCounter) {
        let serves_another = counter.0.as_ref().is_some_and(|of| Arc::strong_count(&of.count) > 1);
        if serves_another {
            return self.add(answers);
        }
        let count = Arc::new(OwnCount(AtomicU64::new(answers)));
        lock(&self.threads).add(Arc::clone(&count));
        counter.0 = Some(RunCounter { run: self.run, count });
    }

    /// Adds the answers of any thread.
    #[inline]
    pub(crate) fn add(&self, answers: u64) {
        self.shared.fetch_add(answers, Ordering::Relaxed);
    }

    /// The number of all answers.
    pub(crate) fn sum(&self) -> u64 {
        let threads = lock(&self.threads);
        let own = threads.list.iter().map(|count| count.0.load(Ordering::Relaxed));
        own.fold(self.shared.load(Ordering::Relaxed).wrapping_add(threads.ended), u64::wrapping_add)
    }
}

impl ThreadCounts {
    fn add(&mut self, count: Arc<OwnCount>) {
        if self.list.len() >= self.search_at {
            let ended = &mut self.ended;
            self.list.retain_mut(|count| match Arc::get_mut(count) {
                Some(OwnCount(answers)) => {
                    *ended = ended.wrapping_add(*answers.get_mut());
                    false
                }
                None => true,
            });
            self.search_at = self.list.len().saturating_mul(2).max(16);
        }
        self.list.push(count);
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn every_answer_counts_once_and_threads_that_have_ended_take_no_room() {
        const THREADS: u64 = 200;
        let count = AnswerCount::default();
        for begun in 1..=THREADS {
            let work = || {
                let mut counter = AnswerCounter::default();
                (0..1000).for_each(|_| count.add_own(1, &mut counter));
                count.add(1);
            };
            thread::scope(|scope| {
                scope.spawn(work);
                scope.spawn(work);
            });
            assert_eq!(count.sum(), begun * 2 * 1001);
        }
        assert!(lock(&count.threads).list.len() <= 16);
    }

    #[test]
    fn a_thread_counts_for_the_run_that_it_serves() {
        let (mut counter, second) = (AnswerCounter::default(), AnswerCount::default());
        {
            let first = AnswerCount::default();
            for (answers, run) in [(1, &first), (10, &second), (2, &first), (20, &second)] {
                run.add_own(answers, &mut counter);
            }
            assert_eq!((first.sum(), second.sum()), (3, 30));
            assert!(lock(&second.threads).list.is_empty(), "the thread has a number in the first run");
        }
        second.add_own(300, &mut counter);
        assert_eq!((second.sum(), lock(&second.threads).list.len()), (330, 1), "the first run is over");
    }
}
