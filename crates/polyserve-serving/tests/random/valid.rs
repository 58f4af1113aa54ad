//! Streams of valid requests, and what a server must read in them.

use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;

use super::reader::Head;

/// A request that was written into a stream.
pub(crate) type Written = (Head, Vec<u8>);

/// Creates `count` pipelined requests. If one of them closes the connection, the rest is not served.
pub(crate) fn stream(rng: &mut ChaCha8Rng, count: usize) -> (Vec<u8>, Vec<Written>) {
    let (mut bytes, mut written, mut open) = (Vec::new(), Vec::new(), true);
    for _ in 0..count {
        let request = request(rng, &mut bytes);
        if open {
            open = request.0.keep_alive;
            written.push(request);
        }
    }
    (bytes, written)
}

fn one_in(rng: &mut ChaCha8Rng, n: u32) -> bool {
    rng.random_range(0..n) == 0
}

fn pick<'t>(rng: &mut ChaCha8Rng, texts: &[&'t str]) -> &'t str {
    texts.choose(rng).copied().unwrap_or_default()
}

fn request(rng: &mut ChaCha8Rng, out: &mut Vec<u8>) -> Written {
    if one_in(rng, 10) {
        let blank = if one_in(rng, 10) { 32 } else { rng.random_range(1..4) };
        out.extend_from_slice(&b"\r\n".repeat(blank));
    }
    let method = pick(rng, &["GET", "GET", "GET", "PUT", "POST", "HEAD", "DELETE", "OPTIONS", "PATCH"]);
    let target = target(rng, method);
    let is_1_0 = one_in(rng, 6);
    let mut fields = Vec::new();
    if !is_1_0 || one_in(rng, 2) {
        fields.push(("Host", host(rng, &target)));
    }
    let keep_alive = connection(rng, is_1_0, &mut fields);
    let body = body(rng);
    let chunked = !is_1_0 && one_in(rng, 4);
    if chunked {
        fields.push(("Transfer-Encoding", pick(rng, &["chunked", "CHUNKED", "Chunked"]).into()));
    } else if !body.is_empty() || one_in(rng, 4) {
        for _ in 0..if one_in(rng, 8) { 2 } else { 1 } {
            fields.push(("Content-Length", format!("{}{}", pick(rng, &["", "", "", "0", "000"]), body.len()).into()));
        }
    }
    let expects = one_in(rng, 12);
    if expects {
        let known = pick(rng, &["100-continue", "100-Continue", ", 100-continue ,", "100-continue,100-CONTINUE"]);
        fields.push(("Expect", if is_1_0 { "anything" } else { known }.into()));
    }
    for _ in 0..rng.random_range(0..5) {
        fields.push(other_field(rng));
    }
    fields.shuffle(rng);
    let line = format!("{method} {target} HTTP/1.{}\r\n", u8::from(!is_1_0));
    out.extend_from_slice(line.as_bytes());
    let fields = fields.into_iter().map(|(name, value)| write_field(rng, name, &value, out)).collect();
    out.extend_from_slice(b"\r\n");
    if chunked {
        write_chunks(rng, &body, out);
    } else {
        out.extend_from_slice(&body);
    }
    let method = method.to_owned();
    let expects_continue = expects && !is_1_0;
    (Head { method, target, is_1_0, fields, keep_alive, expects_continue, chunked }, body)
}

fn target(rng: &mut ChaCha8Rng, method: &str) -> String {
    const PATHS: [&str; 14] = [
        "/",
        "/1",
        "/-7?x=y&z",
        "/a/b/c",
        "/later",
        "/later-panic",
        "/later-drop",
        "/none",
        "/refuse",
        "/panic",
        "/a%20b!$&'()*+,;=:@[]~",
        "/?http://a",
        "/?{a|b}^`\\%",
        "/1?\u{e9}=\u{2603}&%4",
    ];
    match rng.random_range(0..60) {
        0 => "/big".into(),
        1 => "http://a".into(),
        2 => format!("HTTP://{}/x?y", pick(rng, &["a:80", "[::1]", "127.0.0.1:", "a%20b"])),
        3 => "https://a?x".into(),
        4 if method == "OPTIONS" => "*".into(),
        _ => format!("{}{}", pick(rng, &PATHS), rng.random_range(0..1000)),
    }
}

fn host(rng: &mut ChaCha8Rng, target: &str) -> Vec<u8> {
    let none_or_name = if target == "*" { "" } else { "b" };
    let hosts = [
        "a",
        none_or_name,
        "localhost:8001",
        "127.0.0.1",
        "[::1]:80",
        "[::ffff:1.2.3.4]",
        "a:",
        "A-b.c_~!$&'()*+,;=%4f",
    ];
    pick(rng, &hosts).into()
}

/// Adds Connection fields. Returns whether the connection stays open.
fn connection(rng: &mut ChaCha8Rng, is_1_0: bool, fields: &mut Vec<(&'static str, Vec<u8>)>) -> bool {
    // A value, whether it has `close`, and whether it has `keep-alive`.
    const OPTIONS: [(&str, bool, bool); 8] = [
        ("keep-alive", false, true),
        ("Keep-Alive", false, true),
        (" , ,keep-alive\t,", false, true),
        ("upgrade, TE", false, false),
        ("", false, false),
        ("close", true, false),
        ("keep-alive, CLOSE", true, true),
        ("closed, not-close, keep-alive2", false, false),
    ];
    let (mut close, mut keep_alive) = (false, false);
    while one_in(rng, 3) {
        // A close is rare, or most streams would be short.
        let options = if one_in(rng, 4) { &OPTIONS[..] } else { &OPTIONS[..5] };
        let (text, closes, keeps) = options.choose(rng).copied().unwrap_or_default();
        fields.push(("Connection", text.into()));
        close |= closes;
        keep_alive |= keeps;
    }
    if is_1_0 && !keep_alive && one_in(rng, 2) {
        fields.push(("Connection", "keep-alive".into()));
        keep_alive = true;
    }
    !close && (!is_1_0 || keep_alive)
}

fn body(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let max_length = match rng.random_range(0..20) {
        0..10 => 0,
        10..19 => 60,
        _ => 5000,
    };
    let mut body = vec![0; rng.random_range(0..=max_length)];
    rng.fill(&mut body[..]);
    body
}

fn other_field(rng: &mut ChaCha8Rng) -> (&'static str, Vec<u8>) {
    const NAMES: [&str; 8] =
        ["Accept", "User-Agent", "X", "!#$%&'*+-.^_`|~0", "Hosts", "Content-Lengthy", "Cookie", "Connectiom"];
    let mut value: Vec<u8> = (0..rng.random_range(0..20_u8)).map(|_| rng.random_range(b' '..=b'~')).collect();
    if one_in(rng, 4) {
        value.extend_from_slice(b"\tx \xff\x80: ,\"");
    }
    let end = value.iter().rposition(|&b| b != b' ').map_or(0, |last| last + 1);
    let start = value.iter().position(|&b| b != b' ').unwrap_or(end);
    (pick(rng, &NAMES), value[start..end].to_vec())
}

/// Writes a field in some case, with some white space. Returns what a server must read.
fn write_field(rng: &mut ChaCha8Rng, name: &str, value: &[u8], out: &mut Vec<u8>) -> (String, Vec<u8>) {
    let name: String = match rng.random_range(0..4) {
        0 => name.to_ascii_lowercase(),
        1 => name.chars().map(|c| if one_in(rng, 2) { c.to_ascii_uppercase() } else { c }).collect(),
        _ => name.to_owned(),
    };
    out.extend_from_slice(name.as_bytes());
    out.push(b':');
    out.extend_from_slice(pick(rng, &[" ", " ", " ", "", "\t", "  \t "]).as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(pick(rng, &["", "", "", " ", "\t "]).as_bytes());
    out.extend_from_slice(b"\r\n");
    let is_space = |b: &u8| *b == b' ' || *b == b'\t';
    let end = value.iter().rposition(|b| !is_space(b)).map_or(0, |last| last + 1);
    let start = value.iter().position(|b| !is_space(b)).unwrap_or(end);
    (name, value[start..end].to_vec())
}

fn write_chunks(rng: &mut ChaCha8Rng, body: &[u8], out: &mut Vec<u8>) {
    let mut rest = body;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(rng.random_range(1..=rest.len()));
        write_size(rng, chunk.len(), out);
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
        rest = after;
    }
    write_size(rng, 0, out);
    for _ in 0..if one_in(rng, 3) { rng.random_range(1..4) } else { 0 } {
        let (name, value) = other_field(rng);
        write_field(rng, name, &value, out);
    }
    out.extend_from_slice(b"\r\n");
}

fn write_size(rng: &mut ChaCha8Rng, size: usize, out: &mut Vec<u8>) {
    let width = if one_in(rng, 4) { rng.random_range(1..=16) } else { 0 };
    let digits = if one_in(rng, 2) { format!("{size:0width$x}") } else { format!("{size:0width$X}") };
    out.extend_from_slice(digits.as_bytes());
    if one_in(rng, 4) {
        let extensions =
            [";a", " ;\t a=b", ";a=\"q;, \\\"\\\\ \u{80}\u{ff}\"", ";a;b=c ; d", "\t;!", ";a \t= \tb\t;c=\"\""];
        out.extend_from_slice(pick(rng, &extensions).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}
