//! Requests as bytes, and the form of every error answer.

use std::time::Duration;

use serde_json::Value;

use crate::client::{Client, Response};

/// The bytes of a `GET` of `path`.
pub(crate) fn get(path: &str) -> Vec<u8> {
    request("GET", path, "")
}

/// A request without a body; `fields` are whole lines.
pub(crate) fn request(method: &str, path: &str, fields: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes()
}

/// A request with a body and its length; `fields` are whole lines.
pub(crate) fn with_body(method: &str, path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = request(method, path, &format!("{fields}Content-Length: {}\r\n", body.len()));
    bytes.extend_from_slice(body);
    bytes
}

/// The bytes of a `PUT` to `path` with a body.
pub(crate) fn put(path: &str, body: &str) -> Vec<u8> {
    with_body("PUT", path, "Content-Type: application/json\r\n", body.as_bytes())
}

/// A request with a chunked body, in chunks of at most `chunk` bytes.
pub(crate) fn chunked(method: &str, path: &str, body: &[u8], chunk: usize) -> Vec<u8> {
    let mut bytes = request(method, path, "Transfer-Encoding: chunked\r\n");
    for part in body.chunks(chunk) {
        bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// A pattern of `length` bytes, in which a lost, repeated or moved byte is visible.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    // 251 is prime, so that no block of a power of two repeats.
    let cycle: Vec<u8> = (0..251_u8).map(|n| b' ' + n % 90).collect();
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let count = cycle.len().min(length - bytes.len());
        bytes.extend_from_slice(&cycle[..count]);
    }
    bytes
}

/// Panics unless `bytes` is the pattern. The message has the first difference.
#[track_caller]
pub(super) fn check_pattern(bytes: &[u8], length: usize) {
    let expected = pattern(length);
    if bytes != expected {
        let offset = bytes.iter().zip(&expected).take_while(|(a, b)| a == b).count();
        panic!("the body has {} bytes instead of {length} and differs at {offset}", bytes.len());
    }
}

/// Checks a problem body by RFC 9457, as the service and the codec write it.
#[track_caller]
pub(crate) fn check_problem(response: &Response) {
    let text = response.text();
    let media_type = response.header("Content-Type");
    assert_eq!(media_type, Some("application/problem+json"), "of a {}: {text}", response.status);
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let is_text = |name: &str| body[name].as_str().is_some_and(|text| !text.is_empty());
    let detail = body["detail"].as_str().unwrap_or_default();
    assert!(is_text("type") && is_text("title") && is_text("detail"), "type, title and detail are there: {text}");
    assert_eq!(body["status"].as_u64(), Some(response.status.into()), "the body repeats the status: {text}");
    assert!(!detail.contains('\n'), "the detail is one sentence: {text}");
}

/// Sends `parts` with a pause between them, so that the server is likely to read each part alone. No result depends on
/// it.
#[track_caller]
pub(super) fn send_parts(client: &mut Client, parts: &[&[u8]]) {
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        client.send(part).expect("the server takes the request");
    }
}
