//! `pool_server`'s word: bytes that come while a connection is run, parked, or yields its turn are read by somebody, and it
//! is run by one worker at a time, who sees what the one before it did. What a socket is here is a count of bytes, and an
//! event for each that came.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Std};

use polyserve_core::sync::atomic::{AtomicUsize, Ordering};
use polyserve_core::sync::model::{Bounds, check};
use polyserve_core::sync::thread;

use self::word::{AGAIN, Event, LINGERING, PARKED, QUEUED, RUNNING, Word};

#[path = "../servers/pool_server/word.rs"]
mod word;

struct Connection {
    word: Word,
    /// What has come. Read by an exchange too: the system has a lock around it.
    socket: AtomicUsize,
    /// What was read, and how often. Relaxed: it is the word that has to order them.
    read: AtomicUsize,
    turns: AtomicUsize,
    /// std's: no steps of their own.
    runs: AtomicBool,
    true_turns: std::sync::atomic::AtomicUsize,
}

impl Connection {
    fn queued() -> Arc<Self> {
        let connection = Self {
            word: Word::new(),
            socket: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
            turns: AtomicUsize::new(0),
            runs: AtomicBool::new(false),
            true_turns: std::sync::atomic::AtomicUsize::new(0),
        };
        connection.word.set(QUEUED);
        Arc::new(connection)
    }

    fn come(&self) {
        self.socket.fetch_add(1, Ordering::AcqRel);
    }

    /// Reads all that has come; for who owns it.
    fn serve(&self) {
        assert!(!self.runs.swap(true, Std::SeqCst), "two run it");
        self.read.store(self.socket.fetch_add(0, Ordering::AcqRel), Ordering::Relaxed);
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        assert_eq!(
            self.turns.load(Ordering::Relaxed),
            self.true_turns.fetch_add(1, Std::SeqCst) + 1,
            "it does not see what its last owner did"
        );
        assert!(self.runs.swap(false, Std::SeqCst));
    }

    fn is(&self, read: usize, state: u8) {
        assert_eq!((self.read.load(Ordering::Relaxed), self.word.get()), (read, state));
    }

    /// A job: as `Shared::run` and `settle`, with `rest` in place of what the session wants. After `turn` wake-ups in a row
    /// it is queued again. True where it is.
    fn run(&self, rest: u8, turn: usize) -> bool {
        if !self.word.move_on(QUEUED, RUNNING) {
            return false;
        }
        for wake_ups in 0.. {
            self.serve();
            if self.word.rest(rest) {
                return false;
            }
            if wake_ups == turn && (self.word.move_on(RUNNING, QUEUED) || self.word.move_on(AGAIN, QUEUED)) {
                return true;
            }
        }
        unreachable!("it rests, or yields")
    }

    fn run_all(&self, rest: u8, turn: usize) {
        while self.run(rest, turn) {}
    }
}

/// Two bytes come while a worker serves. The poller's jobs run on a third thread.
#[test]
fn no_event_is_lost() {
    for turn in [0, 2] {
        check(&format!("pool_server: bytes against a park, a turn of {turn}"), Bounds::new(3, 6), move || {
            let connection = Connection::queued();
            let served = Arc::clone(&connection);
            let worker = thread::spawn(move || served.run_all(PARKED, turn));
            let mut jobs = Vec::new();
            for _ in 0..2 {
                connection.come();
                if connection.word.event() == Event::Job {
                    let served = Arc::clone(&connection);
                    jobs.push(thread::spawn(move || served.run_all(PARKED, turn)));
                }
            }
            worker.join().unwrap();
            jobs.into_iter().for_each(|job| job.join().unwrap());
            connection.is(2, PARKED);
        });
    }
}

/// A connection that begins to linger as bytes come: they are thrown away by the worker, or by the poller.
#[test]
fn what_comes_as_it_lingers_is_thrown_away() {
    check("pool_server: bytes against lingering", Bounds::new(3, 6), || {
        let connection = Connection::queued();
        let served = Arc::clone(&connection);
        let worker = thread::spawn(move || served.run_all(LINGERING, usize::MAX));
        for _ in 0..2 {
            connection.come();
            match connection.word.event() {
                Event::Job => panic!("nothing parks it"),
                Event::Nothing => {}
                Event::Waste => {
                    // As `Poller::take`.
                    assert!(connection.word.move_on(LINGERING, RUNNING));
                    connection.serve();
                    assert!(connection.word.move_on(RUNNING, LINGERING));
                }
            }
        }
        worker.join().unwrap();
        connection.is(2, LINGERING);
    });
}

/// The poller's timeout against the worker's park: one of them has it at a time.
#[test]
fn a_timeout_takes_only_what_is_parked() {
    check("pool_server: a timeout against a park", Bounds::new(3, 6), || {
        let connection = Connection::queued();
        let served = Arc::clone(&connection);
        let worker = thread::spawn(move || served.run_all(PARKED, 2));
        if connection.word.get() == PARKED && connection.word.move_on(PARKED, RUNNING) {
            connection.serve();
            assert!(connection.word.move_on(RUNNING, PARKED));
        }
        worker.join().unwrap();
        assert_eq!(connection.word.get(), PARKED);
    });
}
