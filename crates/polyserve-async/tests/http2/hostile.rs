//! Clients that flood a connection, or take its memory: frames as bytes over a socket.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use polyserve_conformance::client::Client;
use polyserve_core::{Answer, Body, Echo, Reply, Running, ServerConfig, Service};

use super::support::{MAX_WAIT, client_runtime, connect, request, serve};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const FRAME_SIZE_ERROR: u32 = 6;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// The fields of `GET / HTTP/2` and of `POST / HTTP/2` to the host `a`.
const GET_FIELDS: &[u8] = b"\x82\x84\x86\x41\x01a";
const POST_FIELDS: &[u8] = b"\x83\x84\x86\x41\x01a";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A connection that has sent the preface and empty settings.
fn greeted(running: &Running) -> TcpStream {
    let mut client = TcpStream::connect(running.local_addr()).expect("it accepts");
    client.set_read_timeout(Some(MAX_WAIT)).expect("the timeout is not zero");
    client.set_write_timeout(Some(MAX_WAIT)).expect("the timeout is not zero");
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("it takes it");
    client.write_all(&frame(SETTINGS, 0, 0, b"")).expect("it takes it");
    client
}

/// Reads a frame: its kind, stream and payload. Returns `None` at the end of the connection.
fn next_frame(client: &mut TcpStream) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    if let Err(error) = client.read_exact(&mut head) {
        assert_ne!(error.kind(), ErrorKind::WouldBlock, "no frame comes, and no end");
        return None;
    }
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    client.read_exact(&mut payload).ok()?;
    Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
}

fn error_code(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload.try_into().expect("a code of four bytes"))
}

/// Reads to a GOAWAY, and returns its code.
fn goaway(client: &mut TcpStream) -> u32 {
    loop {
        let (kind, _, payload) = next_frame(client).expect("GOAWAY comes before the end");
        if kind == GOAWAY {
            return error_code(&payload[4..8]);
        }
    }
}

/// Another client is answered.
fn serves_others(running: &Running) {
    client_runtime().block_on(async {
        let (mut sender, _connection) = connect(running.local_addr()).await;
        let answer = sender.send_request(request(Method::GET, "/", "")).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
    });
}

/// Counts its calls.
#[derive(Default)]
struct CallCount(AtomicUsize);

impl Service for CallCount {
    fn call(&self, _: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Answer::Now(Reply::empty(StatusCode::OK))
    }
}

/// CVE-2023-44487: each request is reset at once, so no limit on open streams counts it.
#[test]
fn rapid_resets_end_the_connection() {
    const STREAMS: u32 = 100;
    let calls = Arc::new(CallCount::default());
    let running = serve(calls.clone(), |_| ());
    let mut client = greeted(&running);
    let mut sent = Vec::new();
    for stream in (0..STREAMS).map(|number| 2 * number + 1) {
        sent.extend(frame(HEADERS, END_STREAM | END_HEADERS, stream, GET_FIELDS));
        sent.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    client.write_all(&sent).expect("it takes it");
    assert_eq!(goaway(&mut client), ENHANCE_YOUR_CALM);
    assert!(calls.0.load(Ordering::SeqCst) < STREAMS as usize, "each reset request was served");
    serves_others(&running);
}

/// A head of 3 KiB that the table of HPACK makes 33 KiB of. Its size counts as it is decoded.
#[test]
fn a_head_that_grows_past_its_limit_is_refused() {
    const NAMES_LAST_FIELD: u8 = 0x80 | 62;
    let calls = Arc::new(CallCount::default());
    let running = serve(calls.clone(), |_| ());
    let mut client = greeted(&running);
    for (stream, repeated, is_served) in [(1, 0, true), (3, 10, false)] {
        let before = calls.0.load(Ordering::SeqCst);
        let value = [b'v'; 3000];
        // A field `x` that enters the table, with the length 3000 as an integer of three bytes.
        let field = [&b"\x40\x01x\x7f\xb9\x16"[..], &value].concat();
        let head = [GET_FIELDS, &field, &vec![NAMES_LAST_FIELD; repeated]].concat();
        client.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, stream, &head)).expect("it takes it");
        loop {
            let (kind, on, _) = next_frame(&mut client).expect("the connection stays");
            assert_ne!(kind, GOAWAY, "the connection ends");
            if on == stream && (kind == HEADERS || kind == RST_STREAM) {
                break;
            }
        }
        assert_eq!(calls.0.load(Ordering::SeqCst) - before, usize::from(is_served), "{repeated} repeated fields");
    }
    drop(client);
    serves_others(&running);
    running.shutdown().unwrap();
}

/// Regression test: a close with unread input reset the connection, and the client did not read GOAWAY.
#[test]
fn a_client_that_goes_on_sending_reads_goaway() {
    let running = serve(Arc::new(Echo), |_| ());
    let mut client = greeted(&running);
    client.write_all(&frame(DATA, 0, 1, &vec![0; 256 << 10])).expect("it is taken and thrown away");
    assert_eq!(goaway(&mut client), FRAME_SIZE_ERROR);
    serves_others(&running);
}

/// Connects clients of HTTP/1 until one is served: the idle connections are evicted for it.
fn connect_other(running: &Running) -> Client {
    loop {
        let mut other = Client::connect(running.local_addr(), MAX_WAIT).expect("it accepts");
        if other.exchange(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_ok_and(|answer| answer.status == 200) {
            return other;
        }
    }
}

/// Sends requests one after another, and acknowledges no PING, until the connection ends. It must end within twenty times `LINGER`.
fn is_cut_despite_requests(mut client: TcpStream) {
    for stream in (1..).step_by(2).take(100) {
        thread::sleep(LINGER / 5); // each request comes before the linger timeout has passed
        if client.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, stream, GET_FIELDS)).is_err() {
            return;
        }
        loop {
            match next_frame(&mut client) {
                None => return,
                Some((HEADERS, on, _)) if on == stream => break,
                Some(_) => {}
            }
        }
    }
    panic!("the connection stands");
}

const LINGER: Duration = Duration::from_millis(50);

/// Regression test: a client that did not acknowledge the PING after GOAWAY kept its evicted connection for ever, if it sent a request in
/// each linger timeout. So did one in a drain.
#[test]
fn a_client_that_ignores_goaway_is_cut() {
    let running = serve(Arc::new(Echo), |config| {
        (config.max_connections, config.linger_timeout) = (1, LINGER);
    });
    let mut client = greeted(&running);
    let _other = connect_other(&running);
    assert_eq!(goaway(&mut client), 0);
    is_cut_despite_requests(client);
    drop(running);

    let running = serve(Arc::new(Echo), |config| config.linger_timeout = LINGER);
    let mut client = greeted(&running);
    assert_eq!(next_frame(&mut client).map(|(kind, ..)| kind), Some(SETTINGS));
    let drain = thread::spawn(move || running.shutdown());
    assert_eq!(goaway(&mut client), 0);
    is_cut_despite_requests(client);
    assert_eq!(drain.join().expect("no panic").expect("it ends well").cut, 0);
}

/// Regression test: a body that was refused later than a linger timeout after GOAWAY ended the connection while the client sent.
#[test]
fn a_late_refusal_of_a_body_reaches_its_client() {
    let running = serve(Arc::new(Echo), |config| {
        (config.linger_timeout, config.max_body) = (LINGER, 1000);
        config.requests_per_connection = Some(1);
    });
    let mut client = greeted(&running);
    client.write_all(&frame(HEADERS, END_HEADERS, 1, POST_FIELDS)).expect("it takes it");
    while next_frame(&mut client).expect("the connection stands").0 != WINDOW_UPDATE {} // the request has begun
    client.write_all(&frame(DATA, 0, 1, b"x")).expect("it takes it");
    let ping = loop {
        if let (PING, _, payload) = next_frame(&mut client).expect("the connection stands") {
            break payload;
        }
    };
    client.write_all(&frame(PING, 1, 0, &ping)).expect("it takes it");
    thread::sleep(2 * LINGER);
    for _ in 0..6 {
        client.write_all(&frame(DATA, 0, 1, &[b'x'; 2000])).expect("the server reads on");
        thread::sleep(LINGER);
    }
    while !matches!(next_frame(&mut client).expect("the answer comes"), (HEADERS, 1, _)) {}
}

/// Regression test: an evicted connection with a new request did not count as open, so any number passed `max_connections`.
#[test]
fn an_evicted_client_that_goes_on_is_counted() {
    let running = serve(Arc::new(Echo), |config| {
        (config.max_connections, config.linger_timeout) = (1, 10 * MAX_WAIT);
        config.min_body_rate = 0;
    });
    let mut client = greeted(&running);
    let _other = connect_other(&running);
    assert_eq!((goaway(&mut client), running.counters().open), (0, 1));
    client.write_all(&frame(HEADERS, END_HEADERS, 1, POST_FIELDS)).expect("it takes it");
    let begun = Instant::now();
    while running.counters().open != 2 {
        assert!(begun.elapsed() < MAX_WAIT / 4, "the connection is not counted");
        thread::yield_now();
    }
}

/// CVE-2024-27316: a head of CONTINUATION frames without an end.
#[test]
fn a_continuation_flood_ends_the_connection() {
    let running = serve(Arc::new(Echo), |_| ());
    let mut client = greeted(&running);
    let mut sent = frame(HEADERS, END_STREAM, 1, GET_FIELDS);
    (0..20).for_each(|_| sent.extend(frame(CONTINUATION, 0, 1, b"")));
    client.write_all(&sent).expect("it takes it");
    assert_eq!(goaway(&mut client), ENHANCE_YOUR_CALM);
    serves_others(&running);
}

/// Sends `frame` again and again, and reads nothing. The server must stop reading and close the connection.
fn flood_is_cut(frame: &[u8]) {
    const MAX_FLOOD: usize = 256 << 20;
    let running = serve(Arc::new(Echo), |config| config.write_timeout = Duration::from_millis(50));
    let mut client = greeted(&running);
    let many = frame.repeat((64 << 10) / frame.len());
    let mut sent = 0;
    while client.write_all(&many).is_ok() {
        sent += many.len();
        assert!(sent < MAX_FLOOD, "the server read {sent} bytes, and no answer was taken");
    }
    serves_others(&running);
}

#[test]
fn a_flood_of_settings_is_cut() {
    flood_is_cut(&frame(SETTINGS, 0, 0, b""));
}

#[test]
fn a_flood_of_pings_is_cut() {
    flood_is_cut(&frame(PING, 0, 0, b"12345678"));
}

/// 200 requests without their bodies: those beyond the limit on streams are refused.
#[test]
fn half_open_streams_are_bounded() {
    const STREAMS: u32 = 200;
    const ACCEPTED: u32 = 128;
    let running = serve(Arc::new(Echo), |config| config.body_timeout = 10 * MAX_WAIT);
    let mut client = greeted(&running);
    let streams = (0..STREAMS).map(|number| 2 * number + 1);
    let sent: Vec<u8> = streams.clone().flat_map(|stream| frame(HEADERS, END_HEADERS, stream, POST_FIELDS)).collect();
    client.write_all(&sent).expect("it takes it");
    for stream in streams.skip(ACCEPTED as usize) {
        let (refused, payload) = loop {
            let (kind, refused, payload) = next_frame(&mut client).expect("the connection stands");
            if kind == RST_STREAM {
                break (refused, payload);
            }
        };
        assert_eq!((refused, error_code(&payload)), (stream, REFUSED_STREAM));
    }
    drop(client);
    serves_others(&running);
}

/// A service that notes the lengths of its bodies.
#[derive(Default)]
struct Lengths(Mutex<Vec<usize>>);

impl Service for Lengths {
    fn call(&self, request: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        self.0.lock().expect("no thread panics with this lock").push(request.body.len());
        Answer::Now(Reply::new(StatusCode::OK, "text/plain", Body::Static(b"taken")))
    }
}

/// Reads to the end of the answer on `stream`, with the body `taken`.
fn end_of_answer(client: &mut TcpStream, stream: u32) {
    end_of_body(client, stream, b"taken");
}

fn end_of_body(client: &mut TcpStream, stream: u32, end: &[u8]) {
    loop {
        let (kind, of, payload) = next_frame(client).expect("the connection stands");
        if of == stream && kind == DATA && payload.ends_with(end) {
            return;
        }
    }
}

/// Regression test: h2 reset the stream of a refused body after its answer, and curl then reported an error in place of the answer.
#[test]
fn a_refused_body_is_read_on() {
    let running = serve(Arc::new(Echo), |config| (config.max_body, config.linger_timeout) = (10, MAX_WAIT));
    let mut client = greeted(&running);
    let length_20 = b"\x0f\x0d\x0220";
    let head = frame(HEADERS, END_HEADERS, 1, &[POST_FIELDS, length_20].concat());
    client.write_all(&head).expect("it takes it");
    end_of_body(&mut client, 1, b"is larger than this server takes.\"}");
    let rest = [frame(DATA, END_STREAM, 1, &[b'x'; 20]), frame(PING, 0, 0, &[0; 8])].concat();
    client.write_all(&rest).expect("it takes it");
    while let Some((kind, stream, _)) = next_frame(&mut client)
        && kind != PING
    {
        assert_ne!((kind, stream), (RST_STREAM, 1));
    }
    serves_others(&running);
}

/// Two bodies of unknown length, and each may take all the memory of a connection: the second is read after the first.
#[test]
fn bodies_of_a_connection_share_its_memory() {
    let lengths = Arc::new(Lengths::default());
    let running = serve(lengths.clone(), |config| config.max_body = 8 << 20);
    let mut client = greeted(&running);
    let piece = [b'a'; 16 << 10];
    let mut sent = frame(HEADERS, END_HEADERS, 1, POST_FIELDS);
    (0..3).for_each(|_| sent.extend(frame(DATA, 0, 1, &piece)));
    client.write_all(&sent).expect("it takes it");
    // New window for the stream shows that the server reads the body, so that it has its memory.
    loop {
        let (kind, stream, _) = next_frame(&mut client).expect("the connection stands");
        if (kind, stream) == (WINDOW_UPDATE, 1) {
            break;
        }
    }
    let mut sent = frame(HEADERS, END_HEADERS, 3, POST_FIELDS);
    sent.extend(frame(DATA, END_STREAM, 3, b"four"));
    sent.extend(frame(HEADERS, END_STREAM | END_HEADERS, 5, GET_FIELDS));
    client.write_all(&sent).expect("it takes it");
    end_of_answer(&mut client, 5);
    client.write_all(&frame(DATA, END_STREAM, 1, b"b")).expect("it takes it");
    end_of_answer(&mut client, 3);
    assert_eq!(*lengths.0.lock().expect("no thread panics with this lock"), [0, 3 * piece.len() + 1, 4]);
}

/// What a client may send of a body that waits for its share lies unread in the window of its stream. It counts towards the memory of the
/// server.
#[test]
fn the_windows_of_waiting_bodies_count_towards_the_memory() {
    const STREAMS: u32 = 20;
    let lengths = Arc::new(Lengths::default());
    let running = serve(lengths.clone(), |config| {
        (config.max_body, config.memory) = (8 << 20, Some(ServerConfig::MIN_MEMORY));
    });
    let mut client = greeted(&running);
    let streams = (0..STREAMS).map(|number| 2 * number + 1);
    // The first one takes the whole memory for bodies, because its length is not known.
    streams.clone().for_each(|stream| {
        client.write_all(&frame(HEADERS, END_HEADERS, stream, POST_FIELDS)).expect("it takes it");
    });
    let start = Instant::now();
    let waiting = (ServerConfig::MIN_MEMORY >> 16) as u64;
    let refused = u64::from(STREAMS) - 1 - waiting;
    while running.counters().memory_refused < refused {
        assert!(start.elapsed() < MAX_WAIT, "{:?}", running.counters());
        thread::yield_now();
    }
    assert_eq!(running.counters().reserved_bytes, running.counters().memory_limit);
    for stream in streams {
        let _ = client.write_all(&frame(DATA, END_STREAM, stream, b"four"));
    }
    while running.counters().answered < u64::from(STREAMS) || running.counters().reserved_bytes > 0 {
        assert!(start.elapsed() < 2 * MAX_WAIT, "{:?}", running.counters());
        thread::yield_now();
    }
    let served = lengths.0.lock().expect("no thread panics with this lock").len() as u64;
    assert_eq!((served, running.counters().memory_refused), (1 + waiting, refused));
}

/// Four times the memory for bodies, at once: each body gets its share in its turn, and none stops another.
#[test]
fn many_bodies_are_all_taken() {
    let running = serve(Arc::new(Lengths::default()), |_| ());
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let (sender, _connection) = connect(addr).await;
        let asked: Vec<_> = (0..128)
            .map(|_| {
                let mut sender = sender.clone();
                let body = vec![b'x'; 256 << 10];
                tokio::spawn(async move { sender.send_request(request(Method::POST, "/", body)).await })
            })
            .collect();
        for asked in asked {
            assert_eq!(asked.await.expect("no panic").expect("an answer").status(), StatusCode::OK);
        }
    });
}

/// A client that opens its window by a byte at a time, and is never silent, holds an answer no longer than the limit of a write.
#[test]
fn a_window_of_single_bytes_is_cut() {
    const LENGTH: usize = 64 << 10;
    struct Large;
    impl Service for Large {
        fn call(&self, _: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
            Answer::Now(Reply::new(StatusCode::OK, "text/plain", Body::Owned(vec![b'x'; LENGTH])))
        }
    }
    let running = serve(Arc::new(Large), |config| config.write_timeout = Duration::from_millis(50));
    let mut client = greeted(&running);
    client.write_all(&frame(SETTINGS, 0, 0, b"\0\x04\0\0\0\0")).expect("it takes it"); // a window of 0 bytes
    client.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, GET_FIELDS)).expect("it takes it");
    // At most 1,000 bytes of window, then frames that are answered.
    let update = frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes());
    let ping = frame(PING, 0, 0, b"12345678");
    let mut frames = std::iter::repeat_n(&update, 1_000).chain(std::iter::repeat(&ping));
    let mut received = 0;
    while frames.next().is_some_and(|frame| client.write_all(frame).is_ok()) {
        let Some((kind, _, payload)) = next_frame(&mut client) else { break };
        received += if kind == DATA { payload.len() } else { 0 };
    }
    assert!(received <= 1_000, "it took {received} bytes");
    assert_eq!(running.shutdown().expect("it ends well").cut, 0);
}
