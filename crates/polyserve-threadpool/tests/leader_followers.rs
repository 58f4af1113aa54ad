//! `leader_followers`'s threads: who accepts, who rests, who ends. Each test opens with its story.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use polyserve_core::sync::lock;
use polyserve_core::{Answer, Reply, Request, Running, Server, ServerConfig, Service, Status};
use polyserve_threadpool::LeaderFollowers;

/// Only matters where something hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Holds up whoever asks for `/hold`, in its own blocking code, until told otherwise; notes which threads came, and which
/// of them have ended.
#[derive(Default)]
struct Turnstile {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    held: usize,
    open: bool,
    threads: HashSet<ThreadId>,
    ended: usize,
}

impl Turnstile {
    fn note(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    fn wait(&self, until: impl Fn(&State) -> bool) {
        let waiting = lock(&self.state);
        let (_state, late) = self.changed.wait_timeout_while(waiting, PATIENCE, |state| !until(state)).unwrap();
        assert!(!late.timed_out());
    }
}

/// Lives as long as a thread does that has answered something.
struct Mark(Arc<Turnstile>);

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.note(|state| state.ended += 1);
    }
}

thread_local! {
    static MARK: RefCell<Option<Mark>> = const { RefCell::new(None) };
}

struct Held(Arc<Turnstile>);

impl Service for Held {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        MARK.with_borrow_mut(|mark| {
            mark.get_or_insert_with(|| Mark(Arc::clone(&self.0)));
        });
        self.0.note(|state| {
            state.threads.insert(thread::current().id());
        });
        if request.head.target == "/hold" {
            self.0.note(|state| state.held += 1);
            self.0.wait(|state| state.open);
        }
        Answer::Now(Reply::empty(Status::OK))
    }
}

fn start() -> (Running, Arc<Turnstile>) {
    let turnstile = Arc::new(Turnstile::default());
    let server = LeaderFollowers::new(ServerConfig::default()).unwrap();
    let service = Arc::new(Held(Arc::clone(&turnstile)));
    (server.serve("127.0.0.1:0".parse().unwrap(), service).unwrap(), turnstile)
}

fn ask(addr: SocketAddr, target: &str) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
}

fn hold(addr: SocketAddr, count: usize) -> Vec<thread::JoinHandle<()>> {
    (0..count).map(|_| thread::spawn(move || ask(addr, "/hold"))).collect()
}

/// The thread that accepts also serves. While the service holds it up, and another after it, new connections must
/// still find somebody.
#[test]
fn a_leader_that_is_held_up_holds_up_nobody() {
    let (running, turnstile) = start();
    let addr = running.local_addr();
    let mut clients = Vec::new();
    for round in 1..=8 {
        clients.extend(hold(addr, 1));
        turnstile.wait(|state| state.held == round);
        ask(addr, "/");
    }
    turnstile.note(|state| state.open = true);
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(running.shutdown().unwrap().answered, 16);
}

/// A crowd whose every request is held up: each waits in a thread of its own, all at once.
#[test]
fn a_crowd_that_is_held_up_has_a_thread_each() {
    let (running, turnstile) = start();
    let clients = hold(running.local_addr(), 200);
    turnstile.wait(|state| state.held == 200 && state.threads.len() == 200);
    turnstile.note(|state| state.open = true);
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(running.shutdown().unwrap().stuck, 0);
}

/// A thread was started for each connection, and cost three times what the request did.
#[test]
fn threads_are_reused() {
    let (running, turnstile) = start();
    for _ in 0..200 {
        ask(running.local_addr(), "/");
    }
    let threads = lock(&turnstile.state).threads.len();
    assert!(threads < 100, "{threads} threads for 200 connections");
    assert_eq!(running.shutdown().unwrap().answered, 200);
}

/// Threads that rest hold memory: after a rush they must end by themselves, and the server serve on.
#[test]
fn spare_threads_end() {
    let (running, turnstile) = start();
    let clients = hold(running.local_addr(), 20);
    turnstile.wait(|state| state.held == 20);
    turnstile.note(|state| state.open = true);
    clients.into_iter().for_each(|client| client.join().unwrap());
    turnstile.wait(|state| state.ended + 1 >= state.threads.len()); // one leads, and stays
    ask(running.local_addr(), "/");
    assert_eq!(running.shutdown().unwrap().answered, 21);
    turnstile.wait(|state| state.ended == state.threads.len());
}

/// A leader whose connection stays open must let another lead before it waits; its connection must still be heard.
#[test]
fn kept_connections_live_beside_new_ones() {
    let (running, _) = start();
    let addr = running.local_addr();
    let mut kept = Vec::new();
    for round in 1..=20 {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        kept.push(stream);
        for stream in &mut kept {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut start = [0; 12];
            stream.read_exact(&mut start).unwrap();
            assert_eq!(&start, b"HTTP/1.1 200", "in round {round}");
            let mut rest = Vec::new();
            while !rest.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                rest.extend(byte);
            }
        }
        ask(addr, "/");
    }
    assert_eq!(running.shutdown().unwrap().answered, 230);
}

/// Threads at rest, a leader that waits, and clients that come at that moment: a shutdown ends them all.
#[test]
fn a_shutdown_ends_threads_at_rest() {
    for _ in 0..20 {
        let (running, turnstile) = start();
        let clients = hold(running.local_addr(), 8);
        turnstile.wait(|state| state.held == 8);
        turnstile.note(|state| state.open = true);
        clients.into_iter().for_each(|client| client.join().unwrap());
        let drain = running.shutdown().unwrap();
        assert_eq!((drain.answered, drain.cut, drain.stuck), (8, 0, 0));
        turnstile.wait(|state| state.ended == state.threads.len());
    }
}
