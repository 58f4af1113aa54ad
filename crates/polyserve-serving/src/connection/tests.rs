//! The state machine without sockets: the test is the kernel, the service and the clock.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyserve_core::http::{Method, StatusCode};
use polyserve_core::overload::Overload;
use polyserve_core::sync::lock;
use polyserve_core::{
    Answer, AnswerHook, AnswerTimes, Body, Completer, Echo, Reply, Request, ServerConfig, Service, promise,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::EVICTION_GRACE;

mod second_reading;
mod tls;

thread_local! {
    /// The time of the test's clock.
    static NOW: Cell<Option<Instant>> = const { Cell::new(None) };
}

fn now() -> Instant {
    let now = NOW.get().unwrap_or_else(Instant::now);
    NOW.set(Some(now));
    now
}

fn let_pass(time: Duration) {
    NOW.set(Some(now() + time));
}

/// A connection and its thread. The test takes the part of the driver.
struct Driver {
    server: Arc<ServerState>,
    buffers: ThreadBuffers,
    connection: Connection,
    is_evicted: bool,
    queued_since: Option<Instant>,
}

impl Driver {
    fn new(service: Arc<dyn Service>, config: &ServerConfig) -> Self {
        let server = Arc::new(ServerState::new(service, config));
        let connection = Connection::new(Session::new());
        Self { server, buffers: ThreadBuffers::new(), connection, is_evicted: false, queued_since: None }
    }

    /// Calls `act` within a turn.
    fn with<T>(&mut self, act: impl FnOnce(&mut Connection, &mut Turn<'_>) -> T) -> T {
        let turn = Turn::new(&self.server, &mut self.buffers);
        let (is_evicted, queued_since) = (self.is_evicted, self.queued_since.map(QueuedSince::Instant));
        let draining_at = turn.draining_at.map(|at| if self.server.is_over() { at } else { now() });
        act(&mut self.connection, &mut Turn { is_evicted, draining_at, queued_since, clock: now, ..turn })
    }

    fn begin(&mut self) -> Step {
        self.buffers.begin_turn();
        self.with(Connection::begin_turn)
    }

    /// The client's bytes arrive, as one read.
    fn receive(&mut self, bytes: &[u8]) -> Step {
        self.buffers.input[..bytes.len()].copy_from_slice(bytes);
        self.with(|connection, turn| connection.on_bytes(turn, bytes.len()))
    }

    fn empty(&mut self) -> Step {
        self.with(Connection::on_empty)
    }

    /// The kernel takes all output. Returns the output, and the next step.
    fn write(&mut self) -> (String, Step) {
        let output = self.connection.output(&self.buffers).to_vec();
        let step = self.with(|connection, turn| connection.on_written(turn, output.len()));
        (String::from_utf8(output).unwrap(), step)
    }
}

const READ: Step = Step::Read { past_report: false };
const READ_AGAIN: Step = Step::Read { past_report: true };
const INPUT: Step = Step::Wait(WaitFor::Input);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// At a deadline the socket is read once more: a request that came in time is served, and an empty socket is a time-out.
#[test]
fn a_deadline_is_judged_after_one_more_read() {
    let config = ServerConfig::default().first_byte_timeout(Duration::from_secs(10));
    for has_come in [true, false] {
        let mut driver = Driver::new(Arc::new(Echo), &config);
        assert_eq!((driver.begin(), driver.empty()), (READ, INPUT));
        assert_eq!(driver.connection.deadline(), now() + Duration::from_secs(10));
        let_pass(Duration::from_secs(9));
        assert_eq!((driver.begin(), driver.empty()), (READ, INPUT), "the wait goes on");
        let_pass(Duration::from_secs(2));
        assert_eq!((driver.begin(), driver.empty()), (READ, READ_AGAIN));
        if has_come {
            assert_eq!(driver.receive(GET), Step::Write { last: false, past_report: false });
            assert!(driver.write().0.starts_with("HTTP/1.1 200 "));
        } else {
            assert_eq!(driver.empty(), Step::Leave);
        }
    }
}

/// A head that drips has one deadline. Its answer is 408, and the connection lingers.
#[test]
fn a_dripping_head_has_one_deadline() {
    let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
    let _ = driver.begin();
    for byte in &GET[..9] {
        assert_eq!((driver.receive(&[*byte]), driver.empty()), (READ, INPUT));
        let_pass(Duration::from_secs(1));
        assert_eq!(driver.begin(), READ);
    }
    let_pass(Duration::from_secs(2));
    assert_eq!((driver.begin(), driver.empty()), (READ, READ_AGAIN));
    assert_eq!(driver.empty(), Step::Write { last: true, past_report: false });
    let (answer, step) = driver.write();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(step, Step::Linger);
}

/// What a lingering client still sends is discarded. It moves the deadline, but not past the limit of a body, not in a drain, and not if it
/// is less than a body has in that time.
#[test]
fn a_linger_ends_at_its_deadline() {
    let lingering = || {
        let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
        let _ = driver.begin();
        assert_eq!(driver.receive(b"G@T / HTTP/1.1\r\n\r\n"), Step::Write { last: true, past_report: false });
        assert_eq!(driver.write().1, Step::Linger);
        assert_eq!(driver.with(Connection::on_lingering), READ);
        assert!(driver.connection.is_lingering() && driver.connection.idle().is_none());
        assert_eq!((driver.receive(GET), driver.empty()), (READ, INPUT));
        driver
    };
    let pause = Duration::from_millis(900);
    let mut silent = lingering();
    let_pass(pause * 2);
    assert_eq!((silent.begin(), silent.empty(), silent.empty()), (READ, READ_AGAIN, Step::Close));
    let mut sending = lingering();
    let part = GET.repeat(16);
    for _ in 0..33 {
        let_pass(pause);
        assert_eq!((sending.begin(), sending.receive(&part), sending.empty()), (READ, READ, INPUT));
    }
    let_pass(pause);
    assert_eq!((sending.begin(), sending.receive(&part)), (READ, Step::Close));
    let mut dripping = lingering();
    let_pass(pause);
    assert_eq!((dripping.begin(), dripping.receive(GET), dripping.empty()), (READ, READ, INPUT));
    let_pass(pause);
    assert_eq!((dripping.begin(), dripping.receive(GET)), (READ, Step::Close));
    let mut drained = lingering();
    drained.server.shutdown.begin(now() + Duration::from_secs(600));
    let_pass(pause);
    assert_eq!((drained.begin(), drained.receive(&part), drained.empty()), (READ, READ, INPUT));
    let_pass(pause);
    assert_eq!((drained.begin(), drained.receive(&part)), (READ, Step::Close));
}

/// Regression test: in a drain, a read that filled its buffer up to the end of a request closed the connection. The requests that had
/// arrived behind it were not answered.
#[test]
fn a_full_read_is_not_the_last_one_of_a_drain() {
    let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
    driver.server.shutdown.begin(now() + Duration::from_secs(600));
    assert_eq!(driver.begin(), READ);
    let room = driver.buffers.input.len();
    let (head, end) = ("GET / HTTP/1.1\r\nHost: a\r\nPad: ", "\r\n\r\n");
    let full = format!("{head}{}{end}", "x".repeat(room - head.len() - end.len()));
    assert_eq!(driver.receive(full.as_bytes()), Step::Write { last: false, past_report: false });
    let (answer, step) = driver.write();
    assert!(!answer.contains("Connection: close"), "{answer}");
    assert!(matches!(step, Step::Read { .. }), "{step:?}");
    assert_eq!(driver.receive(GET), Step::Write { last: true, past_report: false });
    assert!(driver.write().0.contains("Connection: close"));
}

/// After a request with `Connection: close` the socket is read once more. The connection lingers if its client goes on sending, or may
/// not have received a long answer yet.
#[test]
fn a_connection_lingers_if_its_last_answer_could_be_lost() {
    let close = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi";
    let last = Step::Write { last: true, past_report: false };
    let closing = || {
        let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
        assert_eq!((driver.begin(), driver.receive(close), driver.write().1), (READ, last, READ_AGAIN));
        driver
    };
    assert_eq!(closing().empty(), Step::Close);
    assert_eq!(closing().with(Connection::on_end), Step::Close);
    assert_eq!(closing().with(Connection::on_error), Step::Close);
    let mut sending = closing();
    assert_eq!((sending.receive(b"G"), sending.with(Connection::on_lingering)), (Step::Linger, READ));
    assert_eq!((sending.receive(b"E"), sending.with(Connection::on_end)), (READ, Step::Close));

    for (length, end) in [(10_000, READ_AGAIN), (20_000, Step::Linger)] {
        let service = move |_: Request<'_>| Reply::new(StatusCode::OK, "text/plain", Body::Owned(vec![b'x'; length]));
        let mut driver = Driver::new(Arc::new(service), &ServerConfig::default());
        assert_eq!((driver.begin(), driver.receive(close), driver.write().1), (READ, last, end));
    }
}

/// A client that takes nothing has the write timeout, and one second for each 64 KiB. Some progress does not prolong it.
#[test]
fn a_slow_reader_is_cut_whatever_progress_it_makes() {
    let large = |_: Request<'_>| Reply::new(StatusCode::OK, "text/plain", Body::Owned(vec![b'x'; 128 * 1024]));
    let mut driver = Driver::new(Arc::new(large), &ServerConfig::default());
    let _ = driver.begin();
    assert_eq!(driver.receive(GET), Step::Write { last: false, past_report: false });
    let blocked = |driver: &mut Driver| driver.with(Connection::on_blocked);
    assert_eq!(blocked(&mut driver), Step::Wait(WaitFor::Room));
    let deadline = driver.connection.deadline();
    let length = driver.connection.output(&driver.buffers).len();
    assert_eq!(deadline, now() + TimeLimit::Write { unsent: length }.of(&driver.server.config));
    let_pass(Duration::from_secs(31));
    assert_eq!(driver.begin(), Step::Write { last: false, past_report: false });
    assert_eq!(
        driver.with(|connection, turn| connection.on_written(turn, 1000)),
        Step::Write { last: false, past_report: false }
    );
    assert_eq!((blocked(&mut driver), driver.connection.deadline()), (Step::Wait(WaitFor::Room), deadline));
    let_pass(Duration::from_secs(2));
    let _ = driver.begin();
    assert_eq!(blocked(&mut driver), Step::Write { last: false, past_report: true }, "the socket is tried once more");
    assert_eq!(blocked(&mut driver), Step::Close);
    assert_eq!(driver.server.drained(0).answered, 0);
}

/// An idle connection that is evicted closes once its socket is empty. A request that has come is its last one.
#[test]
fn an_evicted_connection_serves_what_has_come() {
    for has_come in [true, false] {
        let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
        let _ = (driver.begin(), driver.receive(GET));
        assert_eq!((driver.write().1, driver.empty()), (READ, INPUT));
        assert_eq!(driver.connection.idle(), Some(HasSent(true)));
        driver.is_evicted = true;
        assert_eq!(driver.begin(), READ_AGAIN, "without the report of a poller");
        if has_come {
            assert_eq!(driver.receive(GET), Step::Write { last: true, past_report: false });
            assert!(driver.write().0.contains("\r\nConnection: close\r\n"));
        } else {
            assert_eq!(driver.empty(), Step::Linger, "a request may be on its way");
        }
    }
}

/// A drain closes an idle connection, and answers a request that has begun. At its deadline the request is cut. A connection that has
/// not sent a byte is closed later.
#[test]
fn a_drain_ends_a_connection() {
    let config = ServerConfig::default();
    for has_sent in [true, false] {
        let mut idle = Driver::new(Arc::new(Echo), &config);
        assert_eq!((idle.begin(), idle.empty()), (READ, INPUT));
        if has_sent {
            let _ = idle.receive(GET);
            assert_eq!((idle.write().1, idle.empty()), (READ, INPUT));
        }
        idle.server.shutdown.begin(Instant::now() + Duration::from_secs(60));
        if !has_sent {
            assert_eq!((idle.begin(), idle.empty()), (READ, INPUT), "its first request may be on its way");
            let until = idle.connection.drain_deadline(&idle.server).unwrap();
            assert!(until < Instant::now() + Duration::from_secs(1));
            let_pass(until.saturating_duration_since(now()));
        }
        assert_eq!((idle.begin(), idle.empty()), (READ_AGAIN, Step::Leave));
    }
    let mut busy = Driver::new(Arc::new(Echo), &config);
    let _ = busy.begin();
    assert_eq!((busy.receive(&GET[..5]), busy.empty()), (READ, INPUT));
    busy.server.shutdown.begin(Instant::now());
    assert_eq!(busy.begin(), Step::Close);
    assert!(busy.connection.take_cut() && !busy.connection.take_cut());
}

/// Regression test: a connection that was accepted later than 50 ms after the drain had begun was closed before its client could send
/// its first request. An accept comes late if the server was held up, or if many connections waited.
#[test]
fn a_connection_that_is_accepted_late_in_a_drain_has_its_time() {
    for has_come in [true, false] {
        let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
        driver.server.shutdown.begin(now() + Duration::from_secs(600));
        let_pass(Duration::from_secs(60));
        driver.connection = Connection::accepted(Session::new(), now());
        assert_eq!((driver.begin(), driver.empty()), (READ, INPUT), "its first request may be on its way");
        assert_eq!(driver.connection.drain_deadline(&driver.server), Some(now() + EVICTION_GRACE));
        let_pass(EVICTION_GRACE);
        assert_eq!(driver.begin(), READ_AGAIN);
        if has_come {
            assert_eq!(driver.receive(GET), Step::Write { last: true, past_report: false });
        } else {
            assert_eq!(driver.empty(), Step::Leave);
        }
    }
    // Its time ends with the drain's.
    let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
    let end = Instant::now() + EVICTION_GRACE / 2;
    driver.server.shutdown.begin(end);
    driver.connection = Connection::accepted(Session::new(), end);
    assert_eq!(driver.connection.drain_deadline(&driver.server), Some(end));
}

/// What has arrived by the deadline of a shutdown and was not answered is cut: a request that no thread has read, and an answer that
/// the kernel did not take.
#[test]
fn what_is_not_answered_at_the_deadline_is_cut() {
    for has_come in [true, false] {
        let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
        driver.server.shutdown.begin(Instant::now());
        assert_eq!(driver.begin(), READ_AGAIN);
        let (step, end) = if has_come { (driver.receive(GET), Step::Close) } else { (driver.empty(), Step::Leave) };
        assert_eq!(step, end);
        assert_eq!(driver.connection.take_cut(), has_come);
    }
    let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
    let _ = (driver.begin(), driver.receive(GET));
    driver.server.shutdown.begin(Instant::now());
    assert_eq!(driver.with(Connection::on_error), Step::Close);
    assert!(driver.connection.take_cut());
}

/// The silence of a client before its first byte does not count towards the timeout of its head. The time in a queue does.
#[test]
fn a_head_has_its_whole_time_after_a_silence() {
    let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
    let accepted = now();
    driver.queued_since = Some(accepted);
    assert_eq!((driver.begin(), driver.empty()), (READ, INPUT));
    let_pass(Duration::from_secs(9));
    let first_byte = now();
    driver.queued_since = Some(first_byte);
    assert_eq!((driver.begin(), driver.receive(&GET[..5]), driver.empty()), (READ, READ, INPUT));
    assert_eq!(driver.connection.deadline(), first_byte + driver.server.config.head_timeout);
}

/// A write that ends after its deadline is no time-out, and the next read asks the poller again.
#[test]
fn a_late_write_that_ends_is_forgotten() {
    let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
    let _ = (driver.begin(), driver.receive(GET));
    assert_eq!(driver.with(Connection::on_blocked), Step::Wait(WaitFor::Room));
    let_pass(Duration::from_secs(60));
    let _ = driver.begin();
    assert_eq!(driver.with(Connection::on_blocked), Step::Write { last: false, past_report: true });
    assert_eq!((driver.write().1, driver.empty()), (READ, INPUT));
}

/// A shutdown that begins within a turn closes nothing in that turn: the socket was not read since.
#[test]
fn a_drain_begins_with_the_next_turn() {
    let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
    let server = Arc::clone(&driver.server);
    let step = driver.with(|connection, turn| {
        assert_eq!(connection.begin_turn(turn), READ);
        server.shutdown.begin(Instant::now() + Duration::from_secs(60));
        connection.on_empty(turn)
    });
    let_pass(EVICTION_GRACE * 2);
    assert_eq!((step, driver.begin()), (INPUT, READ_AGAIN));
}

/// A connection that is lost leaves no output for the next connection of its thread.
#[test]
fn a_lost_connection_leaves_no_output() {
    let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default());
    let _ = (driver.begin(), driver.receive(GET));
    assert_eq!(driver.with(Connection::on_error), Step::Close);
    assert!(driver.buffers.http.out().is_empty());
}

/// Answers `/n` with a body of n bytes: at once, or when the test completes the answer.
#[derive(Default)]
struct Sizes(Mutex<VecDeque<(Completer<Reply>, usize)>>);

impl Service for Sizes {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        let size: usize = request.head.path().trim_start_matches('/').parse().unwrap();
        let reply = |size| Reply::new(StatusCode::OK, "text/plain", Body::Owned(vec![b'x'; size]));
        if size.is_multiple_of(3) {
            let (completer, answer) = promise(reply(0));
            lock(&self.0).push_back((completer, size));
            return answer;
        }
        Answer::Now(reply(size))
    }
}

/// Whatever the splits of reads and writes, and whenever answers come: each request is answered once, in order, in full.
#[test]
fn any_order_of_events_gives_the_same_bytes() {
    for seed in 0..300 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let sizes: Vec<usize> = (0..random.random_range(1..60)).map(|_| random.random_range(0..9000)).collect();
        let requests: String = sizes.iter().map(|size| format!("GET /{size} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
        let service = Arc::new(Sizes::default());
        let mut driver = Driver::new(service.clone(), &ServerConfig::default());
        let (mut unsent, mut sent) = (requests.as_bytes(), Vec::new());
        let mut step = driver.begin();
        let mut steps = 0;
        while step != INPUT || !unsent.is_empty() {
            steps += 1;
            assert!(steps < 100_000, "seed {seed}: no end, at {step:?}");
            step = match step {
                Step::Read { .. } if !unsent.is_empty() && random.random_bool(0.7) => {
                    let count = random.random_range(1..=unsent.len().min(driver.buffers.input.len()));
                    let (bytes, rest) = unsent.split_at(count);
                    unsent = rest;
                    driver.receive(bytes)
                }
                Step::Read { .. } => driver.empty(),
                Step::Write { .. } if random.random_bool(0.2) => driver.with(Connection::on_blocked),
                Step::Write { .. } => {
                    let output = driver.connection.output(&driver.buffers);
                    let count = random.random_range(1..=output.len());
                    sent.extend_from_slice(&output[..count]);
                    driver.with(|connection, turn| connection.on_written(turn, count))
                }
                Step::Await => {
                    match driver.connection.poll_answer(&mut Context::from_waker(std::task::Waker::noop())) {
                        Poll::Ready(()) => driver.with(Connection::on_answer),
                        Poll::Pending => driver.with(Connection::on_pending),
                    }
                }
                Step::Wait(_) => {
                    if random.random_bool(0.5)
                        && let Some((completer, size)) = lock(&service.0).pop_front()
                    {
                        let body = Body::Owned(vec![b'x'; size]);
                        completer.complete(Reply::new(StatusCode::OK, "text/plain", body)).unwrap();
                    }
                    driver.begin()
                }
                Step::Yield => driver.begin(),
                Step::Linger | Step::Leave | Step::Close => {
                    panic!("seed {seed}: the connection ends, at {} bytes", sent.len())
                }
            };
        }
        let mut answers = sent.as_slice();
        for size in &sizes {
            let end = memchr::memmem::find(answers, b"\r\n\r\n").unwrap() + 4;
            let head = std::str::from_utf8(&answers[..end]).unwrap();
            assert!(head.contains(&format!("\r\nContent-Length: {size}\r\n")), "seed {seed}: {size} bytes, not {head}");
            answers = &answers[end + size..];
        }
        assert!(answers.is_empty(), "seed {seed}: {} bytes too many", answers.len());
        assert_eq!(driver.server.drained(0).answered, sizes.len() as u64, "seed {seed}");
    }
}

/// Since when a request has waited, for an overload policy: since its connection became ready, or was queued. A request that is read
/// later in the same turn has not waited since then. Without a policy, no time is noted.
#[test]
fn an_overload_policy_learns_since_when_a_request_has_waited() {
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&arrivals);
    let service = move |request: Request<'_>| {
        lock(&noted).push(request.arrived());
        Reply::empty(StatusCode::OK)
    };
    let service: Arc<dyn Service> = Arc::new(service);
    let config = ServerConfig::default().overload(Overload::static_limit(8));
    let mut driver = Driver::new(Arc::clone(&service), &config);
    let queued = now();
    driver.queued_since = Some(queued);
    let_pass(Duration::from_secs(1));
    let later = now();
    let _ = (driver.begin(), driver.receive(&[GET, GET].concat()), driver.write());
    let _ = (driver.receive(GET), driver.write());
    driver.queued_since = None;
    let _ = (driver.begin(), driver.receive(GET), driver.write());
    let ready = Some(queued);
    let _ = driver.with(|connection, turn| {
        turn.ready_since = ready;
        let _ = connection.begin_turn(turn);
        turn.buffers.input[..GET.len()].copy_from_slice(GET);
        connection.on_bytes(turn, GET.len())
    });
    let mut driver = Driver::new(service, &ServerConfig::default());
    let _ = (driver.begin(), driver.receive(GET));
    let (queued, later) = (Some(queued), Some(later));
    assert_eq!(*lock(&arrivals), [queued, queued, later, later, queued, None]);
}

/// Regression test: a thread that serves two servers reported the wait of a connection of one, which has an overload policy and no hook,
/// for a request of the other.
#[test]
fn a_wait_is_reported_for_its_own_connection() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&reported);
    let hook = AnswerHook::new(move |report| lock(&seen).push(report.queued.is_some()));
    let [mut limited, mut hooked] = [ServerConfig::default(), ServerConfig::default()];
    (limited.overload, hooked.on_answer) = (Some(Overload::static_limit(8)), Some(hook));
    let mut first = Driver::new(Arc::new(Echo), &limited);
    first.queued_since = Some(now());
    let _ = (first.begin(), first.receive(GET), first.write());
    let mut second = Driver { buffers: first.buffers, ..Driver::new(Arc::new(Echo), &hooked) };
    let _ = (second.begin(), second.receive(GET), second.write());
    second.queued_since = Some(now());
    let _ = (second.begin(), second.receive(GET));
    assert_eq!(*lock(&reported), [false, true]);
}

/// Answers `/later` later.
struct Later;

impl Service for Later {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        let reply = Reply::text("done");
        if request.head.target == "/later" { Answer::later(async { reply }) } else { Answer::Now(reply) }
    }
}

/// The status of an answer, the method of its request, and whether there was a pause since the request had begun.
type SeenAnswer<'a> = (u16, &'a Option<Method>, bool);

/// A hook of times sees what a hook of reports sees, whether a request arrives at once, in parts or with others, and whether it is answered
/// at once or later. Its time begins with its first byte.
#[test]
fn a_hook_of_times_sees_the_times_of_reports() {
    const PAUSE: Duration = Duration::from_millis(2);
    const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";
    const LATER: &[u8] = b"PUT /later HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    const UNKNOWN: &[u8] = b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n";
    let [get_and_part, get_and_post, get_and_end] =
        [[GET, &GET[..9]], [GET, POST], [GET, b"\r"]].map(|parts| parts.concat());
    let end_and_unknown = [b"\n", UNKNOWN].concat();
    let many = GET.repeat(100);
    // The reads of a connection, and its last answers.
    let (get, post) = (Some(Method::GET), Some(Method::POST));
    let rows: [(&[&[u8]], &[SeenAnswer<'_>]); 10] = [
        (&[GET, GET], &[(200, &get, false), (200, &get, false)]),
        (&[&GET[..5], &GET[5..], GET], &[(200, &get, true), (200, &get, false)]),
        (&[&get_and_part, &GET[9..], GET], &[(200, &get, false), (200, &get, true), (200, &get, false)]),
        (&[POST, b"ab", GET], &[(200, &post, true), (200, &get, false)]),
        (&[&get_and_post, b"a", b"b", UNKNOWN], &[(200, &get, false), (200, &post, true), (501, &None, false)]),
        (&[LATER, GET], &[(200, &Some(Method::PUT), true), (200, &get, false)]),
        (&[GET, UNKNOWN], &[(200, &get, false), (501, &None, false)]),
        (&[&get_and_end, &end_and_unknown], &[(200, &get, false), (501, &None, false)]),
        (&[&GET[..5], b"\0\r\n\r\n"], &[(400, &None, true)]),
        (&[&many], &[(200, &get, false)]),
    ];
    for (reads, expected) in rows {
        let [times, reports] = [true, false].map(|of_times| {
            let all = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&all);
            let note = move |times: &AnswerTimes<'_>| {
                let elapsed = times.elapsed.expect("the request has begun");
                lock(&seen).push((times.status.as_u16(), times.method.cloned(), elapsed, times.queued.is_some()));
            };
            let hook = if of_times {
                AnswerHook::of_times(note)
            } else {
                AnswerHook::new(move |report| note(&report.times()))
            };
            let mut config = ServerConfig::default();
            config.on_answer = Some(hook);
            let mut driver = Driver::new(Arc::new(Later), &config);
            driver.queued_since = Some(now());
            for read in reads {
                let _ = driver.begin();
                let mut step = driver.receive(read);
                loop {
                    step = match step {
                        Step::Write { .. } => driver.write().1,
                        Step::Yield => driver.begin(),
                        Step::Await => {
                            pause(PAUSE);
                            let polled =
                                driver.connection.poll_answer(&mut Context::from_waker(std::task::Waker::noop()));
                            assert_eq!(polled, Poll::Ready(()));
                            driver.with(Connection::on_answer)
                        }
                        _ => break,
                    }
                }
                pause(PAUSE);
            }
            std::mem::take(&mut *lock(&all))
        });
        let without_times = |seen: &[(u16, Option<Method>, Duration, bool)]| -> Vec<_> {
            seen.iter().map(|(status, method, _, has_waited)| (*status, method.clone(), *has_waited)).collect()
        };
        assert_eq!(without_times(&times), without_times(&reports));
        for seen in [times, reports] {
            let last = &seen[seen.len() - expected.len()..];
            for ((status, method, elapsed, _), expected) in last.iter().zip(expected) {
                assert_eq!((*status, method), (expected.0, expected.1));
                assert!(!expected.2 || *elapsed >= PAUSE, "{elapsed:?} is not since the first byte of {expected:?}");
            }
        }
    }
}

/// Lets a time pass on all clocks.
fn pause(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}
