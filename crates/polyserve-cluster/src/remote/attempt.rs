//! Attempts: each operation ends by its deadline, and is repeated only if that is safe.
//!
//! A read is repeated until its deadline. If an attempt has no answer for a part of the timeout, it stays in flight, and
//! another attempt starts over another connection. The first answer counts. So an engine that is slow is waited for, and
//! a connection that is dead delays a read only for that part.
//!
//! A write is repeated only after [`EngineFailure::NotDone`]. This also holds for a put without a condition: the second copy
//! of a put could undo another client's put that came in between, and no order explains that. A put that is repeated could
//! also answer `Replaced` for the entity that it created itself.
//!
//! A connection is suspect if another connection answers the same read first, or if it does not answer within the whole
//! timeout. An engine may also replace one that leads to a node without a cluster.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::counts::count_retry;
use super::engine::Engine;
use crate::error::{EngineFailure, Source};

/// The pause after the first failed attempt. It doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(320);

/// The max number of attempts of one read that are in flight. Each has this part of the timeout before the next starts.
const READ_ATTEMPTS: u32 = 3;

/// A write is not repeated in the last part of its time: an attempt that the deadline ends may have been done, and the one before
/// was certainly not.
const LAST_PART: u32 = 4;

/// What an engine refuses and is likely to refuse again is repeated for this part of the timeout.
const LASTING_PART: u32 = 10;

/// The attempts of one operation.
pub(crate) struct Attempts {
    deadline: Instant,
    timeout: Duration,
}

impl Attempts {
    /// The attempts of an operation that begins now. It begins by the system's clock: the caller may run under a paused one.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { deadline: Instant::from_std(std::time::Instant::now() + timeout), timeout }
    }

    /// Repeats a read until it is answered. A read that fails has done nothing, so the failure is never
    /// [`EngineFailure::Unknown`]: a write with a condition that fails at its read was not done.
    pub(crate) async fn read<N: Engine, T>(
        &self,
        engine: &Rc<N>,
        attempt: impl AsyncFn(&N::Connection) -> Result<T, EngineFailure>,
    ) -> Result<T, EngineFailure> {
        self.read_over(engine, &attempt, None, READ_ATTEMPTS).await.map_err(EngineFailure::of_read)
    }

    /// Repeats a write of a key until it is done, may have been done, or cannot be done.
    pub(crate) async fn write<N: Engine, T>(
        &self,
        engine: &Rc<N>,
        key: &str,
        attempt: impl AsyncFn(&N::Connection) -> Result<T, EngineFailure>,
    ) -> Result<T, EngineFailure> {
        self.repeat(engine, Some(key), attempt, |failure| matches!(failure, EngineFailure::NotDone(_))).await
    }

    /// Repeats a write that may be done twice, one attempt at a time.
    pub(crate) async fn idempotent_write<N: Engine, T>(
        &self,
        engine: &Rc<N>,
        attempt: impl AsyncFn(&N::Connection) -> Result<T, EngineFailure>,
    ) -> Result<T, EngineFailure> {
        self.repeat(engine, None, attempt, |failure| !failure.is_final()).await
    }

    async fn repeat<N: Engine, T>(
        &self,
        engine: &Rc<N>,
        written: Option<&str>,
        attempt: impl AsyncFn(&N::Connection) -> Result<T, EngineFailure>,
        may_repeat: impl Fn(&EngineFailure) -> bool,
    ) -> Result<T, EngineFailure> {
        let mut pause = FIRST_PAUSE;
        loop {
            let answer = match self.connection(engine, None, written).await {
                Ok(connection) => self.by_deadline(engine, &connection, pin!(attempt(&connection))).await,
                Err(failure) => Err(failure),
            };
            match answer {
                Err(failure) if may_repeat(&failure) => {
                    let least = match &failure {
                        EngineFailure::NotDone(why) if N::lasts(why) => self.timeout - self.timeout / LASTING_PART,
                        _ => self.timeout / LAST_PART,
                    };
                    self.pause(&mut pause, least, failure).await?;
                }
                answer => return answer,
            }
        }
    }

    /// Repeats a read. At most `max` attempts are in flight, over other connections than `late`.
    async fn read_over<N: Engine, T, A: AsyncFn(&N::Connection) -> Result<T, EngineFailure>>(
        &self,
        engine: &Rc<N>,
        attempt: &A,
        late: Option<&N::Connection>,
        max: u32,
    ) -> Result<T, EngineFailure> {
        let mut pause = FIRST_PAUSE;
        loop {
            let answer = match self.connection(engine, late, None).await {
                Ok(connection) => self.read_from(engine, attempt, &connection, max).await,
                Err(failure) => Err(failure),
            };
            match answer {
                Ok(done) => return Ok(done),
                Err(failure) if failure.is_final() => return Err(failure),
                Err(failure) => self.pause(&mut pause, Duration::ZERO, failure).await?,
            }
        }
    }

    /// Makes one attempt of a read, and others if it is late.
    async fn read_from<N: Engine, T, A: AsyncFn(&N::Connection) -> Result<T, EngineFailure>>(
        &self,
        engine: &Rc<N>,
        attempt: &A,
        connection: &N::Connection,
        max: u32,
    ) -> Result<T, EngineFailure> {
        let mut first = pin!(attempt(connection));
        if max > 1 {
            let late = Instant::now() + self.timeout / READ_ATTEMPTS;
            match timeout_at(late, first.as_mut()).await {
                Ok(answer) => return report_refusal(engine, connection, answer),
                // Boxed, so that a read that is quick is a small task. A future cannot contain its own type either.
                Err(_) => return Box::pin(self.read_with_others(engine, attempt, connection, first, max - 1)).await,
            }
        }
        self.by_deadline(engine, connection, first).await
    }

    /// Starts other attempts of a read next to `first`, which is late. Returns the first answer.
    async fn read_with_others<N: Engine, T, A: AsyncFn(&N::Connection) -> Result<T, EngineFailure>>(
        &self,
        engine: &Rc<N>,
        attempt: &A,
        connection: &N::Connection,
        first: Pin<&mut impl Future<Output = Result<T, EngineFailure>>>,
        max: u32,
    ) -> Result<T, EngineFailure> {
        let mut first = pin!(self.by_deadline(engine, connection, first));
        let mut others = pin!(self.read_over(engine, attempt, Some(connection), max));
        let (mut first_failure, mut others_failure) = (None, None);
        poll_fn(|context| {
            if first_failure.is_none()
                && let Poll::Ready(answer) = first.as_mut().poll(context)
            {
                match answer {
                    Err(failure @ (EngineFailure::NotDone(_) | EngineFailure::Unknown(_))) => {
                        first_failure = Some(failure);
                    }
                    answer => return Poll::Ready(answer),
                }
            }
            if others_failure.is_none()
                && let Poll::Ready(answer) = others.as_mut().poll(context)
            {
                match answer {
                    Err(failure @ (EngineFailure::NotDone(_) | EngineFailure::Unknown(_))) => {
                        others_failure = Some(failure);
                    }
                    answer => {
                        if first_failure.is_none() {
                            engine.suspect(connection);
                        }
                        return Poll::Ready(answer);
                    }
                }
            }
            if others_failure.is_some()
                && let Some(failure) = first_failure.take()
            {
                return Poll::Ready(Err(failure));
            }
            Poll::Pending
        })
        .await
    }

    /// Returns an open connection, to make an attempt at once. With `late`, it is another one.
    async fn connection<N: Engine>(
        &self,
        engine: &Rc<N>,
        late: Option<&N::Connection>,
        written: Option<&str>,
    ) -> Result<N::Connection, EngineFailure> {
        let no_connection = || EngineFailure::NotDone(self.timed_out("no connection"));
        let connection =
            timeout_at(self.deadline, engine.connection(late, written)).await.map_err(|_| no_connection())??;
        // A timeout polls its future once, even if the deadline is over: that would send a request that nothing waits for.
        if Instant::now() >= self.deadline {
            return Err(EngineFailure::NotDone(self.timed_out("the request was not sent")));
        }
        Ok(connection)
    }

    /// Waits for the answer to an attempt until the deadline.
    async fn by_deadline<N: Engine, T>(
        &self,
        engine: &Rc<N>,
        connection: &N::Connection,
        attempt: Pin<&mut impl Future<Output = Result<T, EngineFailure>>>,
    ) -> Result<T, EngineFailure> {
        match timeout_at(self.deadline, attempt).await {
            Ok(answer) => report_refusal(engine, connection, answer),
            Err(_) => {
                engine.suspect(connection);
                Err(EngineFailure::Unknown(self.timed_out("no answer")))
            }
        }
    }

    /// Pauses after a failure. Returns the failure if another attempt would have no more than the time `least`.
    async fn pause(&self, pause: &mut Duration, least: Duration, failure: EngineFailure) -> Result<(), EngineFailure> {
        let next = Instant::now() + *pause;
        if next + least >= self.deadline {
            return Err(failure);
        }
        count_retry();
        sleep_until(next).await;
        *pause = (*pause * 2).min(MAX_PAUSE);
        Ok(())
    }

    fn timed_out(&self, what: &str) -> Source {
        format!("{what} in time; the timeout is {:?}", self.timeout).into()
    }
}

/// Returns an answer. The engine sees first why an operation was not done.
fn report_refusal<N: Engine, T>(
    engine: &Rc<N>,
    connection: &N::Connection,
    answer: Result<T, EngineFailure>,
) -> Result<T, EngineFailure> {
    if let Err(EngineFailure::NotDone(why)) = &answer {
        engine.refused(connection, why);
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use polyserve_core::{Put, Removed};
    use tokio::time::sleep;

    use super::super::engine::{Stored, StoredPage};
    use super::super::renewed::{Held, Renewed};
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);
    const KEY: &str = "1";

    /// The text of a refusal that lasts.
    const FULL: &str = "it is full for long";

    /// An engine. The time of an answer depends on the number of the connection. The clock of its tests is paused.
    struct SlowEngine {
        connections: Rc<Renewed<usize>>,
        answer_time: fn(usize) -> Duration,
        opened: Rc<Cell<usize>>,
        sent: Cell<u32>,
        in_flight: Cell<u32>,
        max_in_flight: Cell<u32>,
        /// The connections that answered.
        answered: RefCell<Vec<usize>>,
    }

    impl SlowEngine {
        fn new(answer_time: fn(usize) -> Duration) -> Rc<Self> {
            Rc::new(Self {
                connections: Renewed::new(TIMEOUT),
                answer_time,
                opened: Rc::default(),
                sent: Cell::new(0),
                in_flight: Cell::new(0),
                max_in_flight: Cell::new(0),
                answered: RefCell::default(),
            })
        }

        async fn request(&self, connection: &Held<usize>) -> Result<(), EngineFailure> {
            self.sent.set(self.sent.get() + 1);
            self.in_flight.set(self.in_flight.get() + 1);
            self.max_in_flight.set(self.max_in_flight.get().max(self.in_flight.get()));
            let _ended = Ended(&self.in_flight);
            sleep((self.answer_time)(connection.connection)).await;
            self.answered.borrow_mut().push(connection.connection);
            Ok(())
        }

        async fn read(self: &Rc<Self>) -> Result<(), EngineFailure> {
            attempts(TIMEOUT).read(self, async |connection| self.request(connection).await).await
        }

        async fn write(self: &Rc<Self>) -> Result<(), EngineFailure> {
            attempts(TIMEOUT).write(self, KEY, async |connection| self.request(connection).await).await
        }
    }

    /// The attempts of an operation that begins now, by the clock of the test.
    fn attempts(timeout: Duration) -> Attempts {
        Attempts { deadline: Instant::now() + timeout, timeout }
    }

    struct Ended<'a>(&'a Cell<u32>);

    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }

    impl Engine for SlowEngine {
        const NAME: &'static str = "slow";
        type Connection = Held<usize>;
        type Version = ();

        async fn connection(
            self: &Rc<Self>,
            late: Option<&Held<usize>>,
            _: Option<&str>,
        ) -> Result<Held<usize>, EngineFailure> {
            let opened = Rc::clone(&self.opened);
            let open = async move |_| {
                opened.set(opened.get() + 1);
                Ok(opened.get())
            };
            self.connections.get(late, open).await
        }

        fn lasts(why: &Source) -> bool {
            why.to_string() == FULL
        }

        fn suspect(&self, connection: &Held<usize>) {
            self.connections.suspect(connection);
        }

        async fn get(&self, _: &Held<usize>, _: &str) -> Result<Option<Stored<()>>, EngineFailure> {
            unreachable!()
        }

        async fn put(&self, _: &Held<usize>, _: &str, _: &[u8]) -> Result<Put, EngineFailure> {
            unreachable!()
        }

        async fn remove(&self, _: &Held<usize>, _: &str) -> Result<Removed, EngineFailure> {
            unreachable!()
        }

        async fn put_over(
            &self,
            _: &Held<usize>,
            _: &str,
            _: Option<&Stored<()>>,
            _: &[u8],
        ) -> Result<bool, EngineFailure> {
            unreachable!()
        }

        async fn remove_seen(&self, _: &Held<usize>, _: &str, _: &Stored<()>) -> Result<bool, EngineFailure> {
            unreachable!()
        }

        async fn try_write(&self, _: &Held<usize>, _: &str) -> Result<(), EngineFailure> {
            unreachable!()
        }

        async fn page(&self, _: &Held<usize>, _: &str, _: Option<&str>, _: usize) -> Result<StoredPage, EngineFailure> {
            unreachable!()
        }

        async fn len(&self, _: &Held<usize>, _: &str) -> Result<u64, EngineFailure> {
            unreachable!()
        }

        async fn clear(&self, _: &Held<usize>, _: &str) -> Result<(), EngineFailure> {
            unreachable!()
        }
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_slow_engine_is_read_over_one_connection() {
        let engine = SlowEngine::new(|_| Duration::from_secs(2));
        for _ in 0..3 {
            engine.read().await.expect("it answers within the timeout");
        }
        assert_eq!(*engine.answered.borrow(), [1, 1, 1]);
        // The second connection serves the second attempts of all reads.
        assert_eq!((engine.opened.get(), engine.in_flight.get()), (2, 0));
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_read_that_is_quick_is_sent_once() {
        let engine = SlowEngine::new(|_| Duration::from_secs(1));
        engine.read().await.expect("it answers within the timeout");
        assert_eq!((engine.sent.get(), engine.opened.get()), (1, 1));
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_dead_connection_is_replaced_by_the_one_that_answers() {
        let engine = SlowEngine::new(|number| if number == 2 { Duration::ZERO } else { TIMEOUT * 2 });
        for _ in 0..3 {
            engine.read().await.expect("the second connection answers");
        }
        // Only the first read was late.
        assert_eq!((engine.sent.get(), engine.opened.get()), (4, 2));
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_third_connection_is_tried() {
        let engine = SlowEngine::new(|number| if number == 3 { Duration::ZERO } else { TIMEOUT * 2 });
        engine.read().await.expect("the third connection answers");
        engine.read().await.expect("the third connection answers");
        assert_eq!((engine.sent.get(), engine.opened.get()), (4, 3));
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_dead_engine_gets_a_bounded_number_of_attempts() {
        let engine = SlowEngine::new(|_| TIMEOUT * 2);
        let failure = engine.read().await.expect_err("nothing answers");
        // A read changes nothing.
        assert!(matches!(failure, EngineFailure::NotDone(_)), "{failure:?}");
        assert_eq!((engine.sent.get(), engine.max_in_flight.get()), (READ_ATTEMPTS, READ_ATTEMPTS));
        assert_eq!(engine.in_flight.get(), 0);
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_slow_write_is_sent_once() {
        let engine = SlowEngine::new(|_| Duration::from_secs(4));
        engine.write().await.expect("it answers within the timeout");
        let dead = SlowEngine::new(|_| TIMEOUT * 2);
        let failure = dead.write().await.expect_err("nothing answers");
        assert!(matches!(failure, EngineFailure::Unknown(_)), "{failure:?}");
        assert_eq!((engine.sent.get(), dead.sent.get()), (1, 1));
    }

    /// Regression test: the deadline ended the last attempt of a write that was refused again and again, and it was reported as
    /// one that may have been done.
    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_write_that_is_refused_is_certainly_not_done() {
        let engine = SlowEngine::new(|_| Duration::from_secs(1));
        let refused = async |connection: &Held<usize>| {
            engine.request(connection).await?;
            Err::<(), _>(EngineFailure::NotDone("it is full".into()))
        };
        let failure = attempts(TIMEOUT).write(&engine, KEY, refused).await.expect_err("it is refused");
        assert!(matches!(failure, EngineFailure::NotDone(_)), "{failure:?}");
        assert!(engine.sent.get() > 2, "it is sent {} times", engine.sent.get());
    }

    /// Writes that a full engine refuses give their room to reads.
    #[tokio::test(flavor = "local", start_paused = true)]
    async fn a_refusal_that_lasts_is_repeated_for_a_moment() {
        let engine = SlowEngine::new(|_| Duration::from_millis(1));
        let refused = async |connection: &Held<usize>| {
            engine.request(connection).await?;
            Err::<(), _>(EngineFailure::NotDone(FULL.into()))
        };
        let start = Instant::now();
        let failure = attempts(TIMEOUT).write(&engine, KEY, refused).await.expect_err("it is refused");
        assert!(matches!(failure, EngineFailure::NotDone(_)), "{failure:?}");
        assert!(engine.sent.get() > 2, "it is sent {} times", engine.sent.get());
        assert!(start.elapsed() <= TIMEOUT / LASTING_PART, "it is refused after {:?}", start.elapsed());
    }

    #[tokio::test(flavor = "local", start_paused = true)]
    async fn an_operation_that_waited_too_long_is_not_sent() {
        let engine = SlowEngine::new(|_| Duration::ZERO);
        engine.write().await.expect("it connects");
        let (read, write) = (attempts(Duration::ZERO), attempts(Duration::ZERO));
        let read = read.read(&engine, async |connection| engine.request(connection).await).await;
        let write = write.write(&engine, KEY, async |connection| engine.request(connection).await).await;
        assert!(matches!(read, Err(EngineFailure::NotDone(_))), "{read:?}");
        assert!(matches!(write, Err(EngineFailure::NotDone(_))), "{write:?}");
        assert_eq!(engine.sent.get(), 1);
    }
}
