//! Models of the timer: its thread sleeps while waits are added, are dropped, and become due.
//!
//! In a model, the timer's thread ends when all waits of the model were removed from the heap.

use std::sync::Arc;
use std::time::Duration;

use crate::Answer;
use crate::sync::model::{Bounds, DEADLOCK, PrimitiveFault, check, clock, finds};
use crate::sync::thread::JoinHandle;
use crate::sync::{now, thread};
use crate::timer::Timer;

/// Returns a timer, and its thread, which ends when this number of waits was completed.
fn timer(waits: usize) -> (Arc<Timer>, JoinHandle<()>) {
    let timer = Arc::new(Timer::new());
    let running = Arc::clone(&timer);
    let thread = thread::spawn(move || {
        let (mut due, mut completed) = (Vec::new(), 0);
        while completed < waits {
            completed += running.run_once(&mut due);
        }
    });
    (timer, thread)
}

/// Waits for `time`, and checks that the wait did not end early.
fn wait(timer: &Timer, time: Duration) {
    let start = now();
    timer.at(start + time).wait();
    assert!(now() >= start + time, "a wait ended early");
}

/// Advances the clock by a second at a time until `answer` is ready.
fn tick(mut answer: Answer<()>) {
    while let Err(again) = answer.wait_until(now()) {
        clock::advance(Duration::from_secs(1));
        thread::yield_now();
        answer = again;
    }
}

#[test]
fn a_wait_wakes_the_sleeping_thread() {
    fn body() {
        let (timer, thread) = timer(1);
        let answer = timer.at(now() + Duration::from_secs(1));
        clock::run_out();
        answer.wait();
        thread.join().unwrap();
    }
    let bounds = Bounds::up_to_all(3);
    check("timer: a first wait against the thread's sleep", bounds, body);
    finds(PrimitiveFault::Notice, DEADLOCK);
    finds(PrimitiveFault::Timeout, DEADLOCK);
}

/// The thread sleeps until the later wait is due. It must wake for the earlier one.
#[test]
fn an_earlier_wait_shortens_the_sleep() {
    fn body() {
        let (timer, thread) = timer(2);
        let start = now();
        let late = timer.at(start + Duration::from_secs(60));
        let early = timer.at(start + Duration::from_secs(1));
        tick(early);
        assert!(now() < start + Duration::from_secs(60), "it was slept through");
        clock::run_out();
        late.wait();
        thread.join().unwrap();
    }
    let bounds = Bounds::new(2, 4);
    check("timer: an earlier wait against the thread's sleep", bounds, body);
    finds(PrimitiveFault::Notice, "it was slept through");
}

/// An answer that is dropped when it becomes due does not affect the others.
#[test]
fn a_dropped_wait_leaves_the_others() {
    fn body() {
        let (timer, thread) = timer(2);
        let start = now();
        let dropped = timer.at(start + Duration::from_secs(1));
        let live = timer.at(start + Duration::from_secs(1));
        let dropping = thread::spawn(move || drop(dropped));
        clock::run_out();
        live.wait();
        assert!(now() >= start + Duration::from_secs(1), "a wait ended early");
        dropping.join().unwrap();
        thread.join().unwrap();
    }
    check("timer: the drop of a wait against its time", Bounds::new(2, 3), body);
}

#[test]
fn waits_from_two_threads_all_end() {
    fn body() {
        let (timer, thread) = timer(2);
        let other = Arc::clone(&timer);
        let waiting = thread::spawn(move || wait(&other, Duration::from_secs(2)));
        clock::run_out();
        wait(&timer, Duration::from_secs(1));
        waiting.join().unwrap();
        thread.join().unwrap();
    }
    check("timer: waits from two threads", Bounds::new(1, 2), body);
    finds(PrimitiveFault::Notice, DEADLOCK);
}
