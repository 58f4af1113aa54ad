//! The ready list: the connections that wait for a worker, and what each thread does next.
//!
//! One lock guards the list, the number of the server's jobs on the executor, and the poll role. So each decision (to run, to
//! poll, to end, to ask for help) is made on one state, and no wake-up is lost between two decisions.
//!
//! The poll role passes between the threads:
//!
//! ```text
//!           a worker finds the list empty            the workers are slow, stalled or gone
//!   Worker ◄──────────────────────────────── Free ────────────────────────────────────────► Supervisor
//!      │            its poll is over         ▲  ▲        its poll has found connections,        │
//!      └─────────────────────────────────────┘  └─────── and workers serve them ────────────────┘
//! ```
//!
//! Invariants:
//!
//! * At most one thread has the poll role.
//! * If the list is not empty, one of these holds: a worker that does not wait for an answer takes from the list next; a
//!   job is queued; the supervisor has been woken.
//! * If no thread has the poll role, a worker takes the role next, or the supervisor checks within [`WATCH_INTERVAL`].
//! * The list has each connection at most once, so `max_connections` bounds it. `max_new` bounds the connections in the list
//!   that have not been served yet.
//!
//! Cost: one lock for each connection taken and one for each poll.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polyserve_core::sync::{Mutex, lock};

/// How often the supervisor checks whether the workers make progress, while none of them polls.
pub(super) const WATCH_INTERVAL: Duration = Duration::from_millis(5);

/// The service is slow if turns take longer than this on average, in microseconds.
const SLOW_TURN: u64 = 200;

/// A longer turn counts as this number of microseconds: its thread may have been preempted.
const MAX_SAMPLE: u64 = 1_000;

/// A worker submits another job if it would take longer than this to serve the connections that wait, in microseconds.
const HELP_AFTER: u64 = 100;

/// Which thread has the poll role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PollRole {
    /// No thread. A worker takes the role once the list is empty.
    Free,
    Worker,
    Supervisor,
}

/// A connection in the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyEntry {
    pub(super) id: usize,
    /// It has not been served yet, and counts towards `max_new`.
    pub(super) is_new: bool,
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Serve this connection.
    Run(usize),
    /// Poll.
    Poll {
        /// Whether to wait for an event.
        wait: bool,
    },
    /// End the job.
    End,
}

/// What the supervisor does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SupervisorAction {
    /// Poll, because no worker polls.
    Poll {
        /// Whether to poll for at most [`WATCH_INTERVAL`], because the executor has dropped a job.
        check_again: bool,
    },
    /// Sleep for at most [`WATCH_INTERVAL`], because workers serve connections.
    Watch,
    /// Sleep until the next deadline, because a worker waits for events.
    Sleep,
}

/// What the caller has to do once it has released the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(super) struct Actions {
    /// The number of jobs to submit. They are counted already.
    pub(super) submit_jobs: usize,
    pub(super) wake_supervisor: bool,
    /// Whether to wake the thread that polls.
    pub(super) wake_poller: bool,
}

#[derive(Debug)]
struct ReadyState {
    list: VecDeque<ReadyEntry>,
    /// Connections in the list that were not served yet.
    new: usize,
    /// Jobs of this server, queued or running.
    jobs: usize,
    /// Of these, jobs that have not begun.
    starting: usize,
    /// Of these, jobs that wait for a deferred answer.
    waiting: usize,
    role: PollRole,
    /// A worker has made a step since the supervisor's last check of their progress.
    progress_since_check: bool,
    /// A worker has made a step since the supervisor took the role. Until then, each connection is a job: the active workers may
    /// be blocked in the service.
    progress_since_takeover: bool,
    /// A job was dropped before it began: no other is submitted before the supervisor's next check.
    has_lost_job: bool,
    /// The supervisor sleeps until a deadline. It must be woken to watch the workers.
    supervisor_sleeps: bool,
    /// The server drains: workers do not poll.
    is_draining: bool,
}

/// The ready list of a server.
#[derive(Debug)]
pub(super) struct ReadyList {
    state: Mutex<ReadyState>,
    /// The number of jobs that the executor runs at a time.
    workers: usize,
    /// Max workers that serve at a time while the service is quick. More of them would only compete for the cores.
    cores: usize,
    max_new: usize,
    /// The executor is not this server's own: its workers must not wait for events.
    is_shared: bool,
    /// The average duration of about the last eight turns, in microseconds.
    average_turn: AtomicU64,
}

impl ReadyList {
    /// An empty list. The supervisor has the poll role.
    pub(super) fn new(workers: usize, cores: usize, max_new: usize, is_shared: bool) -> Self {
        let state = ReadyState {
            list: VecDeque::new(),
            new: 0,
            jobs: 0,
            starting: 0,
            waiting: 0,
            role: PollRole::Supervisor,
            progress_since_check: false,
            progress_since_takeover: false,
            has_lost_job: false,
            supervisor_sleeps: false,
            is_draining: false,
        };
        Self {
            state: Mutex::new(state),
            workers,
            cores: cores.min(workers),
            max_new,
            is_shared,
            average_turn: AtomicU64::new(0),
        }
    }

    /// Notes the duration of a turn.
    pub(super) fn note_turn(&self, duration: Duration) {
        let sample = u64::try_from(duration.as_micros()).unwrap_or(MAX_SAMPLE).min(MAX_SAMPLE);
        let before = self.average_turn.load(Ordering::Relaxed);
        self.average_turn.store((before * 7 + sample) / 8, Ordering::Relaxed);
    }

    /// Whether the service is slow: the supervisor polls, and each connection is a job.
    fn is_slow(&self) -> bool {
        self.average_turn.load(Ordering::Relaxed) > SLOW_TURN
    }

    /// Whether a worker would take long to serve this number of connections.
    fn takes_long(&self, connections: usize) -> bool {
        connections as u64 * self.average_turn.load(Ordering::Relaxed).max(1) > HELP_AFTER
    }

    /// Begins a job, and returns what it does first.
    pub(super) fn begin(&self) -> (Next, Actions) {
        let mut state = lock(&self.state);
        state.starting -= 1;
        self.step(&mut state, false)
    }

    /// Returns what a worker does after a turn. `poll_first`: the connection that it has served is in the list again, so the
    /// worker polls for other connections first.
    pub(super) fn next(&self, poll_first: bool) -> (Next, Actions) {
        self.step(&mut lock(&self.state), poll_first)
    }

    /// Gives the poll role up, adds the connections that the poll has found ready, and returns what the worker does next.
    pub(super) fn polled(&self, batch: &mut Vec<ReadyEntry>) -> (Next, Actions) {
        let mut state = lock(&self.state);
        self.extend(&mut state, batch);
        state.role = PollRole::Free;
        // While workers serve, the supervisor checks their progress. In a drain, it polls.
        let wake_supervisor = (state.supervisor_sleeps && !state.list.is_empty()) || state.is_draining;
        state.supervisor_sleeps &= !wake_supervisor;
        let (next, mut actions) = self.step(&mut state, false);
        actions.wake_supervisor |= wake_supervisor;
        (next, actions)
    }

    fn step(&self, state: &mut ReadyState, poll_first: bool) -> (Next, Actions) {
        let is_slow = self.is_slow();
        state.note_progress();
        let may_poll = state.role == PollRole::Free && !state.is_draining && !self.is_shared;
        if may_poll && poll_first {
            state.role = PollRole::Worker;
            return (Next::Poll { wait: false }, Actions::default());
        }
        if let Some(entry) = state.list.pop_front() {
            state.new -= usize::from(entry.is_new);
            let mut actions = Actions::default();
            let limit = if is_slow { self.workers } else { self.cores };
            let unassigned = state.list.len().saturating_sub(state.starting);
            let has_capacity = state.jobs < self.workers && state.jobs - state.waiting < limit;
            if has_capacity && self.takes_long(unassigned) {
                actions.submit_jobs = state.add_jobs(1);
            }
            if is_slow && state.role == PollRole::Free {
                state.assign_role_to_supervisor();
                actions.wake_supervisor = true;
            }
            return (Next::Run(entry.id), actions);
        }
        if may_poll && !is_slow {
            state.role = PollRole::Worker;
            return (Next::Poll { wait: true }, Actions::default());
        }
        state.jobs -= 1;
        // The last active worker leaves no poller behind: the supervisor takes the role.
        let wake_supervisor = state.role == PollRole::Free;
        if wake_supervisor {
            state.assign_role_to_supervisor();
        }
        (Next::End, Actions { wake_supervisor, ..Actions::default() })
    }

    /// Ends a job that has served its share of connections on a shared executor. Another job serves the other ones.
    pub(super) fn end_turn(&self) -> Actions {
        let mut state = lock(&self.state);
        state.note_progress();
        state.jobs -= 1;
        let jobs = if state.list.len() > state.starting { 1 } else { 0 };
        Actions { submit_jobs: state.add_jobs(jobs), ..Actions::default() }
    }

    /// A job was dropped before it began. The caller wakes the supervisor.
    pub(super) fn job_lost(&self) {
        let mut state = lock(&self.state);
        state.jobs -= 1;
        state.starting -= 1;
        state.has_lost_job = true;
    }

    /// A worker is about to wait for a deferred answer, so another thread has to serve the list and to poll.
    pub(super) fn begin_wait(&self) -> Actions {
        let mut state = lock(&self.state);
        state.note_progress();
        state.waiting += 1;
        let mut actions = Actions::default();
        if state.list.len() > state.starting {
            if state.jobs < self.workers {
                actions.submit_jobs = state.add_jobs(1);
            } else {
                actions.wake_poller = state.role == PollRole::Worker;
            }
        }
        if state.role == PollRole::Free {
            state.assign_role_to_supervisor();
            actions.wake_supervisor = true;
        }
        actions
    }

    /// The worker has its answer.
    pub(super) fn end_wait(&self) {
        self.note_turn(Duration::MAX);
        let mut state = lock(&self.state);
        state.note_progress();
        state.waiting -= 1;
    }

    /// Adds a connection that has more to do at the end of its turn. A worker then takes the next one; the thread that polls
    /// hands over what it has found; and any other thread calls [`requeued`](Self::requeued).
    pub(super) fn requeue(&self, id: usize) {
        lock(&self.state).list.push_back(ReadyEntry { id, is_new: false });
    }

    /// Has connections served that a thread has added which is no worker and does not poll.
    pub(super) fn requeued(&self) -> Actions {
        let mut state = lock(&self.state);
        let jobs = self.missing_jobs(&state, true);
        let wake_poller = state.role == PollRole::Worker && jobs == 0 && !state.list.is_empty();
        Actions { submit_jobs: state.add_jobs(jobs), wake_supervisor: false, wake_poller }
    }

    /// Adds the connections that the supervisor's poll has found ready. The supervisor gives the poll role up if a worker can
    /// take it.
    pub(super) fn dispatch(&self, batch: &mut Vec<ReadyEntry>) -> Actions {
        let is_slow = self.is_slow();
        let mut state = lock(&self.state);
        let found_any = !batch.is_empty();
        self.extend(&mut state, batch);
        let jobs = self.missing_jobs(&state, is_slow);
        let jobs = state.add_jobs(jobs);
        let has_progress = jobs > 0 || state.progress_since_takeover;
        let may_lead = !is_slow && !self.is_shared && !state.is_draining && state.jobs > state.waiting;
        if found_any && may_lead && has_progress && state.role == PollRole::Supervisor {
            state.role = PollRole::Free;
        }
        Actions { submit_jobs: jobs, ..Actions::default() }
    }

    /// Returns what the supervisor does next. `is_due`: its last check of the workers' progress was [`WATCH_INTERVAL`] ago.
    pub(super) fn supervise(&self, is_due: bool) -> (SupervisorAction, Actions) {
        let mut state = lock(&self.state);
        let stalled = is_due && !state.progress_since_check;
        if is_due {
            (state.progress_since_check, state.has_lost_job) = (false, false);
        }
        if state.role == PollRole::Free
            && (stalled || state.is_draining || self.is_shared || state.jobs == state.waiting)
        {
            state.assign_role_to_supervisor();
        }
        let check_again = state.has_lost_job;
        let jobs = if check_again { 0 } else { self.missing_jobs(&state, stalled || self.is_slow()) };
        let actions = Actions { submit_jobs: state.add_jobs(jobs), ..Actions::default() };
        let action = match state.role {
            PollRole::Supervisor => SupervisorAction::Poll { check_again },
            // If requests come every few milliseconds, further checks are cheaper than a wake-up for each request.
            PollRole::Worker if stalled => SupervisorAction::Sleep,
            PollRole::Free | PollRole::Worker => SupervisorAction::Watch,
        };
        state.supervisor_sleeps = action == SupervisorAction::Sleep;
        (action, actions)
    }

    /// Keeps workers from polling from now on. The caller wakes the worker that polls.
    pub(super) fn drain(&self) {
        lock(&self.state).is_draining = true;
    }

    /// Removes a connection that a timeout has taken.
    pub(super) fn remove(&self, id: usize) {
        let mut state = lock(&self.state);
        if let Some(index) = state.list.iter().position(|entry| entry.id == id)
            && let Some(entry) = state.list.remove(index)
        {
            state.new -= usize::from(entry.is_new);
        }
    }

    /// The number of connections that wait for a worker.
    pub(super) fn len(&self) -> usize {
        lock(&self.state).list.len()
    }

    /// Whether connections wait for a worker.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of new connections that may still be added.
    pub(super) fn free_places(&self) -> usize {
        self.max_new.saturating_sub(lock(&self.state).new)
    }

    fn extend(&self, state: &mut ReadyState, batch: &mut Vec<ReadyEntry>) {
        state.new += batch.iter().filter(|entry| entry.is_new).count();
        state.list.extend(batch.drain(..));
    }

    /// Returns the number of jobs that are to be submitted for the list. `all`: one for each connection. Otherwise one, if no
    /// worker is active.
    fn missing_jobs(&self, state: &ReadyState, all: bool) -> usize {
        let missing = state.list.len().saturating_sub(state.starting);
        let all = all || self.is_shared || state.is_draining || !state.progress_since_takeover;
        let missing = if all { missing } else { missing.min(usize::from(state.jobs == state.waiting)) };
        missing.min(self.workers.saturating_sub(state.jobs))
    }
}

impl ReadyState {
    /// Counts jobs that the caller submits. Returns their number.
    fn add_jobs(&mut self, jobs: usize) -> usize {
        self.jobs += jobs;
        self.starting += jobs;
        jobs
    }

    /// A worker has made a step.
    fn note_progress(&mut self) {
        (self.progress_since_check, self.progress_since_takeover) = (true, true);
    }

    /// Gives the poll role to the supervisor. If another thread calls this, it wakes the supervisor then.
    fn assign_role_to_supervisor(&mut self) {
        self.role = PollRole::Supervisor;
        self.progress_since_takeover = false;
    }
}
