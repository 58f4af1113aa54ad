//! What a thread has at hand while it serves connections, and what all threads of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use polyserve_core::answer::park_until;
use polyserve_core::http1::{Env, Phase, Scratch, Session};
use polyserve_core::{Drain, ServerConfig, Service, Shutdown};

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

/// What all threads of one run of a server share.
#[derive(Debug)]
pub(super) struct House {
    pub(super) env: Env,
    pub(super) config: ServerConfig,
    pub(super) shutdown: Shutdown,
    answered: AtomicU64,
    cut: AtomicU64,
}

impl House {
    pub(super) fn new(service: Arc<dyn Service>, config: &ServerConfig) -> Self {
        Self {
            env: Env::new(service, config),
            config: config.clone(),
            shutdown: Shutdown::new(),
            answered: AtomicU64::new(0),
            cut: AtomicU64::new(0),
        }
    }

    /// Adds what a session has answered since the last time.
    pub(super) fn count(&self, session: &mut Session) {
        match session.take_answered() {
            0 => {}
            answered => drop(self.answered.fetch_add(answered, Ordering::Relaxed)),
        }
    }

    /// Gives a session up; past the shutdown's deadline, a request that it has counts as cut.
    pub(super) fn give_up(&self, session: &mut Session) {
        if session.is_busy() && self.is_over() {
            self.count_cut();
        }
        session.abandon();
        self.count(session);
    }

    pub(super) fn count_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn drained(&self, stuck: usize) -> Drain {
        Drain {
            answered: self.answered.load(Ordering::Relaxed),
            cut: self.cut.load(Ordering::Relaxed),
            stuck: stuck as u64,
        }
    }

    /// Whether work is to be cut now.
    pub(super) fn is_over(&self) -> bool {
        self.shutdown.deadline().is_some_and(|deadline| deadline <= Instant::now())
    }

    /// The earlier of `deadline` and the shutdown's.
    pub(super) fn within(&self, deadline: Instant) -> Instant {
        self.shutdown.deadline().map_or(deadline, |cut| cut.min(deadline))
    }
}

/// How a wait for an answer ended.
pub(super) enum Waited {
    /// It is there.
    Here,
    /// The answer timeout has passed.
    TimedOut,
    /// The shutdown's deadline has passed.
    Cut,
}

/// Parks this thread until the session's answer is there.
pub(super) fn wait_for_answer(session: &mut Session, house: &House) -> Waited {
    let timeout = Instant::now() + Phase::Answer.timeout(&house.config);
    let mut begun = house.shutdown.begun();
    loop {
        let draining = house.shutdown.is_begun();
        let deadline = house.within(timeout);
        let woken = park_until(Some(deadline), |cx| match session.poll_answer(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            // A drain that begins meanwhile brings a deadline of its own.
            Poll::Pending if !draining && Pin::new(&mut begun).poll(cx).is_ready() => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        });
        match woken {
            Some(true) => return Waited::Here,
            Some(false) => {}
            None if house.is_over() => return Waited::Cut,
            None if Instant::now() >= timeout => return Waited::TimedOut,
            None => {}
        }
    }
}

/// One thread's buffers.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) input: Box<[u8]>,
    pub(super) scratch: Scratch,
}

/// Bytes read at once. Large enough for a pipeline of a hundred small requests.
const INPUT: usize = 32 * 1024;

impl Desk {
    pub(super) fn new() -> Self {
        Self { input: vec![0; INPUT].into_boxed_slice(), scratch: Scratch::new() }
    }

    /// Tells the scratch the time and the house's state; to be called before bytes are received.
    pub(super) fn refresh(&mut self, house: &House) {
        self.scratch.refresh(SystemTime::now(), house.shutdown.is_begun());
    }
}
