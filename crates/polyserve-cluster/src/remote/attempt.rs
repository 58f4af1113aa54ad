//! Attempts: each operation ends by its deadline, and is repeated only if that is safe.
//!
//! A read is repeated until its deadline, each time over a connection that is not suspect. A write is repeated only
//! after [`EngineFailure::NotDone`]. This also holds for a put without a condition: the second copy of a put could undo another
//! client's put that came in between, and no order explains that. A put that is repeated could also answer `Replaced` for
//! the entity that it created itself.

use std::time::{Duration, Instant};

use tokio::time::{sleep_until, timeout_at};

use super::engine::Engine;
use crate::error::EngineFailure;
use crate::limits::StoreLimits;

/// The pause after the first failed attempt. It doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(320);

/// A read waits for an answer for this part of the timeout, and then tries another connection.
const READ_ATTEMPTS: u32 = 3;

/// The attempts of one operation.
pub(crate) struct Attempts {
    pub(crate) deadline: Instant,
    pub(crate) limits: StoreLimits,
}

impl Attempts {
    /// Repeats a read until it is answered.
    pub(crate) async fn read<N: Engine, T>(
        &self,
        engine: &N,
        attempt: impl AsyncFn(&N::Connection) -> Result<T, EngineFailure>,
    ) -> Result<T, EngineFailure> {
        self.repeat(
            engine,
            attempt,
            |failure| !matches!(failure, EngineFailure::Rejected(_)),
            self.limits.timeout / READ_ATTEMPTS,
        )
        .await
    }

    /// Repeats a write until it is done, may have been done, or cannot be done.
    pub(crate) async fn write<N: Engine, T>(
        &self,
        engine: &N,
        attempt: impl AsyncFn(&N::Connection) -> Result<T, EngineFailure>,
    ) -> Result<T, EngineFailure> {
        self.repeat(engine, attempt, |failure| matches!(failure, EngineFailure::NotDone(_)), self.limits.timeout).await
    }

    async fn repeat<N: Engine, T>(
        &self,
        engine: &N,
        attempt: impl AsyncFn(&N::Connection) -> Result<T, EngineFailure>,
        may_repeat: impl Fn(&EngineFailure) -> bool,
        patience: Duration,
    ) -> Result<T, EngineFailure> {
        let mut pause = FIRST_PAUSE;
        loop {
            let failure = match self.once(engine, &attempt, patience).await {
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            let next = Instant::now() + pause;
            if !may_repeat(&failure) || next >= self.deadline {
                return Err(failure);
            }
            sleep_until(next.into()).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Opens a connection if there is none, and makes one attempt.
    async fn once<N: Engine, T>(
        &self,
        engine: &N,
        attempt: impl AsyncFn(&N::Connection) -> Result<T, EngineFailure>,
        patience: Duration,
    ) -> Result<T, EngineFailure> {
        let connection = timeout_at(self.deadline.into(), engine.connection()).await;
        let connection = connection.map_err(|_| EngineFailure::NotDone(self.late("no connection")))??;
        let until = self.deadline.min(Instant::now() + patience);
        match timeout_at(until.into(), attempt(&connection)).await {
            Ok(done) => done,
            Err(_) => {
                engine.suspect(&connection);
                Err(EngineFailure::Unknown(self.late("no answer")))
            }
        }
    }

    fn late(&self, what: &str) -> crate::error::Source {
        format!("{what} in time; the timeout is {:?}", self.limits.timeout).into()
    }
}
