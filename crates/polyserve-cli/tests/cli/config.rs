//! `polyserve serve --config FILE`.

use std::io::{self, Write as _};

use super::handover::as_user;
use super::{Dir, Serving, ask, ended, get, has, misused, polyserve, text};

/// Runs the check of a file. It must be refused, and the error must name the file and have these parts.
fn refused(dir: &Dir, file: &str, parts: &[&str]) {
    dir.write("serve.toml", file);
    let error = misused(&format!("serve --check-config --config {dir}/serve.toml"));
    has(&error, parts);
    has(&error, &["serve.toml:"]);
}

const TAGGED: &str = "\r\netag:";

fn puts_and_gets(serving: &Serving) -> String {
    let entity = r#"{"id":1,"description":"a","value":1.5}"#;
    let put = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{entity}", entity.len());
    assert!(ask(serving.addr, &(put + "GET /1 HTTP/1.0\r\nHost: a\r\n\r\n")).contains("HTTP/1.1 201"));
    ask(serving.addr, &get("/1")).to_lowercase()
}

#[test]
fn its_keys_are_the_flags() {
    let dir = Dir::new("config-keys");
    dir.write(
        "serve.toml",
        "# one line a flag\nserver = 'tokio_tcp'\nlisten = '127.0.0.1:0'\netags = true\nworkers = 2\n\
        head_timeout = '5s'\nstrict_media_type = false\nserver_header = true\nmax_body = '64KiB'\n",
    );
    let serving = Serving::start(polyserve(&format!("serve --config {dir}/serve.toml")));
    let answer = puts_and_gets(&serving);
    has(&answer, &[TAGGED, "\r\nserver: "]);
    let mut command = polyserve("serve");
    command.env("POLYSERVE_CONFIG", dir.path("serve.toml"));
    has(&puts_and_gets(&Serving::start(command)), &[TAGGED]);
}

#[test]
fn flags_and_variables_take_precedence_over_it() {
    let dir = Dir::new("config-precedence");
    dir.write("serve.toml", "listen = '127.0.0.1:0'\netags = true\nworkers = 2\n");
    let by_flag = Serving::start(polyserve(&format!("serve --etags off --config {dir}/serve.toml")));
    assert!(!puts_and_gets(&by_flag).contains(TAGGED));
    let mut by_variable = polyserve(&format!("serve --config {dir}/serve.toml"));
    by_variable.env("POLYSERVE_ETAGS", "off").env("TCP_ADDRESS", "not an address");
    assert!(!puts_and_gets(&Serving::start(by_variable)).contains(TAGGED));
    // A wrong key is an error, also if a flag takes its place.
    refused(&dir, "wrokers = 2\n", &[":1: the key wrokers is unknown, did you mean workers?"]);
}

#[test]
fn an_error_names_the_file_the_line_and_the_key() {
    let dir = Dir::new("config-errors");
    refused(&dir, "server = 'pool_server'\n\nworkers = \n", &[":3: "]);
    refused(&dir, "\nworkers = 0\n", &[":2: ", "workers"]);
    refused(&dir, "workers = [2, 'x']\n", &[":1: ", "workers"]);
    refused(&dir, "workers = { a = 1 }\n", &[":1: workers: it must be a text, a number"]);
    refused(&dir, "server = 'sequential'\nworkers = 2\n", &[":2: ", "workers"]);
    refused(&dir, "etags = true\netags = false\n", &[":2: ", "duplicate"]);
    refused(&dir, "head_timeout = 'soon'\n", &[":1: ", "head-timeout"]);
    refused(&dir, "repo_delay = 'soon'\n", &[":1: repo_delay: "]);
    refused(&dir, "etags = 'maybe'\n", &[":1: etags: ", "on or off"]);
    refused(&dir, "strict_media_type = 'yes'\n", &[":1: strict_media_type: it must be true or false"]);
    refused(&dir, "tls_key = '/nowhere/key.pem'\n", &[":1: ", "--tls-cert"]);
    refused(&dir, "listen = 'nowhere'\n", &[":1: ", "listen"]);
    refused(&dir, "etags = true\ntls_key = 'key'\ntls_cert = '/nowhere'\n", &[":3: ", "--tls-cert", "/nowhere"]);
    refused(&dir, "etags = true\nadmin = '0.0.0.0:0'\n", &[":2: ", "--admin"]);
    refused(&dir, "etags = true\nrepo = 'durabel:data'\n", &[":2: ", "no repo \"durabel\""]);
    refused(&dir, "etags = true\nserver = 'pool'\n", &[":2: ", "no server \"pool\""]);
    // Regression tests: these errors named neither the file nor the line.
    refused(&dir, "etags = true\nadmin = 'nowhere'\n", &[":2: ", "--admin"]);
    refused(&dir, "etags = true\nlisten = '0.0.0.0:0'\n", &[":2: ", "listen"]);
    refused(&dir, "etags = true\nhosts = []\n", &[":2: ", "--hosts"]);
    refused(&dir, "etags = true\npage_wait = '1s'\n", &[":2: ", "--page-wait"]);
    refused(&dir, "etags = true\nhandover = '/'\n", &[":2: ", "--handover"]);
    dir.write("users", "shop read san:shop.example.org\n");
    refused(&dir, &format!("etags = true\ntokens = '{dir}/users'\n"), &[":2: ", "--tls-client-ca"]);
    refused(&dir, "max_connections = 0x10\n", &[":1: max_connections: the number must be decimal"]);
    refused(&dir, "config = 'other.toml'\n", &[":1: the key config is unknown"]);
    refused(&dir, "spin = 5\n", &[":1: the key spin is unknown"]);
    // Regression test: the error had all 45 keys.
    refused(&dir, "zebra = 5\n", &[":1: the key zebra is unknown; the keys are the flags of `polyserve serve --help`"]);
    refused(
        &dir,
        "grace = '5s'\n",
        &[":1: the key grace is unknown, did you mean drain_grace?; the keys are the flags of"],
    );
    has(&misused("serve --config /nowhere/serve.toml"), &["/nowhere/serve.toml cannot be read"]);
}

#[test]
fn a_check_opens_no_repo_and_no_address() {
    let dir = Dir::new("config-check");
    dir.write("serve.toml", format!("repo = 'durable:{dir}/store'\nlisten = '127.0.0.1:1'\n"));
    let output = ended(0, &format!("serve --check-config --config {dir}/serve.toml"));
    assert_eq!(text(&output.stdout), "the configuration can be used\n");
    assert!(!dir.path("store").exists());
    dir.write("serve.toml", "repo = 'nothing'\n");
    has(&misused(&format!("serve --check-config --config {dir}/serve.toml")), &["nothing"]);
}

/// Regression test: the check printed text with `--json`.
#[test]
fn a_check_prints_json() {
    assert_eq!(text(&ended(0, "serve --check-config --json").stdout), "{\"usable\":true}\n");
}

/// Regression test: a check found these usable, and the start failed.
#[test]
fn a_check_looks_at_the_files_that_are_to_be_made() {
    let dir = Dir::new("config-files");
    dir.write("file", "");
    for key in ["access_log", "handover"] {
        for path in ["/nowhere/file".to_owned(), format!("{dir}"), format!("{dir}/file/log"), String::new()] {
            let flag = format!("--{}", key.replace('_', "-"));
            refused(&dir, &format!("etags = true\n{key} = '{path}'\n"), &[":2: ", &flag]);
        }
        dir.write("serve.toml", format!("{key} = '{dir}/new'\n"));
        ended(0, &format!("serve --check-config --config {dir}/serve.toml"));
        assert!(!dir.path("new").exists());
    }
    refused(&dir, &format!("handover = '{dir}/{}'\n", "x".repeat(200)), &[":1: ", "--handover"]);
}

/// Regression test: a check found a directory usable in which the user could make nothing. Only root can become a user that can make nothing in
/// the directory of this test.
#[test]
fn a_check_finds_a_directory_in_which_nothing_can_be_made() {
    let dir = Dir::new("config-directory");
    dir.write("file", "");
    for flag in ["--access-log", "--handover"] {
        let output = as_user(54321, &format!("serve --check-config {flag} {dir}/new")).output();
        let Some(output) = output.ok().filter(|output| !text(&output.stderr).starts_with("setpriv")) else {
            let _ = writeln!(io::stderr(), "not run: a_check_finds_a_directory_in_which_nothing_can_be_made: setpriv");
            return;
        };
        assert_eq!(output.status.code(), Some(2), "{flag}");
        has(&text(&output.stderr), &[flag, "Permission denied"]);
    }
}
