//! Turns: how many requests of other connections a server answers before mine.

use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::Mutex;

use polyserve_core::sync::lock;

use super::prelude::*;
use crate::client::Stream;

/// Max answers to each other connection between the arrival of a request and its answer: the turn that is under way, and one
/// that began before the server looked at its sockets.
const MAX_ANSWERS: u64 = 32;

/// Clients that pipeline without a pause.
const FLOODS: usize = 3;

/// The requests of a client with little to ask, on its one connection and on new ones.
const ASKED: usize = 5;

/// Max requests of an attempt that may be late.
const MAX_LATE: usize = 2;

/// Max attempts.
const ATTEMPTS: usize = 5;

/// The calls of each connection.
type Calls = HashMap<SocketAddr, u64>;

/// Counts its calls by connection. Each call takes some time, as that for a large entity does.
struct CountedCalls {
    calls: Mutex<Calls>,
    /// The calls at the time of the last call of `/mine`.
    at_mine: Mutex<Calls>,
}

/// The time of a call. A turn of such requests ends with its time, not with its requests.
const CALL_TIME: Duration = Duration::from_micros(150);

impl Service for CountedCalls {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        if request.head.path() == "/mine" {
            lock(&self.at_mine).clone_from(&lock(&self.calls));
        } else if let Some(peer) = request.peer {
            *lock(&self.calls).entry(peer).or_default() += 1;
            if request.head.path() == "/slow" {
                let start = Instant::now();
                while start.elapsed() < CALL_TIME {
                    std::hint::spin_loop();
                }
            }
        }
        Answer::Now(Reply::empty(StatusCode::OK))
    }
}

/// Sends HEAD requests to `path` without a pause, and discards the answers, until `done` or until the server closes.
fn flood(addr: SocketAddr, path: &str, done: &AtomicBool, max_wait: Duration) {
    let Ok(stream) = Stream::connect(None, addr, max_wait) else { return };
    let until = Instant::now() + max_wait;
    let batch = request("HEAD", path, "").repeat(1000);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut answers = [0; 64 * 1024];
            while stream.read(&mut answers, until).is_ok_and(|count| count > 0) {}
        });
        scope.spawn(|| while !done.load(Ordering::SeqCst) && stream.send(&batch, until).is_ok() {});
        while !done.load(Ordering::SeqCst) {
            let_pass(Duration::from_millis(5));
        }
        let _ = stream.socket().shutdown(Shutdown::Both); // ends both threads
    });
}

/// Sends a request, and returns the largest number of answers to another connection until it was served.
#[track_caller]
fn answers_before_mine(service: &CountedCalls, client: &mut Client) -> u64 {
    client.send(&get("/mine")).expect("the server takes the request");
    let before = lock(&service.calls).clone();
    client.expect(200);
    let others = |(peer, at_mine): (&SocketAddr, &u64)| at_mine.saturating_sub(before.get(peer).copied().unwrap_or(0));
    lock(&service.at_mine).iter().map(others).max().unwrap_or(0)
}

/// Returns the answers to another connection before each of some requests, on a kept connection and on new ones.
#[track_caller]
fn measure(live: &Live, service: &CountedCalls, path: &str, max_wait: Duration) -> Vec<u64> {
    lock(&service.calls).clear();
    let mut kept = live.client();
    kept.ask(&get("/mine"), 200);
    let client = |done: &AtomicBool| flood(live.addr, path, done, max_wait);
    besides([client; FLOODS], || {
        let under_way = || lock(&service.calls).values().filter(|calls| **calls > MAX_ANSWERS).count() >= FLOODS;
        assert!(eventually(max_wait, under_way), "the pipelining clients are not served");
        let on_new = (0..ASKED).map(|_| answers_before_mine(service, &mut live.client()));
        on_new.chain((0..ASKED).map(|_| answers_before_mine(service, &mut kept))).collect()
    })
}

/// On a multiplexed server, clients that pipeline without a pause get at most 32 answers each before another client gets
/// its answer. [`a_pipelining_client_gives_its_thread_up`] tests the other shapes. This is counted with one worker, if the server lets
/// the number be chosen. With the default number, the other client has to be served: while the system stops the worker that has its request, other workers
/// may answer any number of requests.
///
/// The system may delay a packet, or stop the thread that has the request, while other threads go on. So of ten requests
/// two may be late, and a busy machine gets five attempts. A server that does not look at its sockets between turns is late
/// with most requests, by hundreds of answers.
pub(super) fn pipelining_clients_do_not_starve_others(subject: &ServerSubject) -> Result<(), String> {
    let is_multiplexed = subject.shape() == Shape::Multiplexed;
    needs(is_multiplexed, "a_pipelining_client_gives_its_thread_up tests servers in which connections hold threads")?;
    for path in ["/slow", "/quick"] {
        let mut numbers = vec![subject.workers(1), None];
        numbers.dedup();
        for workers in numbers {
            let service = Arc::new(CountedCalls { calls: Mutex::default(), at_mine: Mutex::default() });
            let live = subject.live(service.clone(), defaults().workers(workers));
            attempts(ATTEMPTS, || {
                let answers = measure(&live, &service, path, subject.max_wait);
                let late = answers.iter().filter(|answers| **answers > MAX_ANSWERS).count();
                let why =
                    format!("{path}, {workers:?} workers: answers to another connection before mine: {answers:?}");
                needs(workers.is_none() || late <= MAX_LATE, &why)
            });
        }
    }
    Ok(())
}

/// Long enough for a server to accept a connection and to queue it.
const QUEUED: Duration = Duration::from_millis(100);

/// If a connection waits for a thread, a client that has sent a thousand requests at once gets at most 32 more answers, and at most
/// four of 100 KiB: the output that is under way, and one more. The last one says `Connection: close`. The client may read slowly,
/// so each output may hold the thread for as long as the write timeout.
///
/// A server with a thread for each connection is tested at a limit of one connection: others are refused in the meantime.
pub(super) fn a_pipelining_client_gives_its_thread_up(subject: &ServerSubject) -> Result<(), String> {
    const REQUESTS: usize = 1000;
    let is_multiplexed = subject.shape() == Shape::Multiplexed;
    needs(!is_multiplexed, "pipelining_clients_do_not_starve_others tests multiplexed servers")?;
    let has_own_threads = subject.shape() == Shape::OnePerThread && !subject.pooled;
    for (length, max_answers) in [(5, MAX_ANSWERS), (100 << 10, 4)] {
        attempts(3, || {
            let service = Blocking::new(subject, Some(length));
            let live = subject.live(service.clone(), subject.with_room_for(1));
            let open = service.open.token();
            let mut flood = live.sending(&[get("/block"), get("/").repeat(REQUESTS - 1)].concat());
            assert!(service.inside.reaches(1), "the first request is not served");
            let mut mine = live.sending(&request("GET", "/mine", "Connection: close\r\n"));
            if has_own_threads {
                mine.expect(503);
            }
            // The server may need a moment to see the connection. The requests that are under way have taken long then.
            let_pass(QUEUED);
            drop(open);
            let (mut answers, mut is_announced) = (0, false);
            while let Ok(response) = flood.receive() {
                answers += 1;
                is_announced = response.closes();
            }
            if has_own_threads {
                live.ask_until_served(&get("/mine"));
            } else {
                mine.expect_last(200);
            }
            assert!(answers > 0, "the flood is served");
            let why = format!(
                "{answers} answers of {length} bytes (at most {max_answers}) while another connection waits; the last one \
                 says close: {is_announced}"
            );
            needs(answers <= max_answers && is_announced, &why)
        });
    }
    Ok(())
}
