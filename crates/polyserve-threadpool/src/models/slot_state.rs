//! The slot states of `pool_server`: bytes that arrive while a connection runs, is parked or yields its turn are read, and
//! one thread at a time owns the connection and sees what its last owner did. A socket is modelled as a count of bytes,
//! with an event for each byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Std};

use polyserve_core::sync::atomic::{AtomicUsize, Ordering};
use polyserve_core::sync::model::{Bounds, check};
use polyserve_core::sync::thread;

use self::slot_state::{PARKED, QUEUED, RUNNING, SlotState};

#[path = "../servers/pool_server/slot_state.rs"]
mod slot_state;

struct ModelConnection {
    state: SlotState,
    /// Bytes that have arrived. Reads are exchanges too, because the system has a lock around a socket.
    socket: AtomicUsize,
    /// The number of bytes read, and the number of turns. Their accesses are relaxed: the slot state must order them.
    read: AtomicUsize,
    turns: AtomicUsize,
    /// Types of std, which add no step to the model.
    runs: AtomicBool,
    expected_turns: std::sync::atomic::AtomicUsize,
}

impl ModelConnection {
    fn queued() -> Arc<Self> {
        let connection = Self {
            state: SlotState::default(),
            socket: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
            turns: AtomicUsize::new(0),
            runs: AtomicBool::new(false),
            expected_turns: std::sync::atomic::AtomicUsize::new(0),
        };
        connection.state.set(QUEUED);
        Arc::new(connection)
    }

    fn arrive(&self) {
        self.socket.fetch_add(1, Ordering::AcqRel);
    }

    /// Reads all bytes. Only the owner calls this.
    fn serve(&self) {
        assert!(!self.runs.swap(true, Std::SeqCst), "two threads run it");
        self.read.store(self.socket.fetch_add(0, Ordering::AcqRel), Ordering::Relaxed);
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        assert_eq!(
            self.turns.load(Ordering::Relaxed),
            self.expected_turns.fetch_add(1, Std::SeqCst) + 1,
            "the owner does not see what the last owner did"
        );
        assert!(self.runs.swap(false, Std::SeqCst));
    }

    /// At the end it is parked, and all bytes are read.
    fn check_rest(&self, bytes: usize) {
        assert_eq!((self.read.load(Ordering::Relaxed), self.state.get()), (bytes, PARKED));
    }

    /// Models a turn: `run` and `settle` of `PoolServerState`. After `turn` events in a row the connection is queued again. Returns
    /// whether it was queued.
    fn run(&self, turn: usize) -> bool {
        if !self.state.advance(QUEUED, RUNNING) {
            return false;
        }
        for wake_ups in 0.. {
            self.serve();
            if self.state.leave_running(PARKED) {
                return false;
            }
            if wake_ups == turn {
                self.state.requeue();
                return true;
            }
        }
        unreachable!("it rests, or yields")
    }

    fn run_all(&self, turn: usize) {
        while self.run(turn) {}
    }
}

/// Two bytes arrive while a worker serves. A third thread runs what the poller queues.
#[test]
fn no_event_is_lost() {
    for turn in [0, 2] {
        check(&format!("pool_server: bytes against a park, a turn of {turn}"), Bounds::new(3, 6), move || {
            let connection = ModelConnection::queued();
            let served = Arc::clone(&connection);
            let worker = thread::spawn(move || served.run_all(turn));
            let mut jobs = Vec::new();
            for _ in 0..2 {
                connection.arrive();
                if connection.state.event() {
                    let served = Arc::clone(&connection);
                    jobs.push(thread::spawn(move || served.run_all(turn)));
                }
            }
            worker.join().unwrap();
            jobs.into_iter().for_each(|job| job.join().unwrap());
            connection.check_rest(2);
        });
    }
}

/// The supervisor checks a timeout while a worker polls. If an event comes while the supervisor owns the connection, the
/// supervisor queues the connection, so that the event is not lost.
#[test]
fn a_timeout_takes_only_what_is_parked() {
    for from in [PARKED, QUEUED] {
        check("pool_server: a timeout against a park and an event", Bounds::new(3, 6), move || {
            let connection = ModelConnection::queued();
            let served = Arc::clone(&connection);
            let worker = thread::spawn(move || served.run_all(2));
            let timed = Arc::clone(&connection);
            let supervisor = thread::spawn(move || {
                // Models `PoolServerState::take`.
                if timed.state.advance(from, RUNNING) {
                    timed.serve();
                    if !timed.state.leave_running(PARKED) {
                        timed.state.requeue();
                    }
                    // What is queued now is in the ready list.
                    timed.run_all(2);
                }
            });
            connection.arrive();
            if connection.state.event() {
                connection.run_all(2);
            }
            worker.join().unwrap();
            supervisor.join().unwrap();
            connection.check_rest(1);
        });
    }
}
