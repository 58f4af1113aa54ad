//! [`Renewed`]: a connection that is opened when it is first needed, and replaced when it is suspect.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use crate::error::{EngineFailure, in_one_line};

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
}

/// Why a connection could not be opened.
struct FailedOpen {
    at: Instant,
    text: String,
    is_rejected: bool,
}

impl FailedOpen {
    fn new(failure: &EngineFailure) -> Self {
        let (EngineFailure::NotDone(source) | EngineFailure::Unknown(source) | EngineFailure::Rejected(source)) =
            failure;
        let is_rejected = matches!(failure, EngineFailure::Rejected(_));
        Self { at: Instant::now(), text: in_one_line(&**source), is_rejected }
    }

    /// The failure of an operation that has not tried to open a connection.
    fn failure(&self) -> EngineFailure {
        let source = self.text.clone().into();
        if self.is_rejected { EngineFailure::Rejected(source) } else { EngineFailure::NotDone(source) }
    }
}

struct Generation<C> {
    number: usize,
    created: Instant,
    connection: OnceCell<C>,
}

impl<C> Generation<C> {
    fn new(number: usize) -> Self {
        Self { number, created: Instant::now(), connection: OnceCell::new() }
    }
}

/// A connection, and the number of connections that came before it.
pub(crate) struct Held<C> {
    number: usize,
    pub(crate) connection: C,
}

impl<C: Clone> Renewed<C> {
    pub(crate) fn new() -> Self {
        Self {
            current: RefCell::new(Rc::new(Generation::new(0))),
            spare: RefCell::default(),
            next: Cell::new(1),
            failed: RefCell::default(),
        }
    }

    /// Returns the connection. If there is none, one operation opens it and the others wait. `open` gets the number of
    /// the connection, so that each try can go to another node.
    ///
    /// With `late`, returns a connection that was made after `late`. The current one stays the one of other operations.
    pub(crate) async fn get(
        &self,
        late: Option<&Held<C>>,
        open: impl AsyncFn(usize) -> Result<C, EngineFailure>,
    ) -> Result<Held<C>, EngineFailure> {
        let generation = self.generation_after(late);
        let number = generation.number;
        if let Some(connection) = generation.connection.get() {
            return Ok(Held { number, connection: connection.clone() });
        }
        // Boxed, so that an operation over an open connection is a small task.
        let opened = Box::pin(generation.connection.get_or_try_init(async || {
            if let Some(failed) = &*self.failed.borrow()
                && failed.at.elapsed() < FAILURE_PAUSE
            {
                return Err(failed.failure());
            }
            let opened = open(number).await;
            if let Err(failure) = &opened {
                *self.failed.borrow_mut() = Some(FailedOpen::new(failure));
                self.renew(number);
            }
            opened
        }));
        let connection = opened.await?.clone();
        Ok(Held { number, connection })
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
    use super::*;

    /// Regression test: operations that came soon after a connection was rejected for good failed as if it were for now.
    #[tokio::test]
    async fn a_failure_keeps_its_kind_during_the_pause() {
        for kind in [EngineFailure::NotDone as fn(_) -> _, EngineFailure::Rejected] {
            let connections = Renewed::<()>::new();
            let first = connections.get(None, async |_| Err(kind("it is refused".into()))).await;
            // In the pause or after it.
            let second = connections.get(None, async |_| Err(kind("it is refused".into()))).await;
            let rejected = |result: &Result<Held<()>, _>| matches!(result, Err(EngineFailure::Rejected(_)));
            assert_eq!(rejected(&first), rejected(&second));
            assert!(first.is_err() && second.is_err());
        }
    }
}
