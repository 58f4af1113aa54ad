//! At the limit on connections, an idle connection is closed for a new one.

use super::prelude::*;

const ONE_CONNECTION: &str = "a server of one connection closes it for any other";

fn serve(subject: &ServerSubject, max_connections: usize) -> Live {
    subject.live(Echo, without_body_timeout().max_connections(max_connections).idle_timeout(NEVER).head_timeout(NEVER))
}

/// If `max_connections` connections are open and some of them are idle, each new client is served. Tested with connections
/// that were served, that have sent nothing, and that have sent an empty line, which begins no request. A connection with a
/// request is not closed.
pub(super) fn idle_connections_make_room_at_the_limit(subject: &ServerSubject) {
    let is_single = subject.shape() == Shape::One;
    let max_connections = if is_single { 1 } else { 3 };
    for sent in [&get("/")[..], b"", b"\r\n"] {
        let live = serve(subject, max_connections);
        let mut busy = (!is_single).then(|| live.client());
        if let Some(busy) = &mut busy {
            busy.ask(&request("POST", "/", BODY_AWAITED), 100);
        }
        let mut idle: Vec<Client> = Vec::new();
        while idle.len() + usize::from(busy.is_some()) < max_connections {
            let mut client = live.sending(sent);
            if sent.len() > 2 {
                client.expect(200);
            }
            idle.push(client);
        }
        for _ in 0..2 * max_connections {
            // A connection has to be idle for a while before it is closed.
            idle.push(live.connect_until_served(&get("/")).0);
        }
        if let Some(mut busy) = busy {
            assert_eq!(busy.ask(b"hello", 200).text(), "hello");
        }
    }
}

/// At the limit, a connection that has sent nothing is closed before one that was served, even if it has been idle for less
/// time.
pub(super) fn silent_connections_are_closed_first(subject: &ServerSubject) -> Result<(), String> {
    subject.needs_several(ONE_CONNECTION)?;
    attempts(3, || {
        let live = serve(subject, 2);
        let mut kept = live.client();
        kept.ask(&get("/"), 200);
        let silent = live.client();
        // On a busy machine the silent connection may not have been idle for long enough. Then another attempt follows.
        let_pass(6 * EVICTION_GRACE);
        let _new = live.connect_until_served(&get("/"));
        let is_closed = eventually(subject.max_wait, || silent.has_ended() || kept.has_ended());
        assert!(is_closed, "three connections are open at a limit of two");
        if !silent.has_ended() {
            return Err(format!("a connection that was served is closed, and a silent one is open\n{}", kept.show()));
        }
        kept.ask(&get("/"), 200);
        Ok(())
    });
    Ok(())
}

/// At the limit, a connection that has been idle for less than 50 ms is not closed: its next request is answered. A
/// multiplexed server refuses the new connection instead.
pub(super) fn a_young_connection_is_not_closed_for_another(subject: &ServerSubject) -> Result<(), String> {
    const ATTEMPTS: usize = 20;
    subject.needs_several(ONE_CONNECTION)?;
    for _ in 0..ATTEMPTS {
        let live = serve(subject, 2);
        let mut kept = [live.client(), live.client()];
        kept.iter_mut().for_each(|client| drop(client.ask(&get("/"), 200)));
        let idle_since = Instant::now();
        let are_closed = kept.each_mut().map(|client| client.ask(&get("/"), 200).closes());
        let mut new = live.client();
        let response = new.exchange(&get("/")).unwrap_or_else(|failure| panic!("{failure}"));
        let is_refused = response.status == 503;
        let was_young = idle_since.elapsed() < EVICTION_GRACE;
        let sent = kept.each_mut().map(|client| client.send(&get("/")));
        // On a busy machine an attempt may show nothing, and so does one in which a close was announced.
        if idle_since.elapsed() >= EVICTION_GRACE || are_closed != [false; 2] {
            continue;
        }
        for (client, sent) in kept.iter_mut().zip(sent) {
            client.expect(200);
            drop(sent);
        }
        let must_refuse = subject.shape() == Shape::Multiplexed && was_young;
        assert!(!must_refuse || is_refused, "a third connection is served at a limit of two\n{}", new.show());
        return Ok(());
    }
    Err(format!("in {ATTEMPTS} attempts, no two connections were idle and younger than {EVICTION_GRACE:?}"))
}

/// At the limit, a connection with a request that has arrived is not closed for another, even if it was idle when the request
/// came.
pub(super) fn a_request_that_has_arrived_is_not_evicted(subject: &ServerSubject) -> Result<(), String> {
    needs(cfg!(target_os = "linux"), "stopping a process is tested on Linux only")?;
    let serve = |parent: &ChildSide| {
        let live = serve(subject, 1);
        parent.announce(live.addr);
        parent.wait_for_parent();
    };
    with_serving_child(None, serve, |child| {
        let connect = || Client::connect(child.addr, subject.max_wait).expect("the server accepts connections");
        let mut kept = connect();
        kept.ask(&get("/"), 200);
        let_pass(3 * EVICTION_GRACE); // so that it may be closed for another
        if !child.stop() {
            child.resume();
            return Outcome::NotRun("this system cannot stop a process".into());
        }
        let mut new = connect();
        new.send(&get("/")).expect("the kernel takes the request");
        kept.send(&get("/")).expect("the kernel takes the request");
        child.resume();
        kept.expect(200);
        new.expect_one_of(&[200, 503]);
        Outcome::Held
    })
    .into()
}
