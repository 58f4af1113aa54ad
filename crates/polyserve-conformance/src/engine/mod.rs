//! The kit for stores over an engine: overload, and an engine that is slow, paused, stopped or absent, that refuses writes, or
//! that ends its connections.
//!
//! It is for a store that depends on something outside of its process, such as a database over a network. A disk is an
//! engine too. Such a store also passes the kit of [`repo`](crate::repo), which tests what it does while its engine serves.
//!
//! # For authors of stores
//!
//! Implement [`EngineControl`], so that the kit can disturb the engine. One macro call then makes each property a test:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use polyserve_conformance::engine::{Connector, EngineControl, EngineSubject};
//! # use polyserve_conformance::broken::engines::{PlainEngine as MyProcess, PlainStore as MyStore};
//!
//! /// A process of the engine that `MyStore` connects to.
//! struct MyEngine(MyProcess);
//!
//! impl EngineControl for MyEngine {
//!     fn connector(&self) -> Connector {
//!         let address = self.0.address();
//!         Arc::new(move |name_space, limits| {
//!             // Its settings are the fields of `limits`.
//!             Ok(Arc::new(MyStore::connect(&address, name_space, limits)?))
//!         })
//!     }
//!     fn slow_down(&mut self, delay: Duration) {
//!         self.0.slow_down(delay); // a proxy between the store and the engine can do that
//!     }
//!     fn pause(&mut self) {
//!         self.0.pause(); // SIGSTOP
//!     }
//!     fn resume(&mut self) {
//!         self.0.resume(); // SIGCONT
//!     }
//!     fn stop(&mut self) {
//!         self.0.stop(); // SIGKILL
//!     }
//!     fn restart(&mut self) {
//!         self.0.restart();
//!     }
//! }
//!
//! fn my_engine() -> EngineSubject {
//!     let start = || Ok(MyEngine(MyProcess::start()));
//!     // The text is in the error of a store that finds no engine at its address.
//!     EngineSubject::new(start, "cannot connect to the plain engine", || {
//!         let mut absent = MyEngine(MyProcess::start());
//!         absent.stop();
//!         absent.connector()
//!     })
//! }
//!
//! polyserve_conformance::engine_conformance!(my_store, my_engine());
//! # use polyserve_conformance::engine;
//! # use polyserve_conformance::property::Outcome;
//! # assert_eq!(engine::an_absent_engine_is_an_error(&my_engine()), Outcome::Held);
//! # assert_eq!(engine::a_stopped_engine_comes_back(&my_engine()), Outcome::Held);
//! ```
//!
//! # How it tests
//!
//! * Each property but [`an_absent_engine_is_an_error`] starts an engine of its own. It runs on a thread that is given up
//!   after six times the max wait.
//! * No property measures a time. An answer has to come within the max wait, which only a failing property waits for.
//! * The engine is paused while the kit counts which operations a full store has rejected. So the rejections cannot depend on
//!   the engine.

mod properties;

use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use polyserve_core::EntityRepo;

pub use self::properties::*;
use crate::property::{Opaque, Outcome, kit, within};

kit!($ engine::engine_conformance for EngineSubject, from "[`EngineSubject`](crate::engine::EngineSubject)" {
    properties {
        too_many_operations_are_overload,
        too_many_bytes_are_overload,
        a_slow_engine_is_waited_for,
        a_paused_engine_is_unavailable,
        a_stopped_engine_comes_back,
        statuses_alone_connect_past_a_silent_host,
        a_refused_write_is_not_acknowledged,
        a_connection_that_ended_loses_no_write,
        an_absent_engine_is_an_error,
    }
});

/// A connected store, or the reason why it cannot connect.
pub type Connected = Result<Arc<dyn EntityRepo>, Box<dyn Error + Send + Sync>>;

/// A function that connects a store to a name space, with limits. Stores with one name space share their entities, and a new
/// name space is empty. Its name is a word of lower-case letters.
///
/// It returns an error if the engine does not answer within the connect timeout. It is called on any thread, also while the
/// engine is paused, stopped or started again.
pub type Connector = Arc<dyn Fn(&str, &EngineLimits) -> Connected + Send + Sync>;

/// The limits that a store under test has to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineLimits {
    /// The max time from the call of an operation to its answer.
    pub timeout: Duration,
    /// The max time that connecting waits for the engine.
    pub connect_timeout: Duration,
    /// The max number of operations without an answer: those that wait and those that the engine works on, together. One
    /// more is answered with [`RepoError::Overloaded`](polyserve_core::RepoError::Overloaded). It is even.
    pub operations: NonZeroUsize,
    /// The max number of bytes of the entities in these operations. An operation that comes when there are as many is answered
    /// with [`RepoError::Overloaded`](polyserve_core::RepoError::Overloaded), too.
    pub bytes: NonZeroUsize,
}

/// A running engine that the kit can disturb, and that stores connect to. Dropping it ends the engine.
///
/// Each function returns when its effect is there.
pub trait EngineControl: Send + 'static {
    /// Returns a function that connects stores to this engine.
    fn connector(&self) -> Connector;

    /// Is called before [`connector`](Self::connector), by a property that calls [`slow_down`](Self::slow_down) later. An engine
    /// that a proxy slows down starts the proxy here, and its stores then connect through it. By default it does nothing.
    fn before_slow_down(&mut self) {}

    /// Makes the engine slow: its answers to the operations of the next moment come after `delay`. The answers to later
    /// operations may be slow or not.
    fn slow_down(&mut self, delay: Duration);

    /// Makes the engine answer nothing until [`resume`](Self::resume). It keeps its connections, and loses nothing.
    fn pause(&mut self);

    /// Ends a pause.
    fn resume(&mut self);

    /// Ends the engine at once, as SIGKILL does. For a disk: each call fails.
    fn stop(&mut self);

    /// Starts the engine again after [`stop`](Self::stop), at the same address, and waits until it serves.
    fn restart(&mut self);

    /// Makes the engine refuse to store entities for now, until [`accept_writes`](Self::accept_writes). It answers reads, and
    /// may remove entities. Full memory and a full disk are examples.
    ///
    /// # Errors
    ///
    /// Returns why this engine cannot be made to, if so. The property is then not run. That is the default.
    fn refuse_writes(&mut self) -> Result<(), String> {
        Err("this engine cannot be made to refuse writes".into())
    }

    /// Ends what [`refuse_writes`](Self::refuse_writes) began.
    fn accept_writes(&mut self) {}

    /// Returns a function that connects stores to this engine and, by a list of hosts, to one that is silent: it takes connections and
    /// answers nothing. The silent host comes first, if stores try their hosts in an order. They have to try it again after the
    /// engine was paused.
    ///
    /// # Errors
    ///
    /// Returns why stores of this engine have no such list, if so. The property is then not run. That is the default.
    fn connector_past_a_silent_host(&mut self) -> Result<Connector, String> {
        Err("the stores of this engine have no list of hosts".into())
    }

    /// Ends all connections of stores. The engine then accepts new ones. Returns when the stores have closed their sides, and
    /// the engine serves.
    ///
    /// # Errors
    ///
    /// Returns why this engine cannot be made to, if so. The property is then not run. That is the default.
    fn end_connections(&mut self) -> Result<(), String> {
        Err("this engine cannot be made to end its connections".into())
    }
}

/// A constructor of engines under test, and what their stores declare.
#[derive(Debug)]
pub struct EngineSubject {
    start: Opaque<dyn Fn() -> Result<Box<dyn EngineControl>, String> + Send + Sync>,
    absent: Opaque<dyn Fn() -> Connector + Send + Sync>,
    absent_error: String,
    declared: Declarations,
}

/// What a subject declares.
#[derive(Clone, Copy, Debug)]
struct Declarations {
    max_wait: Duration,
    reads_from_memory: bool,
    forgets: bool,
    may_leave_a_write_unknown: bool,
}

impl EngineSubject {
    /// Creates a subject for the engines that `start` starts. If an engine is not installed, `start` returns the reason,
    /// and the property is not run.
    ///
    /// `absent` returns a connector to a place without an engine. Its error has the text `absent_error`, which names the
    /// engine. By default the max wait is 60 s.
    ///
    /// `start` is called on the thread of the test, which waits for the end of the property. The engine is used and dropped
    /// on another thread.
    pub fn new<C: EngineControl>(
        start: impl Fn() -> Result<C, String> + Send + Sync + 'static,
        absent_error: &str,
        absent: impl Fn() -> Connector + Send + Sync + 'static,
    ) -> Self {
        Self {
            start: Opaque(Box::new(move || start().map(|engine| Box::new(engine) as Box<dyn EngineControl>))),
            absent: Opaque(Box::new(absent)),
            absent_error: absent_error.into(),
            declared: Declarations {
                max_wait: Duration::from_secs(60),
                reads_from_memory: false,
                forgets: false,
                may_leave_a_write_unknown: false,
            },
        }
    }

    /// The store keeps its entities in memory, and its engine is a disk. So reads do not depend on the engine. Writes have no
    /// timeout: they wait for a paused engine. After an engine was stopped, writes fail until the store is connected again.
    #[must_use]
    pub fn reads_from_memory(mut self) -> Self {
        self.declared.reads_from_memory = true;
        self
    }

    /// An engine that was stopped has lost its entities.
    #[must_use]
    pub fn forgets(mut self) -> Self {
        self.declared.forgets = true;
        self
    }

    /// One of 27 writes after all connections ended may have an unknown end. For a client library that cannot always tell whether
    /// it has sent a request, if it has no connection for a moment.
    #[must_use]
    pub fn may_leave_a_write_unknown(mut self) -> Self {
        self.declared.may_leave_a_write_unknown = true;
        self
    }

    /// Sets the max wait for one answer. A whole property may take six times as long. It must be longer than the timeouts
    /// that the kit sets, which are at most 9 s.
    #[must_use]
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.declared.max_wait = max_wait;
        self
    }

    /// Starts an engine and runs `property` on it, on a thread that is left behind if it hangs.
    fn run<T: Into<Outcome>>(
        &self,
        property: impl FnOnce(&mut dyn EngineControl, Declarations) -> T + Send + 'static,
    ) -> Outcome {
        let mut engine = match (self.start.0)() {
            Ok(engine) => engine,
            Err(missing) => return Outcome::NotRun(missing),
        };
        let declared = self.declared;
        let run = move || property(&mut *engine, declared).into();
        within(declared.max_wait.saturating_mul(6), "the property", run)
    }
}
