//! An engine in memory and its store, right or with one flaw. Each flaw names the property that catches it, and the kit's
//! own tests check that.

use std::collections::HashMap;
use std::future::ready;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Lookup, Put, Removed, RepoAnswer, RepoError, Visit, promise,
};

use super::flaws;
use crate::engine::{Connector, EngineControl, EngineLimits, EngineSubject};
use crate::repo::{EntityMap, put_if, remove_if};

flaws! {
    /// A mistake of a store over an engine, caught by a property.
    EngineFlaw;

    /// Holds any number of operations.
    HoldsEverything, caught by too_many_operations_are_overload;
    /// Asks the engine before it rejects an operation.
    RejectsOnceTheEngineAnswers, caught by too_many_operations_are_overload;
    /// Counts a rejected operation as one that it holds, for ever.
    LosesRoom, caught by too_many_operations_are_overload;
    /// Waits for the engine in the call, and defers the answer that it has.
    BlocksAndDefers, caught by too_many_operations_are_overload;
    /// Holds any number of bytes.
    HoldsAnyBytes, caught by too_many_bytes_are_overload;
    /// Counts the bytes of an operation for ever.
    LosesBytes, caught by too_many_bytes_are_overload;
    /// Waits for the engine in the call, and answers now.
    BlocksTheCaller, caught by a_slow_engine_is_waited_for;
    /// Waits for an answer for a third of the timeout.
    GivesUpEarly, caught by a_slow_engine_is_waited_for;
    /// Waits for an answer without a limit.
    WaitsForEver, caught by a_paused_engine_is_unavailable;
    /// Connects without asking the engine.
    ConnectsToSilence, caught by a_paused_engine_is_unavailable;
    /// Closes itself when an operation has reached its timeout.
    ClosesAfterATimeout, caught by a_paused_engine_is_unavailable;
    /// Acknowledges a write that the engine does not take.
    AcknowledgesAnyWrite, caught by a_stopped_engine_comes_back;
    /// Does not connect again.
    ConnectsOnce, caught by a_stopped_engine_comes_back;
    /// Does not wait for an engine while it connects.
    ConnectsAtOnce, caught by a_stopped_engine_comes_back;
    /// Takes an engine that has ended for a mistake in the request.
    ReportsAnotherError, caught by a_stopped_engine_comes_back;
    /// Its engine forgets what it has stored, and that is not declared.
    ForgetsAtTheEnd, caught by a_stopped_engine_comes_back;
    /// Ignores that the engine refuses a write.
    IgnoresRefusals, caught by a_refused_write_is_not_acknowledged;
    /// Takes a write that the engine refuses for now for one that it can never do.
    RefusesForGood, caught by a_refused_write_is_not_acknowledged;
    /// Reports a healthy status, whatever the engine does.
    AlwaysHealthy, caught by a_refused_write_is_not_acknowledged;
    /// Begins to connect anew for each status after one has timed out, and so never connects.
    AbandonsConnecting, caught by statuses_alone_connect_past_a_silent_host;
    /// Sends a write over a connection that has ended.
    UsesDeadConnections, caught by a_connection_that_ended_loses_no_write;
    /// Sends one write over a connection that has ended, and no other.
    UsesADeadConnectionOnce, caught by a_connection_that_ended_loses_no_write;
    /// Acknowledges a write that it sent over a connection that has ended.
    AcknowledgesOnDeadConnections, caught by a_connection_that_ended_loses_no_write;
    /// Connects to an address without an engine.
    ConnectsToNothing, caught by an_absent_engine_is_an_error;
    /// Waits for an absent engine without a limit.
    ConnectsForEver, caught by an_absent_engine_is_an_error;
    /// Reports an absent engine without its name.
    NamesNoEngine, caught by an_absent_engine_is_an_error;
}

/// An engine that keeps entities in memory.
#[derive(Debug)]
pub struct PlainEngine(PlainAddress);

/// The address of a [`PlainEngine`].
#[derive(Clone, Debug)]
pub struct PlainAddress(Arc<EngineState>);

#[derive(Debug)]
struct EngineState {
    flaw: Option<EngineFlaw>,
    condition: Mutex<EngineCondition>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct EngineCondition {
    is_paused: bool,
    is_stopped: bool,
    refuses_writes: bool,
    /// The number of times that it has ended all connections.
    ended_connections: usize,
    /// Whether a store could not connect.
    was_refused: bool,
    delay: Duration,
    /// The entities of each name space.
    spaces: HashMap<String, EntityMap>,
}

impl PlainEngine {
    /// Starts an engine.
    pub fn start() -> Self {
        Self::with(None)
    }

    fn with(flaw: Option<EngineFlaw>) -> Self {
        let (condition, changed) = (Mutex::default(), Condvar::new());
        Self(PlainAddress(Arc::new(EngineState { flaw, condition, changed })))
    }

    /// Returns its address.
    pub fn address(&self) -> PlainAddress {
        self.0.clone()
    }

    /// Returns a subject for this engine with a flaw, or without.
    pub fn subject(flaw: Option<EngineFlaw>) -> EngineSubject {
        let start = move || Ok(Self::with(flaw));
        EngineSubject::new(start, "cannot connect to the plain engine", move || {
            let mut engine = Self::with(flaw);
            engine.stop();
            engine.connector()
        })
    }
}

impl PlainAddress {
    fn change(&self, change: impl FnOnce(&mut EngineCondition)) {
        let Self(state) = self;
        change(&mut lock(&state.condition));
        state.changed.notify_all();
    }
}

impl EngineControl for PlainEngine {
    fn connector(&self) -> Connector {
        let address = self.address();
        Arc::new(move |name_space, limits| Ok(Arc::new(PlainStore::connect(&address, name_space, limits)?)))
    }

    fn slow_down(&mut self, delay: Duration) {
        self.0.change(|condition| condition.delay = delay);
    }

    fn pause(&mut self) {
        self.0.change(|condition| condition.is_paused = true);
    }

    fn resume(&mut self) {
        self.0.change(|condition| condition.is_paused = false);
    }

    fn stop(&mut self) {
        self.0.change(|condition| condition.is_stopped = true);
    }

    fn restart(&mut self) {
        let PlainAddress(state) = &self.0;
        if state.flaw == Some(EngineFlaw::ConnectsAtOnce) {
            // The store always comes before its engine.
            state.wait(Instant::now() + FOR_EVER, |condition| condition.was_refused);
        }
        self.0.change(|condition| {
            condition.is_stopped = false;
            if state.flaw == Some(EngineFlaw::ForgetsAtTheEnd) {
                condition.spaces.clear();
            }
        });
    }

    fn refuse_writes(&mut self) -> Result<(), String> {
        self.0.change(|condition| condition.refuses_writes = true);
        Ok(())
    }

    fn accept_writes(&mut self) {
        self.0.change(|condition| condition.refuses_writes = false);
    }

    /// Its stores have no list of hosts. Connecting takes no time, but a flawed store never has enough.
    fn connector_past_a_silent_host(&mut self) -> Result<Connector, String> {
        Ok(self.connector())
    }

    fn end_connections(&mut self) -> Result<(), String> {
        self.0.change(|condition| condition.ended_connections += 1);
        Ok(())
    }
}

/// A store over a [`PlainEngine`]. Each operation has a thread that waits for the engine.
#[derive(Debug)]
pub struct PlainStore {
    engine: Arc<EngineState>,
    name_space: String,
    limits: EngineLimits,
    /// The number of operations that it holds.
    held: Arc<AtomicUsize>,
    /// The number of bytes of their entities.
    held_bytes: Arc<AtomicUsize>,
    is_closed: Arc<AtomicBool>,
    /// The number of times that the engine had ended all connections when the store noticed it last.
    seen_ended: Arc<AtomicUsize>,
}

/// What an operation does with the engine.
#[derive(Clone, Copy, PartialEq)]
enum EngineAccess {
    Reads,
    Removes,
    Stores,
}

impl PlainStore {
    /// Connects to an engine.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine does not answer within the connect timeout.
    pub fn connect(address: &PlainAddress, name_space: &str, limits: &EngineLimits) -> io::Result<Self> {
        let PlainAddress(engine) = address;
        let store = Self {
            engine: Arc::clone(engine),
            name_space: name_space.to_owned(),
            limits: limits.clone(),
            held: Arc::default(),
            held_bytes: Arc::default(),
            is_closed: Arc::default(),
            seen_ended: Arc::default(),
        };
        let wait = match engine.flaw {
            Some(EngineFlaw::ConnectsAtOnce) => Duration::ZERO,
            Some(EngineFlaw::ConnectsForEver) => FOR_EVER,
            _ => limits.connect_timeout,
        };
        let is_connected = |condition: &EngineCondition| match engine.flaw {
            Some(EngineFlaw::ConnectsToNothing) => true,
            Some(EngineFlaw::ConnectsToSilence) => !condition.is_stopped,
            _ => !condition.is_stopped && !condition.is_paused,
        };
        if engine.wait(Instant::now() + wait, is_connected).is_some() {
            return Ok(store);
        }
        address.change(|condition| condition.was_refused = true);
        Err(io::Error::other(match engine.flaw {
            Some(EngineFlaw::NamesNoEngine) => "an error occurred",
            _ => "cannot connect to the plain engine: no answer in time",
        }))
    }

    /// Runs an operation on a thread of its own, if there is room.
    fn ask<T: Send + 'static>(
        &self,
        access: EngineAccess,
        operation: impl FnOnce(&mut EntityMap) -> T + Send + 'static,
    ) -> RepoAnswer<T> {
        let flaw = self.engine.flaw;
        let max = match flaw {
            Some(EngineFlaw::HoldsEverything | EngineFlaw::RejectsOnceTheEngineAnswers) => usize::MAX,
            _ => self.limits.operations.get(),
        };
        let is_full = |held: usize| held >= self.limits.operations.get();
        let previous = self.held.fetch_update(SeqCst, SeqCst, |held| (held < max).then_some(held + 1));
        if previous.is_err() {
            if flaw == Some(EngineFlaw::LosesRoom) {
                self.held.fetch_add(1, SeqCst);
            }
            return Answer::later(ready(Err(RepoError::Overloaded)));
        }
        let rejects = flaw == Some(EngineFlaw::RejectsOnceTheEngineAnswers) && previous.is_ok_and(is_full);
        let deadline = Instant::now()
            + match flaw {
                Some(EngineFlaw::GivesUpEarly) => self.limits.timeout / 3,
                Some(EngineFlaw::WaitsForEver) => FOR_EVER,
                _ => self.limits.timeout,
            };
        let (engine, name_space) = (Arc::clone(&self.engine), self.name_space.clone());
        let (held, is_closed) = (Arc::clone(&self.held), Arc::clone(&self.is_closed));
        let seen_ended = Arc::clone(&self.seen_ended);
        let run = move || {
            let result = match engine.refusal(access, &seen_ended) {
                Some(refusal) => Err(refusal),
                None => engine.run(&name_space, deadline, &is_closed, operation),
            };
            held.fetch_sub(1, SeqCst);
            if rejects { Err(RepoError::Overloaded) } else { result }
        };
        match flaw {
            Some(EngineFlaw::BlocksTheCaller) => Answer::Now(run()),
            Some(EngineFlaw::BlocksAndDefers) => Answer::later(ready(run())),
            _ => {
                let (completer, answer) = promise(Err(RepoError::Closed));
                thread::spawn(move || completer.complete(run()));
                answer
            }
        }
    }
}

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3_600);

impl EngineState {
    /// Waits until `predicate` holds for the engine's condition. Returns `None` if it does not hold by the deadline.
    fn wait(
        &self,
        deadline: Instant,
        predicate: impl Fn(&EngineCondition) -> bool,
    ) -> Option<MutexGuard<'_, EngineCondition>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let condition = lock(&self.condition);
        let waited = self.changed.wait_timeout_while(condition, left, |condition| !predicate(condition));
        let (condition, _) = waited.unwrap_or_else(PoisonError::into_inner);
        predicate(&condition).then_some(condition)
    }

    /// Returns why an operation is not sent, or is refused.
    fn refusal(&self, access: EngineAccess, seen_ended: &AtomicUsize) -> Option<RepoError> {
        let condition = lock(&self.condition);
        let (refuses, ended) = (condition.refuses_writes, condition.ended_connections);
        drop(condition);
        let uses_dead = match self.flaw {
            Some(EngineFlaw::UsesDeadConnections | EngineFlaw::AcknowledgesOnDeadConnections) => true,
            Some(EngineFlaw::UsesADeadConnectionOnce) => ended == 1,
            _ => false,
        };
        if uses_dead && access == EngineAccess::Stores && seen_ended.swap(ended, SeqCst) != ended {
            return Some(RepoError::Unavailable("the connection has ended".into()));
        }
        if !refuses || access != EngineAccess::Stores {
            return None;
        }
        let why = "the plain engine is full".into();
        Some(if self.flaw == Some(EngineFlaw::RefusesForGood) {
            RepoError::Other(why)
        } else {
            RepoError::NotDone(why)
        })
    }

    /// Runs an operation by its deadline.
    fn run<T>(
        &self,
        name_space: &str,
        deadline: Instant,
        is_closed: &AtomicBool,
        operation: impl FnOnce(&mut EntityMap) -> T,
    ) -> Result<T, RepoError> {
        let unavailable = |why: &str| Err(RepoError::Unavailable(why.into()));
        let time_out = || {
            if self.flaw == Some(EngineFlaw::ClosesAfterATimeout) {
                is_closed.store(true, SeqCst);
            }
            unavailable("the plain engine has not answered in time")
        };
        let Some(mut condition) = self.wait(deadline, |condition| condition.is_stopped || !condition.is_paused) else {
            return time_out();
        };
        if condition.is_stopped && self.flaw == Some(EngineFlaw::ConnectsOnce) {
            is_closed.store(true, SeqCst);
        }
        if condition.is_stopped && self.flaw == Some(EngineFlaw::ReportsAnotherError) {
            return Err(RepoError::Other("the request was wrong".into()));
        }
        if condition.is_stopped || is_closed.load(SeqCst) {
            return unavailable("the plain engine has ended");
        }
        let result = operation(condition.spaces.entry(name_space.to_owned()).or_default());
        let delay = condition.delay;
        drop(condition);
        let left = deadline.saturating_duration_since(Instant::now());
        thread::sleep(delay.min(left));
        if delay > left { time_out() } else { Ok(result) }
    }
}

impl EntityRepo for PlainStore {
    fn get(&self, &id: &i64, _visit: Visit<'_>) -> RepoAnswer<Lookup> {
        self.ask(EngineAccess::Reads, move |map| map.get(&id).cloned().map_or(Lookup::Absent, Lookup::Fetched))
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let (flaw, bytes, condition) = (self.engine.flaw, entity.description.len(), condition.clone());
        let held = self.held_bytes.fetch_add(bytes, SeqCst);
        let held_bytes = Arc::clone(&self.held_bytes);
        let release = move || _ = held_bytes.fetch_sub(bytes, SeqCst);
        if held >= self.limits.bytes.get() && flaw != Some(EngineFlaw::HoldsAnyBytes) {
            release();
            return Answer::later(ready(Err(RepoError::Overloaded)));
        }
        let put = self.ask(EngineAccess::Stores, move |map| put_if(map, entity, &condition));
        put.map(move |put| {
            if flaw != Some(EngineFlaw::LosesBytes) {
                release();
            }
            match (put, flaw) {
                (Err(_), Some(EngineFlaw::AcknowledgesAnyWrite)) => Ok(Conditional::Done(Put::Created)),
                (Err(RepoError::NotDone(_)), Some(EngineFlaw::IgnoresRefusals))
                | (Err(RepoError::Unavailable(_)), Some(EngineFlaw::AcknowledgesOnDeadConnections)) => {
                    Ok(Conditional::Done(Put::Replaced))
                }
                (put, _) => put,
            }
        })
    }

    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let condition = condition.clone();
        self.ask(EngineAccess::Removes, move |map| remove_if(map, &id, &condition))
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.ask(EngineAccess::Reads, |map| map.len() as u64)
    }

    fn status(&self) -> RepoAnswer<()> {
        match self.engine.flaw {
            Some(EngineFlaw::AlwaysHealthy) => Answer::Now(Ok(())),
            Some(EngineFlaw::AbandonsConnecting) => {
                let is_closed = Arc::clone(&self.is_closed);
                self.ask(EngineAccess::Stores, |_| ()).map(move |status| {
                    is_closed.fetch_or(status.is_err(), SeqCst);
                    status
                })
            }
            _ => self.ask(EngineAccess::Stores, |_| ()),
        }
    }
}
