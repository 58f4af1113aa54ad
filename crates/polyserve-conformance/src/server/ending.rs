//! The end of a server with unfinished work: what is cut, what is left behind, and what is free afterwards.

use std::cell::Cell;

use polyserve_core::Drain;

use super::prelude::*;
use crate::event_count::EventCount;

/// A grace that is short enough to end during a property.
const SHORT: Duration = Duration::from_millis(200);

/// Repeats a drain that has to count exactly one stuck thread. On a busy machine another thread may end only after the server has
/// stopped waiting for it, and counts too.
#[track_caller]
fn one_is_stuck(drain: impl Fn() -> Drain) {
    attempts(3, || {
        let drain = drain();
        assert_ne!(drain.stuck, 0, "the stuck thread is not counted");
        needs(drain.stuck == 1, &format!("one thread is stuck, and the drain counts {drain:?}"))
    });
}

/// Checks that the address is closed. Another test may start a child process at this moment. Until the child executes its
/// program, it holds a copy of every descriptor, so the kernel may close the listener a little later.
#[track_caller]
fn check_is_closed(subject: &ServerSubject, addr: SocketAddr) {
    let closed = eventually(subject.max_wait, || TcpStream::connect(addr).is_err());
    assert!(closed, "the address still accepts connections");
}

/// Requests that have not ended at the deadline are cut and counted, and get no part of an answer. Tested with a
/// request without its body, and with a request that the service never answers.
pub(super) fn the_deadline_cuts_what_has_not_ended(subject: &ServerSubject) {
    let live = echo(subject);
    let reading = live.in_mid_request(1).remove(0);
    let (live_held, held_answers, waiting) = hold_one(subject, defaults());
    for (live, client) in [(live, reading), (live_held, waiting)] {
        let drain = live.cut_within(SHORT);
        check_is_cut(client);
        check_counts(drain, 0, 1);
    }
    assert!(held_answers.all_abandoned(), "the server that has ended still holds an answer");
}

/// Checks that a connection ends without a byte.
#[track_caller]
fn check_is_cut(mut client: Client) {
    let (bytes, ending) = client.end();
    assert!(bytes.is_empty() && ending != Ending::Silent, "{ending:?}\n{}", client.show());
}

/// A thread that is stuck in the service at the deadline is left behind and counted, and its socket is closed. The
/// shutdown returns while the thread is stuck, and the port is free.
pub(super) fn a_stuck_thread_is_left_behind(subject: &ServerSubject) {
    one_is_stuck(|| leave_one_behind(subject));
}

fn leave_one_behind(subject: &ServerSubject) -> Drain {
    let service = Blocking::new(subject, None);
    let live = subject.live(service.clone(), defaults());
    let _opened = service.open.token();
    let addr = live.addr;
    live.ask(&request("GET", "/", "Connection: close\r\n"), 200);
    let client = live.sending(&get("/block"));
    assert!(service.inside.reaches(1), "the request reaches the service");
    let drain = live.shutdown_within(SHORT);
    assert_eq!(service.open.get(), 0, "the thread is still stuck");
    assert_eq!((drain.answered, drain.cut), (1, 0), "a stuck request is not cut as well: {drain}");
    check_is_cut(client);
    check_is_closed(subject, addr);
    let server = subject.default_server();
    subject.serve_again(&server, addr).ask(&get("/"), 200);
    drain
}

/// The connections of requests that wait for a stuck thread end at the deadline.
pub(super) fn what_waits_for_a_stuck_thread_ends_too(subject: &ServerSubject) {
    one_is_stuck(|| end_what_waits(subject));
}

fn end_what_waits(subject: &ServerSubject) -> Drain {
    let service = Blocking::new(subject, None);
    let live = subject.live(service.clone(), subject.with_workers(1));
    let _opened = service.open.token();
    let _stuck = live.sending(&get("/block"));
    assert!(service.inside.reaches(1), "the request reaches the service");
    let mut waiting = live.senders(3, &get("/"));
    let drain = live.shutdown_within(SHORT);
    let mut answered = 0;
    for client in &mut waiting {
        // If each connection has its own thread, these requests were answered. Otherwise the connections end without a byte,
        // or with a refusal.
        let (bytes, ending) = client.end();
        assert_ne!(ending, Ending::Silent, "a connection does not end\n{}", client.show());
        answered += u64::from(!bytes.is_empty());
    }
    assert_eq!(drain.answered, answered, "{drain}");
    drain
}

/// Waits for an event when it is dropped.
struct Endless(EventCount);

impl Drop for Endless {
    fn drop(&mut self) {
        self.0.reaches(1);
    }
}

thread_local! {
    static ENDLESS: Cell<Option<Endless>> = const { Cell::new(None) };
}

/// A thread that does not end, because a value that the service keeps for each thread blocks when it is dropped, does not hold the
/// shutdown.
pub(super) fn a_thread_that_never_ends_does_not_hold_the_shutdown(subject: &ServerSubject) {
    let ends = EventCount::new(NEVER);
    let _ends = ends.token();
    let service = move |_: Request<'_>| {
        ENDLESS.set(Some(Endless(ends.clone())));
        Reply::empty(StatusCode::OK)
    };
    let live = subject.live(service, subject.with_workers(2));
    live.ask(&request("GET", "/", "Connection: close\r\n"), 200);
    let drain = live.shutdown_within(Duration::ZERO);
    assert_eq!((drain.answered, drain.cut), (1, 0), "{drain}");
}

/// The port is free after the end: another run of the same server binds it at once.
pub(super) fn the_port_is_free_after_the_end(subject: &ServerSubject) {
    let server = subject.default_server();
    let live = subject.serve(&server, Echo);
    let addr = live.addr;
    live.ask(&get("/"), 200);
    check_counts(live.shutdown(), 1, 0);
    check_is_closed(subject, addr);
    let rerun = subject.serve_again(&server, addr);
    assert_eq!(rerun.addr, addr);
    rerun.ask(&get("/"), 200);
    check_counts(rerun.shutdown(), 1, 0);
}

/// One server value serves several times, also at the same time. Each run has its own counts and its own end.
pub(super) fn one_server_serves_several_times(subject: &ServerSubject) {
    let server = subject.default_server();
    let (first, second) = (subject.serve(&server, Echo), subject.serve(&server, Echo));
    for _ in 0..3 {
        first.ask(&get("/"), 200);
    }
    let mut client = second.client();
    client.ask(&get("/"), 200);
    check_counts(first.shutdown(), 3, 0);
    client.ask(&get("/"), 200);
    drop(client);
    let third = subject.serve(&server, Echo);
    third.ask(&get("/"), 200);
    check_counts(second.shutdown(), 2, 0);
    check_counts(third.shutdown(), 1, 0);
}

/// Dropping a running server is a shutdown with no grace. The drop does not wait for a deferred answer, and it closes the
/// listener.
pub(super) fn dropping_it_ends_it(subject: &ServerSubject) {
    let (live, _held_answers, mut client) = hold_one(subject, defaults());
    let addr = live.addr;
    live.drop_it();
    assert_ne!(client.end().1, Ending::Silent, "the connection does not end\n{}", client.show());
    check_is_closed(subject, addr);
}

/// A server that has served no request ends at once.
pub(super) fn an_unused_server_ends(subject: &ServerSubject) {
    check_counts(echo(subject).shutdown(), 0, 0);
    check_counts(echo(subject).begin_drain().wait(), 0, 0);
    echo(subject).drop_it();
}

/// Connections that arrive during a shutdown are served or closed. The shutdown does not wait for further connections.
pub(super) fn connecting_during_the_end_ends_too(subject: &ServerSubject) {
    let live = echo(subject);
    let (addr, max_wait) = (live.addr, subject.max_wait);
    let started = Instant::now();
    let connecting = thread::spawn(move || {
        let mut answered = Vec::new();
        while let Ok(mut client) = Client::connect(addr, max_wait) {
            match client.exchange(&get("/")) {
                Ok(_) => answered.push(client),
                Err(failure) => assert!(failure.is_clean(), "{failure}"),
            }
            // Old connections are closed, so that descriptors do not run out.
            if answered.len() > 20 {
                answered.clear();
            }
            assert!(started.elapsed() < 2 * max_wait, "the server does not end");
        }
        for mut client in answered {
            assert_ne!(client.end().1, Ending::Silent, "a connection is left open\n{}", client.show());
        }
    });
    live.ask_until_served(&get("/"));
    let drain = live.shutdown();
    assert_eq!((drain.cut, drain.stuck), (0, 0), "{drain}");
    let connected = within(max_wait, "the clients that connect during the shutdown", move || connecting.join());
    connected.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
