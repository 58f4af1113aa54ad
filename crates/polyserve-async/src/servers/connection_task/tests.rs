//! A connection that is polled by hand, on tokio.

use std::future::poll_fn;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use polyserve_core::service::Echo;
use polyserve_core::{Answer, Reply, Request, ServerConfig, Service};
use tokio::runtime::Builder;

use super::super::connection_registry::Admission;
use super::super::tokio_io::TokioIo;
use super::*;

/// Never answers.
struct Silent;

impl Service for Silent {
    fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        Answer::later(std::future::pending())
    }
}

type Served = (Arc<ConnectionRegistry<TokioIo>>, Arc<ConnectionEntry<TokioIo>>, ConnectionTask<TokioIo>, TcpStream);

fn connect(service: Arc<dyn Service>, config: &ServerConfig) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let registry = ConnectionRegistry::<TokioIo>::new(ServerState::new(service, config), 0);
    let Admission::Served(entry) = registry.admit(socket, 0) else { panic!("there is room") };
    let connection = ConnectionTask::new(Arc::clone(&registry), Arc::clone(&entry), false);
    (registry, entry, connection, client)
}

/// The deadline was looked at only when nothing more was there to read: refused clients that kept sending kept their
/// connections, twelve of them for as long as they wanted, and a drain waited for them.
#[test]
fn a_client_that_goes_on_sending_is_not_read_for_ever() {
    let config = ServerConfig::default().with(|config| config.linger_timeout = Duration::ZERO);
    let (_roll, entry, mut connection, mut client) = connect(Arc::new(Echo), &config);
    client.set_nonblocking(true).unwrap();
    let _ = client.write(b"G@T / HTTP/1.1\r\n\r\n").unwrap();
    while client.write(&[b'x'; 64 * 1024]).is_ok() {}
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(poll_fn(|cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        cx.waker().wake_by_ref(); // for nobody looks at the registry here
        polled
    }));
    let rest = entry.with_socket(|socket| net::receive(socket, &mut [0; 16]));
    assert!(rest.is_ok_and(|count| count > 0), "all that was sent was read");
}

/// A request that the main thread counted as cut was counted again by its own task, where that came to it only then:
/// `cut` said up to twice as many as there were.
#[test]
fn a_request_is_cut_once() {
    let (registry, entry, mut connection, mut client) = connect(Arc::new(Silent), &ServerConfig::default());
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(poll_fn(|cx| {
        assert!(Pin::new(&mut connection).poll(cx).is_pending());
        if !entry.is_busy() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }));
    registry.server.shutdown.begin(Instant::now());
    assert_eq!(registry.supervise().cut, 1);
    drop(connection);
    assert_eq!(registry.server.drained(0).cut, 1);
}
