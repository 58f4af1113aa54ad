use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, SystemTime};

use polyserve::catalog::{Catalog, Entry};
use polyserve::{ServerConfig, Shape};
use polyserve_bench::reference::{BODY, NullAccept, with_references};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use super::super::MAX_WAIT;
use super::{GET, NAMES, answers, connect, event_loops, exchange, rest, runnable, start};

fn once() -> ServerConfig {
    ServerConfig::default().requests_per_connection(1)
}

#[test]
fn the_answer_is_entity_1_with_a_current_date() {
    for name in runnable() {
        let running = start(name, &once());
        let mut stream = connect(running.local_addr());
        stream.write_all(GET.as_bytes()).unwrap();
        let text = String::from_utf8(rest(&mut stream)).unwrap();
        assert_eq!(answers(text.as_bytes()), 1, "{name}");
        let field = |field: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
            line.unwrap_or_else(|| panic!("{name}: no {field} in {text}")).to_owned()
        };
        assert_eq!(field("Content-Type"), "application/json");
        assert_eq!(field("Connection"), "close");
        let date = httpdate::parse_http_date(&field("Date")).unwrap();
        // A wide range, because this machine may be busy. The clock's own test detects a date that does not advance.
        assert!(date <= SystemTime::now() && date > SystemTime::now() - Duration::from_secs(60), "{name}: {text}");
        let entity: Value = serde_json::from_str(BODY).unwrap();
        assert_eq!(entity, json!({ "id": 1, "description": "a1B2c3D4e5F6g7H", "value": 60.750_847 }));
        assert_eq!(running.shutdown().unwrap().answered, 1, "{name}");
    }
}

#[test]
fn as_many_answers_as_heads_however_they_are_split() {
    let put = format!("PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len());
    for name in event_loops() {
        let running = start(name, &ServerConfig::default());
        let mut stream = connect(running.local_addr());
        stream.write_all(format!("{GET}{put}").repeat(8).as_bytes()).unwrap();
        for byte in GET.repeat(3).as_bytes() {
            stream.write_all(&[*byte]).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
        let bytes = rest(&mut stream);
        assert_eq!(answers(&bytes), 19);
        assert!(!String::from_utf8(bytes).unwrap().contains("Connection:"));
        assert_eq!(running.shutdown().unwrap().answered, 19);
    }
}

/// Sockets with small segments hold little, so the server is left with answers that its client has not taken yet.
#[test]
fn a_client_that_reads_late_gets_every_answer() {
    const REQUESTS: usize = 1000;
    const ROUNDS: usize = 5;
    for name in event_loops() {
        let running = start(name, &ServerConfig::default());
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_tcp_mss(536).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&running.local_addr().into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        let answer_length = exchange(&mut stream, GET);
        for _ in 0..ROUNDS {
            stream.write_all(GET.repeat(REQUESTS).as_bytes()).unwrap();
            let mut bytes = vec![0; answer_length * REQUESTS];
            bytes.chunks_mut(100).for_each(|piece| stream.read_exact(piece).unwrap());
            assert_eq!(answers(&bytes), REQUESTS);
        }
        stream.write_all(GET.repeat(REQUESTS).as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(answers(&rest(&mut stream)), REQUESTS);
        assert_eq!(running.shutdown().unwrap().answered, (1 + (ROUNDS + 1) * REQUESTS) as u64);
    }
}

#[test]
fn a_connection_for_each_request_has_one_answer() {
    for name in runnable() {
        let running = start(name, &once());
        for _ in 0..3 {
            let mut stream = connect(running.local_addr());
            stream.write_all(GET.repeat(2).as_bytes()).unwrap();
            let bytes = rest(&mut stream);
            assert_eq!(answers(&bytes), 1, "{name}");
            assert!(String::from_utf8(bytes).unwrap().contains("\r\nConnection: close\r\n"), "{name}");
        }
        drop(connect(running.local_addr())); // one that asks for nothing is no request
        assert_eq!(running.shutdown().unwrap().answered, 3, "{name}");
    }
}

#[test]
fn past_the_limit_a_connection_is_closed() {
    for name in event_loops() {
        let running = start(name, &ServerConfig::default().max_connections(1));
        let mut kept = connect(running.local_addr());
        exchange(&mut kept, GET);
        assert_eq!(rest(&mut connect(running.local_addr())), b"");
        exchange(&mut kept, GET);
        kept.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut kept), b"");
        exchange(&mut connect(running.local_addr()), GET);
        assert_eq!(running.shutdown().unwrap().answered, 3);
    }
}

/// A shutdown does not wait for clients: open connections are closed, the port is free.
#[test]
fn a_shutdown_ends_it() {
    for name in runnable() {
        let running = start(name, &ServerConfig::default());
        let addr = running.local_addr();
        let mut silent = connect(addr);
        if name != "null_accept" {
            exchange(&mut silent, GET); // so that it has been accepted
        }
        let drain = running.shutdown().unwrap();
        assert_eq!((drain.answered, drain.cut, drain.stuck), (u64::from(name != "null_accept"), 0, 0), "{name}");
        match silent.read(&mut [0]) {
            Ok(count) => assert_eq!(count, 0, "{name}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{name}"), // it was still in the queue
        }
        drop(TcpListener::bind(addr).unwrap_or_else(|error| panic!("{name}: {error}")));
        drop(start(name, &ServerConfig::default())); // no grace
    }
}

#[test]
fn what_it_cannot_do_it_refuses() {
    let catalog = with_references(Catalog::new());
    for name in runnable() {
        let make = |change: fn(&mut ServerConfig)| {
            let mut config = ServerConfig::default();
            change(&mut config);
            let server = catalog.reference(name).unwrap().build(&config);
            server.err().map(|error| error.to_string())
        };
        assert_eq!(make(|config| config.workers = Some(1)), None);
        assert_eq!(make(|config| config.workers = Some(2)).unwrap(), format!("workers must be 1 for {name}, not 2"));
        let error = make(|config| config.requests_per_connection = Some(2)).unwrap();
        assert_eq!(error, format!("requests_per_connection must be 1 or unset for {name}, not 2"));
        assert!(make(|config| config.max_head = 1).unwrap().starts_with("max_head"));
    }
}

#[test]
fn a_reference_of_ones_own_stays() {
    let mine = Entry::server("null_epoll", "mine", &[], |config| Ok(Box::new(NullAccept::new(config.clone())?)));
    let catalog = with_references(Catalog::new().with_reference(mine));
    let names: Vec<_> = catalog.references().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, NAMES);
    assert_eq!(catalog.reference("null_epoll").unwrap().summary, "mine");
    let shape = |name: &str| {
        let catalog = with_references(Catalog::new());
        catalog.reference(name).unwrap().build(&ServerConfig::default()).unwrap().shape()
    };
    assert!(event_loops().all(|name| shape(name) == Shape::Multiplexed));
    assert_eq!(shape("null_accept"), Shape::One);
}
