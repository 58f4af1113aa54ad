//! `polyserve serve --tokens` and `--hosts`, on every server, and `polyserve token`.

use std::io::BufRead as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use polyserve_conformance::client::{Client, Response};
use polyserve_conformance::tls::{Issued, TestAuthority, TlsStream};
use rustix::process::Signal;
use serde_json::Value;

use super::{Dir, MAX_WAIT, Serving, ask, ended, get, has, json, misused, polyserve, serve, text, until};

/// A user of a test.
struct User {
    token: String,
    line: String,
}

impl User {
    fn new(name: &str, scopes: &str) -> Self {
        let made = json(&format!("token {name} --scopes {scopes}"));
        let text = |key: &str| made[key].as_str().expect("it is text").to_owned();
        Self { token: text("token"), line: text("line") }
    }
}

fn write(dir: &Dir, users: &[&User]) {
    let lines: Vec<&str> = users.iter().map(|user| user.line.as_str()).collect();
    dir.write("tokens", lines.join("\n"));
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(dir.path("tokens"), mode).expect("it is ours");
}

fn servers() -> Vec<String> {
    let list = json("list");
    let servers = list["servers"].as_array().expect("a list").iter();
    let names: Vec<_> = servers.map(|server| server["name"].as_str().expect("a name").to_owned()).collect();
    assert!(names.len() > 8, "{names:?}");
    names
}

fn connect(serving: &Serving) -> Client {
    Client::connect(serving.addr, MAX_WAIT).expect("the server listens")
}

/// Sends a request with these fields, and returns the answer.
fn exchange(client: &mut Client, line: &str, fields: &str, body: &str) -> Response {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    client.send(format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}{length}\r\n{body}").as_bytes()).expect("it reads");
    let answer = if line.starts_with("HEAD") { client.receive_head() } else { client.receive() };
    answer.unwrap_or_else(|error| panic!("{line} {fields}: {error}"))
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

const ENTITY: &str = r#"{"id":1,"description":"a","value":1.5}"#;

#[test]
fn every_server_asks_for_a_token() {
    let dir = Dir::new("access-tokens");
    let (alice, reader, writer) =
        (User::new("alice", "read,write"), User::new("reader", "read"), User::new("writer", "write"));
    write(&dir, &[&alice, &reader, &writer]);
    for server in servers() {
        dir.write("log", "");
        let serving = serve(&format!("--server {server} --tokens {dir}/tokens --ready /readyz --access-log {dir}/log"));
        let mut client = connect(&serving);
        let (alice, reader, writer) = (bearer(&alice.token), bearer(&reader.token), bearer(&writer.token));
        let wrong = bearer(&"0".repeat(64));
        let realm = r#"Bearer realm="polyserve""#;
        let with = |error: &str| format!(r#"{realm}, error="{error}""#);
        for (line, fields, body, status, challenge) in [
            ("GET /1", "", "", 401, Some(realm.to_owned())),
            ("HEAD /1", "", "", 401, Some(realm.to_owned())),
            ("PUT /", "", ENTITY, 401, Some(realm.to_owned())),
            ("GET /1", "Authorization: Basic YTpi\r\n", "", 401, Some(realm.to_owned())),
            ("GET /1", &wrong, "", 401, Some(with("invalid_token"))),
            ("GET /1", "Authorization: Bearer\r\n", "", 400, Some(with("invalid_request"))),
            ("GET /1", "Authorization: Bearer a b\r\n", "", 400, Some(with("invalid_request"))),
            ("GET /1", &format!("{alice}{alice}"), "", 400, Some(with("invalid_request"))),
            ("PUT /", &reader, ENTITY, 403, Some(with("insufficient_scope") + r#", scope="write""#)),
            ("DELETE /1", &reader, "", 403, Some(with("insufficient_scope") + r#", scope="write""#)),
            ("GET /1", &writer, "", 403, Some(with("insufficient_scope") + r#", scope="read""#)),
            ("PUT /", &alice, ENTITY, 201, None),
            ("PUT /", &writer, ENTITY, 200, None),
            ("GET /1", &reader, "", 200, None),
            ("GET /1", &reader.replace("Bearer", "bearer"), "", 200, None),
            ("HEAD /1", &reader, "", 200, None),
            ("OPTIONS /1", &reader, "", 204, None),
            ("OPTIONS *", "", "", 401, Some(realm.to_owned())),
            ("GET /readyz?verbose", "", "", 200, None),
            ("GET /readyz/", "", "", 401, Some(realm.to_owned())),
        ] {
            let answer = exchange(&mut client, line, fields, body);
            let seen = (answer.status, answer.header("WWW-Authenticate").map(str::to_owned));
            assert_eq!(seen, (status, challenge), "{server}: {line} {fields}");
            assert!(!answer.closes(), "{server}: {line} {fields}: the connection stays");
        }
        // The body of a refused request is no request.
        for expect in ["", "Expect: 100-continue\r\n"] {
            let mut client = connect(&serving);
            let hidden = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
            let head = format!("PUT / HTTP/1.1\r\nHost: a\r\n{expect}Content-Length: {}\r\n\r\n", hidden.len());
            client.send(head.as_bytes()).expect("it reads");
            let refused = client.receive().expect("it is refused without its body");
            assert_eq!(refused.status, 401, "{server}");
            let next = format!("{hidden}GET /1 HTTP/1.1\r\nHost: a\r\n{reader}Connection: close\r\n\r\n");
            let _ = client.send(next.as_bytes()); // the server may have closed
            let mut rest = Vec::new();
            while let Ok(answer) = client.receive() {
                rest.push(answer.status);
            }
            assert!(rest.is_empty() || rest == [200], "{server}: {rest:?}");
        }
        drop(client);
        serving.drained(Signal::TERM);
        let logged = dir.read("log");
        let logged: Vec<Value> = logged.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
        let of = |user: &str, status: u16| {
            logged.iter().filter(|line| line["user"] == user && line["status"] == status).count()
        };
        assert!(of("alice", 201) == 1 && of("writer", 200) == 1 && of("reader", 200) >= 3, "{server}: {logged:?}");
        assert!(of("reader", 403) >= 1 && of("writer", 403) == 1, "{server}: {logged:?}");
        let unknown = logged.iter().filter(|line| line["status"] == 401).all(|line| line["user"].is_null());
        assert!(unknown, "{server}: {logged:?}");
    }
}

/// The status of the answer to a request over a new connection of the client with this certificate.
fn asked_over_tls(serving: &Serving, authority: &TestAuthority, identity: &Issued, request: &str) -> String {
    let deadline = Instant::now() + MAX_WAIT;
    let socket = TcpStream::connect(serving.addr).expect("the server listens");
    let stream = TlsStream::new(socket, authority.client(rustls::DEFAULT_VERSIONS, Some(identity)));
    stream.shake_hands(deadline).expect("the certificate is of the authority");
    stream.send(request.as_bytes(), deadline).expect("the server reads");
    let mut answer = [0; 4096];
    let length = stream.read(&mut answer, deadline).expect("the server answers");
    String::from_utf8_lossy(&answer[9..length.min(12)]).into_owned()
}

#[test]
fn a_certificate_is_a_user_on_every_server() {
    let (dir, authority, alice) = (Dir::new("access-certificates"), TestAuthority::new(), User::new("alice", "read"));
    let Issued { certificate, key } = authority.issue();
    dir.write("cert.pem", certificate);
    dir.write("key.pem", key);
    dir.write("ca.pem", authority.pem());
    let lines = [alice.line.as_str(), "shop read san:shop.example.org", "ops read,write san:spiffe://example.org/ops"];
    dir.write("tokens", lines.join("\n"));
    let shop = authority.issue_to(&["a.example.org", "SHOP.example.org"]);
    let ops = authority.issue_to(&["spiffe://example.org/ops"]);
    let unknown = authority.issue_to(&["example.org", "spiffe://example.org/ops/x"]);
    let (get, put) = (
        "GET /1 HTTP/1.1\r\nHost: a\r\n",
        format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n", ENTITY.len()),
    );
    let (get, put) = (format!("{get}\r\n"), format!("{put}\r\n{ENTITY}"));
    let with = |token: &str| get.replace("Host", &format!("{}Host", bearer(token)));
    for server in servers() {
        dir.write("log", "");
        let serving = serve(&format!(
            "--server {server} --tls-cert {dir}/cert.pem --tls-key {dir}/key.pem \
             --tls-client-ca {dir}/ca.pem --tokens {dir}/tokens --access-log {dir}/log"
        ));
        for (identity, request, status) in [
            (&shop, &get, "404"),
            (&shop, &put, "403"),
            (&ops, &put, "201"),
            (&shop, &get, "200"),
            (&unknown, &get, "403"),
            (&unknown, &put, "403"),
            (&unknown, &with(&alice.token), "200"),
            (&ops, &with("0"), "401"), // the token counts
        ] {
            assert_eq!(asked_over_tls(&serving, &authority, identity, request), status, "{server}: {request}");
        }
        serving.drained(Signal::TERM);
        let log = std::fs::read_to_string(dir.path("log")).expect("it is written");
        let users: Vec<_> =
            log.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["user"].clone()).collect();
        let expected = [Some("shop"), Some("shop"), Some("ops"), Some("shop"), None, None, Some("alice"), None];
        assert_eq!(users, expected.map(|user| user.map_or(Value::Null, Value::from)), "{server}: {log}");
    }
    let args =
        format!("serve --listen 127.0.0.1:0 --tls-cert {dir}/cert.pem --tls-key {dir}/key.pem --tokens {dir}/tokens");
    has(&misused(&args), &["has users with certificates", "--tls-client-ca"]);
}

#[test]
fn a_load_sends_a_token_with_every_request() {
    let (dir, alice) = (Dir::new("access-load"), User::new("alice", "read,write"));
    write(&dir, &[&alice]);
    dir.write("requests", "{\"url\": \"/1\"}\n{\"url\": \"/2\"}\n");
    let serving = serve(&format!("--tokens {dir}/tokens"));
    let url = format!("http://{}/", serving.addr);
    for traffic in ["--keys 10 --mix get=1,put=1".to_owned(), format!("--file {dir}/requests")] {
        let load = |token: &str| {
            let mut load = polyserve(&format!("load {url} {traffic} --requests 200 --connections 2"));
            load.arg("--header").arg(bearer(token).trim_end()).output().expect("it runs")
        };
        let output = load(&alice.token);
        assert!(output.status.success(), "{traffic}: {}", text(&output.stderr));
        assert!(!load("unknown").status.success(), "{traffic}");
    }
    let mut load = polyserve(&format!("load {url} --keys 10 --requests 10"));
    let output = load.args(["--header", "Host: a"]).output().expect("it runs");
    has(&text(&output.stderr), &["the header field Host is the load's own"]);
}

#[test]
fn a_check_sends_a_token_with_every_request() {
    let (dir, alice) = (Dir::new("access-check"), User::new("alice", "read,write"));
    write(&dir, &[&alice]);
    let serving = serve(&format!("--tokens {dir}/tokens"));
    let check = |token: &str| {
        let mut check = polyserve(&format!("check --url http://{} --ops 200 -H", serving.addr));
        check.arg(bearer(token).trim_end()).output().expect("it runs")
    };
    let output = check(&alice.token);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    has(&text(&check("unknown").stdout), &["401"]);
}

/// DNS rebinding: a page of another site reaches the server by a name of its own.
#[test]
fn every_server_answers_for_its_hosts_only() {
    for server in servers() {
        let serving = serve(&format!("--server {server} --hosts example.org,[::1]:9 --ready /readyz"));
        for (target, host, status) in [
            ("/1", "example.org", 404),
            ("/1", "EXAMPLE.ORG:8001", 404),
            ("/1", "[::1]:9", 404),
            ("/1", "[::1]:8", 421),
            ("/1", "evil.example", 421),
            ("/1", "", 400),
            ("http://example.org/1", "evil.example", 404),
            ("http://evil.example/1", "example.org", 421),
            ("/readyz", "10.0.0.1:8001", 200),
        ] {
            let answer =
                ask(serving.addr, &format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{server}: {target} {host}: {answer}");
        }
        let unnamed = ask(serving.addr, "GET /1 HTTP/1.0\r\n\r\n");
        assert!(unnamed.starts_with("HTTP/1.") && unnamed[8..].starts_with(" 421 "), "{server}: {unnamed}");
    }
}

/// New users are served on SIGHUP, and if the file changes. A file with a mistake changes nothing.
#[test]
fn the_users_change_without_a_restart() {
    let dir = Dir::new("access-reload");
    let [first, second, third] = [(); 3].map(|()| User::new("alice", "read"));
    write(&dir, &[&first]);
    let command = polyserve(&format!("serve --listen 127.0.0.1:0 --tokens {dir}/tokens"));
    let (serving, mut log) = Serving::logging(command);
    let mut client = connect(&serving);
    let mut is_served = |user: &User| exchange(&mut client, "GET /1", &bearer(&user.token), "").status == 404;
    assert!(is_served(&first) && !is_served(&second));
    let mut until = |user: &User| until("the new file is not read", || is_served(user));

    write(&dir, &[&second]);
    serving.signal(Signal::HUP);
    until(&second);

    dir.write("tokens", format!("{}\nbob secret-of-bob", second.line));
    serving.signal(Signal::HUP);
    let mut line = String::new();
    log.read_line(&mut line).expect("it logs text");
    has(&line, &["ERROR", "the old one stays in use", "line 2"]);
    assert!(!line.contains("secret-of-bob"), "{line}");
    until(&second);

    // Regression test: a reload used what a start refuses.
    dir.write("tokens", format!("{}\nbob read san:bob.example.org", third.line));
    serving.signal(Signal::HUP);
    line.clear();
    log.read_line(&mut line).expect("it logs text");
    has(&line, &["ERROR", "the old one stays in use", "--tls-client-ca"]);
    until(&second);

    write(&dir, &[&second, &third]);
    until(&third);
    until(&second);
    serving.drained(Signal::TERM);
}

#[test]
fn a_token_is_shown_once_and_its_line_has_none() {
    let made = ended(0, "token alice --scopes read,write");
    let (line, shown) = (text(&made.stdout), text(&made.stderr));
    let token = shown.trim().rsplit(' ').next().expect("it is at the end");
    assert!(token.len() == 64 && !line.contains(token), "{line} {shown}");
    assert!(line.starts_with("alice read,write sha256:") && line.lines().count() == 1, "{line}");
    assert_ne!(made.stdout, ended(0, "token alice --scopes read,write").stdout, "it is random");
    has(&misused("token a,b"), &["\"a,b\"", "letters"]);
    ended(2, "token alice --scopes admin");
}

#[test]
fn what_cannot_be_judged_is_refused() {
    let dir = Dir::new("access-misuse");
    dir.write("empty", "# nothing\n");
    let alice = User::new("alice", "read");
    write(&dir, &[&alice]);
    for (args, why) in [
        (format!("--tokens {dir}/none"), "none"),
        (format!("--tokens {dir}/empty"), "there is no user"),
        ("--hosts a,,b".to_owned(), "\"\" is not a host"),
        (format!("--server null_epoll --tokens {dir}/tokens"), "the reference null_epoll serves all clients"),
        ("--server null_epoll --hosts a".to_owned(), "the reference null_epoll serves all clients"),
    ] {
        has(&misused(&format!("serve --listen 127.0.0.1:0 {args}")), &[why]);
    }
    std::fs::set_permissions(dir.path("tokens"), std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    let warned = ended(0, &format!("serve --check-config --listen 127.0.0.1:0 --tokens {dir}/tokens"));
    has(&text(&warned.stderr), &["WARN", "may read or change the file of tokens", "644"]);
}

/// What a file of tokens may look like: it is read, or refused by an error that tells what to change and has no token.
#[test]
fn a_file_of_many_forms_is_read_or_refused() {
    let (dir, alice) = (Dir::new("access-forms"), User::new("alice", "read"));
    let (line, hash) = (&alice.line, alice.line.rsplit(' ').next().expect("the hash is last"));
    let args = format!("--listen 127.0.0.1:0 --tokens {dir}/tokens");
    for file in [
        format!("{line}\r\n"),
        format!("# users\r\n\r\n  {line} \t\r\n\r\n"),
        format!("alice\tread   {hash}"),
        // Regression test: a byte order mark was a part of the name, which was refused.
        format!("\u{feff}{line}\n"),
        format!("\u{feff}# users\n{line}\n"),
    ] {
        dir.write("tokens", &file);
        ended(0, &format!("serve --check-config {args}"));
        let serving = serve(&format!("--tokens {dir}/tokens"));
        assert_eq!(exchange(&mut connect(&serving), "GET /1", &bearer(&alice.token), "").status, 404, "{file:?}");
    }
    for (file, why) in [
        (String::new().into_bytes(), "there is no user"),
        (b"\r\n\r\n".to_vec(), "there is no user"),
        (format!("{line}\n\n{line}\n").into_bytes(), "line 3: another line has the same credential"),
        (format!("{line}\nbob write {hash}\n").into_bytes(), "line 2: another line has the same credential"),
        (alice.token.clone().into_bytes(), "line 1: a line is NAME SCOPES sha256:HASH"),
        (format!("alice read {}", alice.token).into_bytes(), "line 1: a credential is sha256:HASH or san:NAME"),
        // As some shells write it.
        (
            format!("\u{feff}{line}").encode_utf16().flat_map(u16::to_le_bytes).collect(),
            "the content is not UTF-8 text",
        ),
    ] {
        dir.write("tokens", &file);
        let error = misused(&format!("serve --check-config {args}"));
        has(&error, &["--tokens", "tokens: ", why]);
        assert!(!error.contains(&alice.token), "{error}");
    }
}

/// The metrics count what was refused, by reason.
#[test]
fn the_metrics_count_refused_requests() {
    let dir = Dir::new("access-metrics");
    let reader = User::new("reader", "read");
    write(&dir, &[&reader]);
    let mut serving = serve(&format!("--admin 127.0.0.1:0 --tokens {dir}/tokens --hosts a"));
    let admin = serving.admin();
    let mut client = connect(&serving);
    assert_eq!(exchange(&mut client, "GET /1", "", "").status, 401);
    assert_eq!(exchange(&mut client, "GET /1", &bearer("a"), "").status, 401);
    assert_eq!(exchange(&mut client, "GET /1", "Authorization: Bearer ,\r\n", "").status, 400);
    assert_eq!(exchange(&mut client, "DELETE /1", &bearer(&reader.token), "").status, 403);
    assert_eq!(exchange(&mut client, "GET http://b/1", &bearer(&reader.token), "").status, 421);
    let metrics = ask(admin, &get("/metrics"));
    for reason in ["no_credentials", "invalid_token", "invalid_request", "insufficient_scope", "wrong_host"] {
        has(&metrics, &[&format!("polyserve_refused_requests_total{{reason=\"{reason}\"}} 1")]);
    }
}
