//! The thread that looks after the shared: connections that wait too long, threads to join, and the drain.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::Drain;
use polyserve_core::serving::{LingeringSet, SHUTDOWN_SLACK, drain_backlog};
use polyserve_core::sync::{lock, write};

use super::shared::{Leader, Shared};

/// How long a connection may wait for a leader that is held up, before the supervisor looks.
const LOOK: Duration = Duration::from_millis(5);

/// Looks without anything new after which it sleeps until it is woken.
const QUIET_LOOKS: u32 = 20;

/// Looks without anything accepted after which all that waits is handed over.
const STALLED_LOOKS: u32 = 2;

/// So many accepted between two looks are fast: the service does not wait for anything.
const FAST: u64 = 32;

pub(super) struct Supervisor {
    shared: Arc<Shared>,
    /// How many connections had been accepted at the last look, and for how many looks.
    accepted: u64,
    unchanged: u32,
    /// Threads that can run at once.
    cores: usize,
}

impl Supervisor {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { shared, accepted: 0, unchanged: 0, cores }
    }

    /// Runs until the shutdown and through it.
    pub(super) fn run(mut self) -> Drain {
        let me = self.shared.supervisor.get_or_init(thread::current).clone();
        self.shared.server.shutdown.on_begin(move || me.unpark());
        self.shared.promote();
        while !self.shared.server.shutdown.is_begun() {
            self.join_ended();
            lock(&self.shared.lingering).sweep();
            self.look();
            self.rest();
        }
        self.drain()
    }

    /// Hands over what waits for a leader that is held up.
    fn look(&mut self) {
        let accepted = self.shared.accepted.load(Ordering::SeqCst);
        self.unchanged = if accepted == self.accepted { self.unchanged.saturating_add(1) } else { 0 };
        for _ in 0..self.most_to_hand_over(accepted - self.accepted) {
            // An error has been logged, and waits for the next look.
            let Ok(Some(stream)) = self.shared.accept() else { break };
            self.shared.hand_over(stream);
        }
        self.accepted = self.shared.accepted.load(Ordering::SeqCst);
    }

    /// How many of those that wait get a thread now. Where nothing moves, all; where a leader is slow, some more at each
    /// look; where it is fast, as many as could run beside it.
    fn most_to_hand_over(&self, accepted: u64) -> usize {
        if self.shared.leader_is(Leader::Watches) {
            return 0;
        }
        if self.unchanged >= STALLED_LOOKS || !lock(&self.shared.registry).led {
            return self.shared.server.config.backlog as usize;
        }
        if self.shared.leader_is(Leader::Expects) {
            return 0; // it steps back if that takes longer
        }
        if accepted < FAST { self.cores } else { self.cores.saturating_sub(self.shared.eager.load(Ordering::Relaxed)) }
    }

    /// Until the next look; or, where the leader waits and nothing else is to be done, until woken.
    fn rest(&self) {
        let shared = &self.shared;
        if self.unchanged < QUIET_LOOKS {
            return thread::park_timeout(LOOK);
        }
        // First this, then a last look: what comes after it sees this thread asleep and wakes it.
        shared.asleep.store(true, Ordering::SeqCst);
        let quiet = shared.leader_is(Leader::Watches)
            && shared.accepted.load(Ordering::SeqCst) == self.accepted
            && lock(&shared.registry).gone.is_empty()
            && lock(&shared.lingering).deadline().is_none()
            && !shared.server.shutdown.is_begun();
        if quiet {
            thread::park();
        } else {
            thread::park_timeout(LOOK);
        }
        shared.asleep.store(false, Ordering::SeqCst);
    }

    fn join_ended(&self) {
        let mut registry = lock(&self.shared.registry);
        let gone = std::mem::take(&mut registry.gone);
        let ended: Vec<_> = gone.iter().filter_map(|name| registry.threads.remove(name)).collect();
        drop(registry);
        for (thread, _) in ended {
            let _ = thread.join(); // it caught what could panic
        }
    }

    fn drain(self) -> Drain {
        let shared = &self.shared;
        shared.asleep.store(true, Ordering::SeqCst); // from now on, who ends rouses it
        // The leader has been woken, and nobody serves with this lock.
        let listener = write(&shared.listener).take();
        for (_, slot) in lock(&shared.registry).threads.values() {
            slot.leave_if_idle();
        }
        if let Some(listener) = listener {
            drain_backlog(listener, &shared.server, |guest| {
                if let Some(guest) = shared.admit(guest) {
                    shared.hand_over(guest);
                }
            });
        }
        let mut registry = lock(&shared.registry);
        registry.closed = true;
        for (_, thread) in registry.idle_threads.drain(..) {
            thread.unpark();
        }
        for (_, slot) in registry.threads.values() {
            slot.leave_if_idle();
        }
        drop(registry);
        let deadline = shared.server.shutdown.deadline().unwrap_or_else(Instant::now);
        if !self.all_end_until(deadline) {
            for (_, slot) in lock(&shared.registry).threads.values() {
                slot.cut();
            }
            self.all_end_until(deadline + SHUTDOWN_SLACK);
        }
        self.see_off();
        shared.server.drained(lock(&shared.registry).threads.len())
    }

    /// Joins threads until all have ended (true) or `deadline` has passed.
    fn all_end_until(&self, deadline: Instant) -> bool {
        loop {
            self.join_ended();
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = lock(&self.shared.registry).threads.is_empty();
            if ended || left.is_zero() {
                return ended;
            }
            thread::park_timeout(left);
        }
    }

    /// Waits until the lingering have closed, or the shutdown's deadline.
    fn see_off(&self) {
        let linger = self.shared.server.config.linger_timeout;
        let mut lingering = std::mem::replace(&mut *lock(&self.shared.lingering), LingeringSet::new(linger));
        lingering.finish(&self.shared.server);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::Barrier;
    use std::thread::JoinHandle;

    use polyserve_core::service::Echo;
    use polyserve_core::{Answer, Reply, Request, ServerConfig, Service, Status};

    use super::*;
    use polyserve_core::serving::bind;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Two requests wait for each other in the service's own blocking code.
    struct Meeting(Barrier);

    impl Service for Meeting {
        fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
            self.0.wait();
            Answer::Now(Reply::empty(Status::OK))
        }
    }

    fn ask(addr: SocketAddr) -> io::Result<String> {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn run(service: Arc<dyn Service>) -> (Arc<Shared>, SocketAddr, JoinHandle<Drain>) {
        let addr = "127.0.0.1:0".parse().unwrap();
        let opening = bind(addr, &ServerConfig::default(), service).unwrap();
        let addr = opening.local_addr;
        let shared = Arc::new(Shared::new(opening).unwrap());
        let supervisor = Supervisor::new(Arc::clone(&shared));
        (shared, addr, thread::spawn(move || supervisor.run()))
    }

    fn wait_until(holds: impl Fn() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < until, "it never comes");
            thread::yield_now();
        }
    }

    /// A supervisor that looked every 5 ms for ever kept an idle machine awake. One that sleeps must be woken by the
    /// next connection, or nobody looks after a leader that is held up, and by a shutdown.
    #[test]
    fn it_sleeps_where_nothing_happens_and_is_roused() {
        let (shared, addr, supervisor) = run(Arc::new(Meeting(Barrier::new(2))));
        let is_asleep = || shared.asleep.load(Ordering::SeqCst);
        for _ in 0..3 {
            wait_until(is_asleep);
            for client in [(); 2].map(|()| thread::spawn(move || ask(addr))) {
                let answer = client.join().unwrap().unwrap();
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
            }
        }
        wait_until(is_asleep);
        shared.server.shutdown.begin(Instant::now() + PATIENCE);
        assert_eq!(supervisor.join().unwrap().answered, 6);
    }

    /// A leader that waited for its own connection's next request would leave new ones to the supervisor, which comes
    /// too late: while connections are kept, spoken or silent, somebody must wait for the listener.
    #[test]
    fn somebody_leads_while_connections_are_kept() {
        let (shared, addr, supervisor) = run(Arc::new(Echo));
        let mut kept = Vec::new();
        for round in 0..8 {
            let mut stream = TcpStream::connect(addr).unwrap();
            if round % 2 == 0 {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                stream.read_exact(&mut [0; 12]).unwrap();
            }
            kept.push(stream);
            wait_until(|| shared.accepted.load(Ordering::SeqCst) == round + 1 && shared.leader_is(Leader::Watches));
        }
        shared.server.shutdown.begin(Instant::now() + PATIENCE);
        assert_eq!(supervisor.join().unwrap().answered, 4);
    }
}
