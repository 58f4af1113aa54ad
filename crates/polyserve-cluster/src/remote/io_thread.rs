//! [`IoThread`]: the thread that owns the engine's connections, and the bounded queue to it.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::ready;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use polyserve_core::panics::isolate;
use polyserve_core::stack::FOR_ANY_VALUE;
use polyserve_core::{Answer, RepoAnswer, RepoError, promise};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::spawn_local;

use super::counts::EngineCounts;
use crate::error::ConnectError;
use crate::limits::StoreLimits;

/// An operation. It starts a task on the I/O thread. The task holds the permit until it ends.
type IoJob<N> = Box<dyn FnOnce(Rc<N>, Permit) + Send>;

/// An operation of fewer bytes, such as a get, is bounded only in number: large writes do not refuse it.
const SMALL: usize = 4 * 1_024;

/// The max number of host names that are resolved at the same time, each on a thread of its own, which tokio ends some seconds later. A
/// lookup that hangs keeps its thread until the system gives it up, 30 s by default with three name servers, and meanwhile the host may be
/// tried again. So it does not keep the store from the other hosts.
const MAX_LOOKUPS: usize = 64;

/// A thread with a tokio runtime. Dropping it ends the thread, and answers all operations with [`RepoError::Closed`].
pub(crate) struct IoThread<N> {
    queue: IoQueue<N>,
    counts: Arc<EngineCounts>,
    /// Dropping it ends the thread.
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

/// The bounded queue to the thread. Clones share it. After the end of the thread, it answers with [`RepoError::Closed`].
pub(crate) struct IoQueue<N> {
    jobs: mpsc::Sender<IoJob<N>>,
    /// The number of bytes of the operations that are not answered.
    bytes: Arc<AtomicUsize>,
    /// The number of bytes of entities that were fetched: those that no caller has taken, and those of writes with a condition.
    fetched: Arc<AtomicUsize>,
    max_bytes: usize,
}

impl<N> Clone for IoQueue<N> {
    fn clone(&self) -> Self {
        Self {
            jobs: self.jobs.clone(),
            bytes: Arc::clone(&self.bytes),
            fetched: Arc::clone(&self.fetched),
            max_bytes: self.max_bytes,
        }
    }
}

impl<N: 'static> IoThread<N> {
    /// Starts the thread, which calls `open` for its engine.
    pub(crate) fn start(
        name: &str,
        limits: &StoreLimits,
        open: impl FnOnce() -> N + Send + 'static,
    ) -> Result<Self, ConnectError> {
        let cannot = |error| ConnectError::caused("cannot start the I/O thread", error);
        let mut runtime = Builder::new_current_thread();
        runtime.enable_all().max_blocking_threads(MAX_LOOKUPS);
        let (jobs, queue) = mpsc::channel(limits.max_waiting.get());
        let (stop, stopped) = oneshot::channel();
        let (started, start) = std::sync::mpsc::channel();
        let max_in_flight = limits.max_in_flight.get();
        let counts = Arc::<EngineCounts>::default();
        let of_thread = Arc::clone(&counts);
        let thread =
            thread::Builder::new().name(format!("polyserve-{name}")).stack_size(FOR_ANY_VALUE).spawn(move || {
                // A local runtime cannot be sent to another thread: it is made here.
                let runtime = match runtime.build_local(LocalOptions::default()) {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(started.send(error)),
                };
                drop(started);
                of_thread.count_this_thread();
                let queue = Drained(queue);
                runtime.block_on(async {
                    spawn_local(serve(Rc::new(open()), queue, max_in_flight));
                    let _ = stopped.await;
                });
                // This drops all tasks, and with them their completers. A resolver may hang: its thread is left behind.
                runtime.shutdown_background();
            });
        let thread = thread.map_err(cannot)?;
        match start.recv() {
            Ok(error) => Err(cannot(error)),
            Err(_) => {
                let (bytes, fetched, max_bytes) = (Arc::default(), Arc::default(), limits.max_bytes.get());
                let queue = IoQueue { jobs, bytes, fetched, max_bytes };
                Ok(Self { queue, counts, stop: Some(stop), thread: Some(thread) })
            }
        }
    }

    /// Returns what happens to the connections of the thread.
    pub(crate) fn counts(&self) -> &Arc<EngineCounts> {
        &self.counts
    }

    /// Returns the queue to the thread.
    pub(crate) fn queue(&self) -> &IoQueue<N> {
        &self.queue
    }
}

impl<N: 'static> IoQueue<N> {
    /// Runs `operation`, which has this number of bytes, on the I/O thread. The answer is always later, also if there is no room.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        bytes: usize,
        operation: impl AsyncFnOnce(Rc<N>) -> Result<T, RepoError> + Send + 'static,
    ) -> RepoAnswer<T> {
        let Some(held) = HeldBytes::new(&self.bytes, bytes, self.max_bytes) else {
            return Answer::later(ready(Err(RepoError::Overloaded)));
        };
        let (completer, answer) = promise(Err(RepoError::Closed));
        let job: IoJob<N> = Box::new(move |engine, permit| {
            spawn_local(async move {
                let result = operation(engine).await;
                drop((permit, held));
                let _ = completer.complete(result);
            });
        });
        match self.jobs.try_send(job) {
            // A closed queue drops the job with its completer, which answers `Closed`.
            Ok(()) | Err(TrySendError::Closed(_)) => answer,
            Err(TrySendError::Full(_)) => Answer::later(ready(Err(RepoError::Overloaded))),
        }
    }

    /// Does the same for an operation that fetches entities, and holds them by the second argument of `operation`. If there are as many
    /// bytes of such entities as there may be, an operation that is to start is [`RepoError::Overloaded`].
    pub(crate) fn submit_read<T: Send + 'static>(
        &self,
        bytes: usize,
        operation: impl AsyncFnOnce(Rc<N>, &Fetched) -> Result<T, RepoError> + Send + 'static,
    ) -> RepoAnswer<T> {
        let (fetched, max) = (Fetched(Arc::clone(&self.fetched)), self.max_bytes);
        self.submit(bytes, async move |engine| {
            if fetched.0.load(Relaxed) >= max {
                return Err(RepoError::Overloaded);
            }
            operation(engine, &fetched).await
        })
    }
}

/// The bytes of the entities that were fetched, and that are held.
pub(crate) struct Fetched(Arc<AtomicUsize>);

impl Fetched {
    /// Counts bytes until the result is dropped.
    pub(crate) fn hold(&self, bytes: usize) -> HeldBytes {
        self.0.fetch_add(bytes, Relaxed);
        HeldBytes { total: Arc::clone(&self.0), bytes }
    }
}

/// Starts a task for each job while fewer than the max number are in flight.
async fn serve<N>(engine: Rc<N>, mut queue: Drained<N>, max_in_flight: usize) {
    let in_flight = Rc::new(InFlight::default());
    while let Some(job) = queue.0.recv().await {
        job(Rc::clone(&engine), Permit::new(&in_flight));
        while in_flight.count.get() >= max_in_flight {
            in_flight.ended.notified().await;
        }
    }
}

/// The number of operations in flight.
#[derive(Default)]
struct InFlight {
    count: Cell<usize>,
    ended: Notify,
}

/// Counts an operation as in flight until it is dropped.
struct Permit(Rc<InFlight>);

impl Permit {
    fn new(in_flight: &Rc<InFlight>) -> Self {
        in_flight.count.set(in_flight.count.get() + 1);
        Self(Rc::clone(in_flight))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.ended.notify_one();
    }
}

/// Counts the bytes of an operation, or of what it has fetched, until it is dropped.
pub(crate) struct HeldBytes {
    total: Arc<AtomicUsize>,
    bytes: usize,
}

impl HeldBytes {
    /// Returns `None` if there are `max` bytes already, unless the operation is small.
    fn new(total: &Arc<AtomicUsize>, bytes: usize, max: usize) -> Option<Self> {
        let has_room = |held: usize| (held < max || bytes < SMALL).then_some(held.saturating_add(bytes));
        total.fetch_update(Relaxed, Relaxed, has_room).ok()?;
        Some(Self { total: Arc::clone(total), bytes })
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Relaxed);
    }
}

/// The queue of jobs. When it is dropped, each job that is left is answered with `Closed`.
struct Drained<N>(mpsc::Receiver<IoJob<N>>);

impl<N> Drop for Drained<N> {
    fn drop(&mut self) {
        self.0.close();
        while let Ok(job) = self.0.try_recv() {
            // Dropping the completer wakes the waiting thread, and that waker may panic.
            let _ = isolate(|| drop(job));
        }
    }
}

impl<N> IoThread<N> {
    /// Returns whether the caller runs on the I/O thread.
    pub(crate) fn is_current(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.thread().id() == thread::current().id())
    }
}

impl<N> Drop for IoThread<N> {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A waker may hold the last reference to the store. A thread cannot wait for itself.
        if !self.is_current()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use tokio::task::spawn_blocking;
    use tokio::time::timeout;

    use super::*;

    /// Regression test: the lookup of a host name that hung kept the store from all other hosts. The runtime runs each lookup as other work
    /// that blocks.
    #[test]
    fn a_lookup_that_hangs_delays_no_other() {
        const HANGING: usize = 16;
        let io = IoThread::start("test", &StoreLimits::default(), || ()).expect("it starts");
        let answer = io.queue().submit(0, async |_| {
            let hanging: Vec<_> = (0..HANGING)
                .map(|_| {
                    let (release, released) = channel::<()>();
                    (release, spawn_blocking(move || released.recv()))
                })
                .collect();
            let other = timeout(Duration::from_secs(60), spawn_blocking(|| "found")).await;
            let (release, hanging): (Vec<_>, Vec<_>) = hanging.into_iter().unzip();
            assert!(hanging.iter().all(|lookup| !lookup.is_finished()), "they hang");
            drop(release);
            Ok(other.is_ok_and(|found| found.is_ok()))
        });
        assert!(answer.wait().expect("the thread runs"), "the other lookup waits");
    }

    /// Regression test: large writes that were refused counted for a moment, and refused a get.
    #[test]
    fn only_large_operations_need_room() {
        let (total, max) = (Arc::default(), 100_000);
        let large = HeldBytes::new(&total, 100_000, max).expect("there is room");
        assert!(HeldBytes::new(&total, SMALL, max).is_none());
        assert_eq!(total.load(Relaxed), 100_000);
        let small = HeldBytes::new(&total, 20, max).expect("it is small");
        assert_eq!(total.load(Relaxed), 100_020);
        drop((large, small));
        assert_eq!(total.load(Relaxed), 0);
    }
}
