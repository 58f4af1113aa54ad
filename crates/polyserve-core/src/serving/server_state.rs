//! What all threads of one run of a server share, and the wait for an answer.
//!
//! Cost: an addition for each batch of answers; [`ServerState::is_over`] is one load until a shutdown has begun.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::answer::park_until;
use crate::config::ServerConfig;
use crate::http1::{Env, Phase, Session};
use crate::server::Drain;
use crate::service::Service;
use crate::shutdown::Shutdown;

/// After the shutdown's deadline, threads that are not in foreign code end within this.
pub const SHUTDOWN_SLACK: Duration = Duration::from_millis(500);

/// What all threads of one run of a server share.
#[derive(Debug)]
pub struct ServerState {
    /// Who answers, and the limits of the codec.
    pub env: Env,
    /// Every limit.
    pub config: ServerConfig,
    /// How the run is ended.
    pub shutdown: Shutdown,
    answered: AtomicU64,
    cut: AtomicU64,
}

impl ServerState {
    /// A run that has not answered anything.
    pub fn new(service: Arc<dyn Service>, config: &ServerConfig) -> Self {
        Self {
            env: Env::new(service, config),
            config: config.clone(),
            shutdown: Shutdown::new(),
            answered: AtomicU64::new(0),
            cut: AtomicU64::new(0),
        }
    }

    /// Adds what a session has answered since the last time.
    pub fn count(&self, session: &mut Session) {
        self.count_answered(session.take_answered());
    }

    /// Adds so many answers, whose last bytes the kernel has taken.
    pub fn count_answered(&self, answered: u64) {
        if answered > 0 {
            self.answered.fetch_add(answered, Ordering::Relaxed);
        }
    }

    /// Gives a session up; past the shutdown's deadline, a request that it has counts as cut.
    pub fn abandon(&self, session: &mut Session) {
        if session.is_busy() && self.is_over() {
            self.count_cut();
        }
        session.abandon();
        self.count(session);
    }

    /// Counts a request as cut.
    pub fn count_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// How the run has ended, with so many threads stuck.
    pub fn drained(&self, stuck: usize) -> Drain {
        Drain {
            answered: self.answered.load(Ordering::Relaxed),
            cut: self.cut.load(Ordering::Relaxed),
            stuck: stuck as u64,
        }
    }

    /// Whether work is to be cut now.
    pub fn is_over(&self) -> bool {
        self.shutdown.deadline().is_some_and(|deadline| deadline <= Instant::now())
    }

    /// The earlier of `deadline` and the shutdown's.
    pub fn within(&self, deadline: Instant) -> Instant {
        self.shutdown.deadline().map_or(deadline, |cut| cut.min(deadline))
    }
}

/// How a wait for an answer ended.
#[derive(Debug)]
pub enum WaitOutcome {
    /// It is there.
    Here,
    /// The answer timeout has passed.
    TimedOut,
    /// The shutdown's deadline has passed.
    Cut,
}

/// Parks this thread until the session's answer is there.
pub fn wait_for_answer(session: &mut Session, server: &ServerState) -> WaitOutcome {
    let timeout = Instant::now() + Phase::Answer.timeout(&server.config);
    let mut begun = server.shutdown.begun();
    loop {
        let draining = server.shutdown.is_begun();
        let deadline = server.within(timeout);
        let woken = park_until(Some(deadline), |cx| match session.poll_answer(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            // A drain that begins meanwhile brings a deadline of its own.
            Poll::Pending if !draining && Pin::new(&mut begun).poll(cx).is_ready() => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        });
        match woken {
            Some(true) => return WaitOutcome::Here,
            Some(false) => {}
            None if server.is_over() => return WaitOutcome::Cut,
            None if Instant::now() >= timeout => return WaitOutcome::TimedOut,
            None => {}
        }
    }
}
