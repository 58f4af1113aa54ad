//! The text of a line.
//!
//! Cost: no allocation. A thread keeps a buffer, and the text of the present second. Other libraries' formatters are not used for the
//! usual parts: they took as long as the rest of a small request.

use std::cell::RefCell;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use polyserve_core::{AnswerReport, TraceId};

use super::LogFormat;

/// The max number of bytes of a target in a line. A longer one is cut, and ends with `...`.
const MAX_TARGET: usize = 2048;

/// The capacity that a thread's buffer keeps, in bytes.
const KEPT_CAPACITY: usize = 4096;

/// The buffer of a thread.
#[derive(Debug)]
struct LineBuffer {
    bytes: Vec<u8>,
    /// The second of the times below, since the epoch.
    second: u64,
    /// As `2026-11-27T19:41:51`.
    rfc3339: Vec<u8>,
    /// As `27/Nov/2026:19:41:51 +0000`.
    common: Vec<u8>,
}

thread_local! {
    static LINE: RefCell<LineBuffer> = const {
        RefCell::new(LineBuffer { bytes: Vec::new(), second: u64::MAX, rfc3339: Vec::new(), common: Vec::new() })
    };
}

/// Calls `act` with the line of an answer that was made at `time`. Returns false if the thread is ending.
pub(super) fn with_line(
    format: LogFormat,
    time: SystemTime,
    report: &AnswerReport<'_>,
    act: impl FnOnce(&[u8]) -> bool,
) -> bool {
    let acted = LINE.try_with(|line| {
        let line = &mut *line.borrow_mut();
        line.write(format, time, report);
        let result = act(&line.bytes);
        line.bytes.clear();
        line.bytes.shrink_to(KEPT_CAPACITY);
        result
    });
    acted.unwrap_or(false)
}

impl LineBuffer {
    fn write(&mut self, format: LogFormat, time: SystemTime, report: &AnswerReport<'_>) {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.set_second(since_epoch.as_secs());
        let Self { bytes, rfc3339, common, .. } = self;
        match format {
            LogFormat::Json => {
                rfc3339.truncate(SECONDS_LENGTH);
                rfc3339.extend_from_slice(&[b'.', 0, 0, 0, b'Z']);
                put_digits(&mut rfc3339[SECONDS_LENGTH + 1..][..3], since_epoch.subsec_millis());
                write_json(bytes, report, rfc3339);
            }
            LogFormat::Common => write_common(bytes, report, common),
        }
    }

    fn set_second(&mut self, second: u64) {
        if self.second == second {
            return;
        }
        self.second = second;
        let time = UNIX_EPOCH + std::time::Duration::from_secs(second);
        self.rfc3339.clear();
        let _ = write!(self.rfc3339, "{}", humantime::format_rfc3339_seconds(time)); // a vector takes all
        self.common.clear();
        write_common_time(&mut self.common, &self.rfc3339);
    }
}

/// The length of `2026-11-27T19:41:51`.
const SECONDS_LENGTH: usize = 19;

fn write_json(line: &mut Vec<u8>, report: &AnswerReport<'_>, time: &[u8]) {
    line.extend_from_slice(b"{\"bytes\":");
    write_number(line, report.bytes);
    line.extend_from_slice(b",\"duration_us\":");
    match report.elapsed {
        Some(elapsed) => write_number(line, u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)),
        None => line.extend_from_slice(NULL),
    }
    line.extend_from_slice(b",\"method\":");
    write_text(line, report.request.map(|request| request.method.as_str()), false);
    line.extend_from_slice(b",\"peer\":");
    match report.peer {
        Some(peer) => {
            line.push(b'"');
            write_peer(line, peer);
            line.push(b'"');
        }
        None => line.extend_from_slice(NULL),
    }
    line.extend_from_slice(b",\"status\":");
    write_number(line, report.status.as_u16().into());
    line.extend_from_slice(b",\"target\":");
    let (target, is_cut) = report.request.map_or((None, false), |request| {
        let start = cut(request.target);
        (Some(start), start.len() < request.target.len())
    });
    write_text(line, target, is_cut);
    line.extend_from_slice(b",\"time\":\"");
    line.extend_from_slice(time);
    line.extend_from_slice(b"\",\"trace_id\":");
    match report.trace {
        Some(trace) => write_trace(line, trace),
        None => line.extend_from_slice(NULL),
    }
    line.extend_from_slice(b",\"user\":");
    write_text(line, report.user, false);
    line.extend_from_slice(b"}\n");
}

/// Appends 32 hexadecimal digits in quotes.
fn write_trace(line: &mut Vec<u8>, trace: TraceId) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'"'; 34];
    for (pair, byte) in text[1..33].chunks_exact_mut(2).zip(trace.0.to_be_bytes()) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    line.extend_from_slice(&text);
}

const NULL: &[u8] = b"null";

/// Appends a text as JSON in ASCII. Other characters may end a line for a reader, or control a terminal. `is_cut`: dots follow it.
fn write_text(line: &mut Vec<u8>, text: Option<&str>, is_cut: bool) {
    let Some(text) = text else { return line.extend_from_slice(NULL) };
    line.push(b'"');
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
        line.extend_from_slice(text.as_bytes());
    } else {
        text.chars().for_each(|character| write_escaped(line, character));
    }
    line.extend_from_slice(if is_cut { b"...\"" } else { b"\"" });
}

fn write_escaped(line: &mut Vec<u8>, character: char) {
    match character {
        '"' | '\\' => line.extend_from_slice(&[b'\\', character as u8]),
        ' '..='~' => line.push(character as u8),
        _ => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(line, "\\u{unit:04x}"); // a vector takes all
            }
        }
    }
}

fn write_common(line: &mut Vec<u8>, report: &AnswerReport<'_>, time: &[u8]) {
    match report.peer {
        Some(peer) => write_ip(line, peer.ip()),
        None => line.push(b'-'),
    }
    line.extend_from_slice(b" - ");
    match report.user {
        Some(user) => {
            let shown = |character: char| if is_unsafe(character) { b'_' } else { character as u8 };
            line.extend(user.chars().map(shown));
        }
        None => line.push(b'-'),
    }
    line.extend_from_slice(b" [");
    line.extend_from_slice(time);
    line.extend_from_slice(b"] \"");
    match report.request {
        Some(request) => {
            line.extend_from_slice(request.method.as_str().as_bytes());
            line.push(b' ');
            let target = cut(request.target);
            if target.bytes().all(|byte| matches!(byte, b'!'..=b'~') && !matches!(byte, b'"' | b'\'' | b'\\')) {
                line.extend_from_slice(target.as_bytes());
            } else {
                let _ = write!(line, "{}", target.escape_default()); // a vector takes all
            }
            if target.len() < request.target.len() {
                line.extend_from_slice(b"...");
            }
            let _ = write!(line, " {:?}", request.version); // a vector takes all
        }
        None => line.push(b'-'),
    }
    line.extend_from_slice(b"\" ");
    write_number(line, report.status.as_u16().into());
    line.push(b' ');
    write_number(line, report.bytes);
    line.push(b'\n');
}

/// Whether a reader could take a character for the end of the name that it is in.
fn is_unsafe(character: char) -> bool {
    !character.is_ascii_graphic() || character == '"'
}

/// The target, or its start if it is long.
fn cut(target: &str) -> &str {
    if target.len() <= MAX_TARGET {
        return target;
    }
    let end = (0..=MAX_TARGET).rev().find(|at| target.is_char_boundary(*at)).unwrap_or_default();
    target.get(..end).unwrap_or_default()
}

fn write_peer(line: &mut Vec<u8>, peer: SocketAddr) {
    match peer {
        SocketAddr::V4(_) => {
            write_ip(line, peer.ip());
            line.push(b':');
            write_number(line, peer.port().into());
        }
        SocketAddr::V6(peer) => {
            let _ = write!(line, "{peer}"); // a vector takes all
        }
    }
}

fn write_ip(line: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            let [first, rest @ ..] = ip.octets();
            write_number(line, first.into());
            for octet in rest {
                line.push(b'.');
                write_number(line, octet.into());
            }
        }
        IpAddr::V6(ip) => {
            let _ = write!(line, "{ip}"); // a vector takes all
        }
    }
}

fn write_number(line: &mut Vec<u8>, number: u64) {
    const MAX_DIGITS: usize = 20;
    let (mut digits, mut rest, mut start) = ([0; MAX_DIGITS], number, MAX_DIGITS);
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return line.extend_from_slice(&digits[start..]);
        }
    }
}

/// Writes a number with leading zeros.
fn put_digits(digits: &mut [u8], mut number: u32) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Appends a time in the common log format, `27/Nov/2026:19:41:51 +0000`, from `2026-11-27T19:41:51Z`.
fn write_common_time(common: &mut Vec<u8>, rfc3339: &[u8]) {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = std::str::from_utf8(rfc3339).unwrap_or_default();
    if let (Some(year), Some(month), Some(day), Some(clock)) =
        (text.get(..4), text.get(5..7), text.get(8..10), text.get(11..19))
        && let Some(month) = month.parse::<usize>().ok().and_then(|month| MONTHS.get(month.wrapping_sub(1)))
    {
        let _ = write!(common, "{day}/{month}/{year}:{clock} +0000"); // a vector takes all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use polyserve_core::ReportedRequest;
    use polyserve_core::http::{Method, StatusCode, Version};

    use super::*;

    fn line(format: LogFormat, time: SystemTime, report: &AnswerReport<'_>) -> String {
        let mut text = String::new();
        assert!(with_line(format, time, report, |line| {
            text = String::from_utf8(line.to_vec()).expect("it is text");
            true
        }));
        text
    }

    fn report(status: StatusCode, target: &str) -> AnswerReport<'_> {
        let peer = "127.0.0.1:4000".parse().ok();
        let mut report = AnswerReport::new(status, 166, None, peer);
        report.elapsed = Some(Duration::from_micros(12));
        report.to(Some(ReportedRequest { method: &Method::GET, target, version: Version::HTTP_11 }))
    }

    #[test]
    fn a_line_has_what_is_known() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_808_511_913);
        let mut known = report(StatusCode::OK, "/1?\"a");
        (known.user, known.trace) = (Some("alice"), Some(TraceId(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c)));
        let unknown = AnswerReport::new(StatusCode::BAD_REQUEST, 7, None, None);
        let of = |format, report| line(format, time, report);
        assert_eq!(
            of(LogFormat::Json, &known),
            "{\"bytes\":166,\"duration_us\":12,\"method\":\"GET\",\"peer\":\"127.0.0.1:4000\",\"status\":200,\
             \"target\":\"/1?\\\"a\",\"time\":\"2026-11-27T19:41:51.913Z\",\
             \"trace_id\":\"0af7651916cd43dd8448eb211c80319c\",\"user\":\"alice\"}\n"
        );
        assert_eq!(
            of(LogFormat::Json, &unknown),
            "{\"bytes\":7,\"duration_us\":null,\"method\":null,\"peer\":null,\"status\":400,\"target\":null,\
             \"time\":\"2026-11-27T19:41:51.913Z\",\"trace_id\":null,\"user\":null}\n"
        );
        let common = "127.0.0.1 - alice [27/Nov/2026:19:41:51 +0000] \"GET /1?\\\"a HTTP/1.1\" 200 166\n";
        assert_eq!(of(LogFormat::Common, &known), common);
        assert_eq!(of(LogFormat::Common, &unknown), "- - - [27/Nov/2026:19:41:51 +0000] \"-\" 400 7\n");
    }

    /// Regression test: a reader that takes U+0085 for the end of a line saw a line that a client had made up.
    #[test]
    fn a_client_cannot_begin_a_line() {
        let target = format!("/?\u{85}\u{1f600}{}", "x".repeat(20_000));
        for format in [LogFormat::Json, LogFormat::Common] {
            let line = line(format, SystemTime::UNIX_EPOCH, &report(StatusCode::OK, &target));
            assert!(
                line.trim_end().chars().all(|character| character.is_ascii_graphic() || character == ' '),
                "{line}"
            );
            assert!(line.len() < MAX_TARGET + 300 && line.contains("xxx..."), "{line}");
        }
        let line = line(LogFormat::Json, SystemTime::UNIX_EPOCH, &report(StatusCode::OK, "/?\u{85}\u{1f600}"));
        let read: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
        assert_eq!(read["target"], "/?\u{85}\u{1f600}");
    }

    /// Each line is read back with what was put in, whatever the text is, and as a JSON library writes it if the text is ASCII.
    #[test]
    fn a_reader_of_json_sees_what_the_client_sent() {
        for target in ["/1", "/?q=\"\\", "/\u{7f}\n\t\u{0}", "/\u{2028}\u{e9}\u{1f600}", ""] {
            for (peer, bytes) in [("10.20.30.255:65535", 0), ("[::1]:1", u64::MAX)] {
                let mut answer = report(StatusCode::OK, target);
                (answer.user, answer.peer, answer.bytes) = (Some(target), peer.parse().ok(), bytes);
                let time = UNIX_EPOCH + Duration::from_millis(1_795_808_511_003);
                let line = line(LogFormat::Json, time, &answer);
                let read: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
                let expected = serde_json::json!({
                    "time": "2026-11-27T19:41:51.003Z", "peer": peer, "user": target, "method": "GET", "target": target,
                    "status": 200, "bytes": bytes, "duration_us": 12, "trace_id": null,
                });
                assert_eq!(read, expected);
                assert!(line.trim_end().bytes().all(|byte| matches!(byte, b' '..=b'~')), "{line}");
            }
        }
    }
}
