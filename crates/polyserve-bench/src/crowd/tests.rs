//! Crowds against a server of these tests.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown as Side, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use polyserve::Shutdown;

use super::{Crowd, CrowdCounts, CrowdKind, CrowdPlan};
use crate::machine::cores::Cores;

/// Only reached if something hangs.
const MAX_WAIT: Duration = Duration::from_secs(60);

fn open(listener: &TcpListener, kind: CrowdKind, connections: usize) -> Crowd {
    open_from(listener, kind, connections, 1000)
}

fn open_from(listener: &TcpListener, kind: CrowdKind, connections: usize, ports: usize) -> Crowd {
    Crowd::open(CrowdPlan { ports, ..plan(listener.local_addr().unwrap(), kind, connections) }).unwrap()
}

fn plan(target: SocketAddr, kind: CrowdKind, connections: usize) -> CrowdPlan {
    let (interval, cores) = (Duration::from_millis(10), Cores::available().unwrap());
    CrowdPlan { kind, target, body: "hello".into(), connections, ports: 9, interval, stay: None, cores }
}

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
    stream
}

/// Waits until `is_reached` returns true for the counts.
fn wait_until(crowd: &Crowd, is_reached: impl Fn(&CrowdCounts) -> bool) -> CrowdCounts {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        let counts = crowd.counts();
        if is_reached(&counts) {
            return counts;
        }
        assert!(Instant::now() < deadline, "{counts:?}");
        std::thread::yield_now();
    }
}

/// Reads until the received text has this end.
fn received(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        text.push(char::from(byte[0]));
    }
    text
}

const BLANK: &str = "\r\n\r\n";

#[test]
fn idle_connections_send_one_request_and_stay_open() {
    let listener = listen();
    let crowd = open(&listener, CrowdKind::Idle, 5);
    let mut streams: Vec<TcpStream> = (0..5).map(|_| accept(&listener)).collect();
    for stream in &mut streams {
        assert!(received(stream, BLANK).starts_with("GET /0 HTTP/1.1\r\nHost: 127.0.0.1"));
        assert!(crowd.counts().held < 5);
        // In two pieces: half an answer is no answer.
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel").unwrap();
        stream.write_all(b"lo").unwrap();
    }
    assert!(crowd.wait_settled(MAX_WAIT, &Shutdown::new()));
    let all = CrowdCounts { connections: 5, opened: 5, held: 5, answered: 5, ..CrowdCounts::default() };
    assert_eq!(crowd.counts(), all);
    drop(streams.pop());
    assert_eq!(wait_until(&crowd, |counts| counts.cut > 0), CrowdCounts { held: 4, cut: 1, ..all });
    crowd.close();
    for stream in &mut streams {
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)), "the crowd is closed");
    }
}

#[test]
fn a_wrong_answer_is_not_counted_as_answered() {
    let listener = listen();
    let crowd = open(&listener, CrowdKind::Idle, 2);
    for answer in
        ["HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbye"]
    {
        let mut stream = accept(&listener);
        let _ = received(&mut stream, BLANK);
        stream.write_all(answer.as_bytes()).unwrap();
        stream.shutdown(Side::Write).unwrap();
    }
    assert!(crowd.wait_settled(MAX_WAIT, &Shutdown::new()), "both have ended");
    let counts = crowd.counts();
    assert_eq!((counts.answered, counts.held, counts.refused, counts.cut), (0, 0, 1, 1));
}

#[test]
fn slow_heads_are_opened_again_after_a_close() {
    let listener = listen();
    let crowd = open(&listener, CrowdKind::SlowHeads, 1);
    assert!(crowd.wait_settled(MAX_WAIT, &Shutdown::new()));
    let mut first = accept(&listener);
    assert!(received(&mut first, "X-Slow: aaa").starts_with("GET /0 HTTP/1.1\r\nHost: "));
    first.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").unwrap();
    first.shutdown(Side::Write).unwrap();
    let _ = wait_until(&crowd, |counts| counts.timed_out == 1);
    let mut second = accept(&listener);
    let _ = received(&mut second, "GET ");
    drop(second); // with bytes unread it is reset
    let _ = wait_until(&crowd, |counts| counts.cut == 1);
    let third = accept(&listener);
    let counts = wait_until(&crowd, |counts| counts.held == 1);
    assert_eq!((counts.opened, counts.refused, counts.unreachable), (3, 0, 0));
    drop(third);
}

#[test]
fn a_slow_body_has_a_whole_head_and_no_end() {
    let listener = listen();
    let _crowd = open(&listener, CrowdKind::SlowBodies, 1);
    let mut stream = accept(&listener);
    let head = received(&mut stream, BLANK);
    assert!(head.starts_with("PUT /0 HTTP/1.1\r\n") && head.contains("Content-Length: 60000"), "{head}");
    assert_eq!(received(&mut stream, "   "), "{   ");
}

#[test]
fn a_slow_reader_requests_more_than_it_reads() {
    let listener = listen();
    let crowd = open(&listener, CrowdKind::SlowReaders, 1);
    let mut stream = accept(&listener);
    for _ in 0..16 {
        assert!(received(&mut stream, BLANK).starts_with("GET /1 HTTP/1.1\r\n"));
    }
    stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    // The buffers are full if no byte was written for the time of many turns.
    let mut full = Instant::now();
    while full.elapsed() < Duration::from_millis(200) {
        match stream.write(&[b'x'; 4096]) {
            Ok(count) => (sent, full) = (sent + count, Instant::now()),
            Err(_) => std::thread::yield_now(),
        }
        assert!(sent < 16 << 20, "it reads everything");
    }
    assert!(crowd.wait_settled(MAX_WAIT, &Shutdown::new()));
    assert_eq!(crowd.counts().held, 1);
    drop(stream);
}

#[test]
fn a_refused_slow_reader_is_counted_as_refused() {
    let listener = listen();
    let crowd = open(&listener, CrowdKind::SlowReaders, 1);
    let mut stream = accept(&listener);
    for _ in 0..16 {
        let _ = received(&mut stream, BLANK);
    }
    stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n").unwrap();
    stream.shutdown(Side::Write).unwrap();
    assert_eq!(wait_until(&crowd, |counts| counts.refused > 0).cut, 0);
}

#[test]
fn a_slow_reader_is_opened_again_after_its_stay() {
    let listener = listen();
    let stay = Some(Duration::from_millis(1));
    let plan = plan(listener.local_addr().unwrap(), CrowdKind::SlowReaders, 1);
    let crowd = Crowd::open(CrowdPlan { stay, ..plan }).unwrap();
    for _ in 0..3 {
        let mut stream = accept(&listener);
        stream.write_all(b"HTTP/1.1 200 OK").unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest); // until it is reset
    }
    let counts = wait_until(&crowd, |counts| counts.left >= 3);
    assert_eq!((counts.cut, counts.refused, counts.unreachable), (0, 0, 0));
}

#[test]
fn further_addresses_are_used_if_ports_run_out() {
    let listener = listen();
    let crowd = open_from(&listener, CrowdKind::SlowHeads, 5, 2);
    assert!(crowd.wait_settled(MAX_WAIT, &Shutdown::new()));
    let mut from: Vec<String> = (0..5).map(|_| listener.accept().unwrap().1.ip().to_string()).collect();
    from.sort();
    assert_eq!(from, ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.3"]);
}

#[test]
fn unreachable_connections_are_counted_and_a_stop_ends_the_wait() {
    let listener = listen();
    let target = listener.local_addr().unwrap();
    drop(listener);
    let crowd = Crowd::open(plan(target, CrowdKind::Idle, 3)).unwrap();
    assert!(crowd.wait_settled(MAX_WAIT, &Shutdown::new()));
    assert_eq!(crowd.counts().unreachable, 3);
    let listener = listen();
    let silent = open(&listener, CrowdKind::Idle, 1);
    let stop = Shutdown::new();
    stop.begin(Instant::now());
    assert!(!silent.wait_settled(MAX_WAIT, &stop), "a stop ends the waiting");
}
