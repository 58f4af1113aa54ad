use std::io::Read as _;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use rustls::{ServerConnection, Stream};

use super::*;
use crate::client::Client;

/// A server of Go sends no tickets to a client that resumes no session. Each connection of a check waited for them, for the whole timeout.
#[test]
fn a_server_without_tickets_is_waited_for_once() {
    let authority = TestAuthority::new();
    let issued = authority.issue();
    let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.send_tls13_tickets = 0;
    let config = Arc::new(config);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (mut socket, _) = listener.accept().unwrap();
            let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let _ = Stream::new(&mut session, &mut socket).read(&mut [0]); // until the client closes
        }
    });
    trust(addr, authority.client(rustls::DEFAULT_VERSIONS, None), loopback());
    Client::connect(addr, Duration::from_millis(500)).unwrap();
    Client::connect(addr, Duration::from_secs(3600)).unwrap();
    forget(addr);
    server.join().unwrap();
}
