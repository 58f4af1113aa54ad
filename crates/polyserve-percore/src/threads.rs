//! The threads of a run: one for each listener.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::{ListenOn, Running, ServerConfig, Service};
use polyserve_serving::{ConnectionTable, EventListener, ServerState, WokenList, net};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::loop_socket::LoopSocket;
use crate::spread::{LoopShare, Spread};

/// What an event is about: one of these, or the number of a connection.
pub(crate) const LISTENER: usize = usize::MAX;
pub(crate) const WAKE: usize = usize::MAX - 1;

/// The max number of connections that a loop accepts by calls before the others have a turn.
pub(crate) const MAX_ACCEPTED: usize = 64;

/// A wait that takes less time has not blocked.
const MIN_WAIT: Duration = Duration::from_micros(50);

/// The event loop of a thread.
pub(crate) trait EventLoop: Sized + 'static {
    /// Prepares the loop, on its thread. `share`: its part in the spreading of connections.
    ///
    /// # Errors
    ///
    /// Returns an error if the system lacks what the loop waits with.
    fn new(table: &Arc<ConnectionTable<LoopSocket>>, listener: TcpListener, share: LoopShare) -> io::Result<Self>;

    /// Serves until a drain has ended. Reports the end of its accept loop to the table.
    fn run(self);
}

/// Returns what accepts from the listener of a loop, and what wakes the loop by `event`, an eventfd(2). A shutdown wakes it with the
/// number [`LISTENER`].
pub(crate) fn listen(
    table: &ConnectionTable<LoopSocket>,
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
    let table = ConnectionTable::<LoopSocket>::multiplexed(server, listeners.len());
    let (grace, shutdown) = (config.drain_grace, table.server.shutdown.clone());
    let cores = config.pin.then(cores).transpose()?;
    let spread = config.spread.then(|| Arc::new(Spread::new(listeners.len())));
    let threads = listeners.into_iter().enumerate().map(|(shard, listener)| {
        listener.set_nonblocking(true)?;
        let (table, (report, reports)) = (Arc::clone(&table), mpsc::channel());
        let share = LoopShare::new(shard, spread.clone());
        let core = cores.as_ref().and_then(|cores| cores.get(shard % cores.len()).copied());
        let thread = thread::Builder::new().name(format!("{name}-{shard}")).spawn(move || {
            match core.map_or(Ok(()), pin).and_then(|()| L::new(&table, listener, share)) {
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
/// What a wait has blocked for is ready at its end. What was there already has become ready since the wait before, while the loop served
/// others: half of that time is the mean.
pub(crate) fn ready_since(last: Option<Instant>, [began, ended]: [Instant; 2]) -> Instant {
    let has_blocked = ended.saturating_duration_since(began) >= MIN_WAIT;
    match last.filter(|_| !has_blocked) {
        Some(last) => last + ended.saturating_duration_since(last) / 2,
        None => ended,
    }
}

/// The cores that this process may use.
fn cores() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect())
}

/// Keeps the calling thread on a core.
fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use polyserve_core::{Answer, Reply, Request, Server, ServerExt as _};

    use super::*;
    use crate::{Epoll, IoUring};

    /// The cores of the thread that answers.
    fn answered_on(server: &dyn Server) -> Vec<usize> {
        let (send, seen) = mpsc::channel();
        let service = move |_: Request<'_>| {
            let _ = send.send(cores().unwrap());
            Reply::text("")
        };
        let running = server.serve("127.0.0.1:0", service).unwrap();
        let mut client = TcpStream::connect(running.local_addr()).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
        running.shutdown().unwrap();
        seen.recv().unwrap()
    }

    /// The servers that run here. Prints that `test` is not run on the other one, past the capture of the test harness.
    fn servers(test: &str, config: &ServerConfig) -> Vec<Box<dyn Server>> {
        let mut servers: Vec<Box<dyn Server>> = vec![Box::new(Epoll::new(config.clone()).unwrap())];
        match IoUring::check() {
            Ok(()) => servers.push(Box::new(IoUring::new(config.clone()).unwrap())),
            Err(error) => drop(writeln!(io::stderr(), "not run: {test}: io_uring: {error}")),
        }
        servers
    }

    /// Each loop gets as many connections as the others, whatever the kernel does. A drain answers all.
    #[test]
    fn loops_hand_connections_to_each_other() {
        const CLIENTS: usize = 30;
        for server in servers("loops_hand_connections_to_each_other", &ServerConfig::default().workers(3).spread(true))
        {
            let (send, seen) = mpsc::channel();
            let service = move |_: Request<'_>| {
                let _ = send.send(thread::current().name().unwrap().to_owned());
                Reply::text("")
            };
            let running = server.serve("127.0.0.1:0", service).unwrap();
            let mut clients = Vec::new();
            for _ in 0..CLIENTS {
                let mut client = TcpStream::connect(running.local_addr()).unwrap();
                client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                client.read_exact(&mut [0; 20]).unwrap();
                clients.push(client);
            }
            let threads: Vec<String> = seen.try_iter().collect();
            for thread in &threads {
                assert_eq!(threads.iter().filter(|other| *other == thread).count(), CLIENTS / 3, "{threads:?}");
            }
            assert_eq!(running.counters().open, CLIENTS as u64);
            let drain = running.shutdown().unwrap();
            assert_eq!((drain.answered, drain.cut, drain.stuck), (CLIENTS as u64, 0, 0));
        }
    }

    #[test]
    fn a_pinned_loop_stays_on_a_core() {
        let allowed = cores().unwrap();
        let test = "a_pinned_loop_stays_on_a_core";
        let config = ServerConfig::default().workers(allowed.len() + 1);
        for server in servers(test, &config) {
            assert_eq!(answered_on(&*server), allowed);
        }
        for server in servers(test, &config.pin(true)) {
            let core = answered_on(&*server);
            assert!(core.len() == 1 && allowed.contains(&core[0]), "{core:?} of {allowed:?}");
        }
        assert_eq!(cores().unwrap(), allowed, "the thread that starts a server stays as it is");
    }

    /// A service that does not look at addresses.
    struct Blind;

    impl Service for Blind {
        fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
            Answer::Now(Reply::text(""))
        }

        fn sees_peers(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_hook_sees_the_addresses_that_the_service_does_not() {
        let (send, seen) = mpsc::channel();
        let config = ServerConfig::default().workers(1).on_answer(move |report| {
            let _ = send.send(report.peer);
        });
        for server in servers("a_hook_sees_the_addresses_that_the_service_does_not", &config) {
            let running = server.serve("127.0.0.1:0", Blind).unwrap();
            let mut client = TcpStream::connect(running.local_addr()).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            client.read_to_end(&mut Vec::new()).unwrap();
            assert_eq!(seen.recv().unwrap(), Some(client.local_addr().unwrap()));
            running.shutdown().unwrap();
        }
    }

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
