//! What a server shows of its connections: the client's address to the service, and counters to its owner.

use std::sync::mpsc::channel;

use polyserve_core::{AnswerHook, AnswerReport, Counters};

use super::prelude::*;

/// Answers with the address of the request's peer.
fn show_peer(request: Request<'_>) -> Reply {
    Reply::text(request.peer.map_or_else(|| String::from("none"), |peer| peer.to_string()))
}

/// A request has the address of its client: the first request of a connection, a later one, and one with a body that comes
/// after its head.
pub(super) fn a_request_has_its_clients_address(subject: &ServerSubject) {
    let live = subject.live(show_peer, defaults());
    for _ in 0..2 {
        let mut client = live.client();
        let address = client.local_addr().expect("the connection stands").to_string();
        assert_eq!(client.ask(&get("/"), 200).text(), address);
        assert_eq!(client.ask(&with_body("POST", "/", "", b"hello"), 200).text(), address);
        client.ask(&request("POST", "/", BODY_AWAITED), 100);
        assert_eq!(client.ask(b"hello", 200).text(), address);
    }
}

/// A trusted proxy names the client, for the service and for the hook, and it may open any number of connections. Other fields, and the
/// fields of a proxy that is not trusted, change nothing.
pub(super) fn a_trusted_proxy_names_the_client(subject: &ServerSubject) {
    let (sender, reports) = channel();
    let config = defaults().max_connections_per_peer(1).on_answer(move |report| {
        let _ = sender.send(report.peer.map(|peer| peer.to_string())); // an error: the test has ended
    });
    let trusting = |networks: &str| config.clone().trusted_proxies(networks.parse().expect("they are networks"));
    let live = subject.live(show_peer, trusting("127.0.0.0/8, fd00::/8"));
    // A server that serves one connection has its client close the first one.
    for mut client in live.clients(subject.at_a_time(3)) {
        let own = client.local_addr().expect("the connection stands").to_string();
        for (fields, expected) in [
            ("X-Forwarded-For: 203.0.113.9, 192.0.2.1\r\n", "192.0.2.1:0"),
            ("X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-For: 192.0.2.2:99, 127.0.0.2\r\n", "192.0.2.2:99"),
            ("Forwarded: for=203.0.113.9, for=\"[2001:db8::1]:4711\", For=\"[fd00::2]\"\r\n", "[2001:db8::1]:4711"),
            ("Forwarded: for=unknown\r\n", &own),
            ("X-Forwarded-For: 192.0.2.1, \"\r\n", &own),
            ("", &own),
        ] {
            let length = format!("{fields}Content-Length: 5\r\n");
            for ask in [vec![request("GET", "/", fields)], vec![request("POST", "/", &length), b"hello".to_vec()]] {
                for part in ask {
                    client.send(&part).expect("the server reads");
                }
                assert_eq!(client.receive().expect("an answer").text(), expected, "{fields}");
                let reported = reports.recv_timeout(subject.max_wait).expect("the answer is reported");
                assert_eq!(reported.as_deref(), Some(expected), "{fields}");
            }
        }
    }
    let live = subject.live(show_peer, trusting("192.0.2.0/24"));
    let mut client = live.client();
    let own = client.local_addr().expect("the connection stands").to_string();
    assert_eq!(client.ask(&request("GET", "/", "X-Forwarded-For: 203.0.113.9\r\n"), 200).text(), own);
}

/// The counters of a running server follow its connections: the open ones, the answers, the rejections and the panics of the
/// service.
pub(super) fn the_counters_are_live(subject: &ServerSubject) {
    let live = subject.live(PanickingService::shared(), without_body_timeout().max_connections(1));
    check(&live, [0, 0, 0, 0]);
    let mut client = live.client();
    client.ask(&get("/"), 200);
    check(&live, [1, 1, 0, 0]);
    client.ask(&request("POST", "/", BODY_AWAITED), 100);
    let rejected = u64::from(subject.shape() != Shape::One);
    if rejected > 0 {
        live.trying(&get("/")).expect_last(503);
    }
    // An alert is no answer.
    let refusals = if subject.alert_of_a_rejection().is_none() { rejected } else { 0 };
    check(&live, [1, 1 + refusals, rejected, 0]);
    // A server that was full a moment ago may announce a close.
    let open = u64::from(!client.ask(b"hello", 200).closes());
    check(&live, [open, 2 + refusals, rejected, 0]);
    drop(client);
    check(&live, [0, 2 + refusals, rejected, 0]);
    for (panics, path) in (1..).zip(["/call", "/later", "/woken"]) {
        live.ask(&get(path), 500);
        check(&live, [0, 2 + refusals + panics, rejected, panics]);
    }
    let drain = live.shutdown();
    assert_eq!(drain.answered, 5 + refusals, "the result of the drain has the same answers");
}

/// The hook sees each answer on the wire once, with its status, its bytes and the address of the client: answers of the
/// service, and those that the server gives itself. It also sees the alert to a connection that is rejected over TLS, as a 503. Requests that
/// begin have a time. A hook that panics changes nothing.
pub(super) fn the_hook_sees_every_answer(subject: &ServerSubject) {
    const LIMIT: usize = 1000;
    const TIMEOUT: Duration = Duration::from_millis(200);
    let (sender, reports) = channel();
    let config = defaults().max_body(LIMIT).head_timeout(TIMEOUT).body_timeout(TIMEOUT).answer_timeout(TIMEOUT);
    let config = config.on_answer(move |report| {
        let &AnswerReport { status, bytes, elapsed, peer, .. } = report;
        let line = report.request.map(|line| format!("{} {}", line.method, line.target));
        let _ = sender.send(Reported { status, bytes, elapsed, peer, line });
        assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "as the test asked");
    });
    let batches = batches_of_all_kinds(LIMIT);
    // They end with a timeout if the client goes on waiting.
    let unfinished = [request("POST", "/", "Content-Length: 5\r\n"), b"GET / HT".to_vec()];
    let mut answers = Vec::new();
    let live = subject.live(PanickingService::shared(), config.clone());
    let ended = batches.iter().chain(&unfinished).map(|batch| (batch, true));
    for (batch, ends) in ended.chain(unfinished.iter().map(|batch| (batch, false))) {
        let mut client = live.sending(batch);
        if ends {
            let _ = client.half_close();
        }
        answers.extend(read_all(&mut client, batch.starts_with(b"HEAD ")));
    }
    let mut client = live.client();
    client.ask(&request("POST", "/", BODY_AWAITED), 100);
    client.send(b"hello").expect("the server takes the body");
    let _ = client.half_close();
    answers.extend(read_all(&mut client, false));
    drop(client);
    let config = config.max_connections(1).body_timeout(10 * subject.max_wait);
    let full = subject.live(PanickingService::shared(), config);
    let mut busy = full.client();
    busy.ask(&request("POST", "/", BODY_AWAITED), 100);
    if subject.shape() != Shape::One {
        for _ in 0..3 {
            let refused = read_all(&mut full.trying(&get("/")), false).into_iter();
            let alert = subject.alert_of_a_rejection();
            answers.extend(refused.map(|(status, bytes, client)| (status, alert.unwrap_or(bytes), client)));
        }
    }
    busy.send(b"hello").expect("the server takes the body");
    let _ = busy.half_close();
    answers.extend(read_all(&mut busy, false));
    drop(busy);
    let mut reported: Vec<Reported> = Vec::new();
    while reported.len() < answers.len()
        && let Ok(report) = reports.recv_timeout(subject.max_wait)
    {
        reported.push(report);
    }
    let _ = live.shutdown();
    let _ = full.shutdown();
    reported.extend(reports.try_iter());
    let untimed = |report: &&Reported| report.elapsed.is_none() && report.status != StatusCode::SERVICE_UNAVAILABLE;
    assert_eq!(reported.iter().find(untimed), None, "an answer to a request has no time");
    for (line, status) in [("GET /", 200), ("POST /", 200), ("GET /call", 500), ("GET /later", 500), ("HEAD /", 200)] {
        let has_line = |report: &Reported| report.line.as_deref() == Some(line) && report.status.as_u16() == status;
        assert!(reported.iter().any(has_line), "no answer {status} is reported with its request line {line}");
    }
    let undecoded = |report: &Reported| report.status == StatusCode::NOT_IMPLEMENTED && report.line.is_some();
    assert!(!reported.iter().any(undecoded), "the answer to an unknown method has the line of another request");
    let mut seen: Vec<_> = reported
        .iter()
        .map(|report| (report.status.as_u16(), report.bytes, report.peer.map(|peer| peer.to_string())))
        .collect();
    seen.sort();
    answers.sort();
    assert_eq!(seen, answers, "left: what the hook saw; right: what clients received");
    check_agents(subject);
}

/// A hook of agents sees the fields `Referer` and `User-Agent` of the request that is answered, byte by byte, and those of no other one.
#[track_caller]
fn check_agents(subject: &ServerSubject) {
    let (sender, reports) = channel();
    let hook = AnswerHook::new(move |report| {
        let fields = [report.referer, report.user_agent].map(|value| value.map(<[u8]>::to_vec));
        let _ = sender.send(fields); // an error: the test has ended
    });
    let mut config = defaults();
    config.on_answer = Some(hook.with_agents());
    let live = subject.live(PanickingService::shared(), config);
    let mut client = live.client();
    let hostile: &[u8] = b"a\" \\ \xc2\x85\xff\t'";
    let long = [b'x'; 1000];
    let agents: [[Option<&[u8]>; 2]; 7] = [
        [Some(hostile), Some(b"b")],
        [None, Some(hostile)],
        [None, None],
        [Some(b""), None],
        [Some(&long), Some(&long)],
        [None, None],
        [Some(b"c"), None],
    ];
    for (at, [referer, user_agent]) in agents.into_iter().enumerate() {
        let mut fields = Vec::new();
        for (name, value) in [("referer", referer), ("User-Agent", user_agent)] {
            if let Some(value) = value {
                fields.extend([name.as_bytes(), b": ", value, b"\r\n", name.as_bytes(), b": another\r\n"].concat());
            }
        }
        let parts: [&[u8]; 2] = if at % 2 == 0 { [b"", b""] } else { [b"Content-Length: 5\r\n", b"hello"] };
        client.send(&[b"POST / HTTP/1.1\r\nHost: a\r\n", &fields[..], parts[0], b"\r\n"].concat()).expect("it reads");
        client.ask(parts[1], 200);
        let seen = reports.recv_timeout(subject.max_wait).expect("the answer is reported");
        let expected = [referer, user_agent].map(|value| value.map(<[u8]>::to_vec));
        assert_eq!(seen, expected, "the first Referer and the first User-Agent of a request");
    }
}

/// A report that the hook has seen.
#[derive(Debug, PartialEq)]
struct Reported {
    status: StatusCode,
    bytes: u64,
    elapsed: Option<Duration>,
    peer: Option<SocketAddr>,
    line: Option<String>,
}

/// Requests that are answered by the service or refused by the server, each batch for a connection. `limit` is that of a body.
fn batches_of_all_kinds(limit: usize) -> Vec<Vec<u8>> {
    let large = vec![b'x'; limit];
    let too_large = format!("{:x}\r\n{}\r\n0\r\n\r\n", limit + 1, "x".repeat(limit + 1));
    let chunked = "Transfer-Encoding: chunked\r\n";
    vec![
        [get("/"), get("/call"), with_body("POST", "/", "", &large), get("/later"), get("/")].concat(),
        with_body("HEAD", "/", "", b"hello"),
        request("HEAD", "/call", "Connection: close\r\n"),
        [get("/"), b"GET / HTTP/1.1\r\n\r\n".to_vec()].concat(),
        b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_vec(),
        request("GET", "/", &format!("X: {}\r\n", "x".repeat(20_000))),
        request("POST", "/", &format!("Content-Length: {}\r\n", limit + 1)),
        [request("POST", "/", chunked), too_large.into_bytes()].concat(),
        [request("POST", "/", chunked), b"x\r\n".to_vec()].concat(),
        [request("POST", "/", chunked), b"5\r\nhello\r\n0\r\n\r\n".to_vec()].concat(),
        request("POST", "/", "Expect: more\r\nContent-Length: 5\r\n"),
        get("/given-up"),
    ]
}

/// Reads all answers of a connection: the status, the bytes, and the address of the client.
#[track_caller]
fn read_all(client: &mut Client, to_head: bool) -> Vec<(u16, u64, Option<String>)> {
    let address = client.local_addr().ok().map(|address| address.to_string());
    let mut answers = Vec::new();
    loop {
        match if to_head { client.receive_head() } else { client.receive() } {
            Ok(response) => answers.push((response.status, response.length as u64, address.clone())),
            Err(failure) if failure.is_clean() => return answers,
            Err(failure) => panic!("{failure}"),
        }
    }
}

/// Waits until the counters are these: open, answered, rejected, panics. A server may need a moment to count.
#[track_caller]
fn check(live: &Live, [open, answered, rejected, panics]: [u64; 4]) {
    let expected = [open, answered, rejected, panics];
    let shown = |counters: Counters| [counters.open, counters.answered, counters.rejected, counters.panics];
    let seen = live.counters_when(|counters| shown(counters) == expected && counters.reserved_bytes == 0);
    assert_eq!((shown(seen), seen.reserved_bytes), (expected, 0));
}
