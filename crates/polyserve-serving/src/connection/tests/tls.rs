//! TLS in the state machine: the test is the client and the kernel too.

use polyserve_conformance::tls::TestAuthority;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::UnbufferedServerConnection;
use rustls::{CipherSuiteCommon, ClientConnection, SupportedCipherSuite, Tls12CipherSuite};

use super::*;

/// A connection after its handshake, and its client.
fn connected(config: ServerConfig) -> (Driver, ClientConnection) {
    let authority = TestAuthority::new();
    let mut driver = Driver::new(Arc::new(Echo), &config.tls(authority.issue().server()));
    let client = shake_hands(&mut driver, &authority);
    (driver, client)
}

fn shake_hands(driver: &mut Driver, authority: &TestAuthority) -> ClientConnection {
    let name = "localhost".try_into().unwrap();
    let mut client = ClientConnection::new(authority.client(rustls::ALL_VERSIONS, None), name).unwrap();
    let _ = driver.begin();
    while client.is_handshaking() || driver.connection.tls.as_ref().is_none_or(TlsSession::is_handshaking) {
        let _ = driver.receive(&sent(&mut client));
        let _ = take_output(driver, &mut client);
    }
    client
}

/// The bytes that the client has to send.
fn sent(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// The client reads all output. Returns the next step, if there was output.
fn take_output(driver: &mut Driver, client: &mut ClientConnection) -> Option<Step> {
    let output = driver.connection.output(&driver.buffers).to_vec();
    client.read_tls(&mut output.as_slice()).unwrap();
    client.process_new_packets().unwrap();
    (!output.is_empty()).then(|| driver.with(|connection, turn| connection.on_written(turn, output.len())))
}

/// Regression test: a record that came in two parts began the wait for the first byte again, so a connection that sent no request
/// stayed open for as long as its client liked.
#[test]
fn a_record_in_parts_does_not_move_the_deadline_of_the_first_byte() {
    let config =
        ServerConfig::default().first_byte_timeout(Duration::from_secs(10)).head_timeout(Duration::from_secs(5));
    let (mut driver, mut client) = connected(config);
    assert_eq!((driver.begin(), driver.empty()), (READ, INPUT));
    for _ in 0..3 {
        assert_eq!(driver.connection.phase(), Phase::FirstByte);
        let_pass(Duration::from_secs(2));
        client.refresh_traffic_keys().unwrap();
        let record = sent(&mut client);
        let (first, rest) = record.split_at(1);
        let _ = driver.begin();
        assert_eq!((driver.receive(first), driver.empty()), (READ, INPUT));
        assert_eq!(driver.connection.phase(), Phase::Head, "a part of a record may be a part of a head");
        let_pass(Duration::from_secs(2));
        let _ = driver.begin();
        let _ = driver.receive(rest);
        let _ = take_output(&mut driver, &mut client);
        let _ = driver.empty();
    }
    assert_eq!((driver.begin(), driver.empty()), (READ_AGAIN, Step::Write { last: true, past_report: false }));
}

/// A server with a cipher of TLS 1.2 that seals at most `limit` records.
fn sealing_at_most(limit: u64, authority: &TestAuthority) -> UnbufferedServerConnection {
    let suite = ring::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let SupportedCipherSuite::Tls12(suite) = suite else { unreachable!("it is of TLS 1.2") };
    let CipherSuiteCommon { suite: name, hash_provider, .. } = suite.common;
    let limited: &'static Tls12CipherSuite = Box::leak(Box::new(Tls12CipherSuite {
        common: CipherSuiteCommon { suite: name, hash_provider, confidentiality_limit: limit },
        prf_provider: suite.prf_provider,
        kx: suite.kx,
        sign: suite.sign,
        aead_alg: suite.aead_alg,
    }));
    let cipher_suites = vec![SupportedCipherSuite::Tls12(limited)];
    let provider = CryptoProvider { cipher_suites, ..ring::default_provider() };
    let issued = authority.issue();
    let chain = vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(provider));
    let config = builder.with_protocol_versions(&[&rustls::version::TLS12]).unwrap().with_no_client_auth();
    UnbufferedServerConnection::new(Arc::new(config.with_single_cert(chain, key).unwrap())).unwrap()
}

/// Regression test: the keys of TLS 1.2 may seal 16 million records with AES-GCM. The answer after that was lost, and its connection
/// was closed.
#[test]
fn a_connection_announces_its_close_before_its_keys_are_used_up() {
    let authority = TestAuthority::new();
    let mut driver = Driver::new(Arc::new(Echo), &ServerConfig::default().tls(authority.issue().server()));
    driver.connection.tls = Some(TlsSession::over(sealing_at_most(32, &authority), None));
    let mut client = shake_hands(&mut driver, &authority);
    for answered in 1.. {
        std::io::Write::write_all(&mut client.writer(), GET).unwrap();
        let _ = driver.begin();
        let _ = driver.receive(&sent(&mut client));
        let step = take_output(&mut driver, &mut client).expect("each request has an answer");
        let mut answer = [0; 1024];
        let length = std::io::Read::read(&mut client.reader(), &mut answer).expect("each request has an answer");
        let answer = str::from_utf8(&answer[..length]).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        if answer.contains("Connection: close") {
            assert_eq!(step, Step::Linger);
            assert_eq!(std::io::Read::read(&mut client.reader(), &mut [0]).unwrap(), 0, "the end is announced");
            assert_eq!(driver.server.drained(0).answered, answered);
            return;
        }
    }
}
