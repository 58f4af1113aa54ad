//! A turn of a session is bounded in requests and in time, and each of its waits in time.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use polyserve_serving::http1::turn::{MAX_TURN_REQUESTS, MAX_TURN_TIME};
use polyserve_serving::http1::{Phase, Session, SessionBuffers, SessionStep, TimeLimit};

use super::support::*;

const GET: &[u8] = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";

static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

fn stopped_clock() -> Instant {
    *NOW
}

fn late_clock() -> Instant {
    *NOW + MAX_TURN_TIME
}

/// Serves `bytes`, each turn with `clock`. Returns the number of answers of each turn, and the step after the last one.
fn turns(bytes: &[u8], clock: fn() -> Instant) -> (Vec<u64>, SessionStep) {
    let server = server();
    let (mut session, mut buffers) = (Session::new(), SessionBuffers::new());
    let mut answers = Vec::new();
    let mut step = SessionStep::Yield;
    while step == SessionStep::Yield {
        buffers.begin_turn(clock);
        buffers.refresh_at(*NOW, false);
        step = match answers.is_empty() {
            true => session.receive(bytes, &mut server.turn(&mut buffers)),
            false => session.resume(&mut server.turn(&mut buffers)),
        };
        let length = buffers.out().len();
        session.written(length, &mut buffers);
        answers.push(session.take_answered());
    }
    (answers, step)
}

/// Regression test: a batch of requests that had arrived together was answered in one turn, up to 900 requests of one read.
#[test]
fn a_turn_ends_after_sixteen_requests() {
    assert_eq!(u64::from(MAX_TURN_REQUESTS), 16);
    let idle = SessionStep::Read(Phase::Idle);
    assert_eq!(turns(&GET.repeat(16), stopped_clock), (vec![16], idle), "nothing follows, so nothing is put off");
    assert_eq!(turns(&GET.repeat(40), stopped_clock), (vec![16, 16, 8], idle));
    let half = [GET.repeat(16), GET[..20].to_vec()].concat();
    assert_eq!(turns(&half, stopped_clock), (vec![16, 0], SessionStep::Read(Phase::Head)));
}

#[test]
fn a_turn_ends_after_a_millisecond() {
    assert_eq!(turns(&GET.repeat(10), late_clock), (vec![4, 4, 2], SessionStep::Read(Phase::Idle)));
}

/// Regression test: four requests with large answers, or with large bodies, were served before the clock was read.
#[test]
fn the_clock_is_read_after_a_large_request() {
    let put = [&b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n"[..], &[b'x'; 20_000]].concat();
    assert_eq!(turns(&put.repeat(3), late_clock), (vec![1, 1, 1], SessionStep::Read(Phase::Idle)));
    assert_eq!(turns(&put.repeat(3), stopped_clock), (vec![3], SessionStep::Read(Phase::Idle)));
}

/// The time between two batches of a turn counts, but a turn serves at least one request.
#[test]
fn a_late_turn_serves_one_request() {
    let server = server();
    let (mut session, mut buffers) = (Session::new(), SessionBuffers::new());
    buffers.begin_turn(stopped_clock);
    buffers.refresh_at(*NOW, false);
    buffers.refresh_at(*NOW + MAX_TURN_TIME + Duration::from_millis(1), false);
    assert_eq!(session.receive(&GET.repeat(3), &mut server.turn(&mut buffers)), SessionStep::Yield);
    let length = buffers.out().len();
    session.written(length, &mut buffers);
    assert_eq!((session.take_answered(), session.is_busy()), (1, true));
    buffers.end_turn();
    assert_eq!(session.resume(&mut server.turn(&mut buffers)), SessionStep::Read(Phase::Idle));
}

/// The limit of a wait follows from what has arrived.
#[test]
fn each_wait_has_its_limit() {
    let server = server();
    let mut wire = Wire::new(&server);
    assert_eq!(wire.session.time_limit(), TimeLimit::FirstByte);
    let _ = wire.send(b"\r\n");
    assert_eq!(wire.session.time_limit(), TimeLimit::Idle);
    let _ = wire.send(b"POST /1 HTTP/1.1\r\nHost: a\r\n");
    assert_eq!(wire.session.time_limit(), TimeLimit::Head);
    let _ = wire.send(b"Content-Length: 10\r\n\r\nabc");
    assert_eq!(wire.session.time_limit(), TimeLimit::Body { received: 3 });
    let _ = wire.send(b"defg");
    assert_eq!(wire.session.time_limit(), TimeLimit::Body { received: 7 });
    let _ = wire.send(b"hij");
    assert_eq!(wire.session.time_limit(), TimeLimit::Idle);
}
