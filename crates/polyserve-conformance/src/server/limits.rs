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
fn full(subject: &ServerSubject, limit: usize, config: ServerConfig) -> (Live, Vec<Client>) {
    let live = subject.live(Echo, config.max_connections(limit));
    let busy = live.in_mid_request(limit);
    (live, busy)
}

/// If `max_connections` clients are in mid-request, another client reads a 503 with `Retry-After` and the end of its
/// connection. The others go on, and later clients are served.
///
/// The property does not apply to a server of one connection: it lets the other clients wait, and has to serve them.
pub(super) fn connections_past_the_limit_are_rejected(subject: &ServerSubject) -> Result<(), String> {
    let (live, busy) = full(subject, subject.at_a_time(2), without_body_timeout());
    let mut waiting = Vec::new();
    for silent in [false, false, true, false] {
        // The client can read the refusal whether it sends or not.
        let mut client = if silent { live.client() } else { live.trying(&get("/")) };
        if subject.shape() != Shape::One {
            expect_rejection(&mut client);
        } else if !silent {
            waiting.push(client);
        }
    }
    finish(busy);
    for mut client in waiting {
        client.expect(200);
    }
    live.ask_until_served(&get("/"));
    subject.needs_several(ONE_WAITS)
}

/// If a client address has `max_connections_per_peer` connections open, the next one reads a 503 with `Retry-After` and the end of its
/// connection. Those that are open go on, and once they have closed, the client is served again.
pub(super) fn connections_past_the_limit_of_a_client_are_rejected(subject: &ServerSubject) {
    let limit = subject.at_a_time(2);
    let live = subject.live(Echo, without_body_timeout().max_connections_per_peer(limit as u64));
    let busy = live.in_mid_request(limit);
    for silent in [false, true, false] {
        expect_rejection(&mut if silent { live.client() } else { live.trying(&get("/")) });
    }
    let counters = live.counters_when(|counters| counters.rejected_peers == 3);
    assert_eq!((counters.rejected, counters.rejected_peers), (3, 3));
    finish(busy);
    live.ask_until_served(&get("/"));
}

/// 1 024 connections past the limit at once can each read a 503 with `Retry-After`, and end without a reset.
pub(super) fn every_refused_connection_reads_a_503(subject: &ServerSubject) -> Result<(), String> {
    const REFUSED: usize = 1024;
    subject.needs_several(ONE_WAITS)?;
    in_child(4096, || {
        let (live, busy) = full(subject, 2, without_body_timeout());
        let mut refused = live.clients(REFUSED);
        refused.iter_mut().for_each(|client| drop(client.send(&get("/")))); // an error: it was refused already
        refused.iter_mut().for_each(expect_rejection);
        finish(busy);
    })
    .into()
}

/// A client past the limit that sends a large request before it reads can read its whole 503, and then the end of its connection.
pub(super) fn a_rejection_survives_unread_input(subject: &ServerSubject) -> Result<(), String> {
    subject.needs_several(ONE_WAITS)?;
    let (live, busy) = full(subject, 1, without_body_timeout().linger_timeout(subject.max_wait));
    let upload = with_body("POST", "/", "", &pattern(512 * 1024));
    for _ in 0..5 {
        expect_rejection(&mut live.sending(&upload));
    }
    finish(busy);
    Ok(())
}

/// Connections that were rejected and stay open do not count towards `max_connections`: once the others have closed, a new
/// client is served.
pub(super) fn rejected_connections_leave_room(subject: &ServerSubject) -> Result<(), String> {
    const LIMIT: usize = 4;
    subject.needs_several(ONE_WAITS)?;
    let (live, busy) = full(subject, LIMIT, without_body_timeout().linger_timeout(subject.max_wait * 4));
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
    Ok(())
}

/// A burst of silent connections does not exceed `max_connections`. Each connection of the surplus reads a 503, or is closed
/// without a reset.
pub(super) fn silent_connections_keep_to_the_limit(subject: &ServerSubject) {
    const LIMIT: usize = 50;
    let live = subject.live(Echo, defaults().max_connections(LIMIT).first_byte_timeout(NEVER).head_timeout(NEVER));
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
    let live = subject.live(delayed, subject.with_workers(1).queue(queue).max_connections(12));
    let trying = |_| live.trying(&request("GET", "/20", "Connection: close\r\n"));
    let clients: Vec<Client> = (0..16).map(trying).collect();
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
    let live = subject.live(Echo, defaults().max_connections(1));
    let deadline = Instant::now() + subject.max_wait;
    for _ in 0..30 {
        live.ask_until_served(&get("/"));
        assert!(Instant::now() < deadline, "30 connections took longer than the max wait");
    }
}

/// `defer_accept` changes nothing for clients that send. Not run if the server refuses the setting.
pub(super) fn deferred_accept_serves_the_same(subject: &ServerSubject) -> Result<(), String> {
    let config = defaults().defer_accept(true);
    if let Err(error) = subject.make(config.clone()) {
        assert!(error.to_string().contains("defer_accept"), "the refusal names the setting: {error}");
        return Err(format!("the server refuses it: {error}"));
    }
    needs(cfg!(target_os = "linux"), "deferred accept needs Linux")?;
    let live = subject.live(Echo, config);
    let silent = live.clients(20);
    let mut client = live.client();
    for _ in 0..3 {
        client.ask(&get("/"), 200);
    }
    drop(silent);
    live.ask(&get("/"), 200);
    Ok(())
}

/// A request with a slow answer does not make its connection idle: `max_connections` counts it, and it is not closed.
///
/// The request has reached the service before the next client connects. Otherwise a server with several accepting
/// threads may take the other client first.
pub(super) fn a_waiting_request_is_not_idle(subject: &ServerSubject) {
    let (live, held_answers, mut slow) = hold_one(subject, defaults().max_connections(1));
    let mut other = live.trying(&get("/"));
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
