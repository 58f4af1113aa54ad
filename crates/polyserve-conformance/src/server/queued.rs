//! Connections that wait in a queue: their timeouts, their drain, and the connections that are closed for them.

use polyserve_core::Head;

use super::prelude::*;

/// Long enough for a server to accept a connection and to queue it.
const QUEUED: Duration = Duration::from_millis(100);

/// Time in a queue counts towards the head timeout.
///
/// Half a head that has waited longer than the timeout is refused when a worker takes its connection. It does not get
/// the timeout a second time. A whole head that has waited as long is served.
///
/// A server without a queue refuses half a head while the other client's answer is still held back. The property
/// does not apply to a server of one connection, which does not know how long the kernel's queue held a connection. There, the
/// whole head has to be served.
pub(super) fn time_in_the_queue_counts_towards_the_head_timeout(subject: &ServerSubject) -> Result<(), String> {
    const HEAD_TIMEOUT: Duration = Duration::from_millis(800);
    attempts(3, || {
        let (live, held_answers, held) = hold_one(subject, subject.with_workers(1).head_timeout(HEAD_TIMEOUT));
        let mut whole = live.sending(&request("GET", "/", "Connection: close\r\n"));
        let mut half = live.sending(b"GET / HT");
        let_pass(HEAD_TIMEOUT + QUEUED);
        assert_eq!(held_answers.release_all(), 1, "the first answer is still wanted");
        let released = Instant::now();
        drop(held);
        whole.expect_last(200);
        if subject.shape() == Shape::One {
            return Ok(());
        }
        let (bytes, ending) = half.end();
        let delay = released.elapsed();
        assert_ne!(ending, Ending::Silent, "half a head is not refused\n{}", half.show());
        assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 408"), "half a head is served\n{}", half.show());
        needs(
            delay < HEAD_TIMEOUT / 2,
            &format!("half a head waited {HEAD_TIMEOUT:?} in the queue, and {delay:?} after that"),
        )
    });
    subject.needs_several("the kernel's queue does not say how long it held a connection")
}

/// Heads that stall at the same time end at the same time: five of them delay another client by one head timeout, not by five.
pub(super) fn stalled_heads_end_together(subject: &ServerSubject) {
    const HEAD_TIMEOUT: Duration = Duration::from_millis(800);
    const STALLED: usize = 5;
    attempts(3, || {
        let live = subject.live(Echo, subject.with_workers(1).head_timeout(HEAD_TIMEOUT));
        // Each sends before the next one connects: a server may serve those first that have sent something.
        let _stalled: Vec<Client> = (0..STALLED).map(|_| live.sending(b"GET / HT")).collect();
        let_pass(QUEUED);
        let sent = Instant::now();
        live.ask(&request("GET", "/", "Connection: close\r\n"), 200);
        let delay = sent.elapsed();
        let why =
            format!("a client waited {delay:?} for {STALLED} stalled heads, at a head timeout of {HEAD_TIMEOUT:?}");
        needs(delay < HEAD_TIMEOUT * 3, &why)
    });
}

/// If a connection waits for a thread when an answer is written, the answer says `Connection: close` and the
/// connection ends. So a client never loses a connection without an announcement.
///
/// A multiplexed server keeps the connection.
pub(super) fn an_answer_says_close_if_others_wait(subject: &ServerSubject) {
    let holds_threads = subject.shape() == Shape::One || subject.pooled;
    let mut pauses = [QUEUED, QUEUED * 4, QUEUED * 16, QUEUED * 64].into_iter();
    attempts(pauses.len(), || {
        let (live, held_answers, mut first) = hold_one(subject, subject.with_workers(1));
        let mut second = live.sending(&request("GET", "/", "Connection: close\r\n"));
        // The server may need a moment to see the second connection, and on a busy machine a longer one.
        let_pass(pauses.next().unwrap_or_default());
        assert_eq!(held_answers.release_all(), 1, "the first answer is still wanted");
        let answer = first.expect(200);
        if !holds_threads {
            assert!(!answer.closes(), "nothing waits for a thread, but the answer says close\n{}", first.show());
            first.ask(&get("/"), 200);
        } else if answer.closes() {
            first.expect_end();
        } else {
            return Err(format!("another connection waits, and the answer does not say close\n{}", first.show()));
        }
        second.expect_last(200);
        Ok(())
    });
}

/// A connection that is closed to make room for another one lingers. What its client sends during this time does not reset
/// it.
///
/// Tested with one worker of a pool in which connections hold threads, and at a limit of one connection on other servers.
pub(super) fn an_evicted_connection_is_not_reset(subject: &ServerSubject) {
    let config = subject.with_room_for(1).idle_timeout(NEVER).linger_timeout(Duration::from_secs(60));
    let live = subject.live(Echo, config);
    let mut first = live.client();
    first.ask(&get("/"), 200);
    live.ask_until_served(&request("GET", "/", "Connection: close\r\n"));
    assert!(eventually(subject.max_wait, || first.has_ended()), "the idle connection is not closed");
    for _ in 0..2 {
        // A server that does not linger answers the first of these requests with a reset. Then the second one cannot be
        // sent.
        first.send(&get("/")).expect("the connection that was closed for another one lingers");
        let_pass(QUEUED);
    }
    first.expect_end();
}

/// If more clients send requests than can be served at once, the server closes connections to serve others. It announces
/// nearly every close with `Connection: close`.
///
/// Tested with 8 clients that reconnect: on a pool of 2 threads that connections hold, on a server of one connection, and on a
/// server with a thread for each connection at a limit of 2 connections. At most one close of 10 may come without an
/// announcement, because a server may close what has been idle since its last answer. A close counts only if the client sent
/// its next request at once: a server may close a connection that a slow client leaves idle.
pub(super) fn closes_under_load_are_announced(subject: &ServerSubject) -> Result<(), String> {
    const CLIENTS: usize = 8;
    const MAX_SERVED: usize = 2;
    needs(subject.shape() != Shape::Multiplexed, "a multiplexed server serves all these clients at once")?;
    attempts(3, || {
        let live = subject.live(Echo, subject.with_room_for(MAX_SERVED));
        let (addr, max_wait) = (live.addr, subject.max_wait);
        let (announced, silent) = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(move || ask_in_a_loop(addr, max_wait))).collect();
            let closes = clients.into_iter().map(joined);
            closes.fold((0, 0), |sum, closes| (sum.0 + closes.0, sum.1 + closes.1))
        });
        let why = format!("{silent} connections were closed without an announcement, and {announced} with one");
        needs(silent * 10 <= announced + silent, &why)
    });
    Ok(())
}

/// Sends requests until 150 are answered, and reconnects after each close. Returns the numbers of closes that the last answer had
/// announced, and of the others.
fn ask_in_a_loop(addr: SocketAddr, max_wait: Duration) -> (usize, usize) {
    let (mut announced, mut silent, mut answers) = (0, 0, 0);
    let deadline = Instant::now() + max_wait;
    while answers < 150 && Instant::now() < deadline {
        let Ok(mut client) = Client::connect(addr, max_wait) else { continue };
        let mut is_kept = false;
        let mut answered = Instant::now();
        while answers < 150 {
            let _ = client.send(&get("/"));
            let pause = answered.elapsed();
            match client.receive() {
                Ok(response) if response.status == 503 => break,
                Ok(response) => {
                    answered = Instant::now();
                    answers += 1;
                    is_kept = !response.closes();
                    if !is_kept {
                        announced += 1;
                        break;
                    }
                }
                Err(_) => {
                    silent += usize::from(is_kept && pause < EVICTION_GRACE);
                    break;
                }
            }
        }
    }
    (announced, silent)
}

/// The drain serves requests that wait behind busy workers when the shutdown begins.
pub(super) fn requests_behind_busy_workers_are_served_by_the_drain(subject: &ServerSubject) {
    const WAITING: usize = 20;
    let (max_wait, held_answers) = (subject.max_wait, HeldAnswers::new());
    let live = subject.long_drain(held_answers.clone(), subject.with_workers(2));
    let mut busy = live.senders(subject.at_a_time(2), &get("/hold"));
    held_answers.wait_for(busy.len(), max_wait);
    let mut waiting = live.senders(WAITING, &with_body("POST", "/", "", b"hello"));
    let_pass(QUEUED);
    let draining = live.begin_drain();
    let_pass(QUEUED);
    assert_eq!(held_answers.release_all(), busy.len(), "the held answers are still wanted");
    for client in &mut busy {
        client.expect_last(200);
    }
    for client in &mut waiting {
        assert_eq!(client.expect(200).text(), "hello");
        client.expect_end();
    }
    let answered = (busy.len() + WAITING) as u64;
    drop((busy, waiting));
    check_counts(draining.wait(), answered, 0);
}

/// The timeout of a body begins with that body. The time that an earlier body took does not count, also if the earlier
/// request was refused by its head.
pub(super) fn a_body_timeout_begins_with_its_body(subject: &ServerSubject) {
    const BODY_TIMEOUT: Duration = Duration::from_millis(800);
    const PAUSE: Duration = Duration::from_millis(500);
    for path in ["/", "/refused"] {
        attempts(3, || {
            let live = subject.live(RefusesByHead, defaults().body_timeout(BODY_TIMEOUT));
            let mut client = live.client();
            let head = request("POST", path, "Content-Length: 10\r\n");
            client.send(&[&head[..], b"01234"].concat()).expect("the server takes the request");
            let_pass(PAUSE);
            let next = [&b"56789"[..], &request("POST", "/", "Content-Length: 10\r\n"), b"01234"].concat();
            let _ = client.send(&next);
            if path == "/refused" {
                // A server may as well close after the refusal. Then there is no later body.
                match client.receive() {
                    Ok(refusal) if refusal.closes() => return Ok(()),
                    Ok(_) => {}
                    Err(failure) => panic!("{failure}"),
                }
            } else {
                is_served(&mut client)?;
            }
            let_pass(PAUSE);
            let _ = client.send(b"56789");
            is_served(&mut client)
        });
    }
}

/// Whether the next answer is to a body that came in time.
fn is_served(client: &mut Client) -> Result<(), String> {
    let is_served = client.receive().is_ok_and(|response| response.status == 200);
    needs(is_served, &format!("a body that came in time was refused\n{}", client.show()))
}

/// Refuses `/refused` by its head. Echoes every other body.
struct RefusesByHead;

impl Service for RefusesByHead {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        Echo.call(request, body)
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        let refusal = || Reply::problem(StatusCode::METHOD_NOT_ALLOWED, "The test refuses this path.");
        (head.path() == "/refused").then(refusal)
    }
}
