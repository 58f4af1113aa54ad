//! Bodies that come slowly to `tokio_hyper`: a connection's task is not woken for each piece.

#[cfg(target_os = "linux")]
use std::io::Write as _;
#[cfg(target_os = "linux")]
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use polyserve_conformance::client::{Client, Ending};
use polyserve_core::{Drain, Echo, Running, ServerConfig};

use super::support::{self, MAX_WAIT, client, entities, serve};

const GET: &[u8] = support::GET.as_bytes();

const ENTITY: &[u8] = support::ENTITY.as_bytes();

fn echo(change: impl FnOnce(&mut ServerConfig)) -> Running {
    serve(Arc::new(Echo), change)
}

fn put(length: usize, more: &str) -> String {
    format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{more}\r\n")
}

fn send(client: &mut Client, bytes: &[u8]) {
    client.send(bytes).expect("it is taken");
}

/// Waits for three answers on another connection. The server has one worker, so it has handled all earlier bytes by the
/// first of them. A task that wakes itself once or twice has run by the third.
fn let_it_work(other: &mut Client) {
    for _ in 0..3 {
        send(other, GET);
        other.receive().expect("an answer");
    }
}

#[test]
fn a_body_in_single_bytes_is_answered_and_so_is_what_comes_with_its_last() {
    let running = entities(|config| config.workers = Some(1));
    let (mut client, mut other) = (client(&running), client(&running));
    send(&mut client, put(ENTITY.len(), "").as_bytes());
    let (last, first) = ENTITY.split_last().expect("it is not empty");
    for byte in first {
        let_it_work(&mut other);
        send(&mut client, &[*byte]);
    }
    send(&mut client, &[&[*last], GET, b"\r\n", GET].concat());
    client.expect(201);
    for _ in 0..2 {
        assert_eq!(client.expect(200).body, ENTITY);
    }
}

/// The low-water mark of a slow body ends with that body. It does not hold for the next head, for a body of another length
/// or for a chunked body.
#[test]
fn after_a_slow_body_any_byte_counts_again() {
    let running = entities(|config| config.workers = Some(1));
    let (mut client, mut other) = (client(&running), client(&running));
    let chunked = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    for status in [201, 200] {
        client.ask(&[put(2, "").as_bytes(), b"{}"].concat(), 422);
        send(&mut client, put(ENTITY.len(), "").as_bytes());
        let_it_work(&mut other);
        client.ask(ENTITY, status);
        for byte in GET {
            let_it_work(&mut other);
            send(&mut client, &[*byte]);
        }
        assert_eq!(client.expect(200).body, ENTITY);
        send(&mut client, chunked.as_bytes());
        for byte in ENTITY {
            let_it_work(&mut other);
            send(&mut client, &[b'1', b'\r', b'\n', *byte, b'\r', b'\n']);
        }
        let_it_work(&mut other);
        send(&mut client, b"0\r\n\r\n");
        client.expect(200);
    }
}

#[test]
fn large_bodies_in_pieces_are_whole() {
    let running = echo(|_| ());
    let body: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
    for piece in [1, 5_000, 16 * 1024 + 1] {
        let mut client = client(&running);
        for _ in 0..2 {
            send(&mut client, put(body.len(), "").as_bytes());
            for bytes in body.chunks(piece) {
                send(&mut client, bytes);
            }
            assert!(client.expect(200).body == body, "in pieces of {piece}");
        }
    }
}

/// Each piece is sent after the server has begun to wait for it.
#[test]
fn a_large_body_in_pieces_that_are_waited_for_is_whole() {
    let running = echo(|config| config.workers = Some(1));
    let body: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
    let mut other = client(&running);
    for (at_first, piece) in [(0, 5_000), (1, 8_192), (9_000, 999)] {
        let mut client = client(&running);
        let (first, rest) = body.split_at(at_first);
        send(&mut client, &[put(body.len(), "").as_bytes(), first].concat());
        for bytes in rest.chunks(piece) {
            let_it_work(&mut other);
            send(&mut client, bytes);
        }
        assert!(client.expect(200).body == body, "{at_first}, then pieces of {piece}");
    }
}

/// A part of a body that is sent before `100 Continue` is in hyper's buffer when the server first waits.
#[test]
fn a_body_that_was_not_asked_for_yet_is_counted() {
    let running = entities(|config| config.workers = Some(1));
    let mut other = client(&running);
    for at_first in [0, 1, ENTITY.len() - 1, ENTITY.len()] {
        let mut client = client(&running);
        let (first, rest) = ENTITY.split_at(at_first);
        send(&mut client, &[put(ENTITY.len(), "Expect: 100-continue\r\n").as_bytes(), first].concat());
        let_it_work(&mut other);
        send(&mut client, rest);
        let mut answer = client.receive().expect("an answer");
        if answer.status == 100 {
            answer = client.receive().expect("the final answer");
        }
        assert!(matches!(answer.status, 200 | 201), "{}", client.show());
        client.ask(GET, 200);
    }
}

#[test]
fn a_body_that_ends_too_soon_is_not_waited_for() {
    let running = entities(|config| config.workers = Some(1));
    let mut other = client(&running);
    let (head, body) = (put(ENTITY.len(), ""), &ENTITY[..5]);
    for _ in 0..2 {
        let mut client = client(&running);
        send(&mut client, head.as_bytes());
        let_it_work(&mut other);
        send(&mut client, body);
        client.half_close().expect("the connection stands");
        let (answer, ending) = client.end();
        assert!(answer.is_empty() && ending == Ending::Closed, "{ending:?}\n{}", client.show());
    }
}

#[test]
fn a_body_that_drips_past_its_timeout_is_a_408() {
    let running = entities(|config| config.body_timeout = Duration::from_millis(100));
    let mut client = client(&running);
    send(&mut client, put(60_000, "").as_bytes());
    send(&mut client, b"{ ");
    client.expect_last(408);
    drop(client);
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(1, 0, 0));
}

/// Regression test: when 500 clients sent single bytes, their tasks woke for each byte, and delayed another client by 20 to
/// 57 ms each second.
///
/// A task that is not woken reads nothing, so the bytes that have arrived are still in the kernel. The test asks the kernel
/// for their number.
#[cfg(target_os = "linux")]
#[test]
fn a_body_that_drips_wakes_no_task() {
    const DRIPPED: u64 = 20;
    // The body is not late, however busy the machine is.
    let running = entities(|config| {
        (config.workers, config.min_body_rate, config.body_timeout) = (Some(1), 0, 10 * MAX_WAIT);
    });
    let mut other = client(&running);
    let mut dripping = TcpStream::connect(running.local_addr()).expect("the server accepts connections");
    let (server, port) = (running.local_addr().port(), dripping.local_addr().expect("it is connected").port());
    dripping.set_nodelay(true).expect("the connection stands");
    dripping.write_all(put(60_000, "").as_bytes()).expect("it is taken");
    let_it_work(&mut other);
    assert_eq!(unread(server, port), Some(0), "the head is read");
    for _ in 0..DRIPPED {
        dripping.write_all(b" ").expect("it is taken");
        let_it_work(&mut other);
    }
    assert_eq!(unread(server, port), Some(DRIPPED));
}

/// The number of bytes that were sent from the port `remote` to the port `local` and not read.
///
/// Source: `proc_net_tcp` in the kernel's documentation. A line has the addresses and ports in hexadecimal digits, then the
/// state, then `tx_queue:rx_queue`.
#[cfg(target_os = "linux")]
fn unread(local: u16, remote: u16) -> Option<u64> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel lists its connections");
    let (local, remote) = (format!(":{local:04X}"), format!(":{remote:04X}"));
    table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, from, to, _, queues, ..] = fields[..] else { return None };
        let (_, received) = queues.split_once(':')?;
        (from.ends_with(&local) && to.ends_with(&remote)).then(|| u64::from_str_radix(received, 16).ok())?
    })
}
