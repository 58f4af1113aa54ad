//! The preparation of a load: it ends with the client's timeout, and with a stop.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use polyserve_load::{Load, LoadError, Traffic, prefill_for, run};

use super::faulty::{send, serve};
use super::{MAX_WAIT, entities, requests};

/// A load with a server that never answers the preparation.
fn unprepared(traffic: &Traffic, timeout: Duration) -> Load {
    requests(serve(|_, _| true), traffic, 1).with(|load| load.timeout = timeout)
}

/// The preparation: everything before the first counted request.
fn prepared(load: &Load) -> LoadError {
    match prefill_for(load) {
        Ok(_) => run(load, &mut |_| {}).unwrap_err(),
        Err(error) => error,
    }
}

#[test]
fn a_preparation_ends_with_the_clients_timeout() {
    for traffic in [Traffic::one("GET", "/", None, None).unwrap(), entities(5, "get=1")] {
        let error = prepared(&unprepared(&traffic, Duration::from_millis(200))).to_string();
        assert!(error.contains("no answer within 0.2 s"), "{error}");
    }
}

/// A server that sent a byte now and then kept the client waiting for as long.
#[test]
fn an_answer_that_drips_is_not_waited_for_for_ever() {
    let (release, latch) = mpsc::channel::<()>();
    let latch = Mutex::new(latch);
    let target = serve(move |_, stream| {
        let mut is_read = send(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        while is_read
            && latch.lock().unwrap().recv_timeout(Duration::from_millis(5)) == Err(mpsc::RecvTimeoutError::Timeout)
        {
            is_read = send(stream, "x");
        }
        false
    });
    let traffic = Traffic::one("GET", "/", None, None).unwrap();
    let load = requests(target, &traffic, 1).with(|load| load.timeout = Duration::from_millis(200));
    let error = run(&load, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("no end of the answer within 0.2 s: "), "{error}");
    drop(release);
}

#[test]
fn a_preparation_can_be_stopped() {
    for traffic in [Traffic::one("GET", "/", None, None).unwrap(), entities(5, "get=1")] {
        let load = unprepared(&traffic, MAX_WAIT);
        load.stop.begin(Instant::now());
        let error = prepared(&load);
        assert!(matches!(error, LoadError::Stopped), "{error}");
    }
}
