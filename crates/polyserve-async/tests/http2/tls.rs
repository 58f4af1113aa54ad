//! HTTP/2 over TLS.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyserve_async::TokioHyper;
use polyserve_conformance::tls::{TestAuthority, TlsStream};
use polyserve_core::{Answer, Echo, Reply, Request, ServerConfig, ServerExt as _, Service};

/// The preface of a client, with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The type of a frame with settings, which is the first of a server.
const SETTINGS: u8 = 4;

/// ALPN decides between the versions of HTTP.
#[test]
fn alpn_negotiates_http2() {
    let authority = TestAuthority::new();
    for has_http2 in [true, false] {
        let config = ServerConfig::default().workers(1).http2(has_http2).tls(authority.issue().server());
        let server = TokioHyper::new(config).unwrap();
        let running = server.serve("127.0.0.1:0", Echo).unwrap();
        let mut client = (*authority.client(rustls::DEFAULT_VERSIONS, None)).clone();
        client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = TlsStream::new(TcpStream::connect(running.local_addr()).unwrap(), Arc::new(client));
        let deadline = Instant::now() + Duration::from_secs(60);
        stream.shake_hands(deadline).unwrap();
        let (_, protocol) = stream.negotiated();
        let mut answer = [0; 64];
        if has_http2 {
            assert_eq!(protocol.as_deref(), Some(&b"h2"[..]));
            stream.send(PREFACE, deadline).unwrap();
            assert!(stream.read(&mut answer, deadline).unwrap() >= 9, "a frame has a head of nine bytes");
            assert_eq!(answer[3], SETTINGS);
        } else {
            assert_eq!(protocol.as_deref(), Some(&b"http/1.1"[..]));
            stream.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", deadline).unwrap();
            let length = stream.read(&mut answer, deadline).unwrap();
            assert!(answer[..length].starts_with(b"HTTP/1.1 200 "));
        }
        running.shutdown().unwrap();
    }
}

/// Regression test: a client that has negotiated HTTP/2 was answered over HTTP/1.1 if its first bytes were no preface.
#[test]
fn after_alpn_only_http2_is_spoken() {
    let authority = TestAuthority::new();
    let config = ServerConfig::default().workers(1).http2(true).tls(authority.issue().server());
    let running = TokioHyper::new(config).unwrap().serve("127.0.0.1:0", Echo).unwrap();
    let mut client = (*authority.client(rustls::DEFAULT_VERSIONS, None)).clone();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TlsStream::new(TcpStream::connect(running.local_addr()).unwrap(), Arc::new(client));
    let deadline = Instant::now() + Duration::from_secs(60);
    stream.shake_hands(deadline).unwrap();
    stream.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", deadline).unwrap();
    let (mut read, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(length @ 1..) = stream.read(&mut buffer, deadline) {
        read.extend_from_slice(&buffer[..length]);
    }
    assert!(Instant::now() < deadline, "the connection ends");
    assert!(!read.windows(4).any(|part| part == b"HTTP"), "{}", read.escape_ascii());
    running.shutdown().unwrap();
}

/// A GET of `/` on the first stream.
const GET: &[u8] = b"\0\0\x06\x01\x05\0\0\0\x01\x82\x87\x84\x41\x01a";

/// Answers with the names of the client's certificate.
struct CertificateNames;

impl Service for CertificateNames {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        let names: Vec<_> = request.head.certificate.iter().flat_map(|certificate| certificate.names()).collect();
        Reply::text(names.join(" ")).into()
    }
}

#[test]
fn a_stream_has_its_clients_certificate() {
    let (authority, names) = (TestAuthority::new(), ["one.example.org", "spiffe://example.org/one"]);
    let tls = authority.issue().server().with_client_ca(authority.pem().as_str()).unwrap();
    let server = TokioHyper::new(ServerConfig::default().workers(1).http2(true).tls(tls)).unwrap();
    let running = server.serve("127.0.0.1:0", CertificateNames).unwrap();
    let mut client = (*authority.client(rustls::DEFAULT_VERSIONS, Some(&authority.issue_to(&names)))).clone();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TlsStream::new(TcpStream::connect(running.local_addr()).unwrap(), Arc::new(client));
    let deadline = Instant::now() + Duration::from_secs(60);
    stream.shake_hands(deadline).unwrap();
    stream.send(&[PREFACE, GET].concat(), deadline).unwrap();
    let (mut read, names) = (Vec::new(), names.join(" "));
    while !read.windows(names.len()).any(|part| part == names.as_bytes()) {
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer, deadline).unwrap();
        assert!(length > 0, "the answer has the names: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&buffer[..length]);
    }
    drop(stream);
    running.shutdown().unwrap();
}
