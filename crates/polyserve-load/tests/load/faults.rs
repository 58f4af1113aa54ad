//! Servers with one fault each: every fault is counted by kind and described, and the load continues.

use std::net::SocketAddr;
use std::time::Duration;

use polyserve_load::{Exchange, Load, Pace, Report, RunLength, Traffic, Usage};
use rustix::net::{AddressFamily, SocketType};

use super::faulty::{BODY, last, right, send, serve};
use super::{assert_clean, repeated, report, requests};

fn traffic() -> Traffic {
    Traffic::expecting(vec![Exchange::new("GET", "/").with(|one| one.answers = vec![BODY.into()])]).unwrap()
}

/// 100 requests; every tenth has `fault`.
fn every_tenth(fault: impl Fn(&mut std::net::TcpStream) -> bool + Send + Sync + 'static) -> SocketAddr {
    serve(move |number, stream| if number % 10 == 9 { fault(stream) } else { send(stream, &right()) })
}

fn load(target: SocketAddr) -> Load {
    requests(target, &traffic(), 100)
}

/// Returns the report of `load`. The first failure must contain `why`.
#[track_caller]
fn failing(load: &Load, why: &str) -> Report {
    failed(report(load), load, why)
}

/// Returns the report of a run of `load`. The first failure must contain `why`.
#[track_caller]
fn failed(report: Report, load: &Load, why: &str) -> Report {
    let first = report.first_failure.clone().unwrap_or_default();
    assert!(first.contains(why), "{why}: {first:?}, {:?}", report.failed);
    assert!(!report.is_clean());
    if let RunLength::Requests(count) = load.length {
        assert!(report.answered + report.failed.total() >= count, "{report:?}");
    }
    report
}

#[test]
fn a_wrong_body() {
    let target = every_tenth(|stream| send(stream, &right().replace("hello", "hullo")));
    for pipeline in [1, 4] {
        let load = load(target).with(|load| load.usage = Usage::KeepAlive { pipeline });
        let report = failing(&load, "GET /: the body is not the expected one from byte 0 on: \"hullo\"");
        assert!(report.failed.wrong > 0 && report.failed.total() == report.failed.wrong);
        assert_eq!(report.answered + report.failed.wrong, 100);
    }
}

#[test]
fn another_status() {
    let target = every_tenth(|stream| send(stream, "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nfull"));
    let report = failing(&load(target), "GET /: status 503: \"full\"");
    assert_eq!((report.failed.status.get(&503), report.failed.total(), report.answered), (Some(&10), 10, 90));
    assert_eq!(report.connections_opened, 8, "the connection is as good as before");
}

#[test]
fn a_torn_answer() {
    let target = every_tenth(|stream| last(stream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"));
    let report = failing(&load(target), "the connection ended within the answer: closed");
    assert_eq!((report.failed.broken, report.failed.total(), report.answered), (10, 10, 90));
}

#[test]
fn no_http_at_all() {
    let report = failing(&load(every_tenth(|stream| send(stream, "SSH-2.0-x\r\n"))), "no head of an HTTP answer");
    assert_eq!((report.failed.wrong, report.answered), (10, 90));
}

/// Regression test: a head with lines that end with LF alone was counted as right.
#[test]
fn a_line_feed_without_its_carriage_return() {
    let (head, body) = right().split_once("\r\n\r\n").map(|(head, body)| (head.to_owned(), body.to_owned())).unwrap();
    for answer in [format!("{}\n\n{body}", head.replace("\r\n", "\n")), format!("{head}\r\n\n{body}")] {
        let target = every_tenth(move |stream| send(stream, &answer));
        let report =
            failing(&load(target), "GET /: a line of the head is empty, or ends with LF without CR: \"HTTP/1.1");
        assert_eq!((report.failed.wrong, report.failed.total(), report.answered), (10, 10, 90));
    }
}

#[test]
fn bytes_without_a_request() {
    let target = every_tenth(|stream| send(stream, &format!("{}extra", right())));
    for usage in [Usage::KeepAlive { pipeline: 1 }, Usage::KeepAlive { pipeline: 5 }] {
        let report = failing(&load(target).with(|load| load.usage = usage), "extra");
        assert!(report.failed.wrong > 0 && report.failed.total() == report.failed.wrong, "{:?}", report.failed);
    }
    let closing = serve(|_, stream| last(stream, &format!("{}extra", right())));
    let load = load(closing).with(|load| load.usage = Usage::Close);
    assert!(failing(&load, "bytes after the last expected answer: \"extra\"").failed.wrong > 0);
}

/// A full server refuses a connection before its first request. That was counted as a wrong answer.
#[test]
fn a_refusal_without_a_request_is_a_status() {
    let refusal = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    let target = every_tenth(move |stream| send(stream, &format!("{}{refusal}", right())));
    let report = failing(&load(target), "bytes after the last expected answer: \"HTTP/1.1 503 Busy");
    assert_eq!((report.failed.wrong, report.failed.status.contains_key(&503)), (0, true), "{:?}", report.failed);
}

/// A new connection that is closed before its answer is broken. On a kept connection the request is sent again.
#[test]
fn connections_that_are_closed_between_requests() {
    let target = serve(|number, stream| number % 10 != 9 && send(stream, &right()));
    let one = load(target).with(|load| load.connections = 1);
    let report = report(&one);
    assert_clean(&report);
    assert_eq!((report.answered, report.retried, report.reconnects, report.connections_opened), (100, 11, 11, 12));

    let never = serve(|_, _| false);
    let report = failing(&load(never), "the connection ended before the answer");
    assert_eq!((report.failed.broken, report.answered, report.retried), (100, 0, 0));
}

#[test]
fn an_announced_close_is_no_failure() {
    let close = right().replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let target = serve(move |_, stream| last(stream, &close));
    for pipeline in [1, 3] {
        let load = load(target).with(|load| {
            load.usage = Usage::KeepAlive { pipeline };
            load.connections = 1;
        });
        let report = report(&load);
        assert_clean(&report);
        assert_eq!((report.answered, report.connections_opened, report.reconnects), (100, 100, 99));
    }
}

/// A request is sent again at most twice. Without this limit, a server that answers only few requests would go
/// unnoticed.
#[test]
fn a_request_is_not_sent_again_for_ever() {
    let target = serve(|_, stream| last(stream, &right()));
    let load = load(target).with(|load| load.usage = Usage::KeepAlive { pipeline: 16 });
    let report = failing(&load, "GET /: the connection ended once more before the answer: closed");
    assert!(report.failed.broken > 0 && report.failed.total() == report.failed.broken, "{:?}", report.failed);
    assert_eq!(report.answered + report.failed.broken, 100);
    assert!(report.retried <= 200, "{report:?}");
}

/// A close without an announcement, right after an answer: the next request may have been sent or not.
#[test]
fn an_unannounced_close_is_no_failure() {
    let target = serve(|_, stream| last(stream, &right()));
    for pipeline in [1, 2] {
        for pace in [Pace::Closed, Pace::Rate(2_000.0)] {
            let load = load(target).with(|load| (load.usage, load.pace) = (Usage::KeepAlive { pipeline }, pace));
            let report = report(&load);
            assert_clean(&report);
            assert_eq!(report.answered, 100);
            assert!(report.connections_opened >= 100 && report.reconnects >= 92, "{report:?}");
        }
    }
}

#[test]
fn a_body_that_lasts_until_the_end() {
    let target = serve(|_, stream| last(stream, "HTTP/1.1 200 OK\r\n\r\nhello"));
    for usage in [Usage::KeepAlive { pipeline: 1 }, Usage::Close] {
        let report = report(&load(target).with(|load| load.usage = usage));
        assert_clean(&report);
        assert_eq!((report.answered, report.connections_opened >= 100), (100, true));
    }
}

/// Answers byte by byte, one segment a byte.
#[test]
fn answers_in_single_bytes() {
    let target = serve(|_, stream| {
        stream.set_nodelay(true).unwrap();
        right().as_bytes().chunks(1).all(|byte| std::io::Write::write_all(stream, byte).is_ok())
    });
    for pipeline in [1, 4] {
        let report = report(&load(target).with(|load| load.usage = Usage::KeepAlive { pipeline }));
        assert_clean(&report);
        assert_eq!(report.answered, 100);
    }
}

/// A request and an answer larger than all buffers between client and server.
#[test]
fn large_bodies_both_ways() {
    let body: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let exchange = |right: Vec<u8>| {
        let exchange =
            Exchange::new("POST", "/").with(|one| (one.body, one.answers) = (Some(body.clone()), vec![right]));
        Traffic::expecting(vec![exchange]).unwrap()
    };
    let config = polyserve_core::ServerConfig::default().max_body(4 << 20);
    let sequential = polyserve_threadpool::LeaderFollowers::new(config).unwrap();
    let running = polyserve_core::ServerExt::serve(&sequential, ([127, 0, 0, 1], 0), polyserve_core::Echo).unwrap();
    let load = |traffic| requests(running.local_addr(), &traffic, 10).with(|load| load.connections = 2);
    let good = report(&load(exchange(body.clone())));
    assert_clean(&good);
    assert_eq!(good.answered, 10);
    let mut other = body.clone();
    other[2_999_999] ^= 1;
    assert_eq!(report(&load(exchange(other))).failed.wrong, 10);
}

#[test]
fn a_silent_server_is_a_timeout_and_the_load_ends() {
    let target = serve(|_, _| true);
    let timeout = Duration::from_millis(50);
    let timed =
        load(target).with(|load| (load.timeout, load.length) = (timeout, RunLength::Time(Duration::from_millis(600))));
    // On a busy machine a run may be over before its first request.
    let has_sent = |report: &Report| report.bytes_sent > 0;
    let report = failed(repeated(|| report(&timed), has_sent), &timed, "GET /: no answer within 0.05 s");
    assert!(report.failed.timeouts >= 8 && report.failed.total() == report.failed.timeouts);
    // A million requests would take hours: the load ends after twice the timeout without a right answer.
    let many = load(target).with(|load| (load.timeout, load.length) = (timeout, RunLength::Requests(1_000_000)));
    let report = super::report(&many);
    assert!(report.failed.timeouts >= 8 && report.answered == 0);
    // A run shorter than the client's timeout.
    let short = timed.with(|load| {
        (load.timeout, load.length) = (Duration::from_millis(500), RunLength::Time(Duration::from_millis(50)));
    });
    let report = failed(repeated(|| super::report(&short), has_sent), &short, "GET /: no answer within 0.5 s");
    assert_eq!((report.failed.timeouts, report.failed.total(), report.unfinished), (8, 8, 0));
}

/// Regression test: a request without an answer counted as unfinished, and the load as clean.
#[test]
fn a_swallowed_request_and_a_short_body_are_timeouts() {
    let swallow = |_: &mut std::net::TcpStream| true;
    let short = |stream: &mut std::net::TcpStream| send(stream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell");
    let faults: [fn(&mut std::net::TcpStream) -> bool; 2] = [swallow, short];
    for fault in faults {
        let some =
            serve(move |number, stream| if number % 200 == 199 { fault(stream) } else { send(stream, &right()) });
        let many = requests(some, &traffic(), 1_000).with(|load| load.timeout = Duration::from_millis(300));
        let report = failing(&many, "GET /: no answer within 0.3 s");
        // On a busy machine other answers may be late, too.
        assert!(report.failed.timeouts >= 5 && report.failed.total() == report.failed.timeouts, "{report:?}");
        assert_eq!((report.answered + report.failed.timeouts, report.unfinished), (1_000, 0));

        // One of the first eight requests, in a slice much shorter than the client's timeout.
        let slice = || {
            let one = serve(move |number, stream| if number == 5 { fault(stream) } else { send(stream, &right()) });
            load(one).with(|load| {
                (load.length, load.timeout) = (RunLength::Time(Duration::from_millis(50)), Duration::from_millis(500));
            })
        };
        let counts = |report: &Report| (report.failed.timeouts, report.failed.total(), report.unfinished);
        // On a busy machine a slice may be over before its first request, or another answer may be late.
        let report = repeated(|| super::report(&slice()), |report| report.failed.timeouts == 1);
        assert_eq!(counts(&report), (1, 1, 0));
        let first = report.first_failure.unwrap_or_default();
        assert!(first.contains("GET /: no answer within 0.5 s"), "{first}");
    }
}

/// Regression test: a server that answers one request after the other had failed, if the last of 64 took 2 s.
#[test]
fn a_slow_server_has_not_failed() {
    let (release, latch) = std::sync::mpsc::channel::<()>();
    let latch = std::sync::Mutex::new(latch);
    let target = serve(move |_, stream| {
        let _ = latch.lock().unwrap().recv_timeout(Duration::from_millis(50));
        send(stream, &right())
    });
    let load = load(target).with(|load| {
        (load.connections, load.length) = (64, RunLength::Time(Duration::from_millis(100)));
    });
    let report = super::report(&load.with(|load| load.timeout = super::MAX_WAIT));
    super::assert_clean(&report);
    assert!(report.answered + report.answered_late >= 64 && report.unfinished == 0, "{report:?}");
    drop(release);
}

/// An unanswered request of a stopped load has not failed: its timeout was not over.
#[test]
fn what_a_stop_leaves_unfinished_is_no_failure() {
    let target = serve(|number, stream| number % 10 == 9 || send(stream, &right()));
    let load = load(target).with(|load| load.length = RunLength::Time(Duration::from_secs(3600)));
    // After 72 answers each of the eight connections waits for an answer that never arrives.
    let report = polyserve_load::run(&load, &mut |progress| {
        if progress.answered == 72 {
            load.stop.begin(std::time::Instant::now());
        }
    });
    let report = report.unwrap();
    assert_eq!((report.answered, report.failed.total(), report.unfinished), (72, 0, 8), "{report:?}");
}

#[test]
fn a_server_that_does_not_close_is_a_timeout() {
    let announced = right().replacen("\r\n", "\r\nConnection: close\r\n", 1);
    let target = serve(move |_, stream| send(stream, &announced));
    let load = load(target).with(|load| {
        (load.usage, load.timeout, load.connections) = (Usage::Close, Duration::from_millis(50), 1);
        load.length = RunLength::Requests(3);
    });
    // On a busy machine an answer may be late.
    let report = repeated(|| report(&load), |report| report.answered == 3);
    let report = failed(report, &load, "the server has not closed the connection");
    assert_eq!(report.answered, 3);
    // A run shorter than the client's timeout.
    let short =
        load.with(|load| (load.length, load.timeout) = (RunLength::Time(Duration::from_millis(1500)), super::MAX_WAIT));
    let report = repeated(|| super::report(&short), |report| report.bytes_sent > 0);
    let report = failed(report, &short, "the server has not closed the connection");
    assert_eq!((report.answered, report.failed.timeouts, report.failed.total()), (1, 1, 1));
}

/// If a server never announced a close, each request timed out.
#[test]
fn a_server_that_does_not_say_that_it_closes_is_left() {
    let target = serve(|_, stream| send(stream, &right()));
    let load = load(target).with(|load| {
        (load.usage, load.connections) = (Usage::Close, 2);
        load.length = RunLength::Requests(20);
    });
    let report = super::report(&load);
    super::assert_clean(&report);
    assert_eq!((report.answered, report.connections_opened, report.reconnects), (20, 20, 0));
    // If the server must announce the close, its absence is counted, and the load continues.
    let report = failing(&load.with(|load| load.must_close = true), "GET /: the answer to `Connection: close`");
    assert_eq!((report.answered, report.failed.wrong, report.failed.total()), (20, 20, 20));
}

#[test]
fn a_server_that_must_close_and_does() {
    let close = right().replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let target = serve(move |_, stream| last(stream, &close));
    let load = load(target).with(|load| (load.usage, load.must_close) = (Usage::Close, true));
    super::assert_clean(&super::report(&load));
}

#[test]
fn a_closed_port_is_reported() {
    // It is bound, so that no other program gets its port, and it does not listen.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let target = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
    for usage in [Usage::KeepAlive { pipeline: 1 }, Usage::Close] {
        for pace in [Pace::Closed, Pace::Rate(1_000.0)] {
            let load = load(target).with(|load| {
                (load.usage, load.pace, load.timeout) = (usage, pace, Duration::from_millis(200));
                load.length = RunLength::Time(Duration::from_millis(300));
            });
            // On a busy machine a run may be over before its first connection.
            let report = repeated(|| report(&load), |report| report.failed.connect > 0);
            let report = failed(report, &load, &format!("GET /: cannot connect to {target}: "));
            // Eight connections with growing pauses: a client without pauses would count thousands of failures.
            assert!(report.failed.connect > 0 && report.failed.total() == report.failed.connect);
            assert!(report.failed.connect <= 8 * 20, "{:?}", report.failed);
        }
    }
}
