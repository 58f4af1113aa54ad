//! Limits: exactly at the limit, and one past it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polyserve_core::http::StatusCode;
use polyserve_core::{Answer, Body, Reply, Request, ServerConfig, Service};
use polyserve_serving::http1::{HttpState, Phase, Session, SessionBuffers, SessionStep};

use super::support::*;

/// Checks that the status and the connection are the same in one piece and byte by byte.
#[track_caller]
fn check(server: &HttpState, bytes: &[u8], status: u16) -> String {
    let (output, step) = ask_twice(server, bytes);
    let (codes, closes) = statuses(output.as_bytes());
    assert_eq!((codes, closes), (vec![status], usize::from(status != 200)), "{output}");
    assert_eq!(step, if status == 200 { SessionStep::Read(Phase::Idle) } else { LINGER });
    output
}

#[test]
fn max_head() {
    for limit in [64, 100, 4096, 16 * 1024] {
        let server = server_with(|c| c.max_head = limit);
        let frame = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n".len();
        let head = |length: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(length - frame));
        check(&server, head(limit).as_bytes(), 200);
        check(&server, head(limit + 1).as_bytes(), 431);
        check(&server, head(limit + 1000).as_bytes(), 431);
        // The body is not part of the head.
        let with_body = head(limit).replacen("X: xxxxxxxxxxxxxxxxxxx", "Content-Length: 5\r\nX: ", 1);
        assert_eq!(with_body.len(), limit);
        check(&server, (with_body + "hello").as_bytes(), 200);
    }
}

#[test]
fn a_request_line_alone_past_the_limit() {
    let server = server_with(|c| c.max_head = 100);
    let target = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(length));
    // The request line takes 16 bytes and the path; the rest takes 11 bytes.
    check(&server, target(100 - 16 - 11).as_bytes(), 200);
    check(&server, target(100 - 16 - 11 + 1).as_bytes(), 431);
    check(&server, target(100 - 16).as_bytes(), 431);
    check(&server, target(100 - 16 + 1).as_bytes(), 414);
    check(&server, target(10_000).as_bytes(), 414);
    // RFC 9112, 3: a method longer than any that is implemented is answered with 501. It was answered with 414 before,
    // like a target.
    check(&server, &b"G".repeat(101), 501);
    check(&server, &[&b"G".repeat(500)[..], b" / HTTP/1.1\r\nHost: a\r\n\r\n"].concat(), 501);
    check(&server, &[&b"G".repeat(99)[..], b" / HTTP/1.1\r\nHost: a\r\n\r\n"].concat(), 414);
    check(&server, &[&b"G".repeat(50)[..], b"{", &b"G".repeat(50)].concat(), 400);
    assert_eq!(ask(&server, &b"G".repeat(100)).1, SessionStep::Read(Phase::Head));
}

/// If the bytes within the limit have a fault, the answer reports the fault, although the limit is exceeded as well.
#[test]
fn a_fault_before_the_limit() {
    let server = server_with(|c| c.max_head = 100);
    let long = "X: y\r\n".repeat(100);
    check(&server, format!("GET / HTTP/1.1\nHost: a\r\n{long}").as_bytes(), 400);
    check(&server, format!("GET / HTTP/1.1\r\nHost : a\r\n{long}").as_bytes(), 400);
    check(&server, format!("GET / HTTP/7.0\r\nHost: a\r\n{long}").as_bytes(), 505);
    check(&server, format!("GET / HTTP/1.1\r\nHost: a\r\n{long}").as_bytes(), 431);
    check(&server, format!("GET / HTTP/1.1\r\nHost: a\r\n{long}\n").as_bytes(), 431);
}

#[test]
fn max_headers() {
    for limit in [1, 2, 100] {
        let server = server_with(|c| c.max_headers = limit);
        let fields = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(count - 1));
        check(&server, fields(limit).as_bytes(), 200);
        check(&server, fields(limit + 1).as_bytes(), 431);
        // A head that does not end is also too long.
        let endless = fields(limit + 1);
        check(&server, endless.strip_suffix("\r\n").unwrap().as_bytes(), 431);
    }
}

#[test]
fn max_body() {
    for limit in [0, 1, 5, 1000] {
        let server = server_with(|c| c.max_body = limit);
        let sized = |length: usize| {
            let body = "x".repeat(length);
            format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
        };
        check(&server, sized(limit).as_bytes(), 200);
        assert_eq!(check(&server, sized(limit + 1).as_bytes(), 413), too_large());
        let chunked = |sizes: &[usize]| {
            let chunk = |size: &usize| format!("{size:x}\r\n{}\r\n", "x".repeat(*size));
            let chunks: String = sizes.iter().filter(|size| **size > 0).map(chunk).collect();
            format!("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
        };
        check(&server, chunked(&[limit]).as_bytes(), 200);
        check(&server, chunked(&[limit / 2, limit - limit / 2]).as_bytes(), 200);
        assert_eq!(check(&server, chunked(&[limit + 1]).as_bytes(), 413), too_large());
        check(&server, chunked(&[limit, 1]).as_bytes(), 413);
    }
}

fn too_large() -> String {
    refusal(StatusCode::PAYLOAD_TOO_LARGE, "The body is larger than this server takes.")
}

/// A client gets the refusal before it has sent the body that is too large.
#[test]
fn a_body_is_refused_by_the_length_in_its_head() {
    let server = server();
    for expect in ["", "Expect: 100-continue\r\n"] {
        let head = format!("PUT / HTTP/1.1\r\nHost: a\r\n{expect}Content-Length: 1048577\r\n\r\n");
        assert_eq!(ask(&server, head.as_bytes()), (too_large(), LINGER));
    }
    let head = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n100001\r";
    assert_eq!(ask(&server, head.as_bytes()), (too_large(), LINGER));
}

/// The limits of a head apply to extensions and trailers.
#[test]
fn extensions_and_trailers_are_bounded() {
    let server = server_with(|c| {
        c.max_head = 100;
        c.max_headers = 3;
    });
    let put =
        |chunks: &str| format!("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}").into_bytes();
    check(&server, &put(&format!("1;{}\r\nx\r\n0\r\n\r\n", "x".repeat(100))), 200);
    check(&server, &put(&format!("1;{}\r\nx\r\n0\r\n\r\n", "x".repeat(101))), 431);
    check(&server, &put(&format!("{}0\r\n\r\n", "1;xx\r\nx\r\n".repeat(50))), 200);
    check(&server, &put(&format!("{}0\r\n\r\n", "1;xx\r\nx\r\n".repeat(51))), 431);
    check(&server, &put(&format!("1{};a\r\nx\r\n0\r\n\r\n", " ".repeat(100))), 431);
    check(&server, &put(&format!("0\r\nT: {}\r\n\r\n", "x".repeat(98))), 200);
    check(&server, &put(&format!("0\r\nT: {}\r\n\r\n", "x".repeat(99))), 431);
    check(&server, &put(&format!("0\r\n{}: \r\n\r\n", "x".repeat(99))), 200);
    check(&server, &put(&format!("0\r\n{}: \r\n\r\n", "x".repeat(100))), 431);
    check(&server, &put("0\r\nA:\r\nB:\r\nC:\r\n\r\n"), 200);
    check(&server, &put("0\r\nA:\r\nB:\r\nC:\r\nD:\r\n\r\n"), 431);
}

/// Answers with a large body, which all answers share.
struct OneLargeBody;

impl Service for OneLargeBody {
    fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        const BODY: &[u8] = &[b'x'; 700 * 1024];
        Answer::Now(Reply::new(StatusCode::OK, "text/plain", Body::Static(BODY)))
    }
}

/// What connections keep counts towards one budget: unsent answers and incomplete bodies. A safe method and a new body get 503
/// beyond it, a write is answered.
#[test]
fn connections_share_the_memory_budget() {
    let config = ServerConfig::default().memory(1 << 20);
    let server = HttpState::new(Arc::new(OneLargeBody), &config);
    let mut buffers = SessionBuffers::new();
    let mut ask = |session: &mut Session, request: &[u8], sent: usize| {
        let _ = session.receive(request, &mut server.turn(&mut buffers));
        let answer = buffers.out().get(..12).unwrap_or_default().to_vec();
        session.written(sent.min(buffers.out().len()), &mut buffers);
        String::from_utf8(answer).unwrap()
    };
    let [mut slow, mut other, mut writer] = [(); 3].map(|()| Session::new());
    let get = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(ask(&mut other, get, usize::MAX), "HTTP/1.1 200");
    assert_eq!(server.memory.reserved(), 0, "an answer that was taken at once is not kept");
    assert_eq!(ask(&mut slow, get, 1000), "HTTP/1.1 200");
    assert!(server.memory.reserved() >= 690 * 1024, "{:?}", server.memory);
    assert_eq!(ask(&mut other, get, usize::MAX), "HTTP/1.1 503");
    let put = [&b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n"[..], &[b'x'; 400_000]].concat();
    assert_eq!(ask(&mut writer, &put, usize::MAX), "HTTP/1.1 503");
    assert_eq!(ask(&mut other, b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", usize::MAX), "HTTP/1.1 200");
    drop(slow);
    assert_eq!(server.memory.reserved(), 0);
    assert_eq!(ask(&mut other, get, usize::MAX), "HTTP/1.1 200");
}

/// Regression test: the answers to unsafe methods were kept beyond the budget, one for each connection. A request that was done is
/// answered, so it must be refused before the service is called.
#[test]
fn a_request_is_refused_before_it_is_done_if_its_answer_may_not_fit() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let call = move |request: &Request<'_>, _: &mut Vec<u8>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let length = request.head.path().trim_start_matches('/').parse().unwrap();
        Answer::Now(Reply::new(StatusCode::OK, "text/plain", Body::Owned(vec![b'x'; length])))
    };
    for length in [50_000, 700_000] {
        calls.store(0, Ordering::SeqCst);
        let server = server_by(|config| config.memory = Some(1 << 20), call.clone(), |_| None);
        let mut buffers = SessionBuffers::new();
        let mut ask = |session: &mut Session, method: &str, length: usize| {
            let request = format!("{method} /{length} HTTP/1.1\r\nHost: a\r\n\r\n");
            let _ = session.receive(request.as_bytes(), &mut server.turn(&mut buffers));
            let answer = buffers.out().get(..12).unwrap_or_default().to_vec();
            session.written(0, &mut buffers); // its client reads nothing
            String::from_utf8(answer).unwrap()
        };
        let mut sessions = Vec::new();
        let mut done = 0;
        loop {
            sessions.push(Session::new());
            match ask(sessions.last_mut().unwrap(), "PATCH", length).as_str() {
                "HTTP/1.1 200" => done += 1,
                refused => break assert_eq!(refused, "HTTP/1.1 503"),
            }
            assert!(done <= (1 << 20) / length + 1, "{done} answers of {length} bytes");
        }
        assert_eq!(calls.load(Ordering::SeqCst), done, "what is refused is not done");
        assert!(server.memory.reserved() <= (1 << 20) + length + 32 * 1024, "{:?}", server.memory);
        // A method with small answers is served, and so is a small answer to a safe one.
        for method in ["PUT", "DELETE", "GET"] {
            assert_eq!(ask(&mut Session::new(), method, 10), "HTTP/1.1 200", "{method}");
        }
        sessions.truncate(1);
        assert_eq!(ask(&mut Session::new(), "PATCH", length), "HTTP/1.1 200", "there is memory again");
    }
}

/// Regression test: the room of a large answer was free from the end of its encoding until the kernel had taken a part. Another
/// thread gave it to a second answer.
#[test]
fn a_large_answer_keeps_its_room_while_it_is_sent() {
    let server = HttpState::new(Arc::new(OneLargeBody), &ServerConfig::default().memory(1 << 20));
    for last in ["", "Connection: close\r\n"] {
        let get = format!("GET / HTTP/1.1\r\nHost: a\r\n{last}\r\n").into_bytes();
        let [(mut slow, mut slow_buffers), (mut other, mut other_buffers)] =
            [(); 2].map(|()| (Session::new(), SessionBuffers::new()));
        let _ = slow.receive(&get, &mut server.turn(&mut slow_buffers));
        assert!(server.memory.reserved() >= 700 * 1024, "{:?}", server.memory);
        let _ = other.receive(&get, &mut server.turn(&mut other_buffers));
        assert!(other_buffers.out().starts_with(b"HTTP/1.1 503"));
        slow.written(slow_buffers.out().len(), &mut slow_buffers);
        assert_eq!(server.memory.reserved(), 0);
    }
}

/// Requests that are read and answered in one turn use no budget, pipelined or not.
#[test]
fn a_small_exchange_reserves_nothing() {
    let server = HttpState::new(Arc::new(polyserve_core::Echo), &ServerConfig::default());
    let (mut session, mut buffers) = (Session::new(), SessionBuffers::new());
    for length in [0, 100, 4000] {
        let body = "x".repeat(length);
        let put = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
        for request in [&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], put.as_bytes(), &put.as_bytes().repeat(10)] {
            let _ = session.receive(request, &mut server.turn(&mut buffers));
            assert_eq!(server.memory.reserved(), 0);
            session.written(buffers.out().len(), &mut buffers);
            assert_eq!(server.memory.reserved(), 0);
        }
    }
}
