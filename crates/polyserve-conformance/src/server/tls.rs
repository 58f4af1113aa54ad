//! TLS: what a server does with a handshake, whole or not, and at the end of a connection. [`PROPERTIES`](super::PROPERTIES) say the rest,
//! over TLS too ([`ServerSubject::over_tls`]).

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::SystemTime;

use polyserve_core::http::Method;
use polyserve_core::{HandshakeFailure, Head, TlsConfig};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, SupportedProtocolVersion};

use super::prelude::*;
use crate::client::Stream;
use crate::property::Property;
use crate::tls::{Issued, TestAuthority, TlsStream, Validity, is_rejection};

macro_rules! properties {
    ($($name:ident,)*) => {
        &[$(Property { name: stringify!($name), module: "tls", run: |subject| $name(subject).into() },)*]
    };
}

/// The properties of servers that speak TLS. Each makes its own certificates.
pub static TLS_PROPERTIES: &[Property<ServerSubject>] = properties![
    a_handshake_may_arrive_byte_by_byte,
    http_1_1_is_negotiated,
    large_messages_come_through,
    sessions_are_resumed,
    a_client_may_change_its_keys,
    a_client_certificate_is_required,
    a_request_has_its_clients_certificate,
    an_expired_certificate_resumes_no_session,
    the_end_is_announced,
    an_end_that_is_not_announced_is_an_end,
    garbage_ends_the_connection,
    http_without_tls_is_a_400,
    a_stalled_handshake_times_out,
    stalled_handshakes_keep_to_the_limit,
    failed_handshakes_are_counted,
    a_handshake_outlives_the_shutdown,
    a_shutdown_does_not_wait_for_silent_clients,
    a_new_certificate_drops_no_connection,
];

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// A server over TLS, and the authority of its certificate.
struct Secure {
    live: Live,
    authority: TestAuthority,
    max_wait: Duration,
}

impl Secure {
    #[track_caller]
    fn new(subject: &ServerSubject, config: ServerConfig) -> Self {
        Self::serving(subject, Echo, config, None)
    }

    /// A server that requires certificates of this authority, if there is one.
    #[track_caller]
    fn serving(
        subject: &ServerSubject,
        service: impl Service,
        config: ServerConfig,
        clients: Option<&TestAuthority>,
    ) -> Self {
        let authority = TestAuthority::new();
        let mut tls = authority.issue().server();
        if let Some(clients) = clients {
            tls = tls.with_client_ca(clients.pem().as_str()).expect("it is an authority");
        }
        Self { live: subject.live(service, config.tls(tls)), authority, max_wait: subject.max_wait }
    }

    fn client(&self, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        self.authority.client(&[version], None)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.max_wait
    }

    fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.live.addr).expect("the server accepts connections");
        socket.set_nodelay(true).expect("the socket is open");
        socket.set_read_timeout(Some(self.max_wait)).expect("the socket is open");
        socket
    }

    /// A connection on which nothing was sent.
    fn open(&self, config: &Arc<ClientConfig>) -> TlsStream {
        TlsStream::new(self.socket(), Arc::clone(config))
    }

    /// A connection after its handshake.
    #[track_caller]
    fn connect(&self, config: &Arc<ClientConfig>) -> TlsStream {
        let stream = self.open(config);
        stream.shake_hands(self.deadline()).expect("the handshake succeeds");
        stream
    }

    /// The client's end of a connection after its handshake.
    fn on(&self, stream: &TlsStream) -> Client {
        Client::on(Stream::Tls(stream.clone()), self.max_wait)
    }

    /// Sends `request` and returns the answer, which has this status.
    #[track_caller]
    fn ask(&self, stream: &TlsStream, request: &[u8], status: u16) -> Response {
        self.on(stream).ask(request, status)
    }

    /// The server still serves. On a busy machine, a short timeout may cut a handshake.
    #[track_caller]
    fn check(&self) {
        let config = self.client(&TLS13);
        let is_served = || self.is_served(&self.open(&config));
        assert!(eventually(self.max_wait, is_served), "the server does not serve any more");
    }

    /// Whether the handshake succeeds, and a request is answered.
    fn is_served(&self, stream: &TlsStream) -> bool {
        let sent = stream.shake_hands(self.deadline()).and_then(|()| stream.send(&get("/"), self.deadline()));
        sent.is_ok() && stream.peek(self.deadline()).is_ok_and(|count| count > 0)
    }
}

/// Whether the connection ends without a byte of HTTP. An alert may come first.
#[track_caller]
fn expect_end(mut socket: &TcpStream) {
    let mut bytes = Vec::new();
    match socket.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the connection does not end: {error}"),
    }
    assert!(!bytes.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&bytes));
}

/// A handshake in single bytes succeeds, with TLS 1.2 and 1.3, and is counted.
fn a_handshake_may_arrive_byte_by_byte(subject: &ServerSubject) {
    let secure = Secure::new(subject, defaults());
    for version in VERSIONS {
        let stream = secure.open(&secure.client(version));
        for byte in stream.take_output() {
            stream.socket().write_all(&[byte]).expect("the server takes the byte");
        }
        stream.shake_hands(secure.deadline()).expect("the handshake succeeds");
        secure.ask(&stream, &get("/"), 200);
    }
    let count = VERSIONS.len() as u64;
    assert_eq!(secure.live.counters_when(|counters| counters.handshakes == count).handshakes, count);
}

/// ALPN chooses `http/1.1`.
fn http_1_1_is_negotiated(subject: &ServerSubject) {
    let secure = Secure::new(subject, defaults());
    for version in VERSIONS {
        let config = secure.client(version);
        let (_, protocol) = secure.connect(&config).negotiated();
        assert_eq!(protocol.as_deref(), Some(&b"http/1.1"[..]));
        let mut other = ClientConfig::clone(&config);
        other.alpn_protocols = vec![b"imap".to_vec()];
        let result = secure.open(&Arc::new(other)).shake_hands(secure.deadline());
        assert!(result.is_err(), "a client that speaks another protocol is refused (RFC 7301)");
    }
    secure.check();
}

/// Bodies and answers of many records arrive whole.
fn large_messages_come_through(subject: &ServerSubject) {
    let secure = Secure::new(subject, defaults().max_body(4 << 20));
    for version in VERSIONS {
        let stream = secure.connect(&secure.client(version));
        let body: Vec<u8> = (0..3_000_001).map(|index| b'a' + (index % 23) as u8).collect();
        let (mut client, writer, deadline) = (secure.on(&stream), stream.clone(), secure.deadline());
        let answer = thread::scope(|scope| {
            let request = with_body("POST", "/", "", &body);
            scope.spawn(move || writer.send(&request, deadline));
            client.expect(200)
        });
        assert!(answer.body == body, "{} bytes came back of {}", answer.body.len(), body.len());
        client.ask(&get("/"), 200);
    }
}

/// A client with a ticket resumes its session.
fn sessions_are_resumed(subject: &ServerSubject) {
    let secure = Secure::new(subject, defaults());
    for version in VERSIONS {
        let config = secure.client(version);
        for resumed in [false, true, true] {
            let stream = secure.connect(&config);
            assert_eq!(stream.negotiated().0, resumed, "{version:?}");
            secure.ask(&stream, &request("GET", "/", "Connection: close\r\n"), 200);
        }
    }
}

/// A key update of the client is followed.
fn a_client_may_change_its_keys(subject: &ServerSubject) {
    let secure = Secure::new(subject, defaults());
    let stream = secure.connect(&secure.client(&TLS13));
    for _ in 0..5 {
        secure.ask(&stream, &get("/"), 200);
        stream.change_keys();
    }
}

/// With an authority for clients, only a client with its certificate is served, and only while that is valid.
fn a_client_certificate_is_required(subject: &ServerSubject) {
    let clients = TestAuthority::new();
    let (known, foreign) = (clients.issue(), TestAuthority::new().issue());
    let [expired, future] = [Validity::Expired, Validity::NotYetValid].map(|validity| clients.issue_while(validity));
    let secure = Secure::serving(subject, Echo, defaults(), Some(&clients));
    for version in VERSIONS {
        let refused = [None, Some(&foreign), Some(&expired), Some(&future)].map(|identity| (identity, false));
        for (identity, is_served) in refused.into_iter().chain([(Some(&known), true)]) {
            let stream = secure.open(&secure.authority.client(&[version], identity));
            // With TLS 1.3, a client may send its request before it learns of the refusal.
            let asked = stream.shake_hands(secure.deadline()).and_then(|()| stream.send(&get("/"), secure.deadline()));
            let served = asked.and_then(|()| stream.read(&mut [0; 1024], secure.deadline()));
            assert_eq!(served.as_ref().is_ok_and(|count| *count > 0), is_served, "{version:?} {served:?}");
        }
    }
}

/// Answers with the names of the client's certificate. Refuses a POST by its head, with the same names.
struct CertificateNames;

impl CertificateNames {
    fn names(head: &Head<'_>) -> Reply {
        let names: Vec<&str> = head.certificate.iter().flat_map(|certificate| certificate.names()).collect();
        Reply::text(names.join(" "))
    }
}

impl Service for CertificateNames {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        Self::names(&request.head).into()
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        (*head.method == Method::POST).then(|| Self::names(head))
    }
}

/// A service knows the names of its client's certificate: in each request and by its head alone, also if the session was resumed. Two
/// clients are not mixed up, and a server that asks for no certificate shows none.
fn a_request_has_its_clients_certificate(subject: &ServerSubject) {
    let clients = TestAuthority::new();
    let named = [["one.example.org", "spiffe://example.org/one"], ["two.example.org", "spiffe://example.org/two"]];
    for (asks, version) in [(true, VERSIONS[0]), (true, VERSIONS[1]), (false, VERSIONS[1])] {
        let secure = Secure::serving(subject, CertificateNames, defaults(), asks.then_some(&clients));
        let configs = named.map(|names| secure.authority.client(&[version], Some(&clients.issue_to(&names))));
        for is_resumed in [false, true] {
            for (config, names) in configs.iter().zip(named) {
                let stream = secure.connect(config);
                assert!(!is_resumed || stream.negotiated().0, "the session is resumed");
                let expected = if asks { names.join(" ") } else { String::new() };
                let by_head = request("POST", "/", "Content-Length: 3\r\nExpect: 100-continue\r\n");
                for request in [get("/"), get("/"), by_head] {
                    assert_eq!(secure.ask(&stream, &request, 200).text(), expected, "{version:?}");
                }
            }
        }
    }
}

/// Answers each request, and counts them.
struct CallCount(Arc<AtomicU64>);

impl Service for CallCount {
    fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Reply::empty(StatusCode::OK).into()
    }
}

/// A session outlives the certificate that its client has shown, and serves nothing from then on. Nor does the service see a request that
/// comes with the end of the handshake, whatever follows it.
fn an_expired_certificate_resumes_no_session(subject: &ServerSubject) {
    const NO_RECORD: &[u8] = b"\x17\x03\x03\x00\x20 32 bytes that no key has sealed.";
    let clients = TestAuthority::new();
    let calls = Arc::<AtomicU64>::default();
    let secure = Secure::serving(subject, CallCount(Arc::clone(&calls)), defaults(), Some(&clients));
    // On a busy machine, a certificate may end before its handshakes.
    let mut time = Duration::from_secs(2);
    let (configs, end) = loop {
        let end = SystemTime::now() + time;
        let client = clients.issue_while(Validity::Until(end));
        let configs = VERSIONS.map(|version| secure.authority.client(&[version], Some(&client)));
        if configs.iter().all(|config| secure.is_served(&secure.open(config))) {
            break (configs, end);
        }
        assert!(time < secure.max_wait, "a valid certificate is not served");
        time *= 2;
    };
    while SystemTime::now() <= end + Duration::from_secs(1) {
        thread::sleep(Duration::from_millis(10));
    }
    let served = calls.load(Ordering::SeqCst);
    for config in configs {
        let stream = secure.open(&config);
        stream.queue(&get("/"));
        stream.end_handshake_with(NO_RECORD, secure.deadline()).expect("the client's part of the handshake ends");
        expect_end(stream.socket());
        assert!(stream.negotiated().0, "the session is resumed");
        let stream = secure.open(&config);
        assert!(!secure.is_served(&stream), "the certificate has ended");
        assert!(stream.negotiated().0, "the session is resumed");
    }
    assert_eq!(calls.load(Ordering::SeqCst), served, "the certificate has ended");
}

/// The server sends `close_notify` before it closes.
fn the_end_is_announced(subject: &ServerSubject) {
    let timeout = Duration::from_millis(500);
    let secure = Secure::new(subject, defaults().idle_timeout(timeout).first_byte_timeout(timeout));
    for version in VERSIONS {
        let config = secure.client(version);
        let last = request("GET", "/", "Connection: close\r\n");
        for (request, status) in [(&b""[..], 0), (&get("/"), 200), (&last, 200), (b"GET\r\n\r\n", 400)] {
            let stream = secure.connect(&config);
            if !request.is_empty() {
                secure.ask(&stream, request, status);
            }
            secure.on(&stream).expect_end(); // by close_notify
        }
    }
}

/// A client that closes without `close_notify` ends its connection, and no other.
fn an_end_that_is_not_announced_is_an_end(subject: &ServerSubject) {
    let secure = Secure::new(subject, defaults().drain_grace(subject.max_wait));
    let whole = with_body("POST", "/", "", b"abc");
    for version in VERSIONS {
        let config = secure.client(version);
        for sent in [0, 10, whole.len() - 1, whole.len()] {
            let stream = secure.connect(&config);
            stream.send(&whole[..sent], secure.deadline()).expect("the server takes the bytes");
            stream.socket().shutdown(Shutdown::Write).expect("the socket is open");
            let mut client = secure.on(&stream);
            if sent == whole.len() {
                assert_eq!(client.expect(200).text(), "abc");
            }
            client.expect_end();
        }
        // The last bytes of a record are missing.
        let stream = secure.connect(&config);
        stream.queue(&whole);
        let record = stream.take_output();
        stream.socket().write_all(&record[..record.len() - 1]).expect("the server takes the bytes");
        stream.socket().shutdown(Shutdown::Write).expect("the socket is open");
        secure.on(&stream).expect_end();
    }
    check_counts(secure.live.shutdown(), 2, 0);
}

/// Bytes that are no TLS end the connection, before and after the handshake.
fn garbage_ends_the_connection(subject: &ServerSubject) {
    let secure = Secure::new(subject, defaults());
    let hello = secure.open(&secure.client(&TLS13)).take_output();
    let mut flipped = hello.clone();
    flipped[40..].reverse();
    let garbage: [&[u8]; 6] = [
        b"\x00\x01\x02\x03\x04\x05\x06\x07",
        b"\x16\x03\x01\x00\x05hello",
        b"\x80\x2e\x01\x00\x02\x00",
        &[0xff; 70_000],
        b"\x16\x03\x01\xff\xff",
        &flipped,
    ];
    for garbage in garbage {
        let mut socket = secure.socket();
        let _ = socket.write_all(garbage); // the server may have closed
        expect_end(&socket);
    }
    for version in VERSIONS {
        let stream = secure.connect(&secure.client(version));
        secure.ask(&stream, &get("/"), 200);
        stream.socket().write_all(b"\x17\x03\x03\x00\x20garbage that was never encrypted").expect("it is open");
        let end = stream.read(&mut [0; 100], secure.deadline());
        assert!(end.is_err(), "a record that is not authentic ends the connection by an alert: {end:?}");
    }
    secure.check();
}

/// A request without TLS gets a 400.
fn http_without_tls_is_a_400(subject: &ServerSubject) {
    let secure = Secure::new(subject, defaults());
    let mut client = Client::connect(secure.live.addr, subject.max_wait).expect("the server accepts connections");
    client.send(&get("/")).expect("the server takes the request");
    client.expect_last(400);
    secure.check();
}

/// A handshake that does not go on is closed after the head timeout.
fn a_stalled_handshake_times_out(subject: &ServerSubject) {
    let secure = Secure::new(subject, defaults().head_timeout(Duration::from_millis(100)));
    for version in VERSIONS {
        let config = secure.client(version);
        for end in [1, 5, 6, 100, usize::MAX] {
            let stream = secure.open(&config);
            let hello = stream.take_output();
            stream.socket().write_all(&hello[..end.min(hello.len())]).expect("the server takes the bytes");
            expect_end(stream.socket());
        }
    }
    secure.check();
}

/// Handshakes that do not go on count towards `max_connections`.
fn stalled_handshakes_keep_to_the_limit(subject: &ServerSubject) -> Result<(), String> {
    const LIMIT: usize = 4;
    subject.needs_several("a server of one connection has one handshake")?;
    let config = subject.with_workers(LIMIT).max_connections(LIMIT);
    let config = config.head_timeout(Duration::from_secs(1)).linger_timeout(Duration::from_millis(100));
    let secure = Secure::new(subject, config);
    let config = secure.client(&TLS13);
    let stalled: Vec<TlsStream> = (0..LIMIT).map(|_| secure.open(&config)).collect();
    for stream in &stalled {
        stream.socket().write_all(&stream.take_output()[..50]).expect("the server takes the bytes");
    }
    assert_eq!(secure.live.counters_when(|counters| counters.open == LIMIT as u64).open, LIMIT as u64);
    // A handshake has begun, so it is not evicted, however long it has been idle.
    let rejected = eventually(subject.max_wait, || {
        let result = secure.open(&config).shake_hands(secure.deadline());
        result.is_err_and(|error| is_rejection(&error))
    });
    assert!(rejected, "a connection past the limit is rejected");
    assert!(secure.live.counters_when(|counters| counters.rejected > 0).rejected > 0);
    for stream in &stalled {
        expect_end(stream.socket());
    }
    let is_served = || secure.open(&config).shake_hands(secure.deadline()).is_ok();
    assert!(eventually(subject.max_wait, is_served), "there is room again");
    Ok(())
}

/// A handshake that fails is counted once, by reason. The hook of answers sees those that the server refuses, with the address of the client,
/// and it sees none that the client ends.
fn failed_handshakes_are_counted(subject: &ServerSubject) {
    let (sender, reports) = channel();
    let config = defaults().head_timeout(Duration::from_secs(1)).on_answer(move |report| {
        let _ = sender.send((report.status.as_u16(), report.peer, report.request.is_some())); // an error: the test has ended
    });
    let clients = TestAuthority::new();
    let secure = Secure::serving(subject, Echo, config, Some(&clients));
    let foreign = TestAuthority::new().client(&[&TLS13], None);
    let own = secure.client(&TLS13);
    let mut counts = [0; HandshakeFailure::ALL.len()];
    let mut check = |failure: HandshakeFailure, status: Option<u16>, client: SocketAddr| {
        counts[failure as usize] += 1;
        let counters = secure.live.counters_when(|counters| counters.failed_handshakes == counts);
        assert_eq!(counters.failed_handshakes, counts, "{failure:?}: {:?}", HandshakeFailure::ALL);
        if let Some(status) = status {
            let seen = reports.recv_timeout(subject.max_wait).expect("what the server refuses is reported");
            assert_eq!(seen, (status, Some(client), false), "{failure:?}");
        }
        assert!(reports.try_recv().is_err(), "{failure:?} is reported once, if the server has refused it");
    };
    let garbage = b"\x16\x03\x01\x00\x05hello".to_vec();
    let begun = secure.open(&own).take_output()[..50].to_vec();
    for (bytes, ends, failure, status) in [
        (garbage, false, HandshakeFailure::Protocol, Some(400)),
        (get("/"), false, HandshakeFailure::PlainHttp, Some(400)),
        (begun.clone(), false, HandshakeFailure::TimedOut, Some(408)),
        (begun, true, HandshakeFailure::Closed, None),
    ] {
        let mut socket = secure.socket();
        let client = socket.local_addr().expect("it is connected");
        socket.write_all(&bytes).expect("the server takes the bytes");
        if ends {
            socket.shutdown(Shutdown::Write).expect("the socket is open");
        }
        let _ = socket.read_to_end(&mut Vec::new()); // an answer, an alert, or the end
        drop(socket);
        check(failure, status, client);
    }
    for (config, failure, status) in [
        (secure.client(&TLS12), HandshakeFailure::Certificate, Some(400)),
        (own, HandshakeFailure::Certificate, Some(400)),
        (foreign, HandshakeFailure::ClientAlert, None),
    ] {
        let stream = secure.open(&config);
        let client = stream.socket().local_addr().expect("it is connected");
        let _ = stream.shake_hands(secure.deadline()); // with TLS 1.3, the client may learn of the refusal later
        let _ = stream.socket().write_all(&stream.take_output()); // the alert of the client
        drop(stream);
        check(failure, status, client);
    }
    let known = clients.issue();
    let stream = secure.connect(&secure.authority.client(&[&TLS13], Some(&known)));
    secure.ask(&stream, &get("/"), 200);
    let counters = secure.live.counters_when(|counters| counters.handshakes == 1);
    assert_eq!((counters.handshakes, counters.failed_handshakes), (1, counts));
}

/// A handshake that has begun is served by the drain.
fn a_handshake_outlives_the_shutdown(subject: &ServerSubject) {
    for version in VERSIONS {
        let secure = Secure::new(subject, defaults().drain_grace(subject.max_wait * 10));
        let stream = secure.open(&secure.client(version));
        let hello = stream.take_output();
        stream.socket().write_all(&hello[..20]).expect("the server takes the bytes");
        assert_eq!(secure.live.counters_when(|counters| counters.open == 1).open, 1);
        let deadline = secure.deadline();
        let drain = secure.live.begin_drain();
        stream.socket().write_all(&hello[20..]).expect("the server takes the bytes");
        stream.shake_hands(deadline).expect("the handshake succeeds");
        stream.send(&get("/"), deadline).expect("the server takes the request");
        Client::on(Stream::Tls(stream), subject.max_wait).expect_last(200);
        check_counts(drain.wait(), 1, 0);
    }
}

/// A drain closes a connection without a request, and announces the end.
fn a_shutdown_does_not_wait_for_silent_clients(subject: &ServerSubject) {
    for version in VERSIONS {
        let secure = Secure::new(subject, defaults());
        let config = secure.client(version);
        let mut client = secure.on(&secure.connect(&config));
        check_counts(secure.live.shutdown(), 0, 0);
        client.expect_end();
    }
}

/// New connections get a new certificate, and open ones go on.
fn a_new_certificate_drops_no_connection(subject: &ServerSubject) {
    let directory = std::env::temp_dir().join(format!("polyserve-tls-{}-{:p}", std::process::id(), subject));
    fs::create_dir_all(&directory).expect("the temporary directory is writable");
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| directory.join(name));
    let write = |issued: &Issued| {
        fs::write(&certificate, &issued.certificate)
            .and_then(|()| fs::write(&key, &issued.key))
            .expect("it is writable");
    };
    let [old, new] = [TestAuthority::new(), TestAuthority::new()];
    write(&old.issue());
    let tls = TlsConfig::new(&*certificate, Path::new(&key)).expect("the certificate was issued for the key");
    let live = subject.live(Echo, defaults().tls(tls.clone()));
    let mut secure = Secure { live, authority: old, max_wait: subject.max_wait };
    let open = secure.connect(&secure.client(&TLS13));
    secure.ask(&open, &get("/"), 200);
    fs::write(&certificate, new.issue().certificate).expect("it is writable"); // of another key
    let refused = tls.reload().expect_err("the key does not belong to the certificate").to_string();
    assert!(refused.contains("certificate.pem") && refused.contains("key.pem"), "{refused}");
    if subject.shape() != Shape::One {
        secure.check();
    }
    write(&new.issue());
    tls.reload().expect("the certificate was issued for the key");
    secure.ask(&open, &get("/"), 200); // an open connection stays
    drop(open);
    let fails = secure.open(&secure.client(&TLS13)).shake_hands(secure.deadline());
    assert!(fails.is_err(), "the old authority has not issued the new certificate");
    secure.authority = new;
    secure.check();
    drop(secure);
    let _ = fs::remove_dir_all(directory);
}
