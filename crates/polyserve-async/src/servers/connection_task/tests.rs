//! A connection that is polled by hand, on tokio.

use std::future::poll_fn;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use polyserve_core::{Answer, Echo, Reply, Request, ServerConfig, Service};
use tokio::runtime::Builder;

use super::super::toolkit::TokioSocket;
use super::*;

/// A service that never answers.
struct Silent;

impl Service for Silent {
    fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        Answer::later(std::future::pending())
    }
}

/// A connection on the server's side, and its client.
struct Pair {
    table: Arc<ConnectionTable<AsyncConnection<TokioSocket>>>,
    entry: Arc<TableEntry<AsyncConnection<TokioSocket>>>,
    connection: ConnectionTask<TokioSocket>,
    client: TcpStream,
}

fn connect(service: Arc<dyn Service>, config: &ServerConfig) -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let table = ConnectionTable::multiplexed(Arc::new(polyserve_serving::ServerState::new(service, config)), 0);
    let connection = ConnectionTask::admit(&table, socket, 0).unwrap();
    Pair { table, entry: Arc::clone(&connection.entry), connection, client }
}

/// Regression test: the linger deadline was checked only if the socket was empty. A refused client that kept sending
/// kept its connection open without limit, and a drain waited for it.
#[test]
fn a_client_that_goes_on_sending_is_not_read_for_ever() {
    let config = ServerConfig::default().linger_timeout(Duration::ZERO);
    let Pair { table: _table, entry, mut connection, mut client } = connect(Arc::new(Echo), &config);
    client.set_nonblocking(true).unwrap();
    let _ = client.write(b"G@T / HTTP/1.1\r\n\r\n").unwrap();
    while client.write(&[b'x'; 64 * 1024]).is_ok() {}
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(poll_fn(|cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        cx.waker().wake_by_ref(); // no main thread sweeps the table here
        polled
    }));
    let rest = entry.with_fd(|socket| net::receive(socket, &mut [0; 16]));
    assert!(rest.is_ok_and(|count| count > 0), "all that was sent was read");
}

/// Regression test: the main thread counted a request as cut. If the request's task ran after that, it counted the
/// request again.
#[test]
fn a_request_is_cut_once() {
    let Pair { table, entry, mut connection, mut client } = connect(Arc::new(Silent), &ServerConfig::default());
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(poll_fn(|cx| {
        assert!(Pin::new(&mut connection).poll(cx).is_pending());
        if !entry.is_busy() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }));
    table.server.shutdown.begin(Instant::now());
    assert_eq!(table.supervise().cut, 1);
    drop(connection);
    assert_eq!(table.server.drained(0).cut, 1);
}

/// Regression test: the process was stopped for longer than a timeout. A request that had arrived in time was not
/// served: the task was woken for its deadline before the runtime had polled the socket.
#[test]
fn what_is_in_the_socket_is_read_before_a_timeout_is_judged() {
    let config = ServerConfig::default().first_byte_timeout(Duration::ZERO);
    let Pair { table, entry, mut connection, mut client } = connect(Arc::new(Echo), &config);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    // The runtime polls its sockets only when this future is pending.
    runtime.block_on(poll_fn(|cx| {
        assert!(Pin::new(&mut connection).poll(cx).is_pending(), "the idle connection waits");
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let socket = TcpStream::from(entry.with_fd(|socket| socket.try_clone_to_owned()).unwrap());
        while socket.peek(&mut [0]).is_err() {
            std::thread::yield_now();
        }
        let _ = Pin::new(&mut connection).poll(cx);
        Poll::Ready(())
    }));
    assert_eq!(table.server.drained(0).answered, 1);
}
