//! Resources of a server: threads, descriptors, memory and processor time, counted in a child process.

use std::fs;
use std::path::Path;

use polyserve_core::timer;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::prelude::*;

/// The max number of descriptors of this process.
pub(super) fn descriptor_limit() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The number of threads and of descriptors of this process.
fn count() -> (usize, usize) {
    let entries = |path: &str| fs::read_dir(path).expect("/proc is there").count();
    (entries("/proc/self/task"), entries("/proc/self/fd"))
}

/// Runs `body` in a child process of which /proc counts the threads and descriptors.
fn in_counted_child(body: impl FnOnce()) -> Result<(), String> {
    needs_proc()?;
    in_child(None, body).into()
}

fn needs_proc() -> Result<(), String> {
    needs(Path::new("/proc/self/task").exists(), NO_PROC)
}

/// Waits until there are at most as many threads and descriptors as `before`, and `more` of each.
#[track_caller]
fn check_released(subject: &ServerSubject, mut before: (usize, usize), more: usize) {
    let mut after = before;
    let released = eventually(subject.max_wait, || {
        after = count();
        // What was counted before may have been ending then.
        before = (before.0.min(after.0 + more), before.1.min(after.1 + more));
        after.0 <= before.0 + more && after.1 <= before.1 + more
    });
    assert!(released, "threads and descriptors were {before:?} and are {after:?}");
}

pub(super) const NO_PROC: &str = "threads and descriptors are counted in /proc, which this system does not have";

/// Starts a server, ends its connections in different ways, and ends it.
fn serve_and_end(subject: &ServerSubject) {
    let live = echo(subject);
    for _ in 0..20 {
        live.ask(&with_body("POST", "/", "Connection: close\r\n", b"hello"), 200);
        live.ask(&get("/"), 200);
        drop(live.client());
        live.trying(b"G@T / HTTP/1.1\r\n\r\n").expect(400);
    }
    let idle = live.clients(5);
    live.shutdown();
    drop(idle);

    let (live, _held_answers, _waiting) = hold_one(subject, defaults());
    live.shutdown_within(Duration::from_millis(20));

    let live = subject.live(large, defaults().write_timeout(Duration::from_millis(50)));
    let mut non_reader = live.sending(&get("/30000000"));
    non_reader.peek().expect("the answer begins");
    live.drop_it();
}

/// No thread and no descriptor is left after the end, whatever the clients did.
pub(super) fn nothing_is_left_after_the_end(subject: &ServerSubject) -> Result<(), String> {
    in_counted_child(|| {
        // The timer's thread starts with its first use, and stays.
        timer::after(Duration::from_millis(1)).wait();
        serve_and_end(subject);
        let before = count();
        for _ in 0..3 {
            serve_and_end(subject);
        }
        check_released(subject, before, 0);
    })
}

/// Connections that have ended leave no thread and no descriptor in a running server.
pub(super) fn ended_connections_leave_nothing(subject: &ServerSubject) -> Result<(), String> {
    in_counted_child(|| {
        timer::after(Duration::from_millis(1)).wait();
        let live = echo(subject);
        let serve_some = || {
            for _ in 0..100 {
                live.ask(&request("GET", "/", "Connection: close\r\n"), 200);
                live.ask(&get("/"), 200);
            }
        };
        serve_some();
        let before = count();
        serve_some();
        check_released(subject, before, 4);
    })
}

/// The descriptor limit of a child process that uses all of them.
const DESCRIPTOR_LIMIT: usize = 512;

/// Opens files until no more than `spare` descriptors are left.
fn use_up_descriptors(spare: usize) -> Vec<fs::File> {
    let mut files: Vec<fs::File> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
    files.truncate(files.len().saturating_sub(spare));
    files
}

/// A server without a free descriptor still serves its open connections, does not spin, and serves new connections
/// once there are descriptors again.
pub(super) fn running_out_of_descriptors_ends_nothing(subject: &ServerSubject) -> Result<(), String> {
    needs_proc()?;
    in_child(DESCRIPTOR_LIMIT, || {
        let live = subject.live(Echo, defaults().first_byte_timeout(NEVER));
        let mut open = live.client();
        open.ask(&get("/"), 200);
        // One descriptor for the client, and none for the server.
        let files = use_up_descriptors(1);
        let mut waiting = live.sending(&get("/"));
        check_idle("running out of descriptors", subject.max_wait);
        // A server of one connection closes the idle connection, which frees a descriptor for the waiting one.
        for _ in 0..if subject.shape() == Shape::One { 0 } else { 20 } {
            open.ask(&get("/"), 200);
        }
        drop(files);
        waiting.expect(200);
        drop(waiting);
        live.ask(&get("/"), 200);
        let drain = live.shutdown();
        assert_eq!((drain.cut, drain.stuck), (0, 0), "{drain}");
    })
    .into()
}

/// The drain serves connections that wait in the kernel's queue because the server has no descriptor for them, once
/// there are descriptors again. The server accepts until the queue is empty.
pub(super) fn the_drain_serves_what_waited_for_descriptors(subject: &ServerSubject) -> Outcome {
    const WAITING: usize = 3;
    let max_wait = subject.max_wait;
    let serve = |parent: &ChildSide| {
        let live = subject.long_drain(Echo, defaults());
        live.ask(&request("GET", "/", "Connection: close\r\n"), 200);
        let files = use_up_descriptors(0);
        parent.announce(live.addr);
        parent.wait_for_parent();
        let draining = live.begin_drain();
        let_pass(Duration::from_millis(60));
        drop(files);
        check_counts(draining.wait(), 1 + WAITING as u64, 0);
    };
    with_serving_child(Some(DESCRIPTOR_LIMIT), serve, |child| {
        let connect = || Client::connect(child.addr, max_wait).expect("the kernel takes the connection");
        let mut waiting: Vec<Client> = (0..WAITING).map(|_| connect()).collect();
        for client in &mut waiting {
            client.send(&get("/")).expect("the kernel takes the request");
        }
        // Long enough for the server to find that it cannot accept.
        let_pass(Duration::from_millis(20));
        child.signal_child();
        for client in &mut waiting {
            client.expect(200);
            client.expect_end();
        }
        Outcome::Held
    })
}

/// Waiting costs no processor time. Tested with a second, idle connection while the server waits for:
///
/// * a request, the rest of a head, the rest of a body;
/// * a deferred answer, also of a client that has half-closed;
/// * a client that does not read;
/// * the end of a client that was refused.
pub(super) fn waiting_costs_no_time(subject: &ServerSubject) -> Result<(), String> {
    in_counted_child(|| {
        let held_answers = HeldAnswers::new();
        let held = || subject.live(held_answers.clone(), defaults().linger_timeout(subject.max_wait));
        let large = subject.live(large, defaults());
        let waits = [
            (&held(), &b""[..], false, "an idle connection"),
            (&held(), b"GET / HT", false, "half a head"),
            (&held(), b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe", false, "half a body"),
            (&held(), b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n", false, "an answer to come"),
            (&held(), b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n", true, "an answer to come to a half-closed client"),
            (&held(), b"G@T / HTTP/1.1\r\n\r\n", false, "the end of a client that was refused"),
            (&large, b"GET /20000000 HTTP/1.1\r\nHost: a\r\n\r\n", false, "a client that does not read"),
        ];
        let begin = |(live, bytes, half_close): (&Live, &[u8], bool)| {
            let mut client = live.sending(bytes);
            if half_close {
                client.half_close().expect("the connection stands");
            }
            (client, live.client())
        };
        // All servers wait at once, because a check takes processor time of its own.
        let clients: Vec<_> =
            waits.iter().map(|&(live, bytes, half_close, _)| begin((live, bytes, half_close))).collect();
        let is_idle = (0..ATTEMPTS).any(|_| spent_by_others() <= MAX_SPENT);
        held_answers.release_all();
        drop(clients);
        if is_idle {
            return;
        }
        // One after the other, which shows the wait that takes time.
        for (live, bytes, half_close, what) in waits {
            let _clients = begin((live, bytes, half_close));
            check_idle(what, subject.max_wait);
            held_answers.release_all();
        }
    })
}

/// The number of checks of all servers at once, the first of which may see the end of their work.
const ATTEMPTS: usize = 3;

/// The processor time of a check.
const SPENT: Duration = Duration::from_millis(200);

/// Max processor time that threads may take during a check that wait.
const MAX_SPENT: Duration = Duration::from_millis(20);

/// Uses the processor time of a check. Returns what the other threads of this process used meanwhile. Needs no descriptor.
///
/// A thread that spins gets a share like this thread's, however busy the machine is. A thread that waits gets none.
fn spent_by_others() -> Duration {
    let used = |clock| Duration::try_from(clock_gettime(clock)).expect("processor time is not negative");
    let [process, thread] = [ClockId::ProcessCPUTime, ClockId::ThreadCPUTime].map(used);
    while used(ClockId::ThreadCPUTime) - thread < SPENT {
        std::hint::spin_loop();
    }
    (used(ClockId::ProcessCPUTime) - process).saturating_sub(used(ClockId::ThreadCPUTime) - thread)
}

/// Panics if the other threads of this process use processor time until the max wait ends.
#[track_caller]
fn check_idle(what: &str, max_wait: Duration) {
    let deadline = Instant::now() + max_wait;
    loop {
        let others = spent_by_others();
        if others <= MAX_SPENT {
            return;
        }
        assert!(Instant::now() < deadline, "{others:?} were spent on {what} while a busy thread had {SPENT:?}");
    }
}

/// If a client pipelines and does not read, the server buffers only a bounded part of the answers. Each answer arrives whole
/// when the client reads.
pub(super) fn a_pipeline_that_is_not_read_is_not_buffered(subject: &ServerSubject) -> Result<(), String> {
    const COUNT: usize = 80;
    const LENGTH: usize = 1_000_000;
    needs(resident().is_some(), "memory is counted in /proc, which this system does not have")?;
    in_child(None, || {
        let live = subject.live(large, defaults());
        live.ask(&get("/1000"), 200);
        let before = resident().expect("/proc is there");
        let mut client = live.sending(&get(&format!("/{LENGTH}")).repeat(COUNT));
        client.peek().expect("the first answer begins");
        let mut held = 0;
        loop {
            let_pass(Duration::from_millis(200));
            let grown = resident().expect("/proc is there").saturating_sub(before);
            assert!(grown < 48 << 10, "{grown} KiB of memory hold answers that the client does not read");
            // On a busy machine a server without a bound needs several of these pauses.
            if grown <= held + 64 {
                break;
            }
            held = grown;
        }
        for _ in 0..COUNT {
            check_pattern(&client.expect(200).body, LENGTH);
        }
    })
    .into()
}

/// The resident memory of this process, in KiB.
pub(super) fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A server serves more connections in sequence than its process has descriptors.
pub(super) fn many_connections_come_and_go(subject: &ServerSubject) -> Outcome {
    in_child(DESCRIPTOR_LIMIT, || {
        let live = echo(subject);
        for _ in 0..2 * DESCRIPTOR_LIMIT {
            live.ask(&request("GET", "/", "Connection: close\r\n"), 200);
        }
        let mut client = live.client();
        for _ in 0..100 {
            client.ask(&get("/"), 200);
        }
    })
}
