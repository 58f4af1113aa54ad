//! How a server ends.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::service::Echo;
use polyserve_core::{Connections, Drain, Server, ServerConfig};

use super::keep_alive::echo;
use super::limits::BODY_AWAITED;
use super::live::{eventually, within};
use super::services::{Blocking, Gate, Large, OpenAtTheEnd, let_pass};
use super::subject::ServerSubject;
use super::wire::{get, pattern, request, with_body};
use crate::client::{Client, Ending};
use crate::property::Outcome;

/// Long enough for a server to do the wrong thing with a shutdown that has begun; the properties hold without it, too.
const MEANWHILE: Duration = Duration::from_millis(60);

/// A grace that ends within a property.
const SHORT: Duration = Duration::from_millis(200);

#[track_caller]
fn check_counts(drain: Drain, answered: u64, cut: u64) {
    assert_eq!((drain.answered, drain.cut, drain.stuck), (answered, cut, 0), "answered, cut, stuck");
}

/// One client of the load: asks in a closed loop until nobody answers any more. Every answer that begins is whole.
fn ask_until_the_end(addr: SocketAddr, patience: Duration, keep: bool, answered: &AtomicU64, ending: &AtomicBool) {
    let fields = if keep { "" } else { "Connection: close\r\n" };
    let body = pattern(3_000);
    let bytes = with_body("POST", "/", fields, &body);
    'connections: while let Ok(mut client) = Client::connect(addr, patience) {
        loop {
            let sent = client.send(&bytes);
            match client.receive() {
                Ok(response) => {
                    assert!(response.status == 200 && response.body == body, "{}", client.show());
                    answered.fetch_add(1, Ordering::SeqCst);
                    if response.closes() {
                        continue 'connections;
                    }
                }
                // Closed as idle, or still in the kernel's queue when the server ended: not a byte was lost.
                Err(failure) if failure.is_clean() => break,
                Err(failure) => panic!("an answer was torn: {failure}"),
            }
            drop(sent);
        }
        if ending.load(Ordering::SeqCst) && TcpStream::connect(addr).is_err() {
            break;
        }
    }
}

/// A shutdown under load loses and tears nothing: clients count as many whole answers as the server says, and none is cut.
pub fn a_shutdown_under_load_loses_nothing(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let (addr, patience) = (live.addr, subject.patience);
    let (answered, ending) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let clients: Vec<_> = [true, true, true, false, false]
            .into_iter()
            .map(|keep| {
                scope.spawn({
                    let (answered, ending) = (&answered, &ending);
                    move || ask_until_the_end(addr, patience, keep, answered, ending)
                })
            })
            .collect();
        let warm = eventually(patience, || answered.load(Ordering::SeqCst) >= 300);
        ending.store(true, Ordering::SeqCst);
        let drain = live.shutdown();
        for client in clients {
            if let Err(panic) = client.join() {
                std::panic::resume_unwind(panic);
            }
        }
        assert!(warm, "300 requests are answered within the patience");
        check_counts(drain, answered.load(Ordering::SeqCst), 0);
    });
    Outcome::Held
}

/// `Drain::answered` counts every answer over the server's life, whatever its status and however it was sent.
pub fn every_answer_is_counted(subject: &ServerSubject) -> Outcome {
    let live = super::status_table::entities(subject);
    let mut client = live.client();
    client.send(&get("/1").repeat(7)).expect("the server takes the requests");
    for _ in 0..7 {
        client.expect(404);
    }
    client.send(&request("HEAD", "/1", "")).expect("the server takes the request");
    client.receive_head().expect("HEAD is answered");
    client.ask(&super::wire::put("/", super::status_table::ONE), 201);
    client.ask(&request("OPTIONS", "*", ""), 204);
    drop(client);
    live.ask(&get("/1"), 200);
    check_counts(live.shutdown(), 11, 0);
    Outcome::Held
}

/// A shutdown closes idle connections at once and without a byte, new ones and used ones; it does not wait for them.
pub fn a_shutdown_closes_idle_connections(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let count = if subject.shape() == Connections::One { 1 } else { 5 };
    let mut clients: Vec<Client> = (0..count).map(|_| live.client()).collect();
    for client in &mut clients {
        client.ask(&get("/"), 200);
    }
    let silent: Vec<Client> = (0..count).map(|_| live.client()).collect();
    let drain = live.shutdown();
    for client in &mut clients {
        // On a server of one connection, the silent one that waited may have ended it before.
        client.expect_end();
    }
    for mut client in silent {
        let (bytes, ending) = client.end();
        // The kernel resets those that nobody had accepted yet.
        assert!(bytes.is_empty() && ending != Ending::Silent, "{ending:?}\n{}", client.show());
    }
    check_counts(drain, count as u64, 0);
    Outcome::Held
}

/// A request of which the head has come when the shutdown begins is still read, served, and answered with
/// `Connection: close`.
pub fn a_request_in_mid_body_outlives_the_shutdown(subject: &ServerSubject) -> Outcome {
    let patience = subject.patience;
    let live = subject.live(Arc::new(Echo), |config| config.drain_grace = patience * 10);
    let mut client = live.client();
    client.ask(&request("POST", "/", BODY_AWAITED), 100);
    client.send(b"he").expect("the server takes the body");
    let draining = live.begin_drain();
    let_pass(MEANWHILE);
    client.send(b"llo").expect("the server takes the body");
    assert_eq!(client.expect_last(200).text(), "hello");
    drop(client);
    check_counts(draining.wait(), 1, 0);
    Outcome::Held
}

/// A request whose answer is still to come when the shutdown begins is answered, with `Connection: close`; pipelined ones
/// after it are not torn.
pub fn a_waiting_answer_outlives_the_shutdown(subject: &ServerSubject) -> Outcome {
    let (patience, gate) = (subject.patience, Gate::new());
    let live = subject.live(gate.clone(), |config| config.drain_grace = patience * 10);
    let mut client = live.client();
    client.send(&get("/hold")).expect("the server takes the request");
    gate.wait_for(1, patience);
    let draining = live.begin_drain();
    let_pass(MEANWHILE);
    assert_eq!(gate.give_all(), 1, "the answer is still wanted");
    assert_eq!(client.expect_last(200).text(), "/hold");
    drop(client);
    check_counts(draining.wait(), 1, 0);
    Outcome::Held
}

/// A large answer that is on its way when the shutdown begins arrives whole.
pub fn a_large_answer_outlives_the_shutdown(subject: &ServerSubject) -> Outcome {
    const LENGTH: usize = 20_000_000;
    let patience = subject.patience;
    let live = subject.live(Arc::new(Large), |config| config.drain_grace = patience * 10);
    let mut client = live.client();
    client.send(&get(&format!("/{LENGTH}"))).expect("the server takes the request");
    client.peek().expect("the answer begins");
    let draining = live.begin_drain();
    let_pass(MEANWHILE);
    assert_eq!(client.expect(200).body.len(), LENGTH);
    client.expect_end();
    drop(client);
    check_counts(draining.wait(), 1, 0);
    Outcome::Held
}

/// What has not ended at the deadline is cut, counted, and gets no part of an answer: a request without its body, and one
/// whose answer does not come.
pub fn the_deadline_cuts_what_has_not_ended(subject: &ServerSubject) -> Outcome {
    let gate = Gate::new();
    let live = subject.live(gate.clone(), |_| ());
    let mut reading = live.client();
    reading.ask(&request("POST", "/", BODY_AWAITED), 100);
    let drain = live.shutdown_within(SHORT);
    let (bytes, ending) = reading.end();
    assert!(bytes.is_empty() && ending != Ending::Silent, "{ending:?}\n{}", reading.show());
    check_counts(drain, 0, 1);

    let live = subject.live(gate.clone(), |_| ());
    let mut waiting = live.client();
    waiting.send(&get("/hold")).expect("the server takes the request");
    gate.wait_for(1, subject.patience);
    let drain = live.shutdown_within(SHORT);
    let (bytes, ending) = waiting.end();
    assert!(bytes.is_empty() && ending != Ending::Silent, "{ending:?}\n{}", waiting.show());
    check_counts(drain, 0, 1);
    assert!(gate.all_abandoned(), "the server that has ended still holds an answer");
    Outcome::Held
}

/// A thread that is stuck in the service's own code at the deadline is left behind and counted, and its socket closed; the
/// shutdown returns while it is still stuck.
pub fn a_stuck_thread_is_left_behind(subject: &ServerSubject) -> Outcome {
    let service = Arc::new(Blocking::default());
    let live = subject.live(service.clone(), |_| ());
    let _opened = OpenAtTheEnd(service.open.clone());
    live.ask(&request("GET", "/", "Connection: close\r\n"), 200);
    let mut client = live.client();
    client.send(&get("/block")).expect("the server takes the request");
    assert!(service.inside.wait(subject.patience), "the request reaches the service");
    let drain = live.shutdown_within(SHORT);
    assert!(!service.open.wait(Duration::ZERO), "the thread is still stuck");
    assert_eq!((drain.answered, drain.stuck), (1, 1), "{drain}");
    let (bytes, ending) = client.end();
    assert!(bytes.is_empty() && ending != Ending::Silent, "{ending:?}\n{}", client.show());
    Outcome::Held
}

/// After the end nobody listens: the port can be bound again at once, by another run of the same server.
pub fn the_port_is_free_after_the_end(subject: &ServerSubject) -> Outcome {
    let server: Arc<dyn Server> = Arc::from(subject.make(ServerConfig::default()).expect("the default is honoured"));
    let live = subject.serve(&server, Arc::new(Echo));
    let addr = live.addr;
    live.ask(&get("/"), 200);
    check_counts(live.shutdown(), 1, 0);
    assert!(TcpStream::connect(addr).is_err(), "somebody still listens");
    let again = subject.try_serve(&server, addr, Arc::new(Echo)).expect("the port is free");
    assert_eq!(again.addr, addr);
    again.ask(&get("/"), 200);
    check_counts(again.shutdown(), 1, 0);
    Outcome::Held
}

/// One server value serves several times, at the same time too, and the runs share nothing: neither counts nor their end.
pub fn one_server_serves_several_times(subject: &ServerSubject) -> Outcome {
    let server: Arc<dyn Server> = Arc::from(subject.make(ServerConfig::default()).expect("the default is honoured"));
    let (first, second) = (subject.serve(&server, Arc::new(Echo)), subject.serve(&server, Arc::new(Echo)));
    for _ in 0..3 {
        first.ask(&get("/"), 200);
    }
    let mut client = second.client();
    client.ask(&get("/"), 200);
    check_counts(first.shutdown(), 3, 0);
    client.ask(&get("/"), 200);
    drop(client);
    let third = subject.serve(&server, Arc::new(Echo));
    third.ask(&get("/"), 200);
    check_counts(second.shutdown(), 2, 0);
    check_counts(third.shutdown(), 1, 0);
    Outcome::Held
}

/// Dropping a running server is a shutdown with no grace: it returns though an answer is still to come, and nobody listens.
pub fn dropping_it_ends_it(subject: &ServerSubject) -> Outcome {
    let gate = Gate::new();
    let live = subject.live(gate.clone(), |_| ());
    let addr = live.addr;
    let mut client = live.client();
    client.send(&get("/hold")).expect("the server takes the request");
    gate.wait_for(1, subject.patience);
    live.drop_it();
    assert_ne!(client.end().1, Ending::Silent, "the connection does not end\n{}", client.show());
    assert!(TcpStream::connect(addr).is_err(), "somebody still listens");
    Outcome::Held
}

/// A server that served nobody ends at once.
pub fn an_unused_server_ends(subject: &ServerSubject) -> Outcome {
    check_counts(echo(subject).shutdown(), 0, 0);
    check_counts(echo(subject).begin_drain().wait(), 0, 0);
    echo(subject).drop_it();
    Outcome::Held
}

/// Connections that come while the server ends are served or end; none is left open, and the shutdown does not wait for
/// more of them.
pub fn connecting_during_the_end_ends_too(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let (addr, patience) = (live.addr, subject.patience);
    let started = Instant::now();
    let knocking = thread::spawn(move || {
        let mut knocks = Vec::new();
        while let Ok(mut client) = Client::connect(addr, patience) {
            let _ = client.send(&get("/"));
            match client.receive() {
                Ok(_) => knocks.push(client),
                Err(failure) => assert!(failure.is_clean(), "{failure}"),
            }
            // Old ones are let go, so that descriptors do not run out.
            if knocks.len() > 20 {
                knocks.clear();
            }
            assert!(started.elapsed() < 2 * patience, "the server does not end");
        }
        for mut client in knocks {
            assert_ne!(client.end().1, Ending::Silent, "a connection is left open\n{}", client.show());
        }
    });
    live.ask_until_served(&get("/"));
    let drain = live.shutdown();
    assert_eq!((drain.cut, drain.stuck), (0, 0), "{drain}");
    within(patience, "the last of those that knocked", move || knocking.join()).unwrap_or_else(|panic| {
        std::panic::resume_unwind(panic);
    });
    Outcome::Held
}
