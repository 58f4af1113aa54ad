//! One request to a contestant before it is measured: its answer must be the welcome.
//!
//! Invariant: a contestant with any other answer is not measured. Cost: a process, one request, a few ms.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::experiment::Absence;
use crate::launch::Launch;
use crate::launch::process::{Failure, Process};
use crate::machine::Cores;

/// The target of the request.
pub const TARGET: &str = "/welcome";
/// The body of the answer.
pub const BODY: &[u8] = b"Welcome!";

/// The time limit of a connect and of a read.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum length of an answer, in bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// Returns the length of the answer on a kept connection, in bytes.
///
/// # Errors
///
/// Returns an absence if the process cannot be started or does not end well, or if the answer is not the welcome.
pub fn probe(launch: &Launch, cores: &Cores) -> Result<u64, Absence> {
    let mut process = Process::start(launch, cores)?;
    let answer = ask(process.addr()).map_err(|error| format!("its welcome cannot be read: {error}"));
    let checked = answer.and_then(|answer| check(&answer));
    let length = checked.map_err(|why| Absence::wrong(why).explained(&mut process))?;
    process.end().map_err(|Failure(why)| Absence::wrong(why))?;
    Ok(length)
}

/// Returns the first answer on a connection, which stays open.
fn ask(addr: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {TARGET} HTTP/1.1\r\nHost: {addr}\r\n\r\n")?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 1024]);
    while !is_whole(&answer) && answer.len() < MAX_ANSWER {
        match stream.read(&mut buffer)? {
            0 => break,
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(answer)
}

/// Returns true if the answer is whole.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = field(head, "content-length").and_then(|length| length.parse().ok());
    length.is_some_and(|length: usize| body.len() >= length)
}

/// The value of a header field.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(field_name, _)| field_name.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// Returns the length of the answer if it is the welcome.
fn check(answer: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(answer);
    let wrong = |why: &str| Err(format!("{why}: {:?}", text.chars().take(200).collect::<String>()));
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return wrong("its answer has no end of a head") };
    let is_json = field(head, "content-type").is_some_and(|value| value.split(';').next() == Some("application/json"));
    if !head.starts_with("HTTP/1.1 200 ") || body.as_bytes() != BODY || !is_json {
        return wrong("its answer is not the welcome as application/json");
    }
    if field(head, "date").is_none() || field(head, "content-length") != Some("8") {
        return wrong("its answer lacks a Date or a Content-Length");
    }
    if field(head, "server").is_none() {
        return wrong("its answer lacks the published Server header");
    }
    Ok(answer.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_welcome_and_what_is_none() {
        let fields = "content-type: application/json\r\nserver: any\r\nDate: now\r\nContent-Length: 8";
        let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        let whole = format!("{head}Welcome!");
        assert_eq!(check(whole.as_bytes()), Ok(whole.len() as u64));
        for (from, to) in [
            ("200", "404"),
            ("json", "text"),
            ("server", "served"),
            ("Date", "Day"),
            ("Length: 8", "Length: 9"),
            ("Welcome", "Hello"),
        ] {
            assert!(check(whole.replace(from, to).as_bytes()).is_err(), "{from}");
        }
        assert!(is_whole(whole.as_bytes()) && !is_whole(head.as_bytes()) && !is_whole(b"HTTP"));
        assert!(check(b"HTTP/1.1 200 OK\r\n").unwrap_err().contains("no end of a head"));
    }
}
