//! Fairness: how much of a server one client may take while another client waits.

use super::prelude::*;

impl ServerSubject {
    /// The smallest queue length if these servers have a queue, else `None` for the default.
    pub(super) fn smallest_queue(&self) -> Option<usize> {
        let smallest = ServerConfig::default().queue(1);
        self.make(smallest).is_ok().then_some(1)
    }
}

/// If one client pipelines without a pause, a second client is still served. Tested with one worker and a queue of one too.
///
/// A multiplexed server serves the two in turn. If connections hold threads, the server ends the first connection with
/// a `Connection: close` answer when the second client waits for its thread.
pub(super) fn a_pipelining_client_leaves_room_at_a_full_queue(subject: &ServerSubject) {
    let (workers, queue, max_wait) = (subject.workers_or_pool(1), subject.smallest_queue(), subject.max_wait);
    let live = subject.live(Echo, defaults().workers(workers).queue(queue));
    let answers = AtomicU64::new(0);
    let pipeline = |done: &AtomicBool| pipeline_without_pause(live.addr, max_wait, true, done, &answers);
    besides([pipeline], || {
        assert!(eventually(max_wait, || answers.load(Ordering::SeqCst) >= 20), "the pipelining client is not served");
        for _ in 0..5 {
            live.ask_until_served(&request("GET", "/", "Connection: close\r\n"));
        }
    });
}

/// Clients that pipeline many requests with deferred answers do not block the workers. A third client is answered while most
/// of those requests still wait.
///
/// Tested with two workers, two clients that send 100 requests each in one write, and half a second for each answer.
pub(super) fn pipelined_deferred_answers_leave_room(subject: &ServerSubject) {
    const REQUESTS: usize = 100;
    let live = subject.live(delayed, subject.with_workers(2));
    let mut clients = live.senders(2, &get("/500").repeat(REQUESTS));
    for client in clients.iter().take(subject.at_a_time(2)) {
        assert!(eventually(subject.max_wait, || client.has_input()), "the pipelining clients are not served");
    }
    live.ask_until_served(&request("GET", "/0", "Connection: close\r\n"));
    for client in &mut clients {
        let answers = client.arrived_answers();
        assert!(
            answers < REQUESTS / 2,
            "the third client was answered after {answers} of {REQUESTS} of another client"
        );
    }
}

/// A client that always has a request in progress does not block a second client for ever.
///
/// The first client completes each head in time, and sends the start of the next head with it. If the second client
/// needs the first client's thread, the next answer says `Connection: close`.
pub(super) fn a_client_with_half_a_head_leaves_room(subject: &ServerSubject) {
    let max_wait = subject.max_wait;
    let live = subject.live(Echo, subject.with_workers(1));
    let answers = AtomicU64::new(0);
    let (start, rest) = (&get("/")[..8], &get("/")[8..]);
    let next = [rest, start].concat();
    let ask = |done: &AtomicBool| {
        while !done.load(Ordering::SeqCst) {
            let Ok(mut client) = Client::connect(live.addr, max_wait) else { continue };
            let mut is_open = client.send(start).is_ok();
            while is_open && !done.load(Ordering::SeqCst) {
                is_open = client.send(&next).is_ok() && client.receive().is_ok_and(|answer| !answer.closes());
                answers.fetch_add(1, Ordering::SeqCst);
                let_pass(Duration::from_millis(10));
            }
        }
    };
    besides([ask], || {
        assert!(eventually(max_wait, || answers.load(Ordering::SeqCst) >= 3), "the first client is not served");
        for _ in 0..3 {
            live.ask_until_served(&request("GET", "/", "Connection: close\r\n"));
        }
    });
}

/// A head that arrives one byte at a time ends at the head timeout, and the client that waited for its worker is
/// served.
pub(super) fn a_dripping_head_leaves_room(subject: &ServerSubject) {
    const HEAD_TIMEOUT: Duration = Duration::from_millis(300);
    let live = subject.live(Echo, subject.with_workers(1).head_timeout(HEAD_TIMEOUT));
    let max_wait = subject.max_wait;
    let dripping = live.sending(b"GET / HTTP/1.1\r\nHost: a\r\nX: ");
    let mut sender = dripping.write_half().expect("a second handle");
    let drip = |done: &AtomicBool| {
        let deadline = Instant::now() + 2 * max_wait;
        while !done.load(Ordering::SeqCst) && Instant::now() < deadline && sender.send(b"x").is_ok() {
            let_pass(Duration::from_millis(20));
        }
    };
    besides([drip], || live.ask(&request("GET", "/", "Connection: close\r\n"), 200));
}
