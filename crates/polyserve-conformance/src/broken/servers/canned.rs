//! Canned flaws: bytes of requests and of answers that a flaw exchanges for others.

use polyserve_serving::http1::encode::CONTINUE;

use super::Flaw;

/// The bytes that a flaw reads in place of others.
fn read_in_place(flaw: Flaw) -> &'static [(&'static str, &'static str)] {
    match flaw {
        Flaw::GoesOnAfterABareLf => &[("\r\n", "\n"), ("\n", "\r\n")],
        Flaw::AddsASlashToUrls => {
            &[("http://a HTTP", "http://a/ HTTP"), (":80 HTTP", ":80/ HTTP"), ("] HTTP", "]/ HTTP")]
        }
        Flaw::IgnoresConnectionClose => &[("Connection: close", "X-Ignored: close")],
        Flaw::AnswersHeadWithABody => &[("HEAD ", "GET ")],
        Flaw::RefusesHeadWithABody => &[("HEAD / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n")],
        Flaw::ClosesAfterChunks => &[("Transfer-Encoding: ", "Connection: close\r\nTransfer-Encoding: ")],
        _ => &[],
    }
}

/// Returns the bytes that a server with this flaw reads in place of `bytes`.
pub(super) fn request(flaw: Flaw, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    read_in_place(flaw).iter().for_each(|(from, to)| replace(&mut bytes, from, to));
    if flaw == Flaw::NeedsHeadAndBodyInOneRead {
        invent_body(&mut bytes);
    }
    bytes
}

fn replace(bytes: &mut Vec<u8>, from: &str, to: &str) {
    let mut at = 0;
    while let Some(found) = find(&bytes[at..], from) {
        bytes.splice(at + found..at + found + from.len(), to.bytes());
        at += found + to.len();
    }
}

fn find(bytes: &[u8], text: &str) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text.as_bytes())
}

/// Adds zeros in place of the missing bytes of a body.
fn invent_body(bytes: &mut Vec<u8>) {
    let Some(end) = find(bytes, "\r\n\r\n").map(|at| at + 4) else { return };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.split_once("Content-Length: ").and_then(|(_, rest)| rest.split_once('\r'));
    if let Some(Ok(length)) = length.map(|(digits, _)| digits.parse::<usize>()) {
        bytes.resize(bytes.len().max(end + length), 0);
    }
}

/// Splits bytes into the answers that they hold.
pub(super) fn answers(bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = bytes;
    let mut answers = Vec::new();
    while !rest.is_empty() {
        let end = find(&rest[1..], "HTTP/1.1 ").map_or(rest.len(), |at| at + 1);
        let (answer, others) = rest.split_at(end);
        answers.push(answer);
        rest = others;
    }
    answers
}

const EARLY_HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\n\r\n";

fn head_end(answer: &[u8]) -> usize {
    find(answer, "\r\n\r\n").map_or(answer.len(), |at| at + 4)
}

/// The answer with another field in place of the length of its body.
fn reframed(answer: &[u8], framing: &str) -> Vec<u8> {
    let (head, body) = answer.split_at(head_end(answer));
    let mut head = head.to_vec();
    replace(&mut head, &format!("Content-Length: {}\r\n", body.len()), framing);
    [&head, body].concat()
}

/// The answer in chunks with an extension, before a trailer field, unless it has no body.
fn in_chunks(answer: &[u8]) -> Vec<u8> {
    let chunked = reframed(answer, "Transfer-Encoding: chunked\r\n");
    if chunked == answer {
        return chunked;
    }
    let (head, body) = chunked.split_at(head_end(&chunked));
    let mut bytes = head.to_vec();
    for chunk in body.chunks(7) {
        bytes.extend(format!("{:X};x=y\r\n", chunk.len()).into_bytes());
        bytes.extend([chunk, b"\r\n"].concat());
    }
    bytes.extend(b"0\r\nX-Checked: no\r\n\r\n");
    bytes
}

/// Returns the bytes that a server with this flaw sends in place of answers, or `None` if it closes the connection without them.
pub(super) fn answer(flaw: Flaw, bytes: &[u8], start_date: &str, draining: bool) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let status = bytes.get(9..12).unwrap_or_default().to_vec();
    match (flaw, &*status) {
        (Flaw::DoesNotCatchPanics, b"500")
        | (Flaw::DoesNotCatchPanicsInDrop, b"503")
        | (Flaw::ClosesSilentlyOnTimeouts, b"408") => return None,
        (Flaw::ReorderedPipeline, _) => bytes = answers(&bytes).into_iter().rev().flatten().copied().collect(),
        (Flaw::SendsEarlyHints, _) => {
            bytes = answers(&bytes).into_iter().flat_map(|answer| [EARLY_HINTS, answer].concat()).collect();
        }
        (Flaw::AnswersInChunks, _) => bytes = answers(&bytes).into_iter().flat_map(in_chunks).collect(),
        (Flaw::EndsBodiesWithTheConnection, _) => bytes = reframed(&bytes, ""),
        (Flaw::AnswersInHttp10, _) => replace(&mut bytes, "HTTP/1.1", "HTTP/1.0"),
        (Flaw::EndsBodiesOfHttp10WithTheConnection, _) => {
            bytes = reframed(&bytes, "");
            replace(&mut bytes, "HTTP/1.1", "HTTP/1.0");
        }
        (Flaw::OmitsKeepAliveOnHttp10, _) => replace(&mut bytes, "\r\nConnection: keep-alive", ""),
        (Flaw::EvictsWithoutConnectionClose, _) => replace(&mut bytes, "\r\nConnection: close", ""),
        (Flaw::DrainsWithoutConnectionClose, _) if draining => replace(&mut bytes, "\r\nConnection: close", ""),
        (Flaw::NeverSends100, _) => replace(&mut bytes, "HTTP/1.1 100 Continue\r\n\r\n", ""),
        (Flaw::Sends100BeforeTheHeadIsChecked, [b'4', ..]) => {
            bytes.splice(..0, CONTINUE.iter().copied()).for_each(drop);
        }
        (Flaw::SendsPartOfAPanickedAnswer, b"500") => {
            bytes.splice(..0, b"HTTP/1.1 200 OK\r\n\r\nhalf an answer".iter().copied()).for_each(drop);
        }
        (Flaw::AnswersAnotherStatus, b"201") => {}
        (Flaw::AnswersAnotherStatus, _) => replace(&mut bytes, str::from_utf8(&status).unwrap_or_default(), "299"),
        (Flaw::SendsEmptyErrors, b"400") => {
            bytes = reframed(&bytes, "Content-Length: 0\r\n");
            bytes.truncate(head_end(&bytes));
        }
        (Flaw::StaleDate, _) => {
            if let Some(at) = find(&bytes, "Date: ") {
                bytes.splice(at + 6..at + 6 + start_date.len(), start_date.bytes());
            }
        }
        // What follows a refused request is answered too.
        (Flaw::GoesOnAfterARefusal, b"400") => {
            bytes.extend(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        }
        _ => {}
    }
    Some(bytes)
}
