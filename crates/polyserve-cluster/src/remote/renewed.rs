//! [`Renewed`]: a connection that is opened when it is first needed, and replaced when it is suspect.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use crate::error::EngineFailure;

/// After a connection could not be opened, operations fail for this time without a try of their own.
const REST: Duration = Duration::from_millis(20);

/// A connection that operations share. Operations over a connection that was replaced go on undisturbed.
pub(crate) struct Renewed<C> {
    current: RefCell<Rc<Generation<C>>>,
    failed: RefCell<Option<(Instant, String)>>,
}

struct Generation<C> {
    number: usize,
    connection: OnceCell<C>,
}

/// A connection, and the number of connections that came before it.
pub(crate) struct Held<C> {
    number: usize,
    pub(crate) connection: C,
}

impl<C: Clone> Renewed<C> {
    pub(crate) fn new() -> Self {
        Self {
            current: RefCell::new(Rc::new(Generation { number: 0, connection: OnceCell::new() })),
            failed: RefCell::default(),
        }
    }

    /// Returns the connection. If there is none, one operation opens it and the others wait. `open` gets the number of
    /// the connection, so that each try can go to another node.
    pub(crate) async fn get(
        &self,
        open: impl AsyncFn(usize) -> Result<C, EngineFailure>,
    ) -> Result<Held<C>, EngineFailure> {
        let current = Rc::clone(&self.current.borrow());
        let number = current.number;
        if let Some(connection) = current.connection.get() {
            return Ok(Held { number, connection: connection.clone() });
        }
        let opened = current.connection.get_or_try_init(async || {
            if let Some((at, why)) = &*self.failed.borrow()
                && at.elapsed() < REST
            {
                return Err(EngineFailure::NotDone(why.clone().into()));
            }
            let opened = open(number).await;
            if let Err(
                EngineFailure::NotDone(source) | EngineFailure::Unknown(source) | EngineFailure::Rejected(source),
            ) = &opened
            {
                *self.failed.borrow_mut() = Some((Instant::now(), source.to_string()));
                self.renew(number);
            }
            opened
        });
        let connection = opened.await?.clone();
        Ok(Held { number, connection })
    }

    /// Replaces a connection, unless another operation has replaced it.
    pub(crate) fn suspect(&self, held: &Held<C>) {
        self.renew(held.number);
    }

    fn renew(&self, number: usize) {
        let mut current = self.current.borrow_mut();
        if current.number == number {
            *current = Rc::new(Generation { number: number.wrapping_add(1), connection: OnceCell::new() });
        }
    }
}
