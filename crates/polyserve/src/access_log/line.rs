//! The text of lines.
//!
//! Cost: no allocation. Other libraries' formatters are not used for the usual parts: they took as long as the rest of a small request. So
//! did checks of the buffer's room for each part: a line has its room before it is written.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, Instant, UNIX_EPOCH};

use polyserve_core::TraceId;

use super::reports::LoggedReport;
use super::{Clocks, FULL_WRITE, LogFormat};

/// The room of a line without its texts, in bytes: names of fields, numbers, a time, an address and a trace.
const FIXED_ROOM: usize = 512;

/// A byte of a text takes at most this number of bytes, as in `\u007f`.
const MAX_ESCAPED: usize = 6;

/// The room that is kept between two calls of the writer, in bytes. The usual lines of a call do not need more.
const KEPT_ROOM: usize = FULL_WRITE + 4096;

/// The lines of one call of the writer.
#[derive(Debug)]
pub(super) struct LogLines {
    format: LogFormat,
    /// The first `length` bytes are those of the lines.
    room: Vec<u8>,
    length: usize,
    count: usize,
    time: TimeText,
}

/// The texts of a millisecond. Most lines have that of the line before.
#[derive(Debug)]
struct TimeText {
    millisecond: Range<Instant>,
    /// As `2026-11-27T19:41:51.913`.
    rfc3339: [u8; MILLIS_LENGTH],
    /// The second of the text below, since the epoch.
    second: u64,
    /// As `27/Nov/2026:19:41:51 +0000`.
    common: Vec<u8>,
}

impl LogLines {
    pub(super) fn new(format: LogFormat) -> Self {
        let now = Instant::now();
        let time =
            TimeText { millisecond: now..now, rfc3339: [0; MILLIS_LENGTH], second: u64::MAX, common: Vec::new() };
        Self { format, room: Vec::new(), length: 0, count: 0, time }
    }

    /// Appends the line of an answer that was made before `now`.
    pub(super) fn push(&mut self, report: &LoggedReport<'_>, now: &Clocks) {
        if !self.time.millisecond.contains(&report.answer.made) {
            self.time.set(report.answer.made, now);
        }
        let end = self.length + FIXED_ROOM + MAX_ESCAPED * report.texts_length();
        if self.room.len() < end {
            self.room.resize(end.max(KEPT_ROOM), 0);
        }
        let mut line = LineWriter { rest: self.room.get_mut(self.length..).unwrap_or_default() };
        match self.format {
            LogFormat::Json => write_json(&mut line, report, &self.time.rfc3339),
            LogFormat::Common => write_common(&mut line, report, &self.time.common),
            LogFormat::Combined => write_combined(&mut line, report, &self.time.common),
        }
        let left = line.rest.len();
        self.length = self.room.len() - left;
        self.count += 1;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.room.get(..self.length).unwrap_or_default()
    }

    /// The number of lines.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn clear(&mut self) {
        (self.length, self.count) = (0, 0);
        if self.room.len() > KEPT_ROOM {
            self.room = Vec::new();
        }
    }
}

impl TimeText {
    #[inline(never)]
    fn set(&mut self, moment: Instant, now: &Clocks) {
        let since_epoch = now.since_epoch(moment);
        let begin = moment.checked_sub(Duration::from_nanos((since_epoch.subsec_nanos() % 1_000_000).into()));
        let begin = begin.unwrap_or(moment);
        self.millisecond = begin..begin + Duration::from_millis(1);
        if self.second != since_epoch.as_secs() {
            self.set_second(since_epoch.as_secs());
        }
        if let Some(digits) = self.rfc3339.last_chunk_mut() {
            *digits = three_digits(since_epoch.subsec_millis().into());
        }
    }

    fn set_second(&mut self, second: u64) {
        self.second = second;
        let text = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_secs(second)).to_string();
        if let Some(text) = text.as_bytes().first_chunk() {
            self.rfc3339 = *text;
        }
        self.common.clear();
        write_common_time(&mut self.common, &text);
    }
}

/// The length of `2026-11-27T19:41:51.913`.
const MILLIS_LENGTH: usize = 23;

/// The room behind what is written of a line. What finds no room is left out, and a line has room for all.
struct LineWriter<'a> {
    rest: &'a mut [u8],
}

impl LineWriter<'_> {
    /// Appends a text of which the length is known when the program is compiled: a few moves of registers.
    #[inline]
    fn put<const N: usize>(&mut self, text: &[u8; N]) {
        if let Some(place) = self.place() {
            *place = *text;
        }
    }

    /// Returns the place of the next bytes.
    #[inline]
    fn place<const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        let (place, rest) = std::mem::take(&mut self.rest).split_first_chunk_mut()?;
        self.rest = rest;
        Some(place)
    }

    fn put_text(&mut self, text: &[u8]) {
        if let Some((place, rest)) = std::mem::take(&mut self.rest).split_at_mut_checked(text.len()) {
            place.copy_from_slice(text);
            self.rest = rest;
        }
    }

    fn put_number(&mut self, number: u64) {
        match number {
            ..10 => self.put(&[digit(number)]),
            10..100 => self.put(&two_digits(number)),
            100..1_000 => self.put(&three_digits(number)),
            1_000..10_000 => self.put(&four_digits(number)),
            _ => {
                self.put_number(number / 10_000);
                self.put(&four_digits(number % 10_000));
            }
        }
    }
}

/// The digit of a number below 10.
#[inline]
fn digit(number: u64) -> u8 {
    b'0' + number as u8
}

/// The digits of a number below 100.
#[inline]
fn two_digits(number: u64) -> [u8; 2] {
    [digit(number / 10), digit(number % 10)]
}

/// The digits of a number below 1,000.
#[inline]
fn three_digits(number: u64) -> [u8; 3] {
    let [tens, ones] = two_digits(number % 100);
    [digit(number / 100), tens, ones]
}

/// The digits of a number below 10,000.
#[inline]
fn four_digits(number: u64) -> [u8; 4] {
    let [[a, b], [c, d]] = [number / 100, number % 100].map(two_digits);
    [a, b, c, d]
}

impl fmt::Write for LineWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put_text(text.as_bytes());
        Ok(())
    }
}

fn write_json(line: &mut LineWriter<'_>, report: &LoggedReport<'_>, time: &[u8; MILLIS_LENGTH]) {
    let LoggedReport { answer, request, user, .. } = report;
    line.put(b"{\"bytes\":");
    line.put_number(answer.bytes);
    line.put(b",\"duration_us\":");
    match answer.elapsed {
        Some(elapsed) => line.put_number(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)),
        None => line.put(NULL),
    }
    line.put(b",\"method\":");
    match request {
        Some(request) => {
            line.put(b"\"");
            line.put_text(request.method.as_bytes()); // a token, which needs no escape
            line.put(b"\"");
        }
        None => line.put(NULL),
    }
    line.put(b",\"peer\":");
    match answer.peer {
        Some(peer) => {
            line.put(b"\"");
            write_peer(line, SocketAddr::new(peer.ip().to_canonical(), peer.port()));
            line.put(b"\"");
        }
        None => line.put(NULL),
    }
    line.put(b",\"status\":");
    line.put_number(answer.status.as_u16().into());
    line.put(b",\"target\":");
    match request {
        Some(request) => write_text(line, request.target, request.is_cut),
        None => line.put(NULL),
    }
    line.put(b",\"time\":\"");
    line.put(time);
    line.put(b"Z\",\"trace_id\":");
    match answer.trace {
        Some(trace) => {
            line.put(b"\"");
            write_trace(line, trace);
            line.put(b"\"");
        }
        None => line.put(NULL),
    }
    line.put(b",\"user\":");
    match user {
        Some(user) => write_text(line, user, false),
        None => line.put(NULL),
    }
    line.put(b"}\n");
}

/// Appends 32 hexadecimal digits.
fn write_trace(line: &mut LineWriter<'_>, trace: TraceId) {
    let Some(place) = line.place::<32>() else { return };
    let (pairs, _) = place.as_chunks_mut();
    for (pair, byte) in pairs.iter_mut().zip(trace.0.to_be_bytes()) {
        *pair = HEXADECIMAL[usize::from(byte)];
    }
}

/// The digits of each byte.
const HEXADECIMAL: [[u8; 2]; 256] = {
    let (digits, mut all, mut byte) = (b"0123456789abcdef", [[0; 2]; 256], 0);
    while byte < all.len() {
        all[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    all
};

const NULL: &[u8; 4] = b"null";

/// Appends a text as JSON in ASCII. Other characters may end a line for a reader, or control a terminal. `is_cut`: dots follow it.
fn write_text(line: &mut LineWriter<'_>, text: &str, is_cut: bool) {
    line.put(b"\"");
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
        line.put_text(text.as_bytes());
    } else {
        text.chars().for_each(|character| write_escaped(line, character));
    }
    if is_cut {
        line.put(b"...");
    }
    line.put(b"\"");
}

fn write_escaped(line: &mut LineWriter<'_>, character: char) {
    match character {
        '"' | '\\' => line.put(&[b'\\', character as u8]),
        ' '..='~' => line.put(&[character as u8]),
        _ => {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(line, "\\u{unit:04x}"); // it takes all
            }
        }
    }
}

fn write_combined(line: &mut LineWriter<'_>, report: &LoggedReport<'_>, time: &[u8]) {
    write_common_fields(line, report, time);
    for field in [report.referer, report.user_agent] {
        line.put(b" \"");
        match field {
            Some(field) => write_between_quotes(line, field.value, field.is_cut),
            None => line.put(b"-"),
        }
        line.put(b"\"");
    }
    line.put(b"\n");
}

fn write_common(line: &mut LineWriter<'_>, report: &LoggedReport<'_>, time: &[u8]) {
    write_common_fields(line, report, time);
    line.put(b"\n");
}

/// Appends a line of the common log format without its end.
fn write_common_fields(line: &mut LineWriter<'_>, report: &LoggedReport<'_>, time: &[u8]) {
    let LoggedReport { answer, request, user, .. } = report;
    match answer.peer {
        Some(peer) => write_ip(line, peer.ip().to_canonical()),
        None => line.put(b"-"),
    }
    line.put(b" - ");
    match user {
        Some(user) => {
            let shown = |character: char| if is_unsafe(character) { b'_' } else { character as u8 };
            user.chars().for_each(|character| line.put(&[shown(character)]));
        }
        None => line.put(b"-"),
    }
    line.put(b" [");
    line.put_text(time);
    line.put(b"] \"");
    match request {
        Some(request) => {
            line.put_text(request.method.as_bytes());
            line.put(b" ");
            write_between_quotes(line, request.target.as_bytes(), request.is_cut);
            let _ = write!(line, " {:?}", request.version); // it takes all
        }
        None => line.put(b"-"),
    }
    line.put(b"\" ");
    line.put_number(answer.status.as_u16().into());
    line.put(b" ");
    line.put_number(answer.bytes);
}

/// Appends a text in which neither a quote nor a backslash stands for itself. So it ends at the next quote for every reader, also for one
/// that knows no escapes.
fn write_between_quotes(line: &mut LineWriter<'_>, text: &[u8], is_cut: bool) {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'"' && *byte != b'\\';
    if text.iter().all(is_plain) {
        line.put_text(text);
    } else {
        for byte in text {
            if is_plain(byte) {
                line.put(&[*byte]);
            } else {
                line.put(b"\\x");
                line.put(&HEXADECIMAL[usize::from(*byte)]);
            }
        }
    }
    if is_cut {
        line.put(b"...");
    }
}

/// Whether a reader could take a character for the end of the name that it is in.
fn is_unsafe(character: char) -> bool {
    !character.is_ascii_graphic() || character == '"'
}

fn write_peer(line: &mut LineWriter<'_>, peer: SocketAddr) {
    match peer {
        SocketAddr::V4(_) => {
            write_ip(line, peer.ip());
            line.put(b":");
            line.put_number(peer.port().into());
        }
        SocketAddr::V6(peer) => {
            let _ = write!(line, "{peer}"); // it takes all
        }
    }
}

fn write_ip(line: &mut LineWriter<'_>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => {
            let [first, rest @ ..] = ip.octets();
            line.put_number(first.into());
            for octet in rest {
                line.put(b".");
                line.put_number(octet.into());
            }
        }
        IpAddr::V6(ip) => {
            let _ = write!(line, "{ip}"); // it takes all
        }
    }
}

/// Appends a time in the common log format, `27/Nov/2026:19:41:51 +0000`, from `2026-11-27T19:41:51Z`.
fn write_common_time(common: &mut Vec<u8>, text: &str) {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    if let (Some(year), Some(month), Some(day), Some(clock)) =
        (text.get(..4), text.get(5..7), text.get(8..10), text.get(11..19))
        && let Some(month) = month.parse::<usize>().ok().and_then(|month| MONTHS.get(month.wrapping_sub(1)))
    {
        common.extend_from_slice(format!("{day}/{month}/{year}:{clock} +0000").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use polyserve_core::http::{Method, StatusCode, Version};
    use polyserve_core::{AnswerReport, ReportedRequest};

    use super::super::reports::{MAX_TEXT, Reports};
    use super::*;

    fn line(format: LogFormat, time: SystemTime, report: &AnswerReport<'_>) -> String {
        let (mut reports, mut lines) = (Reports::default(), LogLines::new(format));
        reports.push(report);
        let since_epoch = time.duration_since(UNIX_EPOCH).expect("it is after the epoch");
        let now = Clocks { monotonic: report.made, since_epoch };
        reports.iter().for_each(|report| lines.push(&report, &now));
        String::from_utf8(lines.bytes().to_vec()).expect("it is text")
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
        let common = "127.0.0.1 - alice [27/Nov/2026:19:41:51 +0000] \"GET /1?\\x22a HTTP/1.1\" 200 166";
        assert_eq!(of(LogFormat::Common, &known), format!("{common}\n"));
        assert_eq!(of(LogFormat::Combined, &known), format!("{common} \"-\" \"-\"\n"));
        let mut browser = known;
        (browser.referer, browser.user_agent) =
            (Some(&b"https://example.org/?a=b"[..]), Some(&b"Mozilla/5.0 (X11; Linux)"[..]));
        assert_eq!(
            of(LogFormat::Combined, &browser),
            format!("{common} \"https://example.org/?a=b\" \"Mozilla/5.0 (X11; Linux)\"\n")
        );
        assert_eq!(of(LogFormat::Common, &browser), format!("{common}\n"));
        let of_both = |known| [LogFormat::Json, LogFormat::Combined].map(|format| of(format, known));
        let mut mapped = known;
        mapped.peer = "[::ffff:127.0.0.1]:4000".parse().ok();
        assert_eq!(of_both(&mapped), of_both(&known), "the same client on a listener of both kinds of IP");
        assert_eq!(of(LogFormat::Common, &unknown), "- - - [27/Nov/2026:19:41:51 +0000] \"-\" 400 7\n");
        assert_eq!(of(LogFormat::Combined, &unknown), "- - - [27/Nov/2026:19:41:51 +0000] \"-\" 400 7 \"-\" \"-\"\n");
    }

    /// Regression test: a reader that takes U+0085 for the end of a line saw a line that a client had made up.
    #[test]
    fn a_client_cannot_begin_a_line() {
        let target = format!("/?\u{85}\u{1f600}{}", "x".repeat(20_000));
        for format in [LogFormat::Json, LogFormat::Common, LogFormat::Combined] {
            let line = line(format, SystemTime::UNIX_EPOCH, &report(StatusCode::OK, &target));
            assert!(
                line.trim_end().chars().all(|character| character.is_ascii_graphic() || character == ' '),
                "{line}"
            );
            assert!(line.len() < MAX_TEXT + 300 && line.contains("xxx..."), "{line}");
        }
        let line = line(LogFormat::Json, SystemTime::UNIX_EPOCH, &report(StatusCode::OK, "/?\u{85}\u{1f600}"));
        let read: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
        assert_eq!(read["target"], "/?\u{85}\u{1f600}");
    }

    /// A line ends as it must, however many bytes its texts take.
    #[test]
    fn a_line_has_room_for_its_texts() {
        for text in ["\u{7f}", "\u{85}", "\u{1f600}", "\"", "x"] {
            let text = text.repeat(MAX_TEXT);
            for length in [0, 3, 300, MAX_TEXT, text.len()] {
                let length = (0..=length).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
                let mut answer = report(StatusCode::OK, &text[..length]);
                (answer.user, answer.bytes, answer.elapsed) = (Some(&text[..length]), u64::MAX, Some(Duration::MAX));
                answer.peer = "[1111:2222:3333:4444:5555:6666:7777:8888%4294967295]:65535".parse().ok();
                let json = line(LogFormat::Json, UNIX_EPOCH, &answer);
                let read: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
                assert_eq!((read["user"].as_str(), json.ends_with("}\n")), (answer.user, true));
                assert!(line(LogFormat::Common, UNIX_EPOCH, &answer).ends_with(" 200 18446744073709551615\n"));
                (answer.referer, answer.user_agent) = (Some(text.as_bytes()), Some(text.as_bytes()));
                let combined = line(LogFormat::Combined, UNIX_EPOCH, &answer);
                assert_eq!(
                    (combined.ends_with("...\"\n"), texts(&combined).len()),
                    (text.len() > MAX_TEXT, 3),
                    "{combined}"
                );
            }
        }
    }

    /// The texts between quotes, as a reader finds them that knows no escapes.
    fn texts(line: &str) -> Vec<&str> {
        line.split('"').skip(1).step_by(2).collect()
    }

    /// Whatever bytes a client sends, a line has three texts, and its other parts are those of the server.
    #[test]
    fn a_client_cannot_end_a_text() {
        let hostile: Vec<Vec<u8>> = (0..=u8::MAX)
            .map(|byte| vec![b'a', byte])
            .chain([
                b"\" 200 1 \"-\" \"-\"\n127.0.0.1 - root [".to_vec(),
                b"\\".to_vec(),
                b"\\\"".to_vec(),
                b"\\x22".to_vec(),
                "\u{85}\u{2028}\u{202e}".into(),
                b"\x1b[2J\x9b31m".to_vec(),
            ])
            .collect();
        for (at, referer) in hostile.iter().enumerate() {
            let (referer, user_agent) = (referer.as_slice(), hostile[(at + 7) % hostile.len()].as_slice());
            let mut answer = report(StatusCode::OK, "/?\"\\\u{e9}");
            (answer.referer, answer.user_agent) = (Some(referer), Some(user_agent));
            let line = line(LogFormat::Combined, UNIX_EPOCH, &answer);
            assert!(
                line.strip_suffix('\n').is_some_and(|line| line.bytes().all(|byte| matches!(byte, b' '..=b'~'))),
                "{line}"
            );
            let found: Vec<Vec<u8>> = texts(&line).into_iter().map(unescaped).collect();
            assert_eq!(found, ["GET /?\"\\\u{e9} HTTP/1.1".as_bytes(), referer, user_agent], "{line}");
            assert_eq!(line.matches('"').count(), 6, "{line}");
        }
    }

    /// The bytes that a text stands for.
    fn unescaped(text: &str) -> Vec<u8> {
        let mut parts = text.split('\\');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            let digits = part.get(1..3).expect("two digits follow the x");
            bytes.push(u8::from_str_radix(digits, 16).expect("they are hexadecimal"));
            bytes.extend_from_slice(&part.as_bytes()[3..]);
        }
        bytes
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for number in (0..12_000).chain([99_999, 100_000, 12_345_678, u64::MAX]) {
            let (mut room, expected) = ([0; 20], number.to_string());
            let mut writer = LineWriter { rest: &mut room };
            writer.put_number(number);
            let length = 20 - writer.rest.len();
            assert_eq!(&room[..length], expected.as_bytes());
        }
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
