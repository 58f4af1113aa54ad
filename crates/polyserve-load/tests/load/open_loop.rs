//! A fixed rate: the cost of a server's stall is visible, however few requests are answered during it.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use polyserve_load::{Arrivals, Exchange, Pace, RunLength, Traffic, Usage};

use super::faulty::{BODY, right, send, serve};
use super::{repeated, report, requests};

/// A server answers its first request only after the others are due. The latencies of the others include that wait.
///
/// Request k is due k/1000 s after the start and the first is held for at least 100 ms. So at least the first 51 requests
/// were due 50 ms before the only connection was free. A client that measured from the send would show only one of them as
/// slow.
#[test]
fn a_stop_shows_in_the_latency_of_all_that_were_due() {
    const HELD: Duration = Duration::from_millis(100);
    let (release, latch) = mpsc::channel::<()>();
    let (arrived, arrival) = mpsc::channel();
    let (latch, arrived) = (Mutex::new(latch), Mutex::new(arrived));
    let target = serve(move |number, stream| {
        if number == 0 {
            arrived.lock().unwrap().send(()).unwrap();
            // Released by the test, or after its failure.
            let _ = latch.lock().unwrap().recv();
        }
        send(stream, &right())
    });
    let releaser = std::thread::spawn(move || {
        arrival.recv().unwrap();
        let deadline = Instant::now() + HELD;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        drop(release);
    });
    let traffic =
        Traffic::expecting(vec![Exchange::new("GET", "/").with(|one| one.answers = vec![BODY.into()])]).unwrap();
    let load = requests(target, &traffic, 200).with(|load| {
        (load.connections, load.pace, load.arrivals) = (1, Pace::Rate(1_000.0), Arrivals::Even);
    });
    let report = report(&load);
    releaser.join().unwrap();
    assert_eq!((report.answered, report.latency_kind), (200, "intended start"));
    let waited = report.latency.count_between(Duration::from_millis(50).as_nanos() as u64, u64::MAX);
    assert!(waited >= 51, "{waited} of 200 waited 50 ms");
    assert_eq!(report.lateness.unwrap().len(), 200);
}

/// Requests that were due while the only connection waited, and were never sent, are reported.
#[test]
fn requests_due_and_never_sent_are_reported() {
    let (release, latch) = mpsc::channel::<()>();
    let latch = Mutex::new(latch);
    let target = serve(move |_, stream| {
        let _ = latch.lock().unwrap().recv_timeout(super::MAX_WAIT);
        send(stream, &right())
    });
    let traffic =
        Traffic::expecting(vec![Exchange::new("GET", "/").with(|one| one.answers = vec![BODY.into()])]).unwrap();
    for usage in [Usage::KeepAlive { pipeline: 1 }, Usage::Close] {
        let load = requests(target, &traffic, 1).with(|load| {
            (load.connections, load.pace, load.usage) = (2, Pace::Rate(1_000.0), usage);
            load.arrivals = Arrivals::Even;
            (load.length, load.timeout) = (RunLength::Time(Duration::from_millis(500)), Duration::from_millis(700));
        });
        let report = report(&load);
        assert_eq!((report.unsent + report.failed.timeouts, report.answered, report.unfinished), (500, 0, 0));
        assert!(report.failed.timeouts >= 2 && report.unsent > 0 && !report.is_clean(), "{report:?}");
        // Each wait is from the due time to the end of the client's timeout, which may be after the measured period.
        let waited = report.latency.count_between(Duration::from_millis(690).as_nanos() as u64, u64::MAX);
        assert_eq!((waited, report.latency.len()), (500, 500));
    }
    drop(release);
}

/// A slow server that answers every request has no failures: the client waits for the last answers after the end. An
/// answer takes at least 10 ms, so the server answers at most 230 of 300 requests in the measured period and the 2 s after
/// it.
#[test]
fn a_server_that_is_behind_has_not_failed() {
    let (release, latch) = mpsc::channel::<()>();
    let latch = Mutex::new(latch);
    let target = serve(move |_, stream| {
        let _ = latch.lock().unwrap().recv_timeout(Duration::from_millis(10));
        send(stream, &right())
    });
    let traffic =
        Traffic::expecting(vec![Exchange::new("GET", "/").with(|one| one.answers = vec![BODY.into()])]).unwrap();
    let load = requests(target, &traffic, 1).with(|load| {
        (load.connections, load.pace, load.arrivals) = (3, Pace::Rate(1_000.0), Arrivals::Even);
        load.length = RunLength::Time(Duration::from_millis(300));
    });
    let report = report(&load);
    super::assert_clean(&report);
    assert_eq!((report.answered + report.answered_late + report.unsent, report.unfinished), (300, 0), "{report:?}");
    assert!(report.unsent >= 60 && report.latency.len() == 300, "{report:?}");
    drop(release);
}

/// A server that stalls until the measured period is over: due requests are sent after the measured period, and their
/// waits are visible.
///
/// Request k is due at k ms. Those from 50 on are held until at least 450 ms, so each of them waits 150 ms or more.
#[test]
fn what_was_due_before_the_end_is_sent_after_it() {
    let traffic =
        Traffic::expecting(vec![Exchange::new("GET", "/").with(|one| one.answers = vec![BODY.into()])]).unwrap();
    let run = || {
        let (release, latch) = mpsc::channel::<()>();
        let (arrived, arrival) = mpsc::channel();
        let (latch, arrived) = (Mutex::new(latch), Mutex::new(arrived));
        let target = serve(move |number, stream| {
            if number == 50 {
                arrived.lock().unwrap().send(()).unwrap();
                let _ = latch.lock().unwrap().recv();
            }
            send(stream, &right())
        });
        let releaser = std::thread::spawn(move || {
            let _ = arrival.recv_timeout(super::MAX_WAIT);
            let deadline = Instant::now() + Duration::from_millis(400);
            while let Some(left) = deadline.checked_duration_since(Instant::now()) {
                std::thread::park_timeout(left);
            }
            drop(release);
        });
        let load = requests(target, &traffic, 1).with(|load| {
            (load.connections, load.pace, load.arrivals) = (1, Pace::Rate(1_000.0), Arrivals::Even);
            load.length = RunLength::Time(Duration::from_millis(300));
        });
        let report = report(&load);
        releaser.join().unwrap();
        report
    };
    // A busy machine may not send all in the two seconds after the end.
    let report = repeated(run, |report| report.unsent == 0);
    super::assert_clean(&report);
    assert_eq!((report.answered + report.answered_late, report.unsent, report.latency.len()), (300, 0, 300));
    let waited = report.latency.count_between(Duration::from_millis(149).as_nanos() as u64, u64::MAX);
    assert!(report.answered_late >= 250 && waited >= 250, "{waited}, {report:?}");
}
