//! `polyserve serve --tls-cert --tls-key`, and loads of https.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use polyserve_conformance::tls::{Issued, TestAuthority, TlsStream, Validity};
use rustix::process::Signal;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};

use super::{
    Dir, MAX_WAIT, Serving, allowed, ask, ended, failed, has, json, misused, polyserve, printed, serve, text, until,
};

/// A request of which the body is awaited.
const AWAITED: &[u8] = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\
    Expect: 100-continue\r\n\r\n";

const GET: &[u8] = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";

/// The files of a certificate, and the arguments that name them.
fn write(dir: &Dir, issued: &Issued) -> String {
    dir.write("cert.pem", &issued.certificate);
    dir.write("key.pem", &issued.key);
    format!("--tls-cert {dir}/cert.pem --tls-key {dir}/key.pem")
}

/// A connection after its handshake. `None` if the client or the server refuses it.
fn connect(serving: &Serving, authority: &TestAuthority, identity: Option<&Issued>) -> Option<TlsStream> {
    let socket = TcpStream::connect(serving.addr).expect("the server listens");
    let stream = TlsStream::new(socket, authority.client(rustls::DEFAULT_VERSIONS, identity));
    stream.shake_hands(Instant::now() + MAX_WAIT).ok().map(|()| stream)
}

/// Whether a request on the connection is answered.
fn is_answered(stream: &TlsStream) -> bool {
    let (mut answer, deadline) = ([0; 4096], Instant::now() + MAX_WAIT);
    let read = stream.send(GET, deadline).and_then(|()| stream.read(&mut answer, deadline));
    read.is_ok_and(|length| answer[..length].starts_with(b"HTTP/1.1 404 "))
}

#[test]
fn it_serves_https() {
    let (dir, authority) = (Dir::new("tls-serve"), TestAuthority::new());
    let args = write(&dir, &authority.issue());
    let servers = ["pool_server", "tokio_tcp", "thread_per_connection", "tokio_hyper", "epoll", "io_uring"];
    for server in allowed("it_serves_https", &servers) {
        let serving = serve(&format!("--server {server} {args}"));
        let stream = connect(&serving, &authority, None).expect("the certificate is trusted");
        assert!(is_answered(&stream), "{server}");
        assert!(ask(serving.addr, "GET /1 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 400 "), "{server}");
        assert_eq!(serving.drained(Signal::TERM), "answered 2, cut 0, stuck 0\n", "{server}");
    }
}

/// What is refused before there can be an answer is counted and logged: a handshake that fails, and a connection past the limit.
#[test]
fn what_is_refused_without_an_answer_is_counted_and_logged() {
    let (dir, authority) = (Dir::new("tls-refused"), TestAuthority::new());
    let args = write(&dir, &authority.issue());
    for server in ["tokio_tcp", "tokio_hyper"] {
        dir.write("access.log", "");
        let mut serving = serve(&format!(
            "--server {server} {args} --max-connections 1 --admin 127.0.0.1:0 --access-log {dir}/access.log"
        ));
        let admin = serving.admin();
        let counts = |metric: &str, reason: &str| {
            let line = format!("{metric}_total{{server=\"{server}\",reason=\"{reason}\"}} 1");
            until(&line, || ask(admin, &super::get("/metrics")).contains(&line));
        };
        let logs = |client: &str, status: u16| {
            let [peer, status] = [format!("\"peer\":\"{client}\""), format!("\"status\":{status},\"target\":null")];
            until(&peer, || dir.read("access.log").lines().any(|line| line.contains(&peer) && line.contains(&status)));
        };
        let send = |bytes: &[u8]| {
            let mut socket = TcpStream::connect(serving.addr).expect("the server listens");
            socket.write_all(bytes).expect("the server takes the bytes");
            let client = socket.local_addr().expect("it is connected").to_string();
            (socket, client)
        };
        let (mut garbage, client) = send(b"\x16\x03\x01\x00\x05hello");
        garbage.read_to_end(&mut Vec::new()).expect("it gets an alert");
        logs(&client, 400);
        counts("polyserve_tls_handshake_failures", "protocol");
        let busy = connect(&serving, &authority, None).expect("the certificate is trusted");
        let (head, mut answer, deadline) = (AWAITED, [0; 1024], Instant::now() + MAX_WAIT);
        let read = busy.send(head, deadline).and_then(|()| busy.read(&mut answer, deadline));
        assert!(answer.starts_with(b"HTTP/1.1 100 "), "the server awaits the body: {read:?}");
        let (mut rejected, client) = send(b"");
        rejected.read_to_end(&mut Vec::new()).expect("it gets an alert");
        logs(&client, 503);
        counts("polyserve_rejected_connections", "server_full");
    }
}

/// The files may come from the environment. The first line has the scheme.
#[test]
fn the_environment_names_the_files() {
    let (dir, authority) = (Dir::new("tls-environment"), TestAuthority::new());
    write(&dir, &authority.issue());
    let mut command = polyserve("serve --listen 127.0.0.1:0 --json");
    command.env("POLYSERVE_TLS_CERT", dir.path("cert.pem")).env("POLYSERVE_TLS_KEY", dir.path("key.pem"));
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("it was piped"));
    out.read_line(&mut line).expect("it prints text");
    let _ = child.kill(); // it runs
    let _ = child.wait();
    has(&line, &[r#"{"listening":"https://127.0.0.1:"#]);
}

#[test]
fn only_clients_with_a_certificate_are_served() {
    let (dir, authority, other) = (Dir::new("tls-clients"), TestAuthority::new(), TestAuthority::new());
    dir.write("ca.pem", authority.pem());
    let serving = serve(&format!("{} --tls-client-ca {dir}/ca.pem", write(&dir, &authority.issue())));
    for (identity, is_served) in [(None, false), (Some(other.issue()), false), (Some(authority.issue()), true)] {
        // With TLS 1.3, the client ends its handshake before the server judges the certificate.
        let stream = connect(&serving, &authority, identity.as_ref());
        assert_eq!(stream.is_some_and(|stream| is_answered(&stream)), is_served);
    }
}

/// A new certificate is used on SIGHUP, and if the files change. A wrong pair is refused. No connection is dropped.
#[test]
fn a_new_certificate_is_used_without_a_restart() {
    let dir = Dir::new("tls-reload");
    let [first, second, third] = [(); 3].map(|()| TestAuthority::new());
    let args = write(&dir, &first.issue());
    let command = polyserve(&format!("serve --listen 127.0.0.1:0 --idle-timeout 10m {args}"));
    let (serving, mut log) = Serving::logging(command);
    let open = connect(&serving, &first, None).expect("the certificate is trusted");
    assert!(is_answered(&open));

    write(&dir, &second.issue());
    serving.signal(Signal::HUP);
    until("the signal is not heeded", || connect(&serving, &second, None).is_some());
    assert!(is_answered(&open), "an open connection stays");

    dir.write("cert.pem", first.issue().certificate); // of another key
    serving.signal(Signal::HUP);
    let mut line = String::new();
    log.read_line(&mut line).expect("it logs text");
    has(&line, &["ERROR", "the old one stays in use", "cert.pem", "key.pem"]);
    assert!(connect(&serving, &second, None).is_some_and(|stream| is_answered(&stream)), "the old pair is in use");

    write(&dir, &third.issue());
    until("the change is not seen", || connect(&serving, &third, None).is_some());
    assert!(is_answered(&open), "an open connection stays");
    drop(open);
    serving.drained(Signal::TERM);
}

/// A client resumes its session by a ticket until the server has a new certificate: its key may be in other hands.
#[test]
fn a_new_certificate_ends_the_sessions_of_the_old_one() {
    let (dir, authority) = (Dir::new("tls-tickets"), TestAuthority::new());
    let command = polyserve(&format!("serve --listen 127.0.0.1:0 --log info {}", write(&dir, &authority.issue())));
    let (serving, mut log) = Serving::logging(command);
    let clients = rustls::DEFAULT_VERSIONS.iter().map(|version| authority.client(&[*version], None));
    let clients: Vec<_> = clients.collect();
    let is_resumed = |client: &Arc<ClientConfig>| {
        let stream = TlsStream::new(TcpStream::connect(serving.addr).expect("it listens"), Arc::clone(client));
        stream.shake_hands(Instant::now() + MAX_WAIT).expect("the certificate is trusted");
        assert!(is_answered(&stream)); // the tickets come with the answer
        stream.negotiated().0
    };
    let all_resumed = || clients.iter().map(is_resumed).collect::<Vec<_>>();
    assert_eq!([all_resumed(), all_resumed()], [[false, false], [true, true]]);
    write(&dir, &authority.issue());
    serving.signal(Signal::HUP);
    let mut line = String::new();
    while !line.contains("the TLS certificate was read again") {
        line.clear();
        assert!(log.read_line(&mut line).expect("it logs text") > 0);
    }
    assert_eq!([all_resumed(), all_resumed()], [[false, false], [true, true]]);
}

/// A request in early data could be sent again by a machine on the way, so no ticket allows that.
#[test]
fn no_session_allows_early_data() {
    let (dir, authority) = (Dir::new("tls-early"), TestAuthority::new());
    let serving = serve(&write(&dir, &authority.issue()));
    let mut config = (*authority.client(&[&rustls::version::TLS13], None)).clone();
    config.enable_early_data = true;
    let config = Arc::new(config);
    for is_resumed in [false, true] {
        let name = "localhost".try_into().expect("it is a name");
        let mut client = ClientConnection::new(Arc::clone(&config), name).expect("the configuration is whole");
        assert!(client.early_data().is_none());
        let mut socket = TcpStream::connect(serving.addr).expect("it listens");
        socket.set_read_timeout(Some(MAX_WAIT)).expect("a timeout can be set");
        let mut stream = rustls::Stream::new(&mut client, &mut socket);
        stream.write_all(GET).expect("it reads");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("it answers");
        assert_eq!(&answer, b"HTTP/1.1 404");
        assert_eq!(client.handshake_kind() == Some(HandshakeKind::Resumed), is_resumed);
    }
}

/// A renegotiation is refused: it costs the server more than the client, and has let others put requests before those of a client.
#[test]
fn a_renegotiation_is_refused() {
    let (dir, authority) = (Dir::new("tls-renegotiation"), TestAuthority::new());
    let serving = serve(&write(&dir, &authority.issue()));
    let mut client = Command::new("openssl");
    client.args(["s_client", "-tls1_2", "-connect", &serving.addr.to_string()]);
    let Ok(mut client) = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
        eprintln!("not run: a_renegotiation_is_refused: openssl is not installed");
        return;
    };
    let mut input = client.stdin.take().expect("it was piped");
    input.write_all(b"R\n").expect("it runs"); // its command to renegotiate
    let output = client.wait_with_output().expect("it ends");
    drop(input);
    has(&text(&output.stdout), &["TLSv1.2"]);
    has(&text(&output.stderr), &["RENEGOTIATING", "no renegotiation"]);
    assert!(connect(&serving, &authority, None).is_some_and(|stream| is_answered(&stream)));
}

/// A directory with the files of a secret as Kubernetes mounts them: each is a link through `..data`, which is a link to the directory of a
/// version. A new version is written to a directory of its own, and takes the place of the old one by one rename.
struct MountedSecret<'a> {
    dir: &'a Dir,
    versions: usize,
}

impl<'a> MountedSecret<'a> {
    fn new(dir: &'a Dir, issued: &Issued) -> Self {
        let mut secret = Self { dir, versions: 0 };
        secret.replace(issued);
        for file in ["cert.pem", "key.pem"] {
            symlink(format!("..data/{file}"), dir.path(file)).expect("the directory is ours");
        }
        secret
    }

    fn replace(&mut self, issued: &Issued) {
        let (old, new) = (format!("..{}", self.versions), format!("..{}", self.versions + 1));
        self.versions += 1;
        std::fs::create_dir_all(self.dir.path(&new)).expect("the directory is ours");
        for (file, text) in [("cert.pem", &issued.certificate), ("key.pem", &issued.key)] {
            self.dir.write(&format!("{new}/{file}"), text);
            let written =
                File::options().write(true).open(self.dir.path(&format!("{new}/{file}"))).expect("it is there");
            written.set_modified(SystemTime::UNIX_EPOCH).expect("it is ours"); // equal times, as in an image
        }
        symlink(&new, self.dir.path("..data_tmp")).expect("the directory is ours");
        std::fs::rename(self.dir.path("..data_tmp"), self.dir.path("..data")).expect("the directory is ours");
        let _ = std::fs::remove_dir_all(self.dir.path(&old)); // the first one replaces none
    }
}

/// A secret that Kubernetes replaces is served by itself. Meanwhile no handshake fails, and no open connection ends.
#[test]
fn a_replaced_secret_is_served_without_a_dropped_connection() {
    let (dir, first, second) = (Dir::new("tls-secret"), TestAuthority::new(), TestAuthority::new());
    let mut secret = MountedSecret::new(&dir, &first.issue());
    let args = format!("--idle-timeout 10m --tls-cert {dir}/cert.pem --tls-key {dir}/key.pem");
    for server in ["pool_server", "tokio_hyper", "thread_per_connection"] {
        secret.replace(&first.issue());
        let serving = serve(&format!("--server {server} {args}"));
        let open = connect(&serving, &first, None).expect("the certificate is trusted");
        assert!(is_answered(&open), "{server}");
        secret.replace(&second.issue());
        until("the new secret is not served", || {
            assert!(is_answered(&open), "{server}: an open connection ended");
            let by_new = connect(&serving, &second, None);
            let is_new = by_new.is_some();
            let stream =
                by_new.or_else(|| connect(&serving, &first, None)).or_else(|| connect(&serving, &second, None));
            assert!(stream.is_some_and(|stream| is_answered(&stream)), "{server}: a connection was dropped");
            is_new
        });
        assert!(is_answered(&open), "{server}: an open connection ended");
        drop(open);
        serving.drained(Signal::TERM);
    }
}

/// What the files of an operator may look like: each is served, or refused by an error that tells what to change.
#[test]
fn files_of_many_forms_are_served_or_refused() {
    let (dir, authority) = (Dir::new("tls-forms"), TestAuthority::new());
    let args = write(&dir, &authority.issue());
    let (certificate, key) = (dir.read("cert.pem"), dir.read("key.pem"));
    let check = format!("serve --check-config --listen 127.0.0.1:0 {args}");
    let parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    for (certificate, key) in [
        (format!("Certificate:\n  Issuer: a test\n\n{certificate}\n# the end\n"), format!("Bag Attributes\n{key}")),
        (certificate.replace('\n', "\r\n"), key.replace('\n', "\r\n")),
        (certificate.trim_end().to_owned(), key.trim_end().to_owned()),
        (format!("{certificate}{}", authority.pem()), format!("{parameters}{key}")),
        (format!("{key}{certificate}"), format!("{certificate}{key}")),
        // Regression test: a byte order mark hid the first certificate, or the key, from the reader.
        (format!("\u{feff}{certificate}{}", authority.pem()), format!("\u{feff}{key}")),
    ] {
        dir.write("cert.pem", &certificate);
        dir.write("key.pem", &key);
        ended(0, &check);
        let serving = serve(&args);
        let stream = connect(&serving, &authority, None);
        assert!(stream.is_some_and(|stream| is_answered(&stream)), "{certificate}{key}");
    }
    let other = TestAuthority::new().issue();
    // A key of a kind that is not supported: that of X25519 in RFC 8410, section 10.3.
    let x25519 = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VuBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
    for (certificate, key, why) in [
        // Regression test: the error was `keys may not be consistent: KeyMismatch`.
        (
            format!("{}{certificate}", authority.pem()),
            key.clone(),
            "certificate 2 of the file, which must be the first",
        ),
        (certificate.clone(), other.key, "the key belongs to another certificate"),
        (certificate.clone(), x25519.to_owned(), "it must be RSA of 2,048 to 4,096 bits, ECDSA with"),
        (certificate.clone(), certificate.clone(), "key.pem has no private key in PEM form"),
        (key.clone(), key.clone(), "cert.pem has no certificate in PEM form"),
        (String::new(), key.clone(), "cert.pem has no certificate in PEM form"),
        (certificate.clone(), String::new(), "key.pem has no private key in PEM form"),
        (certificate[..certificate.len() / 2].to_owned(), key.clone(), "cert.pem is not in PEM form"),
        ("\u{1}\u{2}\u{3}".to_owned(), key.clone(), "cert.pem has no certificate in PEM form"),
    ] {
        dir.write("cert.pem", &certificate);
        dir.write("key.pem", &key);
        has(&misused(&check), &["--tls-cert and --tls-key", why]);
    }
}

#[test]
fn what_cannot_be_served_is_refused() {
    let (dir, authority) = (Dir::new("tls-misuse"), TestAuthority::new());
    let args = write(&dir, &authority.issue());
    dir.write("other.pem", authority.issue().key);
    // Regression test: both read "no items found" or "illegal section start".
    dir.write("pkcs8.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n");
    let older = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMIIB\n-----END RSA PRIVATE KEY-----\n";
    dir.write("older.pem", older);
    for (args, why) in [
        (format!("--tls-cert {dir}/cert.pem"), "--tls-cert also needs --tls-key"),
        (format!("--tls-key {dir}/key.pem"), "--tls-key also needs --tls-cert"),
        (format!("--tls-client-ca {dir}/cert.pem"), "--tls-client-ca also needs --tls-cert and --tls-key"),
        (format!("--tls-cert {dir}/no.pem --tls-key {dir}/key.pem"), "no.pem"),
        (format!("--tls-cert {dir}/cert.pem --tls-key {dir}/other.pem"), "other.pem"),
        (
            format!("--tls-cert {dir}/cert.pem --tls-key {dir}/pkcs8.pem"),
            "pkcs8.pem is encrypted, and a password cannot be given",
        ),
        (
            format!("--tls-cert {dir}/cert.pem --tls-key {dir}/older.pem"),
            "decrypt it with `openssl pkey -in KEY -out NEW`",
        ),
        (format!("--server null_epoll {args}"), "the reference null_epoll does not speak TLS"),
    ] {
        has(&misused(&format!("serve --listen 127.0.0.1:0 {args}")), &[why]);
    }
    let load = format!("load https://localhost:1/ --insecure --cert {dir}/cert.pem --key {dir}/pkcs8.pem");
    has(&misused(&load), &["its key is encrypted, and a password cannot be given"]);
    let mut command = polyserve("serve --listen 127.0.0.1:0");
    let output = command.env("POLYSERVE_TLS_KEY", "key.pem").output().expect("the command runs");
    has(&text(&output.stderr), &["POLYSERVE_TLS_KEY also needs --tls-cert"]);
}

/// Other machines reach the server only over TLS and if its users are known, or if the network is trusted.
#[test]
fn an_open_network_must_be_trusted() {
    let (dir, authority) = (Dir::new("tls-network"), TestAuthority::new());
    let args = write(&dir, &authority.issue());
    dir.write("ca.pem", authority.pem());
    dir.write("tokens", super::text(&ended(0, "token alice").stdout));
    let tokens = format!("--tokens {dir}/tokens");
    for args in [
        "--listen 0.0.0.0:0".to_owned(),
        "--listen [::]:0".to_owned(),
        format!("--listen 0.0.0.0:0 {args}"),
        format!("--listen 0.0.0.0:0 {tokens}"),
    ] {
        has(
            &misused(&format!("serve {args}")),
            &["from other machines", "--tokens", "--tls-client-ca", "--trust-network"],
        );
    }
    // The admin address knows no users, whatever the other address asks for.
    for args in ["", &tokens, &format!("{args} {tokens}")] {
        let refused = misused(&format!("serve --listen 127.0.0.1:0 --admin 0.0.0.0:0 {args}"));
        has(&refused, &["--admin 0.0.0.0:0 can be reached from other machines", "--trust-network"]);
    }
    drop(serve("--admin 0.0.0.0:0 --trust-network"));
    let any = "serve --listen 0.0.0.0:0";
    drop(Serving::start(polyserve(&format!("{any} --trust-network"))));
    drop(Serving::start(polyserve(&format!("{any} {args} --tls-client-ca {dir}/ca.pem"))));
    drop(Serving::start(polyserve(&format!("{any} {args} {tokens}"))));
    let mut trusting = polyserve(any);
    trusting.env("POLYSERVE_TRUST_NETWORK", "true");
    drop(Serving::start(trusting));
}

/// Every answer over TLS is verified, in each mode of a load.
#[test]
fn a_load_speaks_tls() {
    let (dir, authority) = (Dir::new("tls-load"), TestAuthority::new());
    let args = write(&dir, &authority.issue());
    dir.write("ca.pem", authority.pem());
    dir.write("other.pem", TestAuthority::new().pem());
    for server in ["pool_server", "tokio_tcp"] {
        let serving = serve(&format!("--server {server} {args}"));
        let line = format!("load https://{}/ --ca {dir}/ca.pem -n 500 --keys 20 --mix get=95,put=5", serving.addr);
        for mode in ["", "--pipeline 16", "--no-keepalive --threads 2", "--rate 2000"] {
            let report = json(&format!("{line} {mode}"));
            let figures = (&report["answered"], &report["first_failure"]);
            assert_eq!(figures, (&500.into(), &serde_json::Value::Null), "{server} {mode}: {report}");
        }
        let refused = failed(&line.replace("ca.pem", "other.pem"));
        has(&refused, &["entities could be stored first"]);
    }
    // A certificate out of its time is not trusted, and the server goes on.
    for (validity, why) in
        [(Validity::Expired, "certificate expired"), (Validity::NotYetValid, "certificate not valid yet")]
    {
        let dir = Dir::new("tls-load-time");
        dir.write("ca.pem", authority.pem());
        let serving = serve(&write(&dir, &authority.issue_while(validity)));
        let url = format!("https://{}", serving.addr);
        let refused = failed(&format!("load {url}/1 --ca {dir}/ca.pem -n 50"));
        has(&refused, &["invalid peer certificate", why]);
        let refused = text(&ended(1, &format!("check --url {url} --ca {dir}/ca.pem --ops 500")).stdout);
        has(&refused, &["the TLS handshake fails", "invalid peer certificate", why]);
        let report = json(&format!("load {url}/ --insecure -n 50 --keys 20 --mix put=1"));
        assert_eq!(report["answered"], 50, "{report}");
    }
    // A server that asks for certificates serves the load with one.
    let alice = authority.issue();
    dir.write("alice.pem", &alice.certificate);
    dir.write("alice-key.pem", &alice.key);
    let serving = serve(&format!("{args} --tls-client-ca {dir}/ca.pem"));
    let line = format!("load https://{}/ --ca {dir}/ca.pem -n 100 --keys 20 --mix get=95,put=5", serving.addr);
    let report = json(&format!("{line} --cert {dir}/alice.pem --key {dir}/alice-key.pem"));
    assert_eq!(report["answered"], 100, "{report}");
    ended(1, &line);
    has(&misused(&format!("{line} --cert {dir}/alice.pem --key {dir}/key.pem")), &["client certificate", "key"]);
    let late = authority.issue_while(Validity::Expired);
    dir.write("late.pem", &late.certificate);
    dir.write("late-key.pem", &late.key);
    ended(1, &format!("{line} --cert {dir}/late.pem --key {dir}/late-key.pem"));
    let report = json(&format!("{line} --cert {dir}/alice.pem --key {dir}/alice-key.pem"));
    assert_eq!(report["answered"], 100, "{report}");
    has(&misused(&format!("load http://{}/ --cert a --key b -n 1", serving.addr)), &["--cert and --key are for https"]);
    // The answer is discovered first.
    let serving = serve(&format!("--service welcome {args}"));
    let report = json(&format!("load https://localhost:{}/ --insecure -n 50", serving.addr.port()));
    assert_eq!(report["answered"], 50, "{report}");
    let other = format!("load https://{}/ --ca {dir}/other.pem -n 50", serving.addr);
    has(&failed(&other), &["invalid peer certificate"]);
}

/// The answers of a server over TLS have an order, and one that is not trusted is named at once.
#[test]
fn a_check_speaks_tls() {
    let (dir, authority) = (Dir::new("tls-check"), TestAuthority::new());
    let args = write(&dir, &authority.issue());
    dir.write("ca.pem", authority.pem());
    dir.write("other.pem", TestAuthority::new().pem());
    for server in ["pool_server", "tokio_hyper"] {
        let serving = serve(&format!("--server {server} {args}"));
        let url = format!("https://localhost:{}", serving.addr.port());
        for trust in [format!("--ca {dir}/ca.pem"), "--insecure".to_owned()] {
            let report = json(&format!("check --url {url} {trust} --ops 500"));
            let figures = (&report["passed"], &report["runs"][0]["operations"], &report["runs"][0]["unknown"]);
            assert_eq!(figures, (&true.into(), &500.into(), &0.into()), "{server}: {report}");
        }
        let refused = text(&ended(1, &format!("check --url {url} --ca {dir}/other.pem --ops 500")).stdout);
        has(&refused, &["cannot be checked: the TLS handshake fails", "invalid peer certificate"]);
    }
    // The name must be one of the certificate.
    let serving = serve(&write(&dir, &authority.issue_to(&["example.org"])));
    let refused = text(&ended(1, &format!("check --url https://{} --ca {dir}/ca.pem --ops 500", serving.addr)).stdout);
    has(&refused, &["invalid peer certificate", "not valid for name"]);
    // A server that asks for certificates answers a client with one.
    let alice = authority.issue();
    dir.write("alice.pem", &alice.certificate);
    dir.write("alice-key.pem", &alice.key);
    let serving = serve(&format!("{} --tls-client-ca {dir}/ca.pem", write(&dir, &authority.issue())));
    let line = format!("check --url https://{} --ca {dir}/ca.pem --ops 300", serving.addr);
    printed(&format!("{line} --cert {dir}/alice.pem --key {dir}/alice-key.pem"));
    has(&text(&ended(1, &line).stdout), &["the TLS handshake fails", "fatal alert"]);
}
