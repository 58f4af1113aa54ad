//! The threads of a run: one for each listener.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::{ListenOn, Running, ServerConfig, Service};
use polyserve_serving::{ConnectionTable, EventListener, EventSocket, ServerState, WokenList, net};

/// What an event is about: one of these, or the number of a connection.
pub(crate) const LISTENER: usize = usize::MAX;
pub(crate) const WAKE: usize = usize::MAX - 1;

/// The max number of connections that a loop accepts by calls before the others have a turn.
pub(crate) const MAX_ACCEPTED: usize = 64;

/// A wait that takes less time has not blocked.
const MIN_WAIT: Duration = Duration::from_micros(50);

/// The event loop of a thread.
pub(crate) trait EventLoop: Sized + 'static {
    /// Prepares the loop, on its thread. `shard`: the number of the thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the system lacks what the loop waits with.
    fn new(table: &Arc<ConnectionTable<EventSocket>>, listener: TcpListener, shard: usize) -> io::Result<Self>;

    /// Serves until a drain has ended. Reports the end of its accept loop to the table.
    fn run(self);
}

/// Returns what accepts from the listener of a loop, and what wakes the loop by `event`, an eventfd(2). A shutdown wakes it with the
/// number [`LISTENER`].
pub(crate) fn listen(
    table: &ConnectionTable<EventSocket>,
    listener: Arc<TcpListener>,
    event: impl AsFd + Send + Sync + 'static,
) -> (EventListener, WokenList) {
    // Each write is reported, whatever the counter is, so it is never read. It cannot overflow within the age of the universe.
    let woken = WokenList::new(move || {
        let _ = rustix::io::write(&event, &1_u64.to_ne_bytes());
    });
    table.register_listener(&listener);
    let of_shutdown = woken.clone();
    table.server.shutdown.on_begin(move || of_shutdown.wake(LISTENER));
    (EventListener::new(listener, table.server.config.backlog), woken)
}

/// Starts a run called `name`, with a thread for each worker. Returns once all loops are ready.
pub(crate) fn start<L: EventLoop>(
    name: &'static str,
    on: ListenOn,
    config: &ServerConfig,
    service: Arc<dyn Service>,
) -> io::Result<Running> {
    let server = Arc::new(ServerState::new(service, config).listening_on(&on));
    let listeners = net::listen_together(on, config.workers_or(1), config)?;
    let local_addr = listeners[0].local_addr()?;
    let table = ConnectionTable::<EventSocket>::multiplexed(server, listeners.len());
    let (grace, shutdown) = (config.drain_grace, table.server.shutdown.clone());
    let threads = listeners.into_iter().enumerate().map(|(shard, listener)| {
        listener.set_nonblocking(true)?;
        let (table, (report, reports)) = (Arc::clone(&table), mpsc::channel());
        let thread = thread::Builder::new().name(format!("{name}-{shard}")).spawn(move || {
            match L::new(&table, listener, shard) {
                Ok(events) => {
                    let _ = report.send(Ok(())); // an error: the start has failed
                    events.run();
                }
                Err(error) => drop(report.send(Err(error))),
            }
        })?;
        reports.recv().unwrap_or_else(|_| Err(io::Error::other("the thread of an event loop has panicked")))?;
        Ok(thread)
    });
    let threads: io::Result<Vec<_>> = threads.collect();
    let threads = threads.inspect_err(|_| shutdown.begin(Instant::now()))?; // it ends the loops that have begun
    Running::start(&format!("{name}-main"), local_addr, grace, shutdown, table.counters(), move || {
        let drain = table.supervise();
        let ended = threads.into_iter().filter(|thread| drain.stuck == 0 || thread.is_finished());
        table.server.join(ended.collect());
        drain
    })
}

/// Since when what a wait has reported was ready. `last`: the end of the wait before.
///
/// What a wait has blocked for is ready at its end. What was there already has become ready at some time since the wait before, while the
/// loop served others: in the mean at half of it.
pub(crate) fn ready_since(last: Option<Instant>, [began, ended]: [Instant; 2]) -> Instant {
    let has_blocked = ended.saturating_duration_since(began) >= MIN_WAIT;
    match last.filter(|_| !has_blocked) {
        Some(last) => last + ended.saturating_duration_since(last) / 2,
        None => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What arrived while the loop served others had waited for no time.
    #[test]
    fn what_arrived_while_the_loop_was_busy_has_waited() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(ready_since(None, [at(0), at(0)]), at(0));
        assert_eq!(ready_since(Some(at(0)), [at(8), at(8)]), at(4));
        assert_eq!(ready_since(Some(at(0)), [at(8), at(9)]), at(9), "it has blocked");
    }
}
