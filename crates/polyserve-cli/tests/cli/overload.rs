//! `polyserve serve --overload`.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Instant;

use super::{Dir, MAX_WAIT, ask, get, has, misused, printed, serve};

/// At the limit, a request is refused, counted and logged; the health check is served.
#[test]
fn a_refused_request_is_counted_and_logged() {
    let dir = Dir::new("serve-overload");
    for server in ["pool_server", "tokio_hyper"] {
        dir.write("access.log", "");
        let mut serving = serve(&format!(
            "--server {server} --overload static:1 --repo-delay 1h --ready /readyz \
             --admin 127.0.0.1:0 --access-log {dir}/access.log"
        ));
        let admin = serving.admin();
        // One of the two is in work for an hour.
        let mut clients = [(); 2].map(|()| TcpStream::connect(serving.addr).expect("it listens"));
        for client in &mut clients {
            client.write_all(get("/1").as_bytes()).expect("it reads");
        }
        let refused = format!(r#"polyserve_overload_refusals_total{{server="{server}",reason="in_work"}} 1"#);
        let start = Instant::now();
        while !ask(admin, &get("/metrics")).contains(&refused) {
            assert!(start.elapsed() < MAX_WAIT, "{refused} is not in {}", ask(admin, &get("/metrics")));
        }
        let health = ask(admin, &get("/healthz"));
        assert!(health.starts_with("HTTP/1.1 200 "), "the process is healthy while it refuses work: {health}");
        // The repo is too slow to say that it is ready.
        let ready = ask(serving.addr, &get("/readyz"));
        assert!(ready.starts_with("HTTP/1.1 503 ") && !ready.contains("overloaded"), "{ready}");
        let answer = ask(serving.addr, &get("/2"));
        has(
            &answer.to_lowercase(),
            &["http/1.1 503 ", "\r\nretry-after: ", "overloaded: too many requests are in work"],
        );
        let log = || std::fs::read_to_string(dir.path("access.log")).expect("it is there");
        let is_refused = |line: &str| line.contains("\"status\":503") && line.contains("\"target\":\"/2\"");
        while !log().lines().any(is_refused) {
            assert!(start.elapsed() < MAX_WAIT, "the refusal is not in {}", log());
        }
    }
}

#[test]
fn a_policy_is_checked() {
    has(&misused("serve --overload fast"), &["--overload \"fast\" is not none, static:N, codel:TIME or gradient"]);
    has(&misused("serve --overload static:0"), &["overload must be static:N with an N of at least 1, not static:0"]);
    has(&misused("serve --overload codel:1h"), &["codel:TIME with a TIME from 10us to 60s"]);
    has(&printed("serve --help"), &["--overload <POLICY>", "POLYSERVE_OVERLOAD"]);
    has(&printed("list"), &["overload policies:\n", "codel:TIME", "gradient"]);
}
