//! Crowds against a server of these tests' own.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown as Side, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use polyserve::Shutdown;

use super::{Counts, Crowd, Kind, Plan};
use crate::machine::cores::Cores;

/// Only matters where something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn gather(listener: &TcpListener, kind: Kind, connections: usize) -> Crowd {
    gather_from(listener, kind, connections, 1000)
}

fn gather_from(listener: &TcpListener, kind: Kind, connections: usize, ports: usize) -> Crowd {
    let target = listener.local_addr().unwrap();
    let (interval, cores) = (Duration::from_millis(10), Cores::available().unwrap());
    let plan = Plan { kind, target, body: "hello".into(), connections, ports, interval, stay: None, cores };
    Crowd::gather(plan).unwrap()
}

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Waits until the counts are as wanted.
fn until(crowd: &Crowd, wanted: impl Fn(&Counts) -> bool) -> Counts {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let counts = crowd.counts();
        if wanted(&counts) {
            return counts;
        }
        assert!(Instant::now() < deadline, "{counts:?}");
        std::thread::yield_now();
    }
}

/// Reads until the request has this end.
fn heard(stream: &mut TcpStream, end: &str) -> String {
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
fn the_idle_ask_once_and_rest_until_they_are_closed() {
    let listener = listen();
    let crowd = gather(&listener, Kind::Idle, 5);
    let mut streams: Vec<TcpStream> = (0..5).map(|_| accept(&listener)).collect();
    for stream in &mut streams {
        assert!(heard(stream, BLANK).starts_with("GET /0 HTTP/1.1\r\nHost: 127.0.0.1"));
        assert!(crowd.counts().held < 5);
        // In two pieces: half an answer is none.
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel").unwrap();
        stream.write_all(b"lo").unwrap();
    }
    assert!(crowd.settles(PATIENCE, &Shutdown::new()));
    let all = Counts { connections: 5, opened: 5, held: 5, answered: 5, ..Counts::default() };
    assert_eq!(crowd.counts(), all);
    drop(streams.pop());
    assert_eq!(until(&crowd, |counts| counts.cut > 0), Counts { held: 4, cut: 1, ..all });
    crowd.disperse();
    for stream in &mut streams {
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)), "the crowd has gone");
    }
}

#[test]
fn an_answer_that_is_not_the_right_one_is_no_rest() {
    let listener = listen();
    let crowd = gather(&listener, Kind::Idle, 2);
    for answer in
        ["HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbye"]
    {
        let mut stream = accept(&listener);
        let _ = heard(&mut stream, BLANK);
        stream.write_all(answer.as_bytes()).unwrap();
        stream.shutdown(Side::Write).unwrap();
    }
    assert!(crowd.settles(PATIENCE, &Shutdown::new()), "all have come as far as they get");
    let counts = crowd.counts();
    assert_eq!((counts.answered, counts.held, counts.refused, counts.cut), (0, 0, 1, 1));
}

#[test]
fn the_slow_drip_what_they_say_and_come_back_when_they_are_cut_off() {
    let listener = listen();
    let crowd = gather(&listener, Kind::SlowHeads, 1);
    assert!(crowd.settles(PATIENCE, &Shutdown::new()));
    let mut first = accept(&listener);
    assert!(heard(&mut first, "X-Slow: aaa").starts_with("GET /0 HTTP/1.1\r\nHost: "));
    first.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").unwrap();
    first.shutdown(Side::Write).unwrap();
    let _ = until(&crowd, |counts| counts.timed_out == 1);
    let mut second = accept(&listener);
    let _ = heard(&mut second, "GET ");
    drop(second); // with bytes unread it is reset
    let _ = until(&crowd, |counts| counts.cut == 1);
    let third = accept(&listener);
    let counts = until(&crowd, |counts| counts.held == 1);
    assert_eq!((counts.opened, counts.refused, counts.unreachable), (3, 0, 0));
    drop(third);
}

#[test]
fn a_slow_body_has_a_whole_head_and_no_end() {
    let listener = listen();
    let _crowd = gather(&listener, Kind::SlowBodies, 1);
    let mut stream = accept(&listener);
    let head = heard(&mut stream, BLANK);
    assert!(head.starts_with("PUT /0 HTTP/1.1\r\n") && head.contains("Content-Length: 60000"), "{head}");
    assert_eq!(heard(&mut stream, "   "), "{   ");
}

#[test]
fn a_slow_reader_asks_for_more_than_it_takes() {
    let listener = listen();
    let crowd = gather(&listener, Kind::SlowReaders, 1);
    let mut stream = accept(&listener);
    for _ in 0..16 {
        assert!(heard(&mut stream, BLANK).starts_with("GET /1 HTTP/1.1\r\n"));
    }
    stream.set_nonblocking(true).unwrap();
    let mut sent = 0;
    // It is full when it takes no more for as long as many sips last.
    let mut full = Instant::now();
    while full.elapsed() < Duration::from_millis(200) {
        match stream.write(&[b'x'; 4096]) {
            Ok(count) => (sent, full) = (sent + count, Instant::now()),
            Err(_) => std::thread::yield_now(),
        }
        assert!(sent < 16 << 20, "it takes all there is");
    }
    assert!(crowd.settles(PATIENCE, &Shutdown::new()));
    assert_eq!(crowd.counts().held, 1);
    drop(stream);
}

#[test]
fn who_is_refused_while_it_reads_slowly_is_told_apart() {
    let listener = listen();
    let crowd = gather(&listener, Kind::SlowReaders, 1);
    let mut stream = accept(&listener);
    for _ in 0..16 {
        let _ = heard(&mut stream, BLANK);
    }
    stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n").unwrap();
    stream.shutdown(Side::Write).unwrap();
    assert_eq!(until(&crowd, |counts| counts.refused > 0).cut, 0);
}

#[test]
fn who_cannot_tell_whether_it_was_cut_off_comes_back() {
    let listener = listen();
    let target = listener.local_addr().unwrap();
    let (interval, cores) = (Duration::from_millis(10), Cores::available().unwrap());
    let stay = Some(Duration::from_millis(1));
    let plan =
        Plan { kind: Kind::SlowReaders, target, body: String::new(), connections: 1, ports: 9, interval, stay, cores };
    let crowd = Crowd::gather(plan).unwrap();
    for _ in 0..3 {
        let mut stream = accept(&listener);
        stream.write_all(b"HTTP/1.1 200 OK").unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest); // until it is reset
    }
    let counts = until(&crowd, |counts| counts.left >= 3);
    assert_eq!((counts.cut, counts.refused, counts.unreachable), (0, 0, 0));
}

#[test]
fn where_ports_run_out_others_addresses_have_some() {
    let listener = listen();
    let crowd = gather_from(&listener, Kind::SlowHeads, 5, 2);
    assert!(crowd.settles(PATIENCE, &Shutdown::new()));
    let mut from: Vec<String> = (0..5).map(|_| listener.accept().unwrap().1.ip().to_string()).collect();
    from.sort();
    assert_eq!(from, ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.3"]);
}

#[test]
fn nobody_there_is_counted_and_no_end_is_waited_for() {
    let listener = listen();
    let target = listener.local_addr().unwrap();
    drop(listener);
    let (interval, cores) = (Duration::from_millis(10), Cores::available().unwrap());
    let plan =
        Plan { kind: Kind::Idle, target, body: String::new(), connections: 3, ports: 9, interval, stay: None, cores };
    let crowd = Crowd::gather(plan).unwrap();
    assert!(crowd.settles(PATIENCE, &Shutdown::new()));
    assert_eq!(crowd.counts().unreachable, 3);
    let listener = listen();
    let silent = gather(&listener, Kind::Idle, 1);
    let stop = Shutdown::new();
    stop.begin(Instant::now());
    assert!(!silent.settles(PATIENCE, &stop), "a stop ends the waiting");
}
