//! Request lines and header fields: valid ones, invalid ones, and their limits.

use std::sync::Arc;

use polyserve_core::Echo;

use super::keep_alive::echo;
use super::status_table::entities;
use super::subject::ServerSubject;
use super::wire::{get, request};
use crate::client::shown;
use crate::property::Outcome;

/// HTTP/1.1 requires exactly one valid `Host`. Its name may be in upper or lower case, and white space may surround the
/// value.
pub fn one_valid_host_is_taken(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let mut client = live.client();
    for host in [
        "Host: a",
        "hOsT:a",
        "HOST: \t a \t ",
        "Host:",
        "Host: a:80",
        "Host: a:",
        "Host: 127.0.0.1:8001",
        "Host: [::1]:80",
        "Host: [::1]",
        "Host: a_b.c-d~",
        "Host: %41",
        "Host: a!$&'()*+;=",
    ] {
        client.send(format!("GET / HTTP/1.1\r\n{host}\r\n\r\n").as_bytes()).expect("the server takes the request");
        let response = client.receive().unwrap_or_else(|failure| panic!("{host}: {failure}"));
        assert_eq!(response.status, 200, "{host}\n{}", client.show());
    }
    Outcome::Held
}

/// A request with no `Host`, two `Host` fields or an invalid `Host` is answered with 400.
pub fn any_other_host_is_refused(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for hosts in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nhost: b\r\n",
        "Host:\r\nHost:\r\n",
        "X-Host: a\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
        "Host: a?b\r\n",
        "Host: a#b\r\n",
        "Host: user@a\r\n",
        "Host: a:b\r\n",
        "Host: a\\b\r\n",
        "Host: http://a\r\n",
        "Host: [::1\r\n",
        "Host: a\"b\r\n",
        "Host: <a>\r\n",
        "Host: \u{e9}\r\n",
    ] {
        let bytes = format!("GET / HTTP/1.1\r\n{hosts}\r\n");
        let mut client = live.client();
        client.send(bytes.as_bytes()).expect("the server takes the request");
        let response = client.receive().unwrap_or_else(|failure| panic!("{}: {failure}", shown(bytes.as_bytes())));
        assert_eq!(response.status, 400, "{}\n{}", shown(bytes.as_bytes()), client.show());
        subject.check_early_problem(&response);
    }
    // An absolute-form target does not replace the field.
    subject.refused(&live, b"GET http://a/ HTTP/1.1\r\n\r\n", &[400]);
    Outcome::Held
}

/// HTTP/1.0 needs no `Host`. Two `Host` fields are answered with 400 in HTTP/1.0 as well.
pub fn a_request_of_1_0_needs_no_host(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    live.ask(b"GET / HTTP/1.0\r\n\r\n", 200);
    live.ask(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n", 200);
    live.ask(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400);
    Outcome::Held
}

/// Values may hold every printable byte and bytes above ASCII, and may be empty. Names may be any token.
pub fn any_valid_field_is_taken(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let mut client = live.client();
    let printable: Vec<u8> = (b' '..=b'~').collect();
    for field in [
        [b"X: ".as_slice(), &printable].concat(),
        b"X: \xe9\xff\x80".to_vec(),
        b"X:".to_vec(),
        b"X:\t \t".to_vec(),
        b"X: a\tb".to_vec(),
        b"!#$%&'*+-.^_`|~09azAZ: x".to_vec(),
        b"X: a: b:".to_vec(),
    ] {
        let bytes = [b"GET / HTTP/1.1\r\nHost: a\r\n".as_slice(), &field, b"\r\n\r\n"].concat();
        client.send(&bytes).expect("the server takes the request");
        let response = client.receive().unwrap_or_else(|failure| panic!("{}: {failure}", shown(&field)));
        assert_eq!(response.status, 200, "{}\n{}", shown(&field), client.show());
    }
    Outcome::Held
}

/// Invalid field lines are answered with 400, and the connection ends: control bytes, bare CR, space before the colon,
/// folding.
pub fn broken_fields_are_refused(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for field in [
        &b"X : y"[..],
        b"X\t: y",
        b"X y: z",
        b" X: y",
        b"\tX: y",
        b"X: y\r\n folded",
        b"X: y\r\n\tfolded",
        b"X: y\r\n ",
        b"X",
        b": y",
        b":",
        b"X(: y",
        b"X@: y",
        b"X\xe9: y",
        b"\"X\": y",
        b"X\0: y",
        b"X: \0",
        b"X: a\x01b",
        b"X: a\x0bb",
        b"X: a\x1bb",
        b"X: a\x7fb",
        b"X: a\rb",
        b"X: a\r",
        b"X: a\r\rb",
        b"\rX: a",
    ] {
        let bytes = [b"GET / HTTP/1.1\r\nHost: a\r\n".as_slice(), field, b"\r\n\r\n"].concat();
        subject.refused_for_good(&live, &bytes, &[400]);
        let first = [b"GET / HTTP/1.1\r\n".as_slice(), field, b"\r\nHost: a\r\n\r\n"].concat();
        subject.refused_for_good(&live, &first, &[400]);
    }
    Outcome::Held
}

/// A bare LF at the end of a line is answered with 400, and the connection ends, unless the server declares otherwise.
pub fn a_bare_lf_ends_no_line(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for bytes in [
        &b"GET / HTTP/1.1\nHost: a\n\n"[..],
        b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\n",
    ] {
        if subject.deviations.bare_lf_ends_a_line {
            live.ask(bytes, 200);
        } else {
            subject.refused_for_good(&live, bytes, &[400]);
        }
    }
    Outcome::Held
}

/// Invalid request lines are answered with 400, and the connection ends.
pub fn broken_request_lines_are_refused(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for line in [
        &b"GET /"[..],
        b"GET",
        b"GET  / HTTP/1.1",
        b"GET /  HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b" GET / HTTP/1.1",
        b"GET / a HTTP/1.1",
        b"GET\t/ HTTP/1.1",
        b"GET / HTTP/1.1 x",
        b"GET  HTTP/1.1",
        b"/ HTTP/1.1",
        b"GET /\x01 HTTP/1.1",
        b"GET /\0 HTTP/1.1",
        b"GET /\x7f HTTP/1.1",
        b"GET /\t HTTP/1.1",
        b"GET /\xc3\xa9 HTTP/1.1",
        b"GET /\r HTTP/1.1",
        b"G@T / HTTP/1.1",
        b"G(T / HTTP/1.1",
        b"GET a HTTP/1.1",
        b"GET ?x HTTP/1.1",
        b"GET a:80 HTTP/1.1",
    ] {
        let bytes = [line, b"\r\nHost: a\r\n\r\n"].concat();
        subject.refused_for_good(&live, &bytes, &[400]);
    }
    Outcome::Held
}

/// Invalid versions and the preface of HTTP/2 are answered with 400, and the connection is closed.
pub fn nonsense_versions_are_refused(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for version in [
        "http/1.1",
        "HTTP/1",
        "HTTP/1.",
        "HTTP/.1",
        "HTTP/1.1x",
        "HTTP/11",
        "HTTP/1.10",
        "HTTP/01.1",
        "HTTP/a.b",
        "HTTP 1.1",
        "HTTP/1,1",
        "HTTPS/1.1",
        "HTP/1.1",
        "HTTP/-1.1",
        "1.1",
        "HTTP/",
    ] {
        subject.refused_for_good(&live, format!("GET / {version}\r\nHost: a\r\n\r\n").as_bytes(), &[400]);
    }
    subject.refused_unfinished(&live, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[400]);
    Outcome::Held
}

/// Versions after 1.1 are answered with 505. Versions before 1.0 are answered with 400 or 505.
pub fn later_versions_are_not_supported(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let statuses: &[u16] = if subject.deviations.later_version_is_400 { &[400] } else { &[505] };
    for version in ["HTTP/1.2", "HTTP/1.9", "HTTP/2.0", "HTTP/3.0", "HTTP/9.9"] {
        subject.refused(&live, format!("GET / {version}\r\nHost: a\r\n\r\n").as_bytes(), statuses);
    }
    subject.refused(&live, b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", &[400, 505]);
    Outcome::Held
}

/// A HEAD request that is refused before the service is called has no body in its answer.
pub fn a_refused_head_gets_no_body(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for (bytes, status) in [
        (b"HEAD / HTTP/1.1\r\n\r\n".to_vec(), 400),
        (request("HEAD", "/", "X : y\r\n"), 400),
        (request("HEAD", "/", "Expect: x\r\nConnection: close\r\n"), 417),
        (request("HEAD", "/", &format!("X: {}\r\n", "x".repeat(20_000))), 431),
    ] {
        let mut client = live.client();
        let sent = client.send(&bytes);
        let response = client.receive_head().unwrap_or_else(|failure| panic!("{}: {failure}", shown(&bytes)));
        assert_eq!(response.status, status, "{}\n{}", shown(&bytes), client.show());
        if response.closes() {
            client.expect_end();
        }
        drop(sent);
    }
    Outcome::Held
}

/// Bytes that are not HTTP are answered with 400, and the connection ends.
pub fn garbage_is_refused(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
        b"hello\r\n\r\n",
        b"{\"id\":1}\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"\xff\xfe\xfd\r\n\r\n",
        b"EHLO example.org\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ] {
        subject.refused_for_good(&live, garbage, &[400]);
    }
    live.ask(&get("/"), 200);
    Outcome::Held
}

/// Unknown methods, CONNECT and TRACE are answered with 501. Method names are case-sensitive.
pub fn unknown_methods_are_not_implemented(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let statuses: &[u16] = if subject.deviations.unknown_method_is_400 { &[400] } else { &[501] };
    for method in ["BREW", "get", "Get", "GETT", "GE", "TRACE", "PROPFIND", "!#$%&'*+-.^_`|~"] {
        subject.refused(&live, &request(method, "/", ""), statuses);
    }
    subject.refused(&live, &request("CONNECT", "a:80", ""), statuses);
    Outcome::Held
}

/// `OPTIONS *` and absolute-form targets reach the service, as the client sent them.
pub fn other_forms_of_target_are_taken(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    for bytes in [
        request("OPTIONS", "*", ""),
        get("http://a/"),
        get("http://a:80/x?y"),
        get("https://b/"),
        get("/a%20b/~!$&'()*+,;=:@?/?"),
    ] {
        live.ask(&bytes, 200);
    }
    // OPTIONS of a URL without a path names the server, as `*` does (RFC 9112, 3.2.4).
    let live = entities(subject);
    let allowed = |target: &str| live.ask(&request("OPTIONS", target, ""), 204).header("Allow").map(str::to_owned);
    assert!(allowed("/") != allowed("*"), "the properties of the server are not those of a path");
    let server = if subject.deviations.urls_without_a_path_get_a_slash { "/" } else { "*" };
    for target in ["http://a", "http://a:80", "HTTP://[::1]"] {
        assert_eq!(allowed(target), allowed(server), "{target}");
    }
    for target in ["http://a/", "http://a?q", "/?q"] {
        assert_eq!(allowed(target), allowed("/"), "{target}");
    }
    Outcome::Held
}

/// A head longer than `max_head` is refused before it ends: 414 if the request line alone is too long, else 431.
pub fn a_head_past_its_limit_is_too_large(subject: &ServerSubject) -> Outcome {
    let live = subject.live(Arc::new(Echo), |config| config.max_head = 1024);
    let padded = |total: usize| {
        let rest = request("GET", "/", "X: \r\n").len();
        request("GET", "/", &format!("X: {}\r\n", "x".repeat(total - rest)))
    };
    live.ask(&padded(1024), 200);
    for total in [1100, 5_000, 100_000] {
        subject.refused_for_good(&live, &padded(total), &[431]);
        let target = format!("/{}", "x".repeat(total));
        subject.refused_for_good(&live, &get(&target), &[414]);
    }
    // The server does not wait for an end that may never come.
    subject.refused_unfinished(&live, &[b"GET /".as_slice(), &[b'x'; 2_000]].concat(), &[414]);
    let endless = [b"GET / HTTP/1.1\r\nHost: a\r\nX: ".as_slice(), &[b'x'; 2_000]].concat();
    subject.refused_unfinished(&live, &endless, &[431]);
    let lines = [b"GET / HTTP/1.1\r\nHost: a\r\n".as_slice(), &b"X: y\r\n".repeat(300)].concat();
    subject.refused_unfinished(&live, &lines, &[431]);
    Outcome::Held
}

/// By default a head of 15 KiB is read and a head of 17 KiB is answered with 431.
pub fn the_default_head_is_16_kib(subject: &ServerSubject) -> Outcome {
    let live = echo(subject);
    let sized = |kib: usize| request("GET", "/", &format!("X: {}\r\n", "x".repeat(kib * 1024)));
    live.ask(&sized(15), 200);
    subject.refused_for_good(&live, &sized(17), &[431]);
    Outcome::Held
}

/// More fields than `max_headers` are answered with 431.
pub fn more_fields_than_the_limit_are_too_many(subject: &ServerSubject) -> Outcome {
    let live = subject.live(Arc::new(Echo), |config| config.max_headers = 10);
    live.ask(&request("GET", "/", &"X: y\r\n".repeat(9)), 200);
    subject.refused_for_good(&live, &request("GET", "/", &"X: y\r\n".repeat(10)), &[431]);
    let default = echo(subject);
    default.ask(&request("GET", "/", &"X: y\r\n".repeat(99)), 200);
    subject.refused_for_good(&default, &request("GET", "/", &"X: y\r\n".repeat(100)), &[431]);
    Outcome::Held
}
