//! A second reading of the limits on time, of evictions and of drains, from the events alone, on random orders of events.

use super::*;

/// The ends of a request's head and of the request in the stream.
struct Bounds {
    head: usize,
    end: usize,
}

/// What a wait waits for. A wait of another kind, or of another request, has a limit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    FirstByte,
    Idle { request: usize },
    Head { request: usize },
    Body { request: usize },
    Answer { call: usize },
    Room { written: usize },
}

/// The documented rules, applied to what has happened.
struct Reading {
    requests: Vec<Bounds>,
    /// Number of bytes that the connection has read.
    received: usize,
    /// Number of bytes before the output that the kernel did not take.
    written: usize,
    /// The present wait, its begin, and the unsent bytes at its begin.
    wait: Option<(Stage, Instant, usize)>,
}

impl Reading {
    fn stage(&self, reason: WaitFor, calls: usize) -> Stage {
        let request = self.requests.iter().filter(|request| request.end <= self.received).count();
        let begin = request.checked_sub(1).map_or(0, |last| self.requests[last].end);
        match reason {
            WaitFor::Answer => Stage::Answer { call: calls },
            WaitFor::Room => Stage::Room { written: self.written },
            WaitFor::Input if self.received == 0 => Stage::FirstByte,
            WaitFor::Input if self.received == begin => Stage::Idle { request },
            WaitFor::Input if self.received < self.requests[request].head => Stage::Head { request },
            WaitFor::Input => Stage::Body { request },
        }
    }

    /// Returns the deadline of the wait for `reason` that begins now, or has begun before.
    fn deadline(&mut self, reason: WaitFor, calls: usize, unsent: usize, config: &ServerConfig) -> Instant {
        let stage = self.stage(reason, calls);
        let (_, since, unsent) = match self.wait {
            Some(wait) if wait.0 == stage => wait,
            _ => *self.wait.insert((stage, now(), unsent)),
        };
        since
            + match stage {
                Stage::FirstByte => config.first_byte_timeout,
                Stage::Idle { .. } => config.idle_timeout,
                Stage::Head { .. } => config.head_timeout,
                Stage::Answer { .. } => config.answer_timeout,
                Stage::Room { .. } => config.write_timeout + Duration::from_millis(unsent as u64 * 1000 / 65_536),
                Stage::Body { request } => {
                    let received = (self.received - self.requests[request].head) as u64;
                    let millis = 5000 + received * 1000 / u64::from(config.min_body_rate);
                    config.body_timeout.min(Duration::from_millis(millis))
                }
            }
    }

    /// Whether a drain closes the connection if its socket is empty.
    fn leaves(&self, driver: &Driver) -> bool {
        let Some(begun) = driver.server.shutdown.begun_at() else { return false };
        match self.wait {
            Some((Stage::FirstByte, since, _)) => now() >= begun.max(since) + EVICTION_GRACE,
            _ => self.is_idle(),
        }
    }

    fn is_idle(&self) -> bool {
        matches!(self.wait, Some((Stage::FirstByte | Stage::Idle { .. }, ..)))
    }
}

/// A status, whether the answer announces the close, and the length of its body.
type Seen = (u16, bool, usize);

fn answers(mut bytes: &[u8]) -> Vec<Seen> {
    let mut seen = Vec::new();
    while let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") {
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let length = head.split("\r\nContent-Length: ").nth(1).unwrap();
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        let Some(rest) = bytes.get(end + 4 + length..) else { break };
        seen.push((head[9..12].parse().unwrap(), head.contains("\r\nConnection: close"), length));
        bytes = rest;
    }
    seen
}

/// How often a run ended in each of the ways, so that the test shows that it has seen them all.
#[derive(Debug, Default)]
struct Ends {
    silent: u32,
    timed_out: u32,
    no_answer: u32,
    slow_reader: u32,
    drained: u32,
    evicted: u32,
}

/// Each wait has the documented deadline, the socket is tried once more after it, and the connection ends only as documented.
#[test]
fn time_evictions_and_drains_are_as_documented() {
    let mut ends = Ends::default();
    for seed in 0..600 {
        run(seed, &mut ends);
    }
    let Ends { silent, timed_out, no_answer, slow_reader, drained, evicted } = ends;
    let all = [silent, timed_out, no_answer, slow_reader, drained, evicted];
    assert!(all.iter().all(|count| *count > 0), "each end is seen: {ends:?}");
}

fn run(seed: u64, ends: &mut Ends) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut stream, mut sizes, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..random.random_range(0..8) {
        let (size, body) = (random.random_range(0..9000), random.random_range(0..3000));
        stream
            .extend_from_slice(format!("PUT /{size} HTTP/1.1\r\nHost: a\r\nContent-Length: {body}\r\n\r\n").as_bytes());
        let head = stream.len();
        stream.resize(head + body, b'b');
        sizes.push(size);
        requests.push(Bounds { head, end: stream.len() });
    }
    let service = Arc::new(Sizes::default());
    let config = ServerConfig::default();
    let mut driver = Driver::new(service.clone(), &config);
    let mut reading = Reading { requests, received: 0, written: 0, wait: None };
    let (mut sent, mut calls, mut is_draining) = (Vec::new(), 0, false);
    // The step that follows a wait that is over, if the socket is tried and found as it was.
    let (mut is_late, mut tried) = (false, 0);
    let mut step = driver.begin();
    loop {
        let deadline_of = |reading: &mut Reading, driver: &Driver, reason, calls| {
            let unsent = driver.connection.output(&driver.buffers).len();
            reading.deadline(reason, calls, unsent, &config)
        };
        step = match step {
            Step::Read { past_report } => {
                let unsent = &stream[reading.received..];
                if !unsent.is_empty() && random.random_bool(0.6) {
                    let count = random.random_range(1..=unsent.len().min(driver.buffers.input.len()));
                    reading.received += count;
                    (is_late, tried) = (false, 0);
                    driver.receive(&unsent[..count])
                } else {
                    is_late = now() >= deadline_of(&mut reading, &driver, WaitFor::Input, calls);
                    let step = driver.empty();
                    let is_new = reading.wait.is_some_and(|(_, since, _)| since == now());
                    match step {
                        _ if reading.is_idle() && driver.is_evicted => assert_eq!(step, Step::Linger, "seed {seed}"),
                        _ if reading.leaves(&driver) => assert_eq!(step, Step::Leave, "seed {seed}"),
                        Step::Wait(_) => assert!(!is_late || is_new, "seed {seed}: no wait after its deadline"),
                        Step::Read { past_report: again } => {
                            assert!(is_late && again && !past_report, "seed {seed}: tried again at a deadline");
                            tried += 1;
                        }
                        _ => assert!(is_late && tried == 1, "seed {seed}: {step:?} without a deadline, {tried}"),
                    }
                    step
                }
            }
            Step::Write { .. } if random.random_bool(0.3) => {
                is_late = now() >= deadline_of(&mut reading, &driver, WaitFor::Room, calls);
                driver.with(Connection::on_blocked)
            }
            Step::Write { .. } => {
                let output = driver.connection.output(&driver.buffers);
                let count = if random.random_bool(0.7) { output.len() } else { random.random_range(1..=output.len()) };
                sent.extend_from_slice(&output[..count]);
                if count == output.len() {
                    reading.written = sent.len();
                }
                driver.with(|connection, turn| connection.on_written(turn, count))
            }
            Step::Await => match driver.connection.poll_answer(&mut Context::from_waker(std::task::Waker::noop())) {
                Poll::Ready(()) => {
                    calls += 1;
                    driver.with(Connection::on_answer)
                }
                Poll::Pending => driver.with(Connection::on_pending),
            },
            Step::Wait(reason) => {
                let deadline = deadline_of(&mut reading, &driver, reason, calls);
                assert_eq!(driver.connection.deadline(), deadline, "seed {seed}: {:?}", reading.wait);
                if random.random_bool(0.4)
                    && let Some((completer, size)) = lock(&service.0).pop_front()
                {
                    let body = Body::Owned(vec![b'x'; size]);
                    let _given_up = completer.complete(Reply::new(StatusCode::OK, "text/plain", body));
                }
                let remaining = deadline.saturating_duration_since(now());
                let_pass(remaining.mul_f64(random.random_range(0.0..1.2)));
                if random.random_bool(0.03) && !is_draining {
                    is_draining = true;
                    driver.server.shutdown.begin(Instant::now() + Duration::from_secs(600));
                }
                if random.random_bool(0.03) && driver.connection.idle().is_some() {
                    driver.is_evicted = true;
                }
                tried = 0;
                driver.begin()
            }
            Step::Yield => driver.begin(),
            Step::Linger | Step::Leave | Step::Close => break,
        };
    }
    let seen = answers(&sent);
    let complete = reading.requests.iter().filter(|request| request.end <= reading.received).count();
    let (last, announced) = seen.last().map_or((0, false), |(status, close, _)| (*status, *close));
    for (at, (status, close, length)) in seen.iter().enumerate() {
        let is_last = at + 1 == seen.len();
        assert!(is_last || (*status == 200 && !close), "seed {seed}: {seen:?}");
        assert!(*status != 200 || *length == sizes[at], "seed {seed}: answer {at} of {sizes:?} has {length} bytes");
    }
    let room = matches!(reading.wait, Some((Stage::Room { .. }, ..)));
    match (last, announced) {
        (408, true) => {
            assert_eq!(seen.len(), complete + 1, "seed {seed}: what has come is answered");
            ends.timed_out += 1;
        }
        (503, true) => ends.no_answer += 1,
        (200, true) => assert!(is_draining || driver.is_evicted, "seed {seed}: closed without a reason"),
        _ if reading.leaves(&driver) => ends.drained += 1,
        _ if driver.is_evicted && reading.is_idle() => ends.evicted += 1,
        _ if is_late && room => ends.slow_reader += 1,
        _ => {
            assert!(is_late && reading.is_idle() && step == Step::Leave, "seed {seed}: {step:?} in {:?}", reading.wait);
            ends.silent += 1;
        }
    }
    if !room && !announced {
        assert_eq!(seen.len(), complete, "seed {seed}: every whole request is answered");
    }
}
