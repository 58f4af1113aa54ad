//! `tokio_hyper` gives the answers of the servers on this project's own codec, except for the declared differences.

use polyserve_async::{TokioHyper, TokioTcp};
use polyserve_conformance::client::{Client, Ending};
use polyserve_core::{EntityService, Running, Server, ServerConfig, ServerExt};
use polyserve_memory::StdMutex;

use super::support::{ENTITY, GET, MAX_WAIT};

const MAX_HEAD: usize = 1024;

fn config() -> ServerConfig {
    ServerConfig::default().max_head(MAX_HEAD).max_body(100).max_headers(8)
}

fn serve(server: &impl Server) -> Running {
    server.serve(([127, 0, 0, 1], 0), EntityService::new(StdMutex::new())).expect("it serves")
}

/// What a client reads after it has sent `pieces` and closed its writing side.
#[derive(Debug, PartialEq)]
struct Exchange {
    statuses: Vec<u16>,
    /// The last answer says that the connection closes.
    says_close: bool,
    ending: Ending,
}

fn exchange(running: &Running, pieces: &[&[u8]]) -> Exchange {
    let mut client = Client::connect(running.local_addr(), MAX_WAIT).expect("the server accepts connections");
    for piece in pieces {
        if client.send(piece).is_err() {
            break; // the server has refused it
        }
    }
    let _ = client.half_close(); // fails if the server has closed
    let (bytes, ending) = client.end();
    let text = String::from_utf8_lossy(&bytes);
    let status = |answer: &str| answer.get(..3).and_then(|code| code.parse().ok());
    let answers: Vec<&str> = text.split("HTTP/1.1 ").filter(|answer| status(answer).is_some()).collect();
    let statuses = answers.iter().filter_map(|answer| status(answer)).collect();
    let says_close = answers.last().is_some_and(|last| last.to_ascii_lowercase().contains("connection: close"));
    Exchange { statuses, says_close, ending }
}

fn chunked(target: &str, fields: &str, body: &str) -> String {
    format!("PUT {target} HTTP/1.1\r\nHost: a\r\n{fields}Transfer-Encoding: chunked\r\n\r\n{body}")
}

fn sized(target: &str, fields: &str, body: &str) -> String {
    format!("PUT {target} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// Inputs after which a request follows. Both servers answer them alike.
fn alike() -> Vec<String> {
    let long = "x".repeat(2000);
    let fifty = format!("32\r\n{}\r\n", "x".repeat(50));
    let get = |fields: &str| format!("GET /1 HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let mut inputs = vec![
        String::new(),
        get(""),
        sized("/", "", ENTITY),
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello".to_owned(),
        chunked("/", "", "5\r\nhel"),
        sized("/", "Expect: 200-ok\r\n", ENTITY),
        sized("/", "", &long),
        sized("/x", "", &long),
        chunked("/", "", &format!("3e8\r\n{long}")),
        chunked("/", "", &format!("{fifty}{fifty}{fifty}0\r\n\r\n")),
        format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
        get(&format!("a: {long}\r\n")),
        format!("{long} / HTTP/1.1\r\nHost: a\r\n\r\n"),
        get(&"a: b\r\n".repeat(8)),
        get(&"a: b\r\n".repeat(120)),
        get("Transfer-Encoding: gzip, chunked\r\n") + "0\r\n\r\n",
        get("Transfer-Encoding: gzip\r\n"),
        get("Transfer-Encoding: chunked, chunked\r\n") + "0\r\n\r\n",
        "PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        get("Content-Length: 1, 1\r\n") + "a",
        get("Content-Length: +1\r\n") + "a",
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551614\r\n\r\n".to_owned(),
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551617\r\n\r\n".to_owned(),
        chunked("/", "", &whole()),
        chunked("/", "", "fffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        chunked("/", "", &format!("0\r\n{}\r\n", "a: b\r\n".repeat(9))),
        chunked("/", "", "0\r\na: b\n\n"),
        chunked("/", "", &format!("{}{}\r\n", chunks_without_end(), trailers(MAX_HEAD))),
        chunked("/", "", &format!("{}{}\r\n", chunks_without_end(), trailers(MAX_HEAD + 8))),
        get("Connection: close, \u{e9}\r\n"),
        get("Connection: \u{e9}\r\nConnection: close\r\n"),
        "GET /1 HTTP/1.0\r\n\r\n".to_owned(),
        "GET /1 HTTP/1.1\nHost: a\n\n".to_owned(),
        "GET /1#a HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET http://a/1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET ftp://a/1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "HEAD /1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "HEAD /1 HTTP/1.1\r\n\r\n".to_owned(),
        "GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(),
        get("Connection: upgrade\r\nUpgrade: websocket\r\n"),
        "G".to_owned(),
        "GET / HTTP/1.1\r\nHost: a".to_owned(),
        "\r".to_owned(),
        "\0".to_owned(),
    ];
    // Regression test: hyper reads the bytes after a malformed chunked body as trailers, so the next request was lost, and another
    // peer could see another one. It also accepts control bytes in chunk extensions and white space after a chunk's size.
    for end in [
        "0;a=\"b\"\r\nx: y\r\n\r\n",
        "0\r\n\n",
        "0\r\na: b\n\n",
        "0\r\na: b\n\r\n",
        "0\n\r\n",
        "0;a\x01\r\n\r\n",
        "0 \r\n\r\n",
    ] {
        inputs.push(chunked("/", "", &format!("{:x}\r\n{ENTITY}\r\n{end}", ENTITY.len())));
    }
    for after_size in [" ", ";\0"] {
        inputs.push(chunked("/", "", &format!("{:x}{after_size}\r\n{ENTITY}\r\n0\r\n\r\n", ENTITY.len())));
    }
    // Regression test: a bare LF ended a line of a head, and the connection was kept.
    for head in ["GET /1 HTTP/1.1\nHost: a\n\n", "GET /1 HTTP/1.1\r\nHost: a\nX: y\r\n\r\n"] {
        inputs.push(format!("{GET}{head}"));
    }
    for count in [1, 31, 32] {
        let lines = "\r\n".repeat(count);
        inputs.push(lines.clone());
        inputs.push(format!("{GET}{lines}"));
    }
    for host in ["a_b~.c", "a!$&'()*+,;=", "[::1]:80", "[v1.a:b]", "a:", "a:99999999999", "a@b", "a b", ":80"] {
        inputs.push(format!("GET http://{host}/1 HTTP/1.1\r\nHost: a\r\n\r\n"));
    }
    for byte in ["\r", "\0", "\t", " ", "\x7f", "\u{e9}", "\"", "<", "%", "%4", "%zz", "|"] {
        inputs.push(format!("GET /{byte} HTTP/1.1\r\nHost: a\r\n\r\n"));
        inputs.push(get(&format!("a: b{byte}c\r\n")));
        inputs.push(get(&format!("a{byte}b: c\r\n")));
    }
    inputs
}

/// Requests that the service refuses by their head. Their body is whole, malformed, too large or cut short.
fn refused_by_their_head() -> Vec<String> {
    let mut inputs = Vec::new();
    for (target, fields) in [("/x", ""), ("/1/2", ""), ("/", "Content-Encoding: gzip\r\n")] {
        for body in [&whole(), "x\r\n", "3e8\r\n", "5\r\nhello", "0\r\na: b\n\n"] {
            inputs.push(chunked(target, fields, body));
        }
    }
    inputs
}

fn whole() -> String {
    chunks_without_end() + "\r\n"
}

/// The entity in chunks, without the line that ends the trailers.
fn chunks_without_end() -> String {
    format!("{:x}\r\n{ENTITY}\r\n0\r\n", ENTITY.len())
}

/// Eight trailers, with `length` bytes in their names and values.
fn trailers(length: usize) -> String {
    format!("a:{}\r\n", "x".repeat(length / 8 - 1)).repeat(8)
}

/// Calls `check` with the answers of `tokio_hyper` and of `tokio_tcp` to each input and the request after it. Each input is
/// sent in one piece, in two and in single bytes.
fn compare(inputs: Vec<String>, check: impl Fn(Exchange, Exchange, &str)) {
    let (hyper, codec) = (TokioHyper::new(config()), TokioTcp::new(config()));
    const SUPPORTED: &str = "every setting is supported";
    let (hyper, codec) = (serve(&hyper.expect(SUPPORTED)), serve(&codec.expect(SUPPORTED)));
    for input in inputs {
        let input = format!("{input}{GET}");
        // A server closes if a client asks for that and nothing more has come: what comes later resets the connection, so how it ends is
        // a matter of time.
        let in_pieces = input.strip_suffix(GET).filter(|alone| alone.contains("close")).unwrap_or(&input);
        let (whole, bytes) = (input.as_bytes(), in_pieces.as_bytes());
        let head = input.find("\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        let (single, (head, rest)) = (bytes.chunks(1).collect::<Vec<_>>(), bytes.split_at(head));
        for pieces in [&[whole][..], &[head, rest], &single] {
            let excerpt: String = input.escape_debug().take(300).collect();
            check(exchange(&hyper, pieces), exchange(&codec, pieces), &format!("{} pieces: {excerpt}", pieces.len()));
        }
    }
}

/// Regression test: a body that hyper could not count was answered with 400 or 431.
#[test]
fn answers_are_those_of_the_codec() {
    compare(alike(), |hyper, codec, input| assert_eq!(hyper, codec, "{input}"));
}

/// Regression test: a malformed chunked body was answered with 400 although the service refuses its head. A difference that the
/// contract allows: the connection closes after the answer, while the servers on the codec skip the body if they can.
#[test]
fn a_refused_head_closes_the_connection() {
    compare(refused_by_their_head(), |hyper, codec, input| {
        assert_eq!(hyper.statuses[..], codec.statuses[..1], "{input}");
        assert!(hyper.says_close && hyper.ending == Ending::Closed, "{hyper:?}: {input}");
    });
}

/// A declared difference: the `http` crate takes no host with an encoded byte, so hyper refuses a URL with one.
#[test]
fn a_url_with_an_encoded_host_is_refused() {
    let inputs = ["a%20b", "%41:80"].map(|host| format!("GET http://{host}/1 HTTP/1.1\r\nHost: a\r\n\r\n"));
    compare(inputs.to_vec(), |hyper, codec, input| {
        let refused = Exchange { statuses: vec![400], says_close: true, ending: Ending::Closed };
        assert_eq!(hyper, refused, "{input}");
        assert_eq!(codec.statuses.len(), 2, "{input}");
    });
}
