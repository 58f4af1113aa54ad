use std::io::Write as _;
use std::net::TcpStream;
use std::time::Instant;

use rustix::process::Signal;

use super::{PATIENCE, Serving, ask, misused, polyserve, run, text};

const ANY: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

fn serve(args: &[&str]) -> Serving {
    Serving::start(polyserve(&[&ANY[..], args].concat()))
}

#[test]
fn it_serves_drains_and_says_what_it_did() {
    for (server, signal) in
        [("pool_server", Signal::INT), ("sequential", Signal::TERM), ("leader_followers", Signal::INT)]
    {
        let serving = serve(&["--server", server, "--repo", "std_mutex"]);
        let body = r#"{"id":1,"description":"one","value":60.750847}"#;
        let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}", body.len());
        assert!(ask(serving.addr, &format!("{head}\r\n\r\n{body}")).starts_with("HTTP/1.1 201 "), "{server}");
        let answer = ask(serving.addr, "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(body), "{server}: {answer}");
        serving.signal(signal);
        let (status, rest) = serving.end();
        assert_eq!((status.code(), rest.as_str()), (Some(0), "answered 2, cut 0, stuck 0\n"), "{server}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_reference_is_served_by_its_name() {
    for name in ["null_epoll", "null_accept"] {
        let serving = serve(&["--server", name, "--requests-per-connection", "1"]);
        let answer = ask(serving.addr, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(polyserve_lab::reference::BODY), "{answer}");
        serving.signal(Signal::INT);
        let (status, rest) = serving.end();
        assert_eq!((status.code(), rest.as_str()), (Some(0), "answered 1, cut 0, stuck 0\n"), "{name}");
    }
}

#[test]
fn every_service_answers() {
    for (service, request, answered) in [
        ("welcome", "GET /welcome HTTP/1.0\r\n\r\n", "Welcome!"),
        ("echo", "POST /any HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi", "hi"),
        ("page", "GET / HTTP/1.0\r\n\r\n", "</html>\n"),
    ] {
        let answer = ask(serve(&["--service", service]).addr, request);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(answered), "{answer}");
    }
}

#[test]
fn json_says_the_same() {
    let mut command = polyserve(&[&ANY[..], &["--json"]].concat());
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let listening: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(listening["listening"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{line}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    assert_eq!(rest, "{\"answered\":0,\"cut\":0,\"stuck\":0}\n");
    assert!(child.wait().unwrap().success());
}

/// A drain that waits for a slow answer is the user's to break off.
#[test]
fn a_second_signal_exits_at_once() {
    let slow = ["--service", "page", "--page-every", "1", "--page-wait", "10m", "--answer-timeout", "20m"];
    let serving = serve(&[&slow[..], &["--drain-grace", "10m"]].concat());
    let mut waiting = TcpStream::connect(serving.addr).unwrap();
    waiting.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    serving.signal(Signal::INT);
    // The listener closes once the drain has begun: then the first signal is through, and the next is a second one.
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(serving.addr).is_ok() {
        assert!(Instant::now() < deadline, "the drain does not begin");
        std::thread::yield_now();
    }
    serving.signal(Signal::TERM);
    let (status, rest) = serving.end();
    assert_eq!((status.code(), rest.as_str()), (Some(128 + 15), ""));
}

/// Every source has an address of its own, so that the printed one tells which source counted.
#[test]
fn the_flag_comes_before_the_variables() {
    let published = ("TCP_ADDRESS", "127.0.0.4:0");
    let ours = ("POLYSERVE_LISTEN", "127.0.0.3:0");
    let flag: &[&str] = &["--listen", "127.0.0.2:0"];
    for (args, variables, ip) in [
        (flag, vec![ours, published], "127.0.0.2"),
        (&[], vec![ours, published], "127.0.0.3"),
        (&[], vec![published], "127.0.0.4"),
        (&[], vec![("TCP_ADDRESS", "localhost:0")], "127.0.0.1"),
    ] {
        let mut command = polyserve(&[&["serve"], args].concat());
        command.envs(variables);
        assert_eq!(Serving::start(command).addr.ip().to_string(), ip);
    }
}

#[test]
fn the_published_pool_size_suits_every_server_and_our_own_does_not() {
    for server in ["pool_server", "sequential", "leader_followers"] {
        let mut command = polyserve(&[&ANY[..], &["--server", server]].concat());
        drop(Serving::start({
            command.env("THREAD_POOL_SIZE", "3");
            command
        }));
    }
    let error = misused(&["serve", "--server", "sequential", "--workers", "3"]);
    assert!(error.contains("workers must be 1 for sequential"), "{error}");
}

/// `--queue` was ignored by every server without a queue.
#[test]
fn a_flag_that_the_server_does_not_have_is_refused() {
    for server in ["sequential", "leader_followers", "tokio_tcp", "tokio_per_core", "tokio_hyper", "smol"] {
        let error = misused(&["serve", "--server", server, "--queue", "5"]);
        assert!(error.contains(&format!("queue cannot be set for {server}")), "{error}");
    }
    drop(serve(&["--server", "pool_server", "--queue", "5"]));
    drop(serve(&["--server", "futures_pool", "--queue", "5"]));
}

/// A variable may be meant for another server, so it is left out with a warning. The log has no colour codes, because its
/// standard error is no terminal.
#[test]
fn a_variable_that_the_server_does_not_have_warns() {
    let sequential = ["--server", "sequential"];
    for (variable, value) in [("POLYSERVE_QUEUE", "5"), ("POLYSERVE_WORKERS", "3"), ("THREAD_POOL_SIZE", "3")] {
        check_warning(&sequential, variable, value);
    }
}

/// The echo service ignored the variable without a warning.
#[test]
fn a_variable_that_the_service_does_not_have_warns() {
    check_warning(&["--service", "echo"], "POLYSERVE_STRICT_MEDIA_TYPE", "true");
}

/// Serves with `args` and the variable, and checks that the log has a warning without colour codes.
#[track_caller]
fn check_warning(args: &[&str], variable: &str, value: &str) {
    let mut command = polyserve(&[&ANY[..], args].concat());
    let mut serving = Serving::start({
        command.env(variable, value).stderr(std::process::Stdio::piped());
        command
    });
    let mut stderr = serving.child.stderr.take().unwrap();
    serving.signal(Signal::INT);
    assert!(serving.end().0.success());
    let mut log = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut log).unwrap();
    assert!(log.contains(variable) && log.contains("WARN"), "{log}");
    assert!(!log.contains('\u{1b}'), "colour codes: {log:?}");
}

/// `text/plain`, as JMeter sends it, was refused on every server.
#[test]
fn a_media_type_is_judged_only_if_that_is_asked_for() {
    let body = r#"{"id":1,"description":"one","value":1.5}"#;
    let head = "PUT / HTTP/1.0\r\nContent-Type: text/plain; charset=UTF-8\r\nContent-Length";
    let put = format!("{head}: {}\r\n\r\n{body}", body.len());
    assert!(ask(serve(&[]).addr, &put).starts_with("HTTP/1.1 201 "));
    assert!(ask(serve(&["--strict-media-type"]).addr, &put).starts_with("HTTP/1.1 415 "));
    let mut command = polyserve(&ANY);
    let strict = Serving::start({
        command.env("POLYSERVE_STRICT_MEDIA_TYPE", "true");
        command
    });
    assert!(ask(strict.addr, &put).starts_with("HTTP/1.1 415 "));
    assert!(misused(&["serve", "--service", "echo", "--strict-media-type"]).contains("--service entity"));
}

/// A misspelt variable was ignored.
#[test]
fn an_unknown_variable_is_an_error() {
    for args in [&["list"][..], &["serve"]] {
        let output = polyserve(args).env("POLYSERVE_QUEU", "5").output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("POLYSERVE_QUEU") && error.contains("did you mean POLYSERVE_QUEUE?"), "{error}");
    }
}

#[test]
fn a_refused_pool_size_is_an_error() {
    for value in ["0", "many", "100000"] {
        let output = polyserve(&["serve"]).env("THREAD_POOL_SIZE", value).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("THREAD_POOL_SIZE"), "{}", text(&output.stderr));
    }
}

/// The flag's name before.
#[test]
fn the_server_header_has_an_alias() {
    let answer = ask(serve(&["--banner", "me"]).addr, "GET /1 HTTP/1.0\r\n\r\n");
    assert!(answer.contains("\r\nServer: me\r\n"), "{answer}");
    assert!(!text(&run(&["serve", "--help"]).stdout).contains("--banner"));
}

#[test]
fn what_is_wrong_is_named_with_what_is_right() {
    let error = misused(&["serve", "--server", "nope"]);
    assert!(misused(&["serve", "--server", "null_epol"]).contains("no server \"null_epol\"; there are: sequential"));
    for name in ["no server \"nope\"", "sequential", "leader_followers", "pool_server/mpsc_pool"] {
        assert!(error.contains(name), "{error}");
    }
    assert!(misused(&["serve", "--repo", "two_levels"]).contains("did you mean \"two_level\"?"));
    assert!(misused(&["serve", "--service", "nope"]).contains("entity, echo, page, welcome"));
    assert!(misused(&["serve", "--head-timeout", "10"]).contains("--head-timeout \"10\" is not a time such as 10s"));
    assert!(misused(&["serve", "--workers", "0"]).contains("--workers \"0\" is refused: workers must be from 1"));
    assert!(misused(&["serve", "--listen", "nonsense"]).contains("--listen \"nonsense\""));
    assert!(misused(&["serve", "--page-every", "2"]).contains("--service page"));
    assert!(misused(&["serve", "--page-wait", "x", "--service", "page"]).contains("--page-wait"));
    assert!(misused(&["serve", "--no-such-flag"]).contains("--no-such-flag"));
    let output = polyserve(&["serve"]).env("POLYSERVE_QUEUE", "much").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("POLYSERVE_QUEUE=\"much\""), "{}", text(&output.stderr));
    let output = polyserve(&["list"]).env("POLYSERVE_LOG", "loud").output().unwrap();
    assert!(text(&output.stderr).contains("POLYSERVE_LOG=\"loud\""), "{}", text(&output.stderr));
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let serving = serve(&[]);
    let output = run(&["serve", "--listen", &serving.addr.to_string()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&serving.addr.to_string()), "{}", text(&output.stderr));
}

#[test]
fn flags_reach_the_server() {
    let serving = serve(&["--max-body", "1KiB", "--server-header", "me", "--defer-accept", "--max-head=64KiB"]);
    let request = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\nExpect: 100-continue\r\n\r\n";
    let answer = ask(serving.addr, request);
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("\r\nServer: me\r\n"), "{answer}");
}

/// What `polyserve compare` starts ends with it, and answers alike however slow it is made.
#[test]
fn it_can_end_with_its_standard_input_and_be_slowed() {
    let mut command = polyserve(&[&ANY[..], &["--until-stdin-ends", "--spin", "1000"]].concat());
    let mut serving = Serving::start({
        command.stdin(std::process::Stdio::piped());
        command
    });
    let answer = ask(serving.addr, "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    drop(serving.child.stdin.take());
    let (status, rest) = serving.end();
    assert_eq!((status.code(), rest.as_str()), (Some(0), "answered 1, cut 0, stuck 0\n"));
}

/// A look-up takes as long as it was told to; storing what is new does not.
#[test]
fn a_repo_takes_its_time() {
    let serving = Serving::start(polyserve(&["serve", "--listen=127.0.0.1:0", "--server=smol", "--repo-delay=30ms"]));
    let entity = r#"{"id":1,"description":"one","value":1.5}"#;
    let put = format!(
        "PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{entity}",
        entity.len()
    );
    assert!(ask(serving.addr, &put).starts_with("HTTP/1.1 201 "));
    let start = std::time::Instant::now();
    let answer = ask(serving.addr, "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(start.elapsed() >= std::time::Duration::from_millis(30));
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(entity), "{answer}");
    assert!(misused(&["serve", "--repo-delay=2h"]).contains("more than an hour"));
}
