//! The answers to streams.

use std::sync::Arc;

use http::header::{COOKIE, USER_AGENT};
use http::{HeaderValue, Method, StatusCode, Uri};
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use polyserve_async::TokioHyper;
use polyserve_conformance::client::{Client, Ending};
use polyserve_core::{Answer, AnswerHook, Drain, Echo, EntityService, Reply, ServerConfig, ServerExt as _, Service};
use polyserve_memory::StdMutex;

use super::support::{HeldReplies, MAX_WAIT, client_runtime, connect, request, serve, text};

#[test]
fn entities_are_put_and_got() {
    const ONE: &str = r#"{"id":1,"description":"one","value":60.750847}"#;
    let running = serve(Arc::new(EntityService::new(StdMutex::new())), |config| config.max_body = 1000);
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let (mut sender, _connection) = connect(addr).await;
        let mut ask = async |method, path, body: String| {
            sender.send_request(request(method, path, body)).await.expect("an answer")
        };
        let put = ask(Method::PUT, "/", ONE.into()).await;
        assert_eq!((put.status(), put.headers()["location"].to_str().unwrap()), (StatusCode::CREATED, "/1"));
        let found = ask(Method::GET, "/1", String::new()).await;
        assert_eq!(found.status(), StatusCode::OK);
        assert!(found.headers().contains_key("date"));
        assert_eq!(text(found).await, ONE);
        let head = ask(Method::HEAD, "/1", String::new()).await;
        assert_eq!(head.headers()["content-length"], ONE.len().to_string());
        assert_eq!(text(head).await, "");
        assert_eq!(ask(Method::GET, "/2", String::new()).await.status(), StatusCode::NOT_FOUND);
        assert_eq!(ask(Method::TRACE, "/1", String::new()).await.status(), StatusCode::NOT_IMPLEMENTED);
        let large = ask(Method::PUT, "/", "x".repeat(1001)).await;
        assert_eq!(large.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(ask(Method::DELETE, "/1", String::new()).await.status(), StatusCode::NO_CONTENT);
    });
    // HTTP/1 is served at the same address.
    let mut old = Client::connect(addr, MAX_WAIT).expect("it accepts");
    old.ask(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n", 404);
    drop(old);
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(8, 0, 0));
}

/// Regression test: hyper took two hosts, a host other than the authority, any expectation, any target, a query without a path, and white
/// space around a value.
#[test]
fn a_head_is_judged_as_over_http1() {
    let running = serve(Arc::new(Echo), |_| {});
    client_runtime().block_on(async {
        let (mut sender, _connection) = connect(running.local_addr()).await;
        let mut ask = async |method: Method, uri: &str, fields: &[(&'static str, &'static str)]| {
            let mut request = request(method, "/", "");
            *request.uri_mut() = uri.parse().expect("a URI");
            for &(name, value) in fields {
                request.headers_mut().append(name, HeaderValue::from_static(value));
            }
            sender.send_request(request).await.expect("an answer").status().as_u16()
        };
        for (uri, fields, status) in [
            ("http://a/1", &[][..], 200),
            ("http://a/1", &[("host", "A")], 200),
            ("http://a/?{}|^`\\", &[], 200),
            ("/1", &[("host", "a")], 200),
            ("http://a/1", &[("expect", "100-continue")], 200),
            ("http://a/1", &[("host", "b")], 400),
            ("http://a/1", &[("host", "a"), ("host", "a")], 400),
            ("/1", &[("host", "a"), ("host", "b")], 400),
            ("/1", &[("host", "a b")], 400),
            ("/1", &[], 400),
            ("http://user@a/1", &[], 400),
            ("http://a/%zz", &[], 400),
            ("http://a/{", &[], 400),
            ("ftp://a/1", &[], 400),
            ("http://a/1", &[("expect", "200-ok")], 417),
            ("http://a/1", &[("x", "a b")], 200),
            ("http://a/1", &[("x", "")], 200),
            ("http://a/1", &[("x", " a")], 400),
            ("http://a/1", &[("x", "a\t")], 400),
            ("http://a/1", &[("x", "a"), ("x", " ")], 400),
        ] {
            assert_eq!(ask(Method::GET, uri, fields).await, status, "{uri} {fields:?}");
        }
        assert_eq!(ask(Method::from_bytes(b"FOO").unwrap(), "http://a/1", &[]).await, 501);
        // `*` was the root path of a host `a*`.
        for (method, path, status) in
            [(Method::OPTIONS, "*", 200), (Method::PUT, "*", 400), (Method::GET, "?x", 400), (Method::GET, "/?x", 200)]
        {
            let uri = Uri::builder().scheme("http").authority("a").path_and_query(path).build().expect("a URI");
            let mut request = request(method, "/", "");
            *request.uri_mut() = uri;
            assert_eq!(sender.send_request(request).await.expect("an answer").status().as_u16(), status, "{path}");
        }
    });
    running.shutdown().expect("it ends well");
}

/// Regression test: the cookies that a client sends in fields of their own (RFC 9113, 8.2.3) reached the service so, and each counted
/// towards `max_headers`.
#[test]
fn cookies_are_one_field() {
    struct Cookies;
    impl Service for Cookies {
        fn call(&self, request: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
            let cookies = request.head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("cookie"));
            let values: Vec<_> = cookies.map(|(_, value)| String::from_utf8_lossy(value)).collect();
            Reply::text(values.join("|")).into()
        }
    }
    let running = serve(Arc::new(Cookies), |_| ());
    client_runtime().block_on(async {
        let (mut sender, _connection) = connect(running.local_addr()).await;
        let mut ask = async |cookies: &[&'static str]| {
            let mut request = request(Method::GET, "/", "");
            for cookie in cookies {
                request.headers_mut().append(COOKIE, HeaderValue::from_static(cookie));
            }
            let answer = sender.send_request(request).await.expect("an answer");
            (answer.status().as_u16(), text(answer).await)
        };
        assert_eq!(ask(&["a=1"]).await, (200, "a=1".into()));
        assert_eq!(ask(&["a=1", "b=2", "c=\"3\""]).await, (200, "a=1; b=2; c=\"3\"".into()));
        assert_eq!(ask(&["a=1"; 120]).await, (200, ["a=1"; 120].join("; ")));
        assert_eq!(ask(&["a=1", " b=2", "c=3"]).await.0, 400);
    });
    let mut client = Client::connect(running.local_addr(), MAX_WAIT).expect("it accepts");
    let answer = client.ask(b"GET / HTTP/1.1\r\nHost: a\r\nCookie: a=1; b=2\r\n\r\n", 200);
    assert_eq!(answer.text(), "a=1; b=2");
}

/// Regression test: from the second HEAD of a large entity on, the length was 0, because the body was not written.
#[test]
fn the_head_of_a_large_entity_has_its_length() {
    let large = format!(r#"{{"id":1,"description":"{}","value":0.5}}"#, "x".repeat(6 * 1024));
    let length = large.len().to_string();
    let running = serve(Arc::new(EntityService::new(StdMutex::new())), |_| ());
    client_runtime().block_on(async {
        let (mut sender, _connection) = connect(running.local_addr()).await;
        let put = sender.send_request(request(Method::PUT, "/1", large)).await.expect("an answer");
        assert_eq!(put.status(), StatusCode::CREATED);
        for _ in 0..2 {
            let head = sender.send_request(request(Method::HEAD, "/1", "")).await.expect("an answer");
            assert_eq!(head.headers().get_all("content-length").iter().collect::<Vec<_>>(), [&length]);
            assert_eq!(text(head).await, "");
        }
    });
    let mut client = Client::connect(running.local_addr(), MAX_WAIT).expect("it accepts");
    for _ in 0..2 {
        client.send(b"HEAD /1 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it takes it");
        let head = client.receive_head().expect("an answer");
        assert_eq!(head.header("content-length"), Some(length.as_str()));
    }
}

/// The hook sees the answers of all streams.
#[test]
fn the_hook_sees_streams() {
    let (reports, seen) = std::sync::mpsc::channel();
    let running = serve(Arc::new(EntityService::new(StdMutex::new())), |config| {
        let hook = AnswerHook::new(move |report| {
            let line = report.request.map(|request| format!("{} {}", request.method, request.target));
            let is_whole = report.peer.is_some() && report.elapsed.is_some();
            let agent = [report.referer, report.user_agent].map(|value| value.map(<[u8]>::to_vec));
            reports.send((report.status.as_u16(), report.bytes, line, is_whole, agent)).expect("the test receives it");
        });
        config.on_answer = Some(hook.with_agents());
    });
    client_runtime().block_on(async {
        let (mut sender, _connection) = connect(running.local_addr()).await;
        let agents: [Option<&[u8]>; 3] = [Some(b"a\"\xff"), None, Some(b"")];
        for (method, agent) in [Method::GET, Method::TRACE, Method::DELETE].into_iter().zip(agents) {
            let line = format!("{method} /1");
            let mut request = request(method, "/1", String::new());
            if let Some(agent) = agent {
                request.headers_mut().insert(USER_AGENT, HeaderValue::from_bytes(agent).expect("a value"));
            }
            let response = sender.send_request(request).await.expect("an answer");
            let status = response.status().as_u16();
            let length = text(response).await.len() as u64;
            let report = seen.recv_timeout(MAX_WAIT).expect("it is reported");
            assert_eq!(report, (status, length, Some(line), true, [None, agent.map(<[u8]>::to_vec)]));
        }
    });
    assert!(running.shutdown().is_ok() && seen.try_recv().is_err(), "once each");
}

#[test]
fn a_hundred_streams_at_once_and_a_large_body() {
    let held_replies = HeldReplies::shared();
    let running = serve(held_replies.clone(), |_| ());
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let (sender, _connection) = connect(addr).await;
        let asked: Vec<_> = (0..100)
            .map(|_| {
                let mut sender = sender.clone();
                tokio::spawn(async move {
                    let answer = sender.send_request(request(Method::GET, "/", "")).await.expect("an answer");
                    text(answer).await
                })
            })
            .collect();
        held_replies.asked.acquire_many(100).await.expect("it is not closed").forget();
        assert_eq!(held_replies.open(), 100, "all wait at the same time");
        for asked in asked {
            assert_eq!(asked.await.expect("no panic"), "given");
        }
        let mut sender = sender;
        let answer = sender.send_request(request(Method::GET, "/panic", "")).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    });
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(101, 0, 0));

    let running = serve(Arc::new(Echo), |_| ());
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let (mut sender, _connection) = connect(addr).await;
        let body = "0123456789".repeat(70_000);
        let answer = sender.send_request(request(Method::POST, "/", body.clone())).await.expect("an answer");
        assert!(text(answer).await == body, "a body of many windows comes back whole");
    });
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(1, 0, 0));
}

/// Regression test: the scanner for HTTP/1 read the frames of HTTP/2 too. It refused a body that looked like a
/// malformed chunked body, and the connection was closed.
#[test]
fn a_body_may_look_like_http1() {
    let running = serve(Arc::new(Echo), |_| ());
    let addr = running.local_addr();
    client_runtime().block_on(async {
        for body in ["\n".repeat(100), "\r\n".repeat(100), "\na\nTransfer-Encoding: chunked\n\nx\n".to_owned()] {
            let (mut sender, _connection) = connect(addr).await;
            for _ in 0..2 {
                let answer = sender.send_request(request(Method::POST, "/", body.clone())).await.expect("an answer");
                assert_eq!(text(answer).await, body);
            }
        }
    });
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(6, 0, 0));
}

/// A stream has its client's address. A panic of a stream, at once or later, is a 500 and is counted.
#[test]
fn streams_have_a_peer_and_their_panics_are_counted() {
    struct PeerOrPanic;
    impl Service for PeerOrPanic {
        fn call(&self, request: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
            match request.head.path() {
                "/now" => panic!("as the test asked"),
                "/later" => Answer::later(async { panic!("as the test asked") }),
                _ => Reply::text(request.peer.map_or_else(String::new, |peer| peer.to_string())).into(),
            }
        }
    }
    let running = serve(Arc::new(PeerOrPanic), |_| ());
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let stream = tokio::net::TcpStream::connect(addr).await.expect("the server accepts connections");
        let local = stream.local_addr().expect("an address").to_string();
        let (mut sender, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it speaks HTTP/2");
        let _connection = tokio::spawn(connection);
        let shown = sender.send_request(request(Method::GET, "/", "")).await.expect("an answer");
        assert_eq!(text(shown).await, local);
        assert_eq!(running.counters().open, 1);
        for path in ["/now", "/later"] {
            let answer = sender.send_request(request(Method::GET, path, "")).await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
    });
    assert_eq!(running.counters().panics, 2);
}

/// A preface in pieces is HTTP/2. If HTTP/2 is off, the preface is answered with 400.
#[test]
fn the_preface_is_recognised_if_http2_is_on() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let running = serve(Arc::new(Echo), |_| ());
    for cut in [1, 5, 15, 20, 24] {
        let mut client = Client::connect(running.local_addr(), MAX_WAIT).expect("it accepts");
        for piece in [&PREFACE[..cut], &PREFACE[cut..]] {
            client.send(piece).expect("it takes it");
            std::thread::yield_now();
        }
        client.half_close().expect("the connection stands");
        let (answer, _) = client.end();
        assert_eq!(answer.get(3), Some(&4), "it answers with its settings, cut at {cut}: {answer:?}");
    }
    let without_http2 = TokioHyper::new(ServerConfig::default()).expect("every setting is supported");
    let without_http2 = without_http2.serve(([127, 0, 0, 1], 0), Echo).expect("it serves");
    let mut client = Client::connect(without_http2.local_addr(), MAX_WAIT).expect("it accepts");
    client.send(PREFACE).expect("it takes it");
    client.expect_last(400);
}

/// An invalid preface ends the connection (RFC 9113, 3.4): it is refused as HTTP/1.1, or if its wrong part comes later, without an answer.
#[test]
fn an_invalid_preface_ends_the_connection() {
    const INVALID: &[u8] = b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n";
    let running = serve(Arc::new(Echo), |_| ());
    let connect = || Client::connect(running.local_addr(), MAX_WAIT).expect("it accepts");
    let mut client = connect();
    client.send(INVALID).expect("it takes it");
    client.expect_last(400);
    let mut client = connect();
    client.send(&INVALID[..18]).expect("it takes it");
    client.peek().expect("it sends its settings");
    client.send(&INVALID[18..]).expect("it takes it");
    let (answer, ending) = client.end();
    assert_eq!((answer.get(3), ending), (Some(&4), Ending::Closed), "{}", answer.escape_ascii());
}

#[test]
fn a_tower_service_is_not_served_so() {
    let server = TokioHyper::new(ServerConfig::default().http2(true)).expect("every setting is supported");
    let error = server.serve_tower(([127, 0, 0, 1], 0), axum::Router::new()).expect_err("it is refused");
    assert!(error.to_string().contains("http2"), "{error}");
}
