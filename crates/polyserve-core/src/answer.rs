//! [`Answer`]: a value, or a future that returns the value. Because of this type, blocking pools, async runtimes and event
//! loops share all services and stores.
//!
//! Invariants:
//!
//! * `Now` means that no I/O happened, and no wait except for a lock that is held for a bounded number of steps.
//! * A `Later` may be polled from any thread under any waker, and needs no runtime context.
//! * A `Later` borrows nothing. Dropping it abandons the answer, never the store.
//! * A dropped [`Completer`] answers with a default value, so that no wait lasts for ever.
//!
//! Cost: `Now` is a move. A promise is one allocation, and an uncontended lock each to complete and to poll.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, lock, now, thread_local};

/// A boxed future that any thread may poll.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// A value, or a future that returns the value.
///
/// ```
/// use polyserve_core::Answer;
///
/// let (now, later) = (Answer::Now(20), Answer::later(async { 22 }));
/// assert!(now.is_now() && !later.is_now());
/// assert_eq!(now.then(|a| later.map(move |b| a + b)).wait(), 42);
/// ```
#[must_use = "a `Later` does nothing unless it is waited for or polled"]
pub enum Answer<T> {
    /// The value. No I/O happened to produce it.
    Now(T),
    /// A future of the value.
    Later(BoxFuture<T>),
}

impl<T> Answer<T> {
    /// An answer with the output of `future`.
    pub fn later(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self::Later(Box::pin(future))
    }

    /// An answer with the output of `future`: now if it is ready at its first poll, which is made here.
    ///
    /// A deferred answer is polled again with the waker of its caller. So a wake between the two polls is not lost.
    ///
    /// ```
    /// use polyserve_core::Answer;
    /// assert!(Answer::polled(Box::pin(async { 1 })).is_now());
    /// assert!(!Answer::<()>::polled(Box::pin(std::future::pending())).is_now());
    /// ```
    pub fn polled(mut future: BoxFuture<T>) -> Self {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Self::Now(value),
            Poll::Pending => Self::Later(future),
        }
    }

    /// Whether the value is there already.
    pub fn is_now(&self) -> bool {
        matches!(self, Self::Now(_))
    }

    /// Applies `f` to the value when it comes.
    ///
    /// ```
    /// use polyserve_core::Answer;
    /// assert_eq!(Answer::Now(7).map(|number| number + 1).wait(), 8);
    /// assert_eq!(Answer::later(async { 1 }).map(|number| number + 1).wait(), 2);
    /// ```
    pub fn map<U>(self, f: impl FnOnce(T) -> U + Send + 'static) -> Answer<U>
    where
        T: 'static,
    {
        match self {
            Self::Now(value) => Answer::Now(f(value)),
            Self::Later(future) => Answer::later(async move { f(future.await) }),
        }
    }

    /// Calls `f` with the value when it is ready. The result is the answer that `f` returns.
    ///
    /// ```
    /// use polyserve_core::Answer;
    /// let doubled = Answer::Now(1).then(|number| Answer::later(async move { 2 * number }));
    /// assert_eq!(doubled.wait(), 2);
    /// ```
    pub fn then<U>(self, f: impl FnOnce(T) -> Answer<U> + Send + 'static) -> Answer<U>
    where
        T: Send + 'static,
        U: Send + 'static,
    {
        match self {
            Self::Now(value) => f(value),
            Self::Later(future) => Answer::later(async move { f(future.await).await }),
        }
    }

    /// Parks this thread until the value is there.
    pub fn wait(self) -> T {
        match self {
            Self::Now(value) => value,
            Self::Later(mut future) => loop {
                if let Some(value) = park_until(None, |cx| future.as_mut().poll(cx)) {
                    break value;
                }
            },
        }
    }

    /// Parks this thread until the value is there or `deadline` has passed.
    ///
    /// # Errors
    ///
    /// Returns the answer itself if the deadline came first. It can be waited for again, or dropped.
    ///
    /// ```
    /// use polyserve_core::{Answer, promise};
    /// use std::time::Instant;
    ///
    /// let (completer, answer) = promise(0);
    /// let Err(answer) = answer.wait_until(Instant::now()) else { panic!("nothing was completed") };
    /// assert!(completer.complete(7).is_ok());
    /// assert_eq!(answer.wait_until(Instant::now()).ok(), Some(7));
    /// ```
    pub fn wait_until(self, deadline: Instant) -> Result<T, Self> {
        match self {
            Self::Now(value) => Ok(value),
            Self::Later(mut future) => {
                park_until(Some(deadline), |cx| future.as_mut().poll(cx)).ok_or(Self::Later(future))
            }
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(value) => f.debug_tuple("Now").field(value).finish(),
            Self::Later(_) => f.write_str("Later(..)"),
        }
    }
}

impl<T> From<T> for Answer<T> {
    fn from(value: T) -> Self {
        Self::Now(value)
    }
}

impl<T> IntoFuture for Answer<T> {
    type Output = T;
    type IntoFuture = AnswerFuture<T>;

    fn into_future(self) -> AnswerFuture<T> {
        AnswerFuture(Some(self))
    }
}

/// The future of an [`Answer`], which `answer.await` polls.
///
/// ```
/// use polyserve_core::Answer;
/// use std::future::IntoFuture;
/// let future = Answer::Now(7).into_future();
/// assert_eq!(Answer::later(future).wait(), 7);
/// ```
pub struct AnswerFuture<T>(Option<Answer<T>>);

impl<T> fmt::Debug for AnswerFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerFuture(..)")
    }
}

// No part is ever pinned: the value is moved out, and the future is boxed.
impl<T> Unpin for AnswerFuture<T> {}

impl<T> Future for AnswerFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if let Some(Answer::Later(future)) = &mut self.0 {
            return future.as_mut().poll(cx);
        }
        match self.0.take() {
            Some(Answer::Now(value)) => Poll::Ready(value),
            _ => panic!("an answer is not polled after it was ready"),
        }
    }
}

/// Polls on this thread, and parks it in between, until `poll` is ready or `deadline` has passed. Returns `None` if the
/// deadline has passed.
///
/// It polls once more after the deadline, so that a value that arrived in time is not lost.
///
/// ```
/// use polyserve_core::park_until;
/// use std::task::Poll;
/// use std::time::Instant;
/// assert_eq!(park_until(None, |_| Poll::Ready(7)), Some(7));
/// assert_eq!(park_until(Some(Instant::now()), |_| Poll::<u32>::Pending), None);
/// ```
pub fn park_until<T>(deadline: Option<Instant>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    let waker = thread_waker();
    let mut cx = Context::from_waker(&waker);
    loop {
        let is_late = deadline.is_some_and(|deadline| now() >= deadline);
        if let Poll::Ready(value) = poll(&mut cx) {
            return Some(value);
        }
        match deadline {
            _ if is_late => return None,
            None => thread::park(),
            Some(deadline) => thread::park_timeout(deadline.saturating_duration_since(now())),
        }
    }
}

/// A waker that unparks one thread. A late wake unparks it without need, which `park` permits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns a waker that unparks the calling thread.
pub(crate) fn thread_waker() -> Waker {
    thread_local! {
        static WAKER: RefCell<Option<Waker>> = const { RefCell::new(None) };
    }
    let make = || Waker::from(Arc::new(Unpark(thread::current())));
    // The thread-local is gone while the thread's other locals are being destroyed. Waiting must still work there.
    WAKER.try_with(|cell| cell.borrow_mut().get_or_insert_with(make).clone()).unwrap_or_else(|_| make())
}

/// Returns the two ends of a promise: the [`Completer`] sets the value of the [`Answer`].
///
/// `if_dropped` is the value if the completer is dropped before it has completed, for instance by a panic.
///
/// ```
/// let (completer, answer) = polyserve_core::promise("nothing");
/// std::thread::spawn(move || completer.complete("done"));
/// assert_eq!(answer.wait(), "done");
///
/// let (completer, answer) = polyserve_core::promise("nothing");
/// drop(completer);
/// assert_eq!(answer.wait(), "nothing");
/// ```
pub fn promise<T: Send + 'static>(if_dropped: T) -> (Completer<T>, Answer<T>) {
    let shared = Arc::new(Mutex::new(PromiseState::Waiting(None)));
    let completer = Completer { shared: Arc::clone(&shared), if_dropped: Some(if_dropped) };
    (completer, Answer::later(Promised { shared }))
}

enum PromiseState<T> {
    Waiting(Option<Waker>),
    Ready(T),
    /// The value was returned, or the answer was dropped.
    Gone,
}

/// The writing end of a [`promise`].
pub struct Completer<T> {
    shared: Arc<Mutex<PromiseState<T>>>,
    if_dropped: Option<T>,
}

impl<T> Completer<T> {
    /// Sets the value of the answer.
    ///
    /// # Errors
    ///
    /// Returns the value if the answer was dropped.
    ///
    /// ```
    /// let (completer, answer) = polyserve_core::promise(0);
    /// assert!(!completer.is_abandoned());
    /// drop(answer);
    /// assert!(completer.is_abandoned());
    /// assert_eq!(completer.complete(7), Err(7));
    /// ```
    pub fn complete(mut self, value: T) -> Result<(), T> {
        self.if_dropped = None;
        self.settle(value)
    }

    /// Whether the answer was dropped, so that the value is not needed any more.
    pub fn is_abandoned(&self) -> bool {
        matches!(*lock(&self.shared), PromiseState::Gone)
    }

    fn settle(&self, value: T) -> Result<(), T> {
        let mut state = lock(&self.shared);
        let PromiseState::Waiting(waker) = &mut *state else { return Err(value) };
        let waker = waker.take();
        *state = PromiseState::Ready(value);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        if let Some(value) = self.if_dropped.take() {
            let _ = self.settle(value);
        }
    }
}

impl<T> fmt::Debug for Completer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completer(..)")
    }
}

struct Promised<T> {
    shared: Arc<Mutex<PromiseState<T>>>,
}

impl<T> Future for Promised<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = lock(&self.shared);
        match &mut *state {
            PromiseState::Waiting(Some(waker)) if waker.will_wake(cx.waker()) => return Poll::Pending,
            PromiseState::Waiting(waker) => {
                *waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            PromiseState::Ready(_) | PromiseState::Gone => {}
        }
        match std::mem::replace(&mut *state, PromiseState::Gone) {
            PromiseState::Ready(value) => Poll::Ready(value),
            PromiseState::Waiting(_) | PromiseState::Gone => panic!("a promise is not polled after it was answered"),
        }
    }
}

impl<T> Drop for Promised<T> {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut *lock(&self.shared), PromiseState::Gone);
        drop(state); // outside the lock, because the drop of a value is foreign code
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use super::*;
    use crate::test_wakers::CountingWaker;
    use std::time::Duration;

    #[test]
    fn the_last_waker_is_the_one_that_is_woken() {
        let (first, second) = (Arc::new(CountingWaker::default()), Arc::new(CountingWaker::default()));
        let (completer, answer) = promise(0);
        let mut future = answer.into_future();
        for count in [&first, &second] {
            let waker = Waker::from(Arc::clone(count));
            assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        completer.complete(1).unwrap();
        assert_eq!((first.get(), second.get()), (0, 1));
    }

    #[test]
    fn then_chains_now_and_later() {
        let (completer, answer) = promise(0);
        let chained = answer.then(|n| Answer::Now(n + 1)).then(|n| Answer::later(async move { n * 10 }));
        completer.complete(4).unwrap();
        assert_eq!(chained.wait_until(Instant::now() + Duration::from_secs(60)).unwrap(), 50);
    }
}
