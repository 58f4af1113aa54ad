//! Configurations that a server refuses before it serves.

use std::net::TcpListener;

use super::prelude::*;

/// An invalid limit is refused at construction, and the error names the setting.
pub(super) fn a_wrong_limit_is_refused_by_name(subject: &ServerSubject) {
    for (name, config) in [
        ("workers", defaults().workers(0)),
        ("workers", defaults().workers(usize::MAX)),
        ("queue", defaults().queue(0)),
        ("max_connections", defaults().max_connections(0)),
        ("backlog", defaults().backlog(0)),
        ("max_headers", defaults().max_headers(0)),
        ("max_headers", defaults().max_headers(101)),
        ("max_head", defaults().max_head(1)),
        ("max_body", defaults().max_body(usize::MAX)),
        ("first_byte_timeout", defaults().first_byte_timeout(Duration::ZERO)),
        ("head_timeout", defaults().head_timeout(Duration::ZERO)),
        ("answer_timeout", defaults().answer_timeout(Duration::ZERO)),
        ("write_timeout", defaults().write_timeout(Duration::MAX)),
        ("drain_grace", defaults().drain_grace(Duration::MAX)),
        ("server_header", defaults().server_header("two\r\nlines")),
    ] {
        match subject.make(config) {
            Ok(server) => panic!("a wrong {name} is taken by {server:?}"),
            Err(error) => assert!(error.to_string().contains(name), "the error does not name {name}: {error}"),
        }
    }
}

/// A server that holds a pool thread for each connection honours a worker count. One that multiplexes connections may refuse the
/// setting by name: it may have one worker. Other servers do refuse it.
pub(super) fn a_worker_count_is_honoured_or_refused(subject: &ServerSubject) {
    match subject.make(defaults().workers(3)) {
        Ok(server) => {
            let has_workers = subject.pooled || subject.shape() == Shape::Multiplexed;
            assert!(has_workers, "{server:?}, {:?}, has three workers", subject.shape());
            let live = subject.serve(&Arc::from(server), Echo);
            live.ask(&get("/"), 200);
        }
        Err(error) => {
            assert!(!subject.pooled, "three workers are refused: {error}");
            assert!(error.to_string().contains("workers"), "the error does not name it: {error}");
        }
    }
}

/// An address in use is an error of `serve`, not a panic, and the server stays usable.
pub(super) fn a_taken_address_is_an_error(subject: &ServerSubject) {
    let taken = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let addr = taken.local_addr().expect("it is bound");
    let server = subject.default_server();
    assert!(subject.try_serve(&server, addr, Echo).is_err(), "two listen on {addr}");
    subject.serve(&server, Echo).ask(&get("/"), 200);
}

/// A server serves on a listener that is bound already, and closes it at its end.
pub(super) fn a_bound_listener_is_served(subject: &ServerSubject) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    let server = subject.default_server();
    let live = subject.try_serve(&server, listener, Echo).expect("a bound listener can be served on");
    assert_eq!(live.addr, addr, "the address is not that of the listener");
    for _ in 0..20 {
        live.ask(&get("/"), 200);
    }
    within(subject.max_wait, "the end of a server", move || drop(live));
    // A child process that another property starts at this moment may hold a copy until it executes its program.
    assert!(eventually(subject.max_wait, || TcpListener::bind(addr).is_ok()), "the listener is still open");
}

/// A client can connect as soon as `serve` has returned, at the returned address.
pub(super) fn it_serves_when_serve_returns(subject: &ServerSubject) {
    for _ in 0..10 {
        let live = subject.live(Echo, defaults());
        assert_ne!(live.addr.port(), 0, "the address has the real port");
        live.ask(&get("/"), 200);
        within(subject.max_wait, "the end of a server", move || drop(live));
    }
}
