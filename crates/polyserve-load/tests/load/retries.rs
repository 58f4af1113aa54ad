//! Clients that send refused and unanswered requests again.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyserve_load::{Arrivals, Exchange, Load, Pace, Retry, RetryReport, RunLength, Traffic};

use super::faulty::{BODY, right, send, serve};
use super::{MAX_WAIT, report};

const REFUSAL: &str = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nfull";

/// 200 requests at even intervals of a millisecond.
fn load(target: SocketAddr, change: impl FnOnce(&mut Retry)) -> Load {
    let traffic =
        Traffic::expecting(vec![Exchange::new("GET", "/").with(|one| one.answers = vec![BODY.into()])]).unwrap();
    Load::new(target, traffic).with(|load| {
        (load.connections, load.pace, load.arrivals) = (16, Pace::Rate(1_000.0), Arrivals::Even);
        (load.length, load.timeout) = (RunLength::Time(Duration::from_millis(200)), MAX_WAIT);
        let retry = Retry::default().with(|retry| {
            (retry.pause, retry.deadline) = (Duration::from_millis(2), MAX_WAIT);
        });
        load.retry = Some(retry.with(change));
    })
}

fn retried(load: &Load) -> RetryReport {
    let report = report(load);
    assert_eq!(report.failed.total(), 0, "{:?}", report.first_failure);
    report.retry.unwrap()
}

#[test]
fn requests_that_are_always_refused_are_sent_until_their_attempts_end() {
    let target = serve(|_, stream| send(stream, REFUSAL));
    let all = retried(&load(target, |retry| retry.attempts = 3));
    assert_eq!((all.offered, all.good, all.late, all.timeouts), (200, 0, 0, 0));
    assert_eq!(all.rejected, all.retries + all.given_up);
    assert!(all.given_up > 0 && all.retries >= 2 * all.given_up, "{all:?}");
}

#[test]
fn a_refused_request_is_good_later() {
    let right = right();
    let target = serve(move |number, stream| send(stream, if number % 2 == 0 { REFUSAL } else { &right }));
    let all = retried(&load(target, |retry| retry.attempts = 100));
    assert_eq!((all.rejected, all.given_up, all.timeouts), (all.retries, 0, 0), "{all:?}");
    assert!(all.good > 0 && all.retries > 0, "{all:?}");
    assert_eq!(all.admitted.len(), all.good + all.late);
    let late = retried(&load(target, |retry| retry.deadline = Duration::from_micros(1)));
    assert!(late.good == 0 && late.late > 0, "{late:?}");
}

/// Verification of a server that may refuse: the answers are checked, and a refusal is no failure.
#[test]
fn a_closed_loop_sends_refused_requests_again() {
    let right = right();
    let target = serve(move |number, stream| send(stream, if number % 2 == 0 { REFUSAL } else { &right }));
    let all = retried(&load(target, |retry| retry.attempts = 100).with(|load| load.pace = Pace::Closed));
    assert_eq!((all.rejected, all.given_up, all.timeouts), (all.retries, 0, 0), "{all:?}");
    assert!(all.good > 0 && all.retries > 0, "{all:?}");
}

#[test]
fn a_client_without_an_answer_in_time_sends_its_request_again() {
    let (release, latch) = mpsc::channel::<()>();
    let latch = Arc::new(Mutex::new(latch));
    let target = serve(move |_, stream| {
        let _ = latch.lock().unwrap().recv_timeout(MAX_WAIT);
        send(stream, &right())
    });
    let load = load(target, |retry| retry.attempts = 2).with(|load| load.timeout = Duration::from_millis(20));
    let all = retried(&load);
    drop(release);
    assert!(all.offered == 200 && all.good == 0 && all.rejected == 0, "{all:?}");
    assert!(all.retries > 0 && all.given_up > 0, "{all:?}");
    assert_eq!(all.timeouts, all.retries + all.given_up);
}
