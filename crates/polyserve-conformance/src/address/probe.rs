//! Requests to a server, with failures in one line.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::client::{Client, Ending, Response, shown};
pub(super) use crate::server::wire::{get, request};

/// The address of a server, and the longest waits.
#[derive(Debug)]
pub(super) struct Probe {
    addr: SocketAddr,
    max_wait: Duration,
    deadline: Instant,
}

/// The time limit of a property with many cases, as a multiple of the max wait.
const MAX_WAIT_FACTOR: u32 = 2;

/// The answers on a connection until its end.
#[derive(Debug)]
pub(super) struct ProbeResult {
    /// The statuses of all answers, in order, interim ones too.
    pub(super) statuses: Vec<u16>,
    /// How the connection ended.
    pub(super) ending: Ending,
}

impl Probe {
    pub(super) fn new(addr: SocketAddr, max_wait: Duration) -> Self {
        Self { addr, max_wait, deadline: Instant::now() + max_wait * MAX_WAIT_FACTOR }
    }

    /// Opens a connection.
    pub(super) fn client(&self) -> Result<Client, String> {
        if Instant::now() > self.deadline {
            return Err(String::from("it took too long"));
        }
        let client =
            Client::connect(self.addr, self.max_wait).map_err(|error| format!("it takes no client: {error}"))?;
        Ok(client.of_any_server())
    }

    /// Sends `request` on a new connection and returns the answer, which has one of these statuses.
    pub(super) fn expect(&self, request: &[u8], statuses: &[u16]) -> Result<Response, String> {
        let response = ask(&mut self.client()?, request)?;
        has_status(request, &response, statuses)?;
        Ok(response)
    }

    /// Sends `bytes` and reads until the server closes or is silent. The answers are found by their status lines, not
    /// by their framing.
    pub(super) fn all(&self, bytes: &[u8]) -> Result<ProbeResult, String> {
        let mut client = self.client()?;
        let sent = client.send(bytes);
        let (answers, ending) = client.end();
        drop(sent); // a server that refuses a request may leave a part unread
        Ok(ProbeResult { statuses: statuses(&answers), ending })
    }

    /// Checks that `message` is refused and ends its connection: it has no effect, and no request after it is answered. A
    /// close without an answer is as safe.
    pub(super) fn ends_with(&self, message: &[u8]) -> Result<(), String> {
        let ProbeResult { statuses, ending } = self.all(&[message, &get("/-7999")].concat())?;
        match (statuses.as_slice(), ending) {
            ([] | [400..=599], Ending::Closed | Ending::Reset) => Ok(()),
            ([], Ending::Silent) => Err(format!("silence on {}", brief(message))),
            ([_], Ending::Silent) => Err(format!("the connection lives on after {}", brief(message))),
            ([status], _) => Err(format!("{status} to {}", brief(message))),
            ([_, _, ..], _) => Err(format!("what follows {} is answered: {statuses:?}", brief(message))),
        }
    }
}

/// Sends `request`, and reads its answer.
pub(super) fn ask(client: &mut Client, request: &[u8]) -> Result<Response, String> {
    client.exchange(request).map_err(|failure| format!("{} to {}", first_line(&failure), brief(request)))
}

/// Returns an error unless `response` has one of these statuses.
pub(super) fn has_status(request: &[u8], response: &Response, statuses: &[u16]) -> Result<(), String> {
    if statuses.contains(&response.status) {
        return Ok(());
    }
    let expected: Vec<String> = statuses.iter().map(u16::to_string).collect();
    Err(format!("{}, not {}, to {}", response.status, expected.join(" or "), brief(request)))
}

/// The failure's message without the transcript.
pub(super) fn first_line(failure: &crate::client::ReceiveFailure) -> String {
    failure.to_string().lines().next().unwrap_or_default().to_owned()
}

/// The start of a message, for one line of text.
pub(super) fn brief(message: &[u8]) -> String {
    const MAX_SHOWN: usize = 120;
    let start = message.get(..MAX_SHOWN).unwrap_or(message);
    let more = if start.len() < message.len() { " ..." } else { "" };
    format!("{}{more}", shown(start))
}

/// A PUT of `body`. `fields` are whole lines, with the length or without.
pub(super) fn put_with(fields: &str, body: &str) -> Vec<u8> {
    let fields = format!("Content-Type: application/json\r\n{fields}");
    [request("PUT", "/", &fields), body.as_bytes().to_vec()].concat()
}

/// A PUT of `body` with its length.
pub(super) fn put(body: &str) -> Vec<u8> {
    put_with(&format!("Content-Length: {}\r\n", body.len()), body)
}

/// The statuses of all status lines in `bytes`.
fn statuses(bytes: &[u8]) -> Vec<u16> {
    let status = |line: &[u8]| {
        let rest = line.strip_prefix(b"HTTP/1.1 ").or(line.strip_prefix(b"HTTP/1.0 "))?;
        let digits = rest.get(..3).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
        let ended = matches!(rest.get(3), Some(b' ' | b'\r'));
        std::str::from_utf8(digits).ok().filter(|_| ended)?.parse().ok()
    };
    (0..bytes.len()).filter_map(|at| status(&bytes[at..])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_by_their_status_lines() {
        let answers = b"HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\nHTTP/1.1 is usualHTTP/1.0 404 \r\n\r\n";
        assert_eq!(statuses(answers), [200, 404]);
        assert_eq!(statuses(b"HTTP/1.1 2000\r\n"), [] as [u16; 0]);
    }
}
