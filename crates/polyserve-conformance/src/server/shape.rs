//! The promises of a server's shape: connections that wait while others work.

use std::sync::atomic::AtomicUsize;

use super::prelude::*;
use super::resources::descriptor_limit;

/// Idle connections do not delay others.
///
/// * Multiplexed: two workers serve 500 idle connections twice each (fewer if descriptors are few).
/// * Other shapes, at `max_connections`: if a connection waits, an idle one is closed without a byte.
/// * A pool in which connections hold threads: the same below `max_connections`, if no thread is free.
pub(super) fn idle_connections_do_not_delay_others(subject: &ServerSubject) {
    match subject.shape() {
        Shape::Multiplexed => {
            // The last client is asked only after all others.
            let live = subject.live(Echo, subject.with_workers(2).first_byte_timeout(NEVER).idle_timeout(NEVER));
            let count = 500.min(descriptor_limit() / 8);
            let mut clients = live.clients(count);
            for round in 0..2 {
                for (n, client) in clients.iter_mut().enumerate() {
                    let body = format!("{round}, {n}");
                    assert_eq!(client.ask(&with_body("POST", "/", "", body.as_bytes()), 200).text(), body);
                }
            }
        }
        Shape::OnePerThread => {
            idle_makes_room(subject, 3, defaults().max_connections(3));
            if subject.pooled {
                idle_makes_room(subject, 3, defaults().workers(3));
            }
        }
        Shape::One => idle_makes_room(subject, 1, defaults().max_connections(1)),
    }
}

/// Tests that idle connections are closed to make room for others. The idle timeout is longer than the max wait, so it
/// closes none of them. `config` has the limit of `max_connections` connections.
#[track_caller]
fn idle_makes_room(subject: &ServerSubject, max_connections: usize, config: ServerConfig) {
    let live = subject.live(Echo, config.idle_timeout(NEVER));
    let mut idle = live.clients(max_connections);
    for client in &mut idle {
        client.ask(&get("/"), 200);
    }
    // A server that was full for a moment may announce the close of a connection that it then serves.
    let mut announced = 0;
    for _ in 0..3 {
        let (client, response) = live.connect_until_served(&get("/"));
        announced += usize::from(response.closes());
        idle.push(client);
    }
    // Each new connection closed an old one, without a byte. The other connections are still served.
    let mut closed = Vec::new();
    let made_room = eventually(subject.max_wait, || {
        let (ended, open) = idle.drain(..).partition(|client: &Client| client.has_ended());
        closed.extend::<Vec<Client>>(ended);
        idle = open;
        closed.len() >= 3
    });
    let closed_count = closed.len();
    for mut client in closed {
        client.expect_end();
    }
    // After an announced close, a connection that was chosen before may end only now.
    let mut open = 0;
    for mut client in idle {
        match client.exchange(&get("/")) {
            Ok(response) => assert_eq!(response.status, 200, "{}", client.show()),
            Err(failure) if failure.is_clean() => continue,
            Err(failure) => panic!("{failure}"),
        }
        open += 1;
    }
    let has_room = made_room && open + announced >= max_connections;
    assert!(has_room, "{closed_count} are closed and {open} open after 3 others waited; {announced} were announced");
}

/// Sends requests until `done`. The server may close the connection between answers. Counts answers.
fn send_until_done(addr: SocketAddr, max_wait: Duration, done: &AtomicBool, answers: &AtomicU64) {
    let goes_on = || !done.load(Ordering::SeqCst);
    let exchanged = reconnecting(addr, max_wait, goes_on, |client| {
        let response = client.exchange(&get("/"))?;
        assert_eq!(response.status, 200, "{}", client.show());
        answers.fetch_add(1, Ordering::SeqCst);
        Ok(response)
    });
    exchanged.expect("the server accepts connections");
}

/// Connections that send faster than the server reads do not keep other connections from being served.
///
/// On a server of one connection, the busy clients pause between requests. The server serves another connection in such a
/// pause.
pub(super) fn busy_connections_leave_room_for_others(subject: &ServerSubject) {
    let (is_single, max_wait) = (subject.shape() == Shape::One, subject.max_wait);
    let live = subject.live(Echo, defaults().workers(subject.workers(2)));
    let (addr, answers) = (live.addr, AtomicU64::new(0));
    let run_client = |done: &AtomicBool| match is_single {
        true => send_until_done(addr, max_wait, done, &answers),
        false => pipeline_without_pause(addr, max_wait, false, done, &answers),
    };
    besides([run_client; 3], || {
        assert!(eventually(max_wait, || answers.load(Ordering::SeqCst) >= 300), "the busy ones are not served");
        if is_single {
            for _ in 0..20 {
                live.ask_until_served(&request("GET", "/", "Connection: close\r\n"));
            }
        } else {
            let mut others = live.clients(3);
            for _ in 0..2 {
                for client in &mut others {
                    client.ask(&get("/"), 200);
                }
            }
        }
    });
}

/// Each of several concurrent clients gets the answers to its own requests.
pub(super) fn answers_do_not_get_mixed_up(subject: &ServerSubject) {
    const CLIENTS: usize = 12;
    const ROUNDS: usize = 40;
    let live = subject.live(Echo, subject.with_workers(4));
    let (addr, max_wait) = (live.addr, subject.max_wait);
    let run_client = move |number: usize| {
        let served = AtomicUsize::new(0);
        let deadline = Instant::now() + max_wait;
        let goes_on = || served.load(Ordering::SeqCst) < ROUNDS;
        // A server of one connection closes an idle connection if another waits.
        let exchanged = reconnecting(addr, max_wait, goes_on, |client| {
            assert!(Instant::now() < deadline, "client {number} is not served");
            let round = served.load(Ordering::SeqCst);
            let length = (number * 7919 + round * 104_729) % 30_000;
            let body = format!("{number}, {round}; ").repeat(length / 8 + 1);
            let response = client.exchange(&with_body("POST", "/", "", body.as_bytes()))?;
            assert!(response.text() == body, "another body came\n{}", client.show());
            served.fetch_add(1, Ordering::SeqCst);
            Ok(response)
        });
        exchanged.expect("the server accepts connections");
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || run_client(number))).collect();
        clients.into_iter().for_each(joined);
    });
}

/// Ten clients that stall within a request do not stop the others, and are served when they go on.
///
/// A server of one connection, and a pool with fewer threads than stalled clients, have to serve the others once the stalled
/// ones have timed out. The property does not apply to a server of one connection beyond that.
pub(super) fn stalled_clients_do_not_stop_the_rest(subject: &ServerSubject) -> Result<(), String> {
    if subject.shape() == Shape::One || subject.pooled {
        let live = subject.live(Echo, subject.with_workers(2).head_timeout(Duration::from_millis(100)));
        let stalled = live.senders(3, b"GET / HT");
        live.ask(&get("/"), 200);
        for mut client in stalled {
            client.expect_last(408);
        }
    }
    subject.needs_several("a server of one connection serves the others once the stalled ones have timed out")?;
    let workers = subject.workers(2).or(subject.pooled.then_some(16));
    let live = subject.live(Echo, without_body_timeout().workers(workers).head_timeout(NEVER));
    let (head, body) = (get("/"), with_body("POST", "/", "", b"hello"));
    let mut stalled: Vec<(Client, &[u8])> = Vec::new();
    for _ in 0..5 {
        for (bytes, missing) in [(&head, 10), (&body, 3)] {
            let mut client = live.client();
            let (start, rest) = bytes.split_at(bytes.len() - missing);
            client.send(start).expect("the server takes the request");
            stalled.push((client, rest));
        }
    }
    let mut client = live.client();
    for _ in 0..5 {
        client.ask(&get("/"), 200);
        live.ask(&get("/"), 200);
    }
    for (mut client, rest) in stalled {
        client.ask(rest, 200);
    }
    Ok(())
}

/// With 1 000 silent connections, another client is still served, with deferred accept and without. A multiplexed server
/// then serves each of the silent connections too.
pub(super) fn silent_connections_do_not_stop_the_rest(subject: &ServerSubject) -> Outcome {
    const SILENT: usize = 1000;
    in_child(2 * SILENT + 1000, || {
        for defer_accept in [false, true] {
            let config = subject.with_workers(2).defer_accept(defer_accept);
            if defer_accept && (!cfg!(target_os = "linux") || subject.make(config.clone()).is_err()) {
                continue; // `deferred_accept_serves_the_same` reports that this server refuses the setting.
            }
            // On a busy machine the silent connections may be silent for long.
            let config = config.first_byte_timeout(NEVER);
            let live = subject.live(Echo, config);
            let mut silent = live.clients(SILENT);
            for _ in 0..3 {
                live.ask(&request("GET", "/", "Connection: close\r\n"), 200);
            }
            if subject.shape() == Shape::Multiplexed {
                for client in &mut silent {
                    client.ask(&request("GET", "/", "Connection: close\r\n"), 200);
                }
            }
            drop(silent);
            // With a grace: on a busy machine it takes some time to end 1 000 threads.
            live.shutdown();
        }
    })
}

/// Deferred answers do not block workers: with more deferred answers than workers, other requests are served.
///
/// The property does not apply in three cases: the server declares it, connections hold the threads of a pool, or the server has
/// one connection. Then all requests have to be answered in the end.
pub(super) fn later_answers_hold_no_worker(subject: &ServerSubject) -> Result<(), String> {
    const HELD: usize = 10;
    let held_answers = HeldAnswers::new();
    let live = subject.live(held_answers.clone(), subject.with_workers(2));
    let clients = live.senders(HELD, &request("GET", "/hold", "Connection: close\r\n"));
    let holds_a_worker = subject.deviations.later_answers_hold_a_worker || subject.pooled;
    let waits = subject.shape() == Shape::One || holds_a_worker;
    let mut released = 0;
    if waits {
        let all_released = eventually(subject.max_wait, || {
            released += held_answers.release_all();
            released == HELD
        });
        assert!(all_released, "{released} of {HELD} answers were asked for");
    } else {
        held_answers.wait_for(HELD, subject.max_wait);
        live.ask(&get("/"), 200);
        assert_eq!(held_answers.release_all(), HELD, "every answer is still wanted");
    }
    for mut client in clients {
        client.expect_last(200);
    }
    needs(!waits, "deferred answers hold the threads of this server")
}

/// A client that leaves before its deferred answer does not affect other clients.
pub(super) fn a_client_may_leave_before_its_answer(subject: &ServerSubject) {
    let held_answers = HeldAnswers::new();
    let live = subject.live(held_answers.clone(), defaults());
    for _ in 0..3 {
        let client = live.sending(&get("/hold"));
        held_answers.wait_for(1, subject.max_wait);
        drop(client);
        held_answers.release_all();
        let mut other = live.client();
        other.ask(&get("/"), 200);
        drop(other.half_close());
        assert_eq!(other.end().1, Ending::Closed);
    }
}
