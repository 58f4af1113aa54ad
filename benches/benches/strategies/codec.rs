//! The codec without sockets: the cost of decoding a head, processing a request, and encoding an answer.
//!
//! Every answer is compared with the expected bytes inside the timed loop, so every figure includes a `memcmp` of about
//! 190 bytes. The store has one entity, so the figures show the codec and the service, and no cache misses in a map.

use std::hint::black_box;
use std::time::{Duration, UNIX_EPOCH};

use polyserve::http::{StatusCode, Version};
use polyserve::memory::Sharded;
use polyserve::serving::http1::date::Date;
use polyserve::serving::http1::decode::{self, Decoded, Limits};
use polyserve::serving::http1::encode::{self, AnswerHead};
use polyserve::serving::http1::{HttpState, Phase, Session, SessionBuffers, SessionStep};
use polyserve::{Answer, Body, Entity, EntityRepo, EntityService, Put, Reply, ServerConfig};

use crate::suite::{BenchSettings, Suite};

const SHORT: Option<BenchSettings> = Some(BenchSettings::short(500));
const LONG: BenchSettings = BenchSettings::long(100, 1000, 3000);

const CURL: &str = "GET /1 HTTP/1.1\r\nHost: 127.0.0.1:8001\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n";

const AB: &str = "GET /1 HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: 127.0.0.1:8001\r\n\
User-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n";

const BROWSER: &str = "GET /1 HTTP/1.1\r\nHost: 127.0.0.1:8001\r\nConnection: keep-alive\r\nCache-Control: max-age=0\r\n\
Upgrade-Insecure-Requests: 1\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\nSec-Fetch-Site: none\r\n\
Sec-Fetch-Mode: navigate\r\nSec-Fetch-User: ?1\r\nSec-Fetch-Dest: document\r\nAccept-Encoding: gzip, deflate, br\r\n\
Accept-Language: en-GB,en;q=0.9\r\n\r\n";

const ENTITY: &str = r#"{"id":1,"description":"aZ09bY18cX27dW3","value":60.750847}"#;

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn get_answer(connection: &str) -> String {
    let length = ENTITY.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{connection}Date: {DATE}\r\n\r\n{ENTITY}"
    )
}

fn decoding(suite: &mut Suite) {
    let limits = Limits::from(&ServerConfig::default());
    let mut group = suite.group("decode", SHORT, LONG);
    for (name, head, field_count) in [("curl", CURL, 3), ("ab", AB, 4), ("browser", BROWSER, 12)] {
        group.bench(name, |b| {
            b.iter(|| {
                let mut fields = decode::Fields::new();
                match decode::head(black_box(head.as_bytes()), &limits, &mut fields) {
                    Decoded::Head(parsed) => {
                        assert_eq!((parsed.length, parsed.head.target), (head.len(), "/1"));
                        assert_eq!(black_box(parsed.head.headers).iter().count(), field_count);
                    }
                    other => panic!("{other:?}"),
                }
            });
        });
    }
    // Heads that take turns are decoded, not compared with the last one.
    group.bench("in turn", |b| {
        b.iter(|| {
            for head in [CURL, AB, BROWSER] {
                let mut fields = decode::Fields::new();
                let decoded = decode::head(black_box(head.as_bytes()), &limits, &mut fields);
                assert!(matches!(decoded, Decoded::Head(parsed) if parsed.length == head.len()));
            }
        });
    });
}

fn entity_server() -> HttpState {
    let repo = Sharded::new();
    let put = repo.put(Entity::new(1, "aZ09bY18cX27dW3", 60.750847));
    assert!(matches!(put, Answer::Now(Ok(Put::Created))));
    HttpState::new(std::sync::Arc::new(EntityService::new(repo)), &ServerConfig::default())
}

/// A kept-alive connection: `requests` requests arrive together, and their answers leave together as `expected`.
fn round_trips(suite: &mut Suite) {
    let server = entity_server();
    let put = format!(
        "PUT / HTTP/1.0\r\nContent-length: {}\r\nContent-type: application/json\r\nConnection: Keep-Alive\r\n\
         Host: 127.0.0.1:8001\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n{ENTITY}",
        ENTITY.len()
    );
    let put_answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\nDate: {DATE}\r\n\r\n");
    let cases = [
        ("get/curl", CURL.to_owned(), get_answer(""), 1),
        ("get/ab", AB.to_owned(), get_answer("Connection: keep-alive\r\n"), 1),
        ("get/browser", BROWSER.to_owned(), get_answer(""), 1),
        ("get/pipelined16", CURL.repeat(16), get_answer("").repeat(16), 16),
        ("put/ab", put, put_answer, 1),
    ];
    for (name, request, expected, requests) in cases {
        let (mut session, mut buffers) = (Session::new(), SessionBuffers::new());
        buffers.refresh(UNIX_EPOCH + Duration::from_secs(784_111_777), false);
        let (short, long) = (SHORT.map(|short| short.operations(requests)), LONG.operations(requests));
        let mut group = suite.group("session", short, long);
        group.bench(name, |b| {
            b.iter(|| {
                let step = session.receive(black_box(request.as_bytes()), &mut server.turn(&mut buffers));
                assert!(step == SessionStep::Read(Phase::Idle) && buffers.out() == expected.as_bytes());
                session.written(expected.len(), &mut buffers);
                assert_eq!(session.take_answered(), requests);
            });
        });
    }
}

fn encoding(suite: &mut Suite) {
    let reply = Reply::new(StatusCode::OK, "application/json", Body::InPlace);
    let date = Date::new(UNIX_EPOCH + Duration::from_secs(784_111_777));
    let date = date.end_of_head();
    let head = AnswerHead { version: Version::HTTP_11, close: false, head_only: false, date, server_header: None };
    let (expected, mut out) = (get_answer(""), Vec::new());
    let mut group = suite.group("encode", SHORT, LONG);
    group.bench("get", |b| {
        b.iter(|| {
            out.clear();
            encode::answer(&mut out, black_box(&reply), black_box(ENTITY.as_bytes()), &head);
            assert!(out == expected.as_bytes());
        });
    });
}

pub(crate) fn benches(suite: &mut Suite) {
    decoding(suite);
    round_trips(suite);
    encoding(suite);
}
