//! [`Renewed`]: a connection that is opened when it is first needed, and replaced when it is suspect.
//!
//! A task opens it. So a connection that takes longer than the time of each operation is opened all the same.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::SetOnce;
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::counts::count_opening;
use crate::error::{EngineFailure, Source, in_one_line};

/// After a connection could not be opened, operations fail for this time without a try of their own.
const FAILURE_PAUSE: Duration = Duration::from_millis(20);

/// A connection is not replaced before this age, if it is refused requests: the whole engine may be down.
const MIN_AGE: Duration = Duration::from_millis(500);

/// A connection that operations share. Operations over a connection that was replaced go on undisturbed.
pub(crate) struct Renewed<C> {
    current: RefCell<Rc<Generation<C>>>,
    /// The connection for operations that are late on the current one, and its successor.
    spare: RefCell<Option<Rc<Generation<C>>>>,
    /// The number of the next connection.
    next: Cell<usize>,
    failed: RefCell<Option<FailedOpen>>,
    /// The max time to open a connection.
    max_time: Duration,
}

/// Why a connection could not be opened.
#[derive(Clone)]
struct FailedOpen {
    at: Instant,
    text: String,
    kind: fn(Source) -> EngineFailure,
}

impl FailedOpen {
    fn new(failure: EngineFailure) -> Self {
        let kind: fn(Source) -> EngineFailure = match failure {
            // Nothing was sent over a connection that was not opened.
            EngineFailure::NotDone(_) | EngineFailure::Unknown(_) => EngineFailure::NotDone,
            EngineFailure::Unauthenticated(_) => EngineFailure::Unauthenticated,
            EngineFailure::TooLarge(_) | EngineFailure::NoValue(_) | EngineFailure::Rejected(_) => {
                EngineFailure::Rejected
            }
        };
        Self { at: Instant::now(), text: in_one_line(&*failure.into_source()), kind }
    }

    /// The failure of an operation that needs the connection.
    fn failure(&self) -> EngineFailure {
        (self.kind)(self.text.clone().into())
    }
}

struct Generation<C> {
    number: usize,
    created: Instant,
    is_opening: Cell<bool>,
    opened: SetOnce<Result<C, FailedOpen>>,
}

impl<C> Generation<C> {
    fn new(number: usize) -> Self {
        Self { number, created: Instant::now(), is_opening: Cell::new(false), opened: SetOnce::new() }
    }
}

/// A connection, and the number of connections that came before it.
pub(crate) struct Held<C> {
    number: usize,
    pub(crate) connection: C,
}

impl<C: Clone + 'static> Renewed<C> {
    /// `max_time` is the max time to open a connection. It is at least that of an operation that may wait for it.
    pub(crate) fn new(max_time: Duration) -> Rc<Self> {
        Rc::new(Self {
            current: RefCell::new(Rc::new(Generation::new(0))),
            spare: RefCell::default(),
            next: Cell::new(1),
            failed: RefCell::default(),
            max_time,
        })
    }

    /// Returns the connection. If there is none, a task opens it, which goes on if nothing waits for it any more. `open` gets the
    /// number of the connection, so that each try can go to another node.
    ///
    /// With `late`, returns a connection that was made after `late`. The current one stays the one of other operations.
    pub(crate) async fn get<F: Future<Output = Result<C, EngineFailure>> + 'static>(
        self: &Rc<Self>,
        late: Option<&Held<C>>,
        open: impl FnOnce(usize) -> F,
    ) -> Result<Held<C>, EngineFailure> {
        let generation = self.generation_after(late);
        let number = generation.number;
        if !generation.is_opening.get() {
            if let Some(failed) = &*self.failed.borrow()
                && failed.at.elapsed() < FAILURE_PAUSE
            {
                return Err(failed.failure());
            }
            generation.is_opening.set(true);
            spawn_local(Rc::clone(self).open(Rc::clone(&generation), open(number)));
        }
        let opened = match generation.opened.get() {
            Some(opened) => opened,
            // Boxed, so that an operation over an open connection is a small task.
            None => Box::pin(generation.opened.wait()).await,
        };
        match opened {
            Ok(connection) => Ok(Held { number, connection: connection.clone() }),
            Err(failed) => Err(failed.failure()),
        }
    }

    async fn open<F: Future<Output = Result<C, EngineFailure>> + 'static>(
        self: Rc<Self>,
        generation: Rc<Generation<C>>,
        opening: F,
    ) {
        // A task of its own: a panic of the client library is a failure.
        let opened = match spawn_local(timeout(self.max_time, opening)).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(EngineFailure::NotDone(format!("no connection within {:?}", self.max_time).into())),
            Err(panic) => Err(EngineFailure::NotDone(panic.into())),
        };
        count_opening(opened.is_ok());
        let opened = opened.map_err(FailedOpen::new);
        if let Err(failed) = &opened {
            *self.failed.borrow_mut() = Some(failed.clone());
            self.renew(generation.number);
        }
        // Only this task sets it.
        let _ = generation.opened.set(opened);
    }

    /// Whether the next operation has a connection at once.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only PostgreSQL has several"))]
    pub(crate) fn is_open(&self) -> bool {
        self.current.borrow().opened.get().is_some_and(Result::is_ok)
    }

    fn generation_after(&self, late: Option<&Held<C>>) -> Rc<Generation<C>> {
        let current = self.current.borrow();
        let Some(late) = late.filter(|late| current.number <= late.number) else { return Rc::clone(&current) };
        let mut spare = self.spare.borrow_mut();
        match &*spare {
            Some(spare) if spare.number > late.number => Rc::clone(spare),
            _ => Rc::clone(spare.insert(self.new_generation())),
        }
    }

    fn new_generation(&self) -> Rc<Generation<C>> {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        Rc::new(Generation::new(number))
    }

    /// Replaces a connection, unless another operation has replaced it.
    pub(crate) fn suspect(&self, held: &Held<C>) {
        self.renew(held.number);
    }

    /// Replaces a connection over which requests are refused, unless it was made a moment ago.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "only Redis has nodes that know that they are cut off")
    )]
    pub(crate) fn refused(&self, held: &Held<C>) {
        let is_new = self.current.borrow().created.elapsed() < MIN_AGE;
        if !is_new {
            self.renew(held.number);
        }
    }

    fn renew(&self, number: usize) {
        let (mut current, mut spare) = (self.current.borrow_mut(), self.spare.borrow_mut());
        if current.number == number {
            *current = spare.take().unwrap_or_else(|| self.new_generation());
        } else if spare.as_ref().is_some_and(|spare| spare.number == number) {
            *spare = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::yield_now;

    use super::*;

    const MAX_TIME: Duration = Duration::from_secs(5);

    /// Regression test: operations that came soon after a connection was rejected for good failed as if it were for now.
    #[tokio::test(flavor = "local")]
    async fn a_failure_keeps_its_kind_during_the_pause() {
        for kind in [EngineFailure::NotDone as fn(_) -> _, EngineFailure::Unauthenticated, EngineFailure::Rejected] {
            let connections = Renewed::<()>::new(MAX_TIME);
            let first = connections.get(None, async move |_| Err(kind("it is refused".into()))).await;
            // In the pause or after it.
            let second = connections.get(None, async move |_| Err(kind("it is refused".into()))).await;
            let kind_of = |result: &Result<Held<()>, _>| result.as_ref().err().map(std::mem::discriminant);
            assert_eq!(kind_of(&first), Some(std::mem::discriminant(&kind("".into()))));
            assert_eq!(kind_of(&first), kind_of(&second));
            assert!(first.is_err() && second.is_err());
        }
    }

    /// Regression test: each operation that gave up also ended the opening, so a connection that took longer than each of them was
    /// never opened.
    #[tokio::test(flavor = "local", start_paused = true)]
    async fn an_opening_goes_on_without_an_operation() {
        let connections = Renewed::<usize>::new(MAX_TIME);
        let opened = Rc::new(Cell::new(0));
        let open = |number| {
            opened.set(opened.get() + 1);
            async move {
                tokio::time::sleep(MAX_TIME / 2).await;
                Ok(number)
            }
        };
        let mut tries = 1;
        while timeout(MAX_TIME / 20, connections.get(None, open)).await.is_err() {
            tries += 1;
            assert!(tries < 20, "it is never opened");
        }
        assert!(tries > 1);
        assert_eq!(opened.get(), 1);
    }

    /// An opening that hangs, and one that panics, are failures, and the next operation opens another connection.
    #[tokio::test(flavor = "local", start_paused = true)]
    async fn an_opening_ends_in_any_case() {
        let connections = Renewed::<usize>::new(MAX_TIME);
        let hung = connections.get(None, |_| pending()).await;
        assert!(matches!(hung, Err(EngineFailure::NotDone(_))));
        *connections.failed.borrow_mut() = None;
        let panicked = connections.get(None, async |_| panic!("the client library panics")).await;
        assert!(matches!(panicked, Err(EngineFailure::NotDone(_))));
        *connections.failed.borrow_mut() = None;
        yield_now().await;
        let opened = connections.get(None, async |number| Ok(number)).await;
        assert_eq!(opened.ok().map(|held| held.connection), Some(2));
    }
}
