use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use super::*;

const MAX_WAIT: Option<Duration> = Some(Duration::from_secs(60));

/// Both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Enters the ring until `count` completions are there.
fn wait<S: AsFd>(ring: &mut Ring<S>, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    while completions.len() < count {
        ring.enter(true, MAX_WAIT).unwrap();
        ring.completions(&mut completions);
    }
    completions
}

#[test]
fn bytes_are_received_until_the_end() {
    let mut ring = Ring::new(2, 8).unwrap();
    let (mut client, server) = pair();
    let key = ring.add(server, 7);
    ring.arm(key, RingOperation::Receive);
    let mut text = Vec::new();
    for sent in [&b"one"[..], b"two", b"three"] {
        client.write_all(sent).unwrap();
        for completion in wait(&mut ring, 1) {
            let RingResult::Received(bytes) = completion.outcome else { panic!("{completion:?}") };
            assert!(!completion.is_last && completion.tag == 7);
            text.extend_from_slice(ring.bytes(&bytes));
            ring.release(bytes);
        }
    }
    assert_eq!(text, b"onetwothree");
    client.shutdown(Shutdown::Write).unwrap();
    let end = wait(&mut ring, 1);
    assert!(matches!(end[..], [Completion { outcome: RingResult::Ended, is_last: true, .. }]), "{end:?}");
    assert!(!ring.is_armed(key, RingOperation::Receive));
}

/// A connection that sends much takes all buffers. Its receive ends, and goes on once buffers were given back and it is armed again.
#[test]
fn a_receive_without_buffers_ends() {
    let mut ring = Ring::new(2, 8).unwrap();
    let (mut client, server) = pair();
    let key = ring.add(server, 0);
    client.write_all(&[b'x'; 40]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let (mut count, mut starved, mut held) = (0, 0, Vec::new());
    loop {
        ring.arm(key, RingOperation::Receive);
        held.extend(wait(&mut ring, 1).into_iter().map(|completion| completion.outcome));
        if ring.is_armed(key, RingOperation::Receive) {
            continue;
        }
        let last = held.pop().unwrap();
        for outcome in held.drain(..) {
            let RingResult::Received(bytes) = outcome else { panic!("{outcome:?}") };
            count += ring.bytes(&bytes).len();
            ring.release(bytes);
        }
        match last {
            RingResult::Ended => break,
            RingResult::Failed(_, error) if error.raw_os_error() == Some(libc::ENOBUFS) => starved += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(count, 40);
    assert!(starved >= 2, "{starved}");
}

/// The kernel does 20 operations in one call. A loop that served only these did not know for how long the others had waited, so an
/// overload policy admitted requests that no client awaited any more.
#[test]
fn all_that_has_arrived_is_reported_at_once() {
    const CONNECTIONS: usize = 100;
    let mut ring = Ring::new(128, 8).unwrap();
    let (mut clients, mut seen) = (Vec::new(), Vec::new());
    for tag in 0..CONNECTIONS {
        let (client, server) = pair();
        let key = ring.add(server, tag);
        ring.arm(key, RingOperation::Receive);
        clients.push(client);
    }
    ring.enter(false, None).unwrap();
    for client in &mut clients {
        client.write_all(b"x").unwrap();
    }
    ring.enter(true, MAX_WAIT).unwrap();
    ring.completions(&mut seen);
    let mut tags: Vec<usize> = seen.iter().map(|completion| completion.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..CONNECTIONS).collect::<Vec<_>>());
}

/// A socket that is removed has no more completions, and its place serves another socket only after its operation has ended.
#[test]
fn a_removed_socket_is_closed_once_nothing_is_in_flight() {
    let mut ring = Ring::new(2, 8).unwrap();
    let ((mut first, server), (mut second, other)) = (pair(), pair());
    let server = Arc::new(server);
    let key = ring.add(Arc::clone(&server), 1);
    ring.arm(key, RingOperation::Receive);
    ring.enter(false, None).unwrap();
    first.write_all(b"late").unwrap();
    ring.remove(key);
    assert_eq!(Arc::strong_count(&server), 2, "its receive is in flight");
    let next = ring.add(Arc::new(other), 2);
    assert_ne!(key, next);
    ring.arm(next, RingOperation::Receive);
    second.write_all(b"b").unwrap();
    let completions = wait(&mut ring, 1);
    assert!(
        matches!(completions[..], [Completion { tag: 2, outcome: RingResult::Received(_), .. }]),
        "{completions:?}"
    );
    while Arc::strong_count(&server) > 1 {
        ring.enter(true, Some(Duration::from_millis(1))).unwrap();
        ring.completions(&mut Vec::new());
    }
    let reused = ring.add(server, 3);
    assert_eq!((reused.index, reused.generation), (key.index, key.generation + 1));
    ring.arm(key, RingOperation::Receive);
    assert!(!ring.is_armed(reused, RingOperation::Receive), "the key of a removed socket has no effect");
}

#[test]
fn connections_are_accepted_until_it_is_cancelled() {
    let mut ring = Ring::new(2, 8).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let key = ring.add(listener, 5);
    ring.arm(key, RingOperation::Accept);
    for _ in 0..3 {
        let mut client = TcpStream::connect(addr).unwrap();
        for completion in wait(&mut ring, 1) {
            let RingResult::Accepted(fd) = completion.outcome else { panic!("{completion:?}") };
            let mut accepted = TcpStream::from(fd);
            client.write_all(b"x").unwrap();
            accepted.set_nonblocking(false).unwrap();
            accepted.read_exact(&mut [0]).unwrap();
        }
    }
    ring.cancel(key, RingOperation::Accept);
    let last = wait(&mut ring, 1);
    assert!(matches!(
        last[..],
        [Completion { outcome: RingResult::Failed(RingOperation::Accept, _), is_last: true, .. }]
    ));
    assert!(!ring.is_armed(key, RingOperation::Accept));
}

#[test]
fn readiness_is_reported() {
    let mut ring = Ring::new(2, 8).unwrap();
    let (mut client, server) = pair();
    let server = Arc::new(server);
    let (input, room) = (ring.add(Arc::clone(&server), 1), ring.add(server, 2));
    ring.arm(room, RingOperation::AwaitRoom);
    let ready = wait(&mut ring, 1);
    assert!(matches!(ready[..], [Completion { tag: 2, outcome: RingResult::Ready, is_last: true }]), "{ready:?}");
    ring.arm(input, RingOperation::AwaitInput);
    for _ in 0..2 {
        client.write_all(b"x").unwrap();
        let ready = wait(&mut ring, 1);
        assert!(matches!(ready[..], [Completion { tag: 1, outcome: RingResult::Ready, is_last: false }]), "{ready:?}");
    }
}

/// More operations than the submission queue holds.
#[test]
fn no_operation_is_lost() {
    let mut ring = Ring::new(2, 8).unwrap();
    let (_client, server) = pair();
    let server = Arc::new(server);
    let count = 3 * SUBMISSIONS as usize;
    for tag in 0..count {
        let key = ring.add(Arc::clone(&server), tag);
        ring.arm(key, RingOperation::AwaitRoom);
    }
    let mut tags: Vec<_> = wait(&mut ring, count).into_iter().map(|completion| completion.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..count).collect::<Vec<_>>());
}

/// A buffer that was given back, or that belongs to another ring, shows no bytes of the kernel.
#[test]
fn a_buffer_of_the_kernel_is_not_shown() {
    let ring = Ring::<TcpStream>::new(2, 8).unwrap();
    let mut other = Ring::new(2, 8).unwrap();
    let (mut client, server) = pair();
    let key = other.add(server, 0);
    other.arm(key, RingOperation::Receive);
    client.write_all(b"x").unwrap();
    let Some(Completion { outcome: RingResult::Received(bytes), .. }) = wait(&mut other, 1).pop() else { panic!() };
    assert_eq!((ring.bytes(&bytes), other.bytes(&bytes)), (&b""[..], &b"x"[..]));
}

#[test]
fn errors_name_what_is_missing() {
    for (errno, part) in
        [(libc::ENOSYS, "has no io_uring"), (libc::EPERM, "forbidden here"), (libc::EINVAL, "Linux 6.1")]
    {
        let error = explain("io_uring_setup", io::Error::from_raw_os_error(errno));
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(Ring::<TcpStream>::new(3, 8).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

/// A socket takes a part of what it has room for. What is sent in parts arrives in order, and is shared until a send has ended.
#[test]
fn bytes_are_sent_in_parts() {
    let mut ring = Ring::new(2, 8).unwrap();
    let (mut client, server) = pair();
    let key = ring.add(server, 3);
    let bytes: Rc<Vec<u8>> = Rc::new((0..20_000_000_u32).map(|place| place as u8).collect());
    let reader = std::thread::spawn(move || {
        let mut read = Vec::new();
        client.read_to_end(&mut read).unwrap();
        read
    });
    let (mut sent, mut parts) = (0, 0);
    while sent < bytes.len() {
        assert!(ring.send(key, Rc::clone(&bytes), sent..bytes.len(), false));
        assert!(!ring.send(key, Rc::clone(&bytes), 0..1, false), "one is in flight");
        assert_eq!(Rc::strong_count(&bytes), 2);
        let completion = wait(&mut ring, 1).pop().unwrap();
        let Completion { tag: 3, outcome: RingResult::Sent(count), is_last: true } = completion else {
            panic!("{completion:?}")
        };
        (sent, parts) = (sent + count, parts + 1);
        assert_eq!(Rc::strong_count(&bytes), 1);
    }
    assert!(parts > 1);
    assert!(!ring.send(key, Rc::clone(&bytes), 1..bytes.len() + 1, false), "not in the bytes");
    ring.end();
    assert!(!ring.send(key, Rc::clone(&bytes), 0..1, false), "the socket was removed");
    assert_eq!(reader.join().unwrap(), *bytes);
}

/// The client does not read, and its connection is dropped: the kernel reads the bytes until it has cancelled the send.
#[test]
fn a_send_in_flight_keeps_its_bytes() {
    let mut ring = Ring::new(2, 8).unwrap();
    let (_client, server) = pair();
    let server = Arc::new(server);
    let key = ring.add(Arc::clone(&server), 0);
    let bytes = Rc::new(vec![b'x'; 1 << 20]);
    // Fills the socket, so that the last send waits for room.
    while Arc::strong_count(&server) == 2 && ring.send(key, Rc::clone(&bytes), 0..bytes.len(), false) {
        ring.enter(true, Some(Duration::from_millis(100))).unwrap();
        ring.completions(&mut Vec::new());
    }
    assert_eq!(Rc::strong_count(&bytes), 2, "a send is in flight");
    ring.remove(key);
    assert_eq!((Rc::strong_count(&bytes), Arc::strong_count(&server)), (2, 2), "it is not cancelled yet");
    ring.end();
    assert_eq!((ring.in_flight(), Rc::strong_count(&bytes), Arc::strong_count(&server)), (0, 1, 1));
}

/// A ring that is dropped with a send in flight does not free its bytes.
#[test]
fn the_bytes_outlive_the_ring() {
    let mut ring = Ring::new(2, 8).unwrap();
    let (_client, server) = pair();
    let key = ring.add(server, 0);
    let bytes = Rc::new(b"x".to_vec());
    ring.send(key, Rc::clone(&bytes), 0..1, false);
    drop(ring);
    assert_eq!(Rc::strong_count(&bytes), 2);
}
