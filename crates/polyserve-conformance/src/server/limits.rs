//! The limit on connections, and the connections that exceed it.

use super::prelude::*;

const ONE_WAITS: &str = "a server of one connection lets the others wait";

/// The next answer is a 503 with `Retry-After`, and the last one.
#[track_caller]
fn expect_rejection(client: &mut Client) {
    let response = client.expect_last(503);
    assert!(response.header("Retry-After").is_some(), "a 503 has Retry-After\n{}", client.show());
}

/// Starts a server, and this number of clients that are in mid-request: see [`finish`]. It is the limit on connections.
#[track_caller]
fn full(subject: &ServerSubject, limit: usize, change: impl FnOnce(&mut ServerConfig)) -> (Live, Vec<Client>) {
    let live = subject.live(Echo, |config| {
        config.max_connections = limit;
        without_body_timeout(config);
        change(config);
    });
    let busy = live.in_mid_request(limit);
    (live, busy)
}

/// If `max_connections` clients are in mid-request, another client reads a 503 with `Retry-After` and the end of its
/// connection. The others go on, and later clients are served.
///
/// The property does not apply to a server of one connection: it lets the other clients wait, and has to serve them.
pub(super) fn connections_past_the_limit_are_rejected(subject: &ServerSubject) -> Outcome {
    let limit = if subject.shape() == Shape::One { 1 } else { 2 };
    let (live, busy) = full(subject, limit, |_| ());
    let mut waiting = Vec::new();
    for silent in [false, false, true, false] {
        let mut client = live.client();
        // The client can read the refusal whether it sends or not.
        let sent = if silent { Ok(()) } else { client.send(&get("/")) };
        if subject.shape() != Shape::One {
            expect_rejection(&mut client);
        } else if !silent {
            waiting.push(client);
        }
        drop(sent);
    }
    finish(busy);
    for mut client in waiting {
        client.expect(200);
    }
    live.ask_until_served(&get("/"));
    if subject.shape() == Shape::One { Outcome::NotRun(ONE_WAITS.into()) } else { Outcome::Held }
}

/// If a client address has `max_connections_per_peer` connections open, the next one reads a 503 with `Retry-After` and the end of its
/// connection. Those that are open go on, and once they have closed, the client is served again.
pub(super) fn connections_past_the_limit_of_a_client_are_rejected(subject: &ServerSubject) -> Outcome {
    let limit = if subject.shape() == Shape::One { 1 } else { 2 };
    let live = subject.live(Echo, |config| {
        config.max_connections_per_peer = Some(limit as u64);
        without_body_timeout(config);
    });
    let busy = live.in_mid_request(limit);
    for silent in [false, true, false] {
        let mut client = live.client();
        let sent = if silent { Ok(()) } else { client.send(&get("/")) };
        expect_rejection(&mut client);
        drop(sent); // the server may have refused the client before
    }
    let counters = live.counters_when(|counters| counters.rejected_peers == 3);
    assert_eq!((counters.rejected, counters.rejected_peers), (3, 3));
    finish(busy);
    live.ask_until_served(&get("/"));
    Outcome::Held
}

/// 1 024 connections past the limit at once can each read a 503 with `Retry-After`, and end without a reset.
///
/// A server of one connection lets them wait, and is not tested.
pub(super) fn every_refused_connection_reads_a_503(subject: &ServerSubject) -> Outcome {
    const REFUSED: usize = 1024;
    if subject.shape() == Shape::One {
        return Outcome::NotRun(ONE_WAITS.into());
    }
    in_child_with_descriptors(4096, || {
        let (live, busy) = full(subject, 2, |_| ());
        let mut refused = live.clients(REFUSED);
        for client in &mut refused {
            // The server may have refused this client already. What counts is what the client reads.
            let _ = client.send(&get("/"));
        }
        refused.iter_mut().for_each(expect_rejection);
        finish(busy);
    })
}

/// A client past the limit that sends a large request before it reads can read its whole 503, and then the end of its connection.
///
/// A server of one connection lets the client wait, and is not tested.
pub(super) fn a_rejection_survives_unread_input(subject: &ServerSubject) -> Outcome {
    if subject.shape() == Shape::One {
        return Outcome::NotRun(ONE_WAITS.into());
    }
    let (live, busy) = full(subject, 1, |config| config.linger_timeout = subject.max_wait);
    let upload = with_body("POST", "/", "", &pattern(512 * 1024));
    for _ in 0..5 {
        expect_rejection(&mut live.sending(&upload));
    }
    finish(busy);
    Outcome::Held
}

/// Connections that were rejected and stay open do not count towards `max_connections`: once the others have closed, a new
/// client is served.
pub(super) fn rejected_connections_leave_room(subject: &ServerSubject) -> Outcome {
    const LIMIT: usize = 4;
    if subject.shape() == Shape::One {
        return Outcome::NotRun(ONE_WAITS.into());
    }
    let (live, busy) = full(subject, LIMIT, |config| config.linger_timeout = subject.max_wait * 4);
    let try_one = || {
        let mut client = live.client();
        let response = client.exchange(&get("/")).unwrap_or_else(|failure| panic!("{failure}"));
        (client, response.status)
    };
    let mut rejected = Vec::new();
    for _ in 0..2 * LIMIT {
        let (client, status) = try_one();
        assert_eq!(status, 503, "a connection past the limit is rejected");
        rejected.push(client);
    }
    finish(busy);
    // The server may need a moment to see that the others have closed.
    let served = eventually(subject.max_wait, || {
        let (client, status) = try_one();
        rejected.push(client);
        status == 200
    });
    assert!(served, "{} rejected clients that stay open keep others out at a limit of {LIMIT}", rejected.len());
    Outcome::Held
}

/// A burst of silent connections does not exceed `max_connections`. Each connection of the surplus reads a 503, or is closed
/// without a reset.
pub(super) fn silent_connections_keep_to_the_limit(subject: &ServerSubject) {
    const LIMIT: usize = 50;
    let live = subject.live(Echo, |config| {
        config.max_connections = LIMIT;
        config.first_byte_timeout = NEVER;
        config.head_timeout = NEVER;
    });
    let mut open = live.clients(2 * LIMIT);
    let mut closed = Vec::new();
    eventually(subject.max_wait, || {
        let (ended, rest) = open.drain(..).partition(Client::has_input);
        closed.extend::<Vec<Client>>(ended);
        open = rest;
        open.len() <= LIMIT
    });
    assert!(open.len() <= LIMIT, "{} silent connections are open at a limit of {LIMIT}", open.len());
    for mut client in closed {
        let (bytes, ending) = client.end();
        assert_eq!(ending, Ending::Closed, "{}", client.show());
        assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 503"), "{}", client.show());
    }
}

/// Each request of a burst that exceeds workers and queue is served, or refused with a 503 and `Retry-After`.
pub(super) fn a_burst_is_served_or_rejected(subject: &ServerSubject) {
    let queue = subject.smallest_queue();
    let live = subject.live(delayed, |config| {
        config.workers = subject.workers_or_pool(1);
        config.queue = queue;
        config.max_connections = 12;
    });
    let mut clients = Vec::new();
    for _ in 0..16 {
        let mut client = live.client();
        // The server may have refused this client already. What counts is what the client reads.
        let _ = client.send(&request("GET", "/20", "Connection: close\r\n"));
        clients.push(client);
    }
    let mut served = 0;
    for mut client in clients {
        let response = client.expect_one_of(&[200, 503]);
        assert!(response.closes() && (response.status == 200 || response.header("Retry-After").is_some()));
        client.expect_end();
        served += usize::from(response.status == 200);
    }
    assert!(served > 0, "no request was served");
    live.ask_until_served(&get("/0"));
}

/// A connection that ends makes room at once: many more connections than the limit are served one after the other.
pub(super) fn room_comes_back(subject: &ServerSubject) {
    let live = subject.live(Echo, |config| config.max_connections = 1);
    let deadline = Instant::now() + subject.max_wait;
    for _ in 0..30 {
        live.ask_until_served(&get("/"));
        assert!(Instant::now() < deadline, "30 connections took longer than the max wait");
    }
}

/// `defer_accept` changes nothing for clients that send. Not run if the server refuses the setting.
pub(super) fn deferred_accept_serves_the_same(subject: &ServerSubject) -> Outcome {
    let config = ServerConfig::default().defer_accept(true);
    if let Err(error) = subject.make(config.clone()) {
        assert!(error.to_string().contains("defer_accept"), "the refusal names the setting: {error}");
        return Outcome::NotRun(format!("the server refuses it: {error}"));
    }
    if !cfg!(target_os = "linux") {
        return Outcome::NotRun("deferred accept needs Linux".into());
    }
    let live = subject.live(Echo, |c| *c = config);
    let silent = live.clients(20);
    let mut client = live.client();
    for _ in 0..3 {
        client.ask(&get("/"), 200);
    }
    drop(silent);
    live.ask(&get("/"), 200);
    Outcome::Held
}

/// A request with a slow answer does not make its connection idle: `max_connections` counts it, and it is not closed.
///
/// The request has reached the service before the next client connects. Otherwise a server with several accepting
/// threads may take the other client first.
pub(super) fn a_waiting_request_is_not_idle(subject: &ServerSubject) {
    let (live, held_answers, mut slow) = hold_one(subject, |config| config.max_connections = 1);
    let mut other = live.client();
    let _ = other.send(&get("/"));
    if subject.shape() == Shape::One {
        let_pass(Duration::from_millis(60));
    } else {
        expect_rejection(&mut other);
    }
    assert_eq!(held_answers.release_all(), 1, "the answer is still wanted");
    assert_eq!(slow.expect(200).text(), "/hold");
    drop((slow, other));
    live.ask_until_served(&get("/"));
}

/// Two servers of the same kind share nothing that a client can see.
pub(super) fn two_servers_share_nothing(subject: &ServerSubject) {
    let (first, second) = (echo(subject), echo(subject));
    assert_ne!(first.addr, second.addr);
    let mut client = second.client();
    client.ask(&get("/"), 200);
    first.ask(&get("/"), 200);
    first.shutdown_within(Duration::from_secs(60));
    client.ask(&get("/"), 200);
}
