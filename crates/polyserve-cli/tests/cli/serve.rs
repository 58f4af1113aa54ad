use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::Signal;

use super::{
    Dir, MAX_WAIT, Serving, allowed, ask, ended, failed, get, has, misused, polyserve, printed, serve, text, until,
};

const ANY: &str = "serve --listen 127.0.0.1:0";

/// [`serve`], with an environment variable.
fn serve_with(variable: &str, value: &str, args: &str) -> Serving {
    let mut command = polyserve(&format!("{ANY} {args}"));
    command.env(variable, value);
    Serving::start(command)
}

/// A PUT of an entity. The server closes the connection.
fn put(entity: &str, content_type: &str) -> String {
    let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: {content_type}");
    format!("{head}\r\nContent-Length: {}\r\n\r\n{entity}", entity.len())
}

#[test]
fn it_serves_drains_and_says_what_it_did() {
    for (server, signal) in
        [("pool_server", Signal::INT), ("sequential", Signal::TERM), ("leader_followers", Signal::HUP)]
    {
        let serving = serve(&format!("--server {server} --repo std_mutex"));
        let body = r#"{"id":1,"description":"one","value":60.750847}"#;
        assert!(ask(serving.addr, &put(body, "application/json")).starts_with("HTTP/1.1 201 "), "{server}");
        let answer = ask(serving.addr, &get("/1"));
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(body), "{server}: {answer}");
        assert_eq!(serving.drained(signal), "answered 2, cut 0, stuck 0\n", "{server}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_reference_is_served_by_its_name() {
    for name in ["null_epoll", "null_deferred", "null_accept"] {
        let serving = serve(&format!("--server {name} --requests-per-connection 1"));
        let answer = ask(serving.addr, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(polyserve_bench::reference::BODY), "{answer}");
        assert_eq!(serving.drained(Signal::INT), "answered 1, cut 0, stuck 0\n", "{name}");
    }
}

#[test]
fn every_service_answers() {
    for (service, request, answered) in [
        ("welcome", "GET / HTTP/1.0\r\n\r\n", "Welcome!"),
        ("echo", "POST /any HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi", "hi"),
        ("page", "GET / HTTP/1.0\r\n\r\n", "</html>\n"),
    ] {
        let answer = ask(serve(&format!("--service {service}")).addr, request);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(answered), "{answer}");
    }
}

/// The preface of HTTP/2, and an empty SETTINGS frame: the server answers with its own (RFC 9113, 3.4).
#[test]
fn http_2_is_served_if_it_is_asked_for() {
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let serving = serve("--server tokio_hyper --http2");
    let mut client = TcpStream::connect(serving.addr).unwrap();
    client.write_all(preface.as_bytes()).unwrap();
    let mut head = [0; 9];
    client.read_exact(&mut head).unwrap();
    assert_eq!((head[3], head[4] & 1), (4, 0), "{head:?} is no head of a SETTINGS frame");
    assert!(ask(serving.addr, &get("/1")).starts_with("HTTP/1.1 404 "));

    let serving = serve("--server tokio_hyper");
    assert!(ask(serving.addr, preface).starts_with("HTTP/1.1 400 "));
}

/// Regression test: the servers over an executor ignored a setting that they do not have.
#[test]
fn every_server_refuses_a_setting_that_it_has_not() {
    for server in ["pool_server/mpsc_pool", "pool_classic/mpsc_pool", "tokio_tcp", "sequential"] {
        let kind = server.split('/').next().unwrap();
        for setting in ["http2", "pin", "spread"] {
            let error = misused(&format!("{ANY} --server {server} --{setting}"));
            assert!(error.contains(&format!("{setting} must be left out for {kind}")), "{error}");
        }
    }
}

/// The file is read for each request, by every kind of server.
#[test]
fn the_page_may_be_a_file() {
    let dir = Dir::new("serve-page-file");
    let path = dir.path("page.html");
    for server in ["pool_server", "tokio_tcp"] {
        dir.write("page.html", "first\n");
        let wait = "--service page --page-every 2 --page-wait 1ms";
        let serving = serve(&format!("--server {server} {wait} --page-file {}", path.display()));
        let get = || ask(serving.addr, "GET / HTTP/1.0\r\n\r\n");
        assert!(get().ends_with("\r\n\r\nfirst\n"), "{server}");
        dir.write("page.html", "second\n");
        assert!(get().ends_with("\r\n\r\nsecond\n"), "{server}");
        std::fs::remove_file(&path).unwrap();
        assert!(get().starts_with("HTTP/1.1 500 "), "{server}");
    }
}

#[test]
fn json_says_the_same() {
    let mut child = polyserve(&format!("{ANY} --json")).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let listening: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(listening["listening"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{line}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    assert_eq!(rest, "{\"answered\":0,\"cut\":0,\"entities\":0,\"stuck\":0}\n");
    assert!(child.wait().unwrap().success());
}

/// A second signal ends a drain that waits for a slow answer.
#[test]
fn a_second_signal_exits_at_once() {
    let slow = "--service page --page-every 1 --page-wait 10m --answer-timeout 20m";
    let mut serving = serve(&format!("{slow} --drain-grace 10m"));
    let mut waiting = TcpStream::connect(serving.addr).unwrap();
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    serving.signal(Signal::INT);
    // A signal counts as the second from one second after the first on.
    until("no signal ends it", || {
        serving.signal(Signal::TERM);
        serving.child.try_wait().unwrap().is_some()
    });
    let (status, rest) = serving.end();
    assert_eq!((status.code(), rest.as_str()), (Some(128 + 15), ""));
}

/// Regression test: after the drain, the process waited for the number of entities for as long as the repo took.
#[test]
fn a_repo_that_does_not_answer_does_not_hold_the_end() {
    let serving = serve("--repo-delay 1h --drain-grace 0s");
    assert_eq!(serving.drained(Signal::TERM), "answered 0, cut 0, stuck 0\n");
}

/// Regression test: `timeout` signals a program and then its process group, and the second signal cut a request.
#[test]
fn signals_at_once_are_one_signal() {
    let serving = serve("");
    let mut client = TcpStream::connect(serving.addr).unwrap();
    let body = r#"{"id":1,"description":"a","value":1.0}"#;
    let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    let (first, rest) = body.split_at(10);
    client.write_all(format!("{head}{first}").as_bytes()).unwrap();
    for signal in [Signal::TERM, Signal::TERM, Signal::INT, Signal::HUP, Signal::TERM] {
        serving.signal(signal);
    }
    // The listener closes when the drain has begun.
    until("the drain does not begin", || TcpStream::connect(serving.addr).is_err());
    client.write_all(rest.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    let (status, rest) = serving.end();
    assert_eq!((status.code(), rest.as_str()), (Some(0), "answered 1, cut 0, stuck 0\n"));
}

/// Regression test: under `nohup`, the end of the terminal ended the server; a Ctrl-C in the terminal of a script ended its
/// background jobs.
#[test]
fn signals_that_the_parent_ignores_stay_ignored() {
    let ignored = |pid: u32, field: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        [Signal::INT, Signal::HUP, Signal::TERM].map(|signal| mask & (1 << (signal.as_raw() - 1)) != 0)
    };
    let command = polyserve(ANY);
    let [_, ref program, ref args @ ..] = command.get_args().collect::<Vec<_>>()[..] else { panic!("a command") };
    let mut ignoring = std::process::Command::new("env");
    ignoring.arg("--ignore-signal=INT,HUP").arg(program).args(args);
    for (command, expected) in [(ignoring, [true, true, false]), (polyserve(ANY), [false; 3])] {
        let serving = Serving::start(command);
        assert_eq!(ignored(serving.child.id(), "SigIgn:"), expected);
        assert_eq!(ignored(serving.child.id(), "SigCgt:"), expected.map(|ignored| !ignored));
        if expected[0] {
            serving.signal(Signal::INT);
            serving.signal(Signal::HUP);
            assert!(ask(serving.addr, "GET /1 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 404 "));
        }
        serving.drained(Signal::TERM);
    }
}

/// Every source has an address of its own, so that the printed one tells which source counted.
#[test]
fn the_flag_comes_before_the_variables() {
    let published = ("TCP_ADDRESS", "127.0.0.4:0");
    let ours = ("POLYSERVE_LISTEN", "127.0.0.3:0");
    for (args, variables, ip) in [
        ("--listen 127.0.0.2:0", vec![ours, published], "127.0.0.2"),
        ("", vec![ours, published], "127.0.0.3"),
        ("", vec![published], "127.0.0.4"),
        ("", vec![("TCP_ADDRESS", "localhost:0")], "127.0.0.1"),
    ] {
        let mut command = polyserve(&format!("serve {args}"));
        command.envs(variables);
        assert_eq!(Serving::start(command).addr.ip().to_string(), ip);
    }
}

/// Servers without a pool accept the published variable too.
#[test]
fn the_published_pool_size_suits_every_server() {
    for server in ["pool_server", "sequential", "leader_followers"] {
        drop(serve_with("THREAD_POOL_SIZE", "3", &format!("--server {server}")));
    }
}

/// Regression test: servers without a queue ignored `--queue`.
#[test]
fn a_flag_that_the_server_does_not_have_is_refused() {
    for server in ["sequential", "leader_followers", "tokio_tcp", "tokio_per_core", "tokio_hyper", "smol", "epoll"] {
        let error = misused(&format!("serve --server {server} --queue 5"));
        has(&error, &[&format!("queue must be left out for {server}")]);
    }
    drop(serve("--server pool_server --queue 5"));
    drop(serve("--server futures_pool --queue 5"));
}

/// A variable may be meant for another server or service, so it is left out with a warning. The log has no colour codes,
/// because its standard error is no terminal.
#[test]
fn a_variable_that_does_not_apply_warns() {
    for (args, variable, value) in [
        ("--server sequential", "POLYSERVE_QUEUE", "5"),
        ("--server sequential", "POLYSERVE_WORKERS", "3"),
        ("--server sequential", "THREAD_POOL_SIZE", "3"),
        ("--service echo", "POLYSERVE_STRICT_MEDIA_TYPE", "true"),
        ("--service echo", "POLYSERVE_ETAGS", "on"),
        ("", "POLYSERVE_ACCESS_LOG_FORMAT", "common"),
        ("", "POLYSERVE_ACCESS_LOG_SAMPLE", "10"),
        ("", "POLYSERVE_ACCESS_LOG_RATE", "10"),
    ] {
        let mut command = polyserve(&format!("{ANY} {args}"));
        command.env(variable, value);
        let (serving, mut stderr) = Serving::logging(command);
        serving.drained(Signal::INT);
        let mut log = String::new();
        stderr.read_to_string(&mut log).unwrap();
        has(&log, &[variable, "WARN"]);
        assert!(!log.contains('\u{1b}'), "colour codes: {log:?}");
    }
}

/// Regression test: every server rejected `text/plain`, which JMeter sends.
#[test]
fn a_media_type_is_judged_only_if_that_is_asked_for() {
    let put = put(r#"{"id":1,"description":"one","value":1.5}"#, "text/plain; charset=UTF-8");
    assert!(ask(serve("").addr, &put).starts_with("HTTP/1.1 201 "));
    assert!(ask(serve("--strict-media-type").addr, &put).starts_with("HTTP/1.1 415 "));
    let strict = serve_with("POLYSERVE_STRICT_MEDIA_TYPE", "true", "");
    assert!(ask(strict.addr, &put).starts_with("HTTP/1.1 415 "));
}

/// Without `--ready`, the path is that of an entity.
#[test]
fn a_health_check_is_answered_if_that_is_asked_for() {
    let ask = |serving: &Serving, method: &str| {
        ask(serving.addr, &format!("{method} /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
    };
    assert!(ask(&serve(""), "GET").starts_with("HTTP/1.1 400 "));
    for serving in [serve("--ready /readyz"), serve_with("POLYSERVE_READY", "/readyz", "--service echo")] {
        has(&ask(&serving, "GET"), &["HTTP/1.1 200 ", "\r\n\r\nready"]);
        assert!(ask(&serving, "HEAD").starts_with("HTTP/1.1 200 "));
        has(&ask(&serving, "POST"), &["HTTP/1.1 405 ", "Allow: GET, HEAD, OPTIONS\r\n"]);
    }
    let serving = serve_with("POLYSERVE_READY", "/readyz", "--ready /other");
    assert!(ask(&serving, "GET").starts_with("HTTP/1.1 400 "), "the flag wins");
    let slow = serve("--ready /readyz --repo-delay 10m");
    has(&ask(&slow, "GET"), &["HTTP/1.1 503 ", "The store does not answer."]);
    // A request that began before the drain is told of the drain.
    let draining = serve("--ready /readyz");
    let mut client = TcpStream::connect(draining.addr).unwrap();
    client.write_all(b"GET /readyz HTTP/1.1\r\n").unwrap();
    draining.signal(Signal::TERM);
    until("the drain does not begin", || TcpStream::connect(draining.addr).is_err());
    client.write_all(b"Host: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    has(&answer, &["HTTP/1.1 503 ", "shutting down"]);
    assert!(draining.end().0.success());
}

#[test]
fn entities_have_tags_if_that_is_asked_for() {
    let put = put(r#"{"id":1,"description":"one","value":1.5}"#, "application/json");
    let create = put.replacen("\r\n", "\r\nIf-None-Match: *\r\n", 1);
    for (serving, has_tags) in [
        (serve(""), false),
        (serve("--etags off"), false),
        (serve("--etags on"), true),
        (serve_with("POLYSERVE_ETAGS", "on", ""), true),
        (serve_with("POLYSERVE_ETAGS", "on", "--etags off"), false),
    ] {
        assert_eq!(ask(serving.addr, &put).contains("\r\nETag: \""), has_tags);
        assert!(ask(serving.addr, &create).starts_with("HTTP/1.1 412 "), "conditions are evaluated in any case");
    }
}

/// The flag's former name.
#[test]
fn the_server_header_has_an_alias() {
    let answer = ask(serve("--banner me").addr, "GET /1 HTTP/1.0\r\n\r\n");
    has(&answer, &["\r\nServer: me\r\n"]);
    assert!(!printed("serve --help").contains("--banner"));
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let serving = serve("");
    let output = ended(1, &format!("serve --listen {}", serving.addr));
    has(&text(&output.stderr), &[&serving.addr.to_string()]);
}

#[test]
fn flags_reach_the_server() {
    let serving = serve("--max-body 1KiB --server-header me --defer-accept --max-head=64KiB");
    let request = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\nExpect: 100-continue\r\n\r\n";
    let answer = ask(serving.addr, request);
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("\r\nServer: me\r\n"), "{answer}");
}

/// A server that `polyserve compare` starts ends with the comparison. `--spin` does not change its answers.
#[test]
fn it_can_end_with_its_standard_input_and_be_slowed() {
    let mut command = polyserve(&format!("{ANY} --until-stdin-ends --spin 1000"));
    command.stdin(Stdio::piped());
    let mut serving = Serving::start(command);
    assert!(ask(serving.addr, &get("/1")).starts_with("HTTP/1.1 404 "));
    drop(serving.child.stdin.take());
    let (status, rest) = serving.end();
    assert_eq!((status.code(), rest.as_str()), (Some(0), "answered 1, cut 0, stuck 0\n"));
}

/// Regression test: the Redis client logged a warning for each try, and the error had its cause twice.
#[cfg(feature = "redis")]
#[test]
fn an_engine_that_is_not_there_is_one_line() {
    let error = failed(&format!("{ANY} --repo redis_cluster:redis://127.0.0.1:1"));
    has(&error, &["error: the repo redis_cluster cannot be opened: cannot connect to redis_cluster: "]);
    assert_eq!((error.lines().count(), error.matches("Connection refused").count()), (1, 1), "{error}");
}

/// From the first signal on, the health checks fail and requests are served, until the time is over. Then the server drains.
#[test]
fn the_admin_address_outlives_the_drain() {
    let mut serving = serve("--admin 127.0.0.1:0 --lame-duck 60s --ready /ready");
    let admin = serving.admin();
    assert!(ask(serving.addr, &get("/1")).starts_with("HTTP/1.1 404 "));
    for (addr, path) in [(admin, "/healthz"), (admin, "/readyz"), (serving.addr, "/ready")] {
        assert!(ask(addr, &get(path)).starts_with("HTTP/1.1 200 "), "{path}");
    }
    let metrics = ask(admin, &get("/metrics"));
    has(
        &metrics,
        &[r#"_count{http_request_method="GET",http_response_status_code="404"} 1"#, r#"{server="pool_server"}"#],
    );
    serving.signal(Signal::TERM);
    until("it stays ready", || !ask(admin, &get("/readyz")).starts_with("HTTP/1.1 200 "));
    assert!(ask(serving.addr, &get("/ready")).starts_with("HTTP/1.1 503 "));
    assert!(ask(serving.addr, &get("/1")).starts_with("HTTP/1.1 404 "), "requests are served");
    assert!(ask(admin, &get("/healthz")).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_time_to_the_drain_has_a_bound() {
    has(&misused("serve --lame-duck 2h"), &["--lame-duck \"2h\"", "at most an hour"]);
    let output = polyserve(ANY).env("POLYSERVE_LAME_DUCK", "soon").output().expect("the command runs");
    has(&text(&output.stderr), &["POLYSERVE_LAME_DUCK \"soon\"", "at most an hour"]);
    assert_eq!(output.status.code(), Some(2));
}

/// The admin address only reads, knows no entities, and answers a probe however many connections are open to it. The address of the
/// entities has none of its paths.
#[test]
fn the_admin_address_is_apart() {
    let mut serving = serve("--admin 127.0.0.1:0");
    let admin = serving.admin();
    assert!(
        ask(serving.addr, &put(r#"{"id":1,"description":"secret","value":1.5}"#, "application/json")).contains(" 201 ")
    );
    assert!(ask(serving.addr, &get("/1")).contains("secret"));
    for (method, path, status) in [
        ("GET", "/1", 404),
        ("GET", "/", 404),
        ("GET", "/../1", 404),
        ("POST", "/metrics", 405),
        ("PUT", "/healthz", 405),
        ("DELETE", "/readyz", 405),
        ("GET", "/metrics", 200),
    ] {
        let answer = ask(
            admin,
            &format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        );
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{method} {path}: {answer}");
        assert!(!answer.contains("secret"), "{answer}");
    }
    let crowd: Vec<_> = (0..200).map(|_| TcpStream::connect(admin).expect("it listens")).collect();
    until("a crowd keeps a probe out", || ask(admin, &get("/healthz")).starts_with("HTTP/1.1 200 "));
    assert!(ask(serving.addr, &get("/1")).contains("secret"));
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert!(ask(serving.addr, &get(path)).starts_with("HTTP/1.1 4"), "{path}");
    }
    drop(crowd);
}

/// The log has every answer, also of a request that the server refuses, once the process has ended.
#[test]
fn the_access_log_has_every_answer() {
    let dir = Dir::new("serve-access-log");
    let path = dir.path("access.log");
    for server in ["pool_server", "tokio_hyper"] {
        dir.write("access.log", "");
        let serving = serve(&format!("--server {server} --access-log {}", path.display()));
        assert!(ask(serving.addr, &get("/1")).starts_with("HTTP/1.1 404 "));
        assert!(ask(serving.addr, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "));
        serving.drained(Signal::TERM);
        let log = std::fs::read_to_string(&path).expect("it was written");
        let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let seen: Vec<_> = lines.iter().map(|line| (line["status"].as_u64(), line["target"].as_str())).collect();
        assert_eq!(seen, [(Some(404), Some("/1")), (Some(400), None)], "{server}");
    }
}

/// Whatever bytes a client sends, the combined log has a line for each answer, with three texts between quotes.
#[test]
fn the_combined_log_has_three_texts_a_line() {
    let dir = Dir::new("serve-combined-log");
    let path = dir.path("access.log");
    for server in ["pool_server", "tokio_hyper"] {
        dir.write("access.log", "");
        let serving = serve(&format!("--server {server} --access-log {} --access-log-format combined", path.display()));
        let mut client = TcpStream::connect(serving.addr).expect("it listens");
        client.set_read_timeout(Some(MAX_WAIT)).expect("a timeout can be set");
        client
            .write_all(
                b"GET /1?' HTTP/1.1\r\nHost: a\r\nReferer: \" 200 1 \"-\"\r\nUser-Agent: a\\\"\xc2\x85\xe2\x80\xa8\x9b b\r\n\r\n\
                  GET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            )
            .expect("it reads");
        let mut answers = Vec::new();
        client.read_to_end(&mut answers).expect("it answers and closes");
        serving.drained(Signal::TERM);
        let log = std::fs::read_to_string(&path).expect("it was written");
        let lines: Vec<&str> = log.lines().collect();
        let [first, second] = lines[..] else { panic!("{server}: {log}") };
        assert!(first.starts_with("127.0.0.1 - - ["), "{first}");
        assert!(
            first.ends_with(r#" "\x22 200 1 \x22-\x22" "a\x5c\x22\xc2\x85\xe2\x80\xa8\x9b b""#)
                && first.contains(r#"] "GET /1?' HTTP/1.1" 404 "#),
            "{first}"
        );
        assert!(second.ends_with(r#" "-" "-""#) && second.contains(r#"] "GET /2 HTTP/1.1" 404 "#), "{second}");
    }
}

/// Regression test: a start with a pipe that nothing reads did not end, and a SIGTERM did not end it either.
#[test]
fn an_access_log_may_be_a_pipe_with_a_reader() {
    let dir = Dir::new("serve-access-log-pipe");
    dir.write("notes", ""); // it makes the directory
    let path = dir.path("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
    let flags = format!("--access-log {}", path.display());
    has(
        &misused(&format!("serve --listen 127.0.0.1:0 {flags}")),
        &["cannot be opened: no process reads from the pipe"],
    );
    let reader = path.clone();
    let read = thread::spawn(move || std::fs::read_to_string(reader).expect("it is read"));
    // The pipe has a reader when the thread has opened it.
    let writer = std::fs::OpenOptions::new().write(true).open(&path).expect("it waits for the reader");
    let serving = serve(&flags);
    drop(writer);
    assert!(ask(serving.addr, &get("/1")).starts_with("HTTP/1.1 404 "));
    serving.drained(Signal::TERM);
    has(&read.join().expect("it has read"), &["\"status\":404"]);
}

#[test]
fn the_settings_of_the_access_log_are_checked() {
    for (args, why) in [
        ("--access-log /no/such/directory/log", "--access-log /no/such/directory/log cannot be opened"),
        ("--access-log - --access-log-format xml", "--access-log-format \"xml\" must be json, common or combined"),
        ("--access-log - --access-log-sample 0", "--access-log-sample \"0\" is not a number of at least 1"),
        // Without a log they were ignored.
        ("--access-log-format common", "--access-log-format needs an access log: add --access-log PATH"),
        ("--access-log-sample 2", "--access-log-sample needs an access log: add --access-log PATH"),
        ("--access-log-rate 2", "--access-log-rate needs an access log: add --access-log PATH"),
    ] {
        has(&misused(&format!("serve {args}")), &[why]);
    }
}

/// Regression test: tokio panicked if the system refused one of its threads, and waited for ever for the others. The other servers said
/// "Resource temporarily unavailable". Root has no limit of threads, so it becomes a user that has nothing else; for another user the
/// test is not run, because the limit counts all that this user runs.
#[test]
fn a_refused_thread_is_an_error_that_names_the_limits() {
    for server in
        ["pool_server", "pool_server/tokio_tasks", "tokio_tcp", "tokio_per_core", "tokio_hyper", "smol", "epoll"]
    {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "20", "setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]);
        command.args(["prlimit", "--nproc=50", env!("CARGO_BIN_EXE_polyserve"), "serve", "--server", server]);
        let output = command.args(["--listen", "127.0.0.1:0", "--workers", "200"]).output().expect("it runs");
        let error = text(&output.stderr);
        if ["setpriv", "prlimit", "timeout"].iter().any(|program| error.starts_with(program)) {
            eprintln!("not run: {error}");
            return;
        }
        assert_eq!(output.status.code(), Some(1), "{server}: {error}");
        has(&error, &["cannot serve on 127.0.0.1:0: the system refuses to start a thread", "ulimit -u", "pids.max"]);
    }
}

/// Regression test: a log that was not read stopped all threads that logged, and a signal did not end the process.
#[test]
fn output_that_is_not_read_stops_nothing() {
    const BATCH: usize = 100;
    let test = "output_that_is_not_read_stops_nothing";
    for server in allowed(test, &["pool_server", "epoll", "tokio_tcp"]) {
        // The pipe has room for some 400 lines of either kind. An access log says at its end that it has dropped some.
        for (log, requests) in [("--log debug", 2_000), ("--access-log -", 12_000)] {
            let (reader, writer) = io::pipe().expect("a pipe can be made");
            let mut command = polyserve(&format!("{ANY} --server {server} {log}"));
            command.stdout(writer.try_clone().expect("it is open")).stderr(writer);
            let child = command.spawn().expect("the command runs");
            let mut serving = Serving::over(child, OwnedFd::from(reader).into());
            let batch = format!("{}{}", "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(BATCH - 1), get("/1"));
            for _ in 0..requests / BATCH {
                assert_eq!(ask(serving.addr, &batch).matches("HTTP/1.1 404 ").count(), BATCH, "{server} {log}");
            }
            serving.signal(Signal::TERM);
            let mut status = None;
            until("it ends", || {
                status = serving.child.try_wait().expect("it is ours");
                status.is_some()
            });
            assert_eq!(status.and_then(|status| status.code()), Some(0), "{server} {log}");
        }
    }
}
