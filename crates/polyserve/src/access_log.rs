//! A line for each answer of a server: as JSON, or in the common log format of web servers.
//!
//! The log has every answer, also those that the server gives itself, such as 400, 408, and 503 at a limit. A thread of its
//! own writes the lines, so a slow disk delays no answer.
//!
//! Invariants: memory is bounded by a queue of [`MAX_WAITING`] lines, each with at most 2 KiB of a target. A line that finds the
//! queue full, or the rate of the log reached, is dropped and counted. A client cannot begin a line: every byte that is not
//! printable ASCII is escaped.
//!
//! Cost of an answer: that of an [`AnswerHook`], the formatting of a line in a new string, and the lock of a queue. An answer
//! that is not sampled costs an addition.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use polyserve_core::{AnswerHook, AnswerReport, ServerConfig};
use serde_json::json;

/// The max number of lines that wait to be written.
pub const MAX_WAITING: usize = 4096;

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// An object: `time`, `peer`, `user`, `method`, `target`, `status`, `bytes`, and `duration_us`, the microseconds since the first byte of
    /// the request. What is not known is `null`.
    #[default]
    Json,
    /// The common log format: `PEER - USER [TIME] "METHOD TARGET" STATUS BYTES`. What is not known is `-`.
    Common,
}

/// Which answers have a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// One in this number of answers with a status below 400 has a line; 1 for all. Others always have one.
    pub one_in: u64,
    /// The max number of lines a second.
    pub max_per_s: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { one_in: 1, max_per_s: u64::MAX }
    }
}

/// The max number of bytes of a target in a line. A longer one is cut, and ends with `...`.
const MAX_TARGET: usize = 2048;

/// The max time in which a log writes its last lines. A disk or a pipe may be stuck, and a program must still end.
const MAX_END: Duration = Duration::from_secs(2);

/// A log of answers. Dropping it writes the lines that wait, and takes at most two seconds.
///
#[cfg_attr(all(feature = "threadpool", feature = "memory"), doc = "```")]
#[cfg_attr(not(all(feature = "threadpool", feature = "memory")), doc = "```ignore")]
/// use polyserve::access_log::{AccessLog, LogFormat, Sampling};
/// use polyserve::prelude::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let log = AccessLog::start(std::io::stderr(), LogFormat::Json, Sampling::default())?;
/// let server = PoolServer::mpsc(log.observe(ServerConfig::default()))?;
/// let running = server.serve("127.0.0.1:0", EntityService::new(Sharded::new()))?;
/// running.shutdown()?;
/// drop(log); // all lines are written
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AccessLog {
    shared: Arc<Shared>,
    /// The thread has written its last line.
    ended: Receiver<()>,
}

/// What the threads of a server share with the log.
#[derive(Debug)]
struct Shared {
    format: LogFormat,
    sampling: Sampling,
    /// `None` is the end of the log.
    lines: SyncSender<Option<String>>,
    start: Instant,
    sampled: AtomicU64,
    /// The present second since the start, in the upper half, and its number of lines, in the lower half.
    rate: AtomicU64,
    dropped: AtomicU64,
}

impl AccessLog {
    /// Starts a log that `writer` takes. The lines of a burst are written together.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started. An error of `writer` is logged, and the line is dropped.
    pub fn start(writer: impl Write + Send + 'static, format: LogFormat, sampling: Sampling) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(MAX_WAITING);
        let shared = Arc::new(Shared {
            format,
            sampling,
            lines,
            start: Instant::now(),
            sampled: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        let (work, (end, ended)) = (Arc::clone(&shared), sync_channel(1));
        thread::Builder::new().name("polyserve-access-log".into()).spawn(move || {
            write_lines(&waiting, BufWriter::new(writer), &work.dropped);
            let _ = end.send(()); // an error: nothing waits for it
        })?;
        Ok(Self { shared, ended })
    }

    /// Returns the configuration with a hook that logs every answer. A hook that the configuration has is called too.
    #[must_use]
    pub fn observe(&self, mut config: ServerConfig) -> ServerConfig {
        let shared = Arc::clone(&self.shared);
        config.on_answer = Some(AnswerHook::new(move |report| shared.log(report)).then(config.on_answer.take()));
        config
    }

    /// Returns the number of lines that were dropped: because the queue was full, the rate was reached, or they could not be written.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        let deadline = Instant::now() + MAX_END;
        while let Err(TrySendError::Full(_)) = self.shared.lines.try_send(None) {
            if Instant::now() >= deadline {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl Shared {
    fn log(&self, report: &AnswerReport<'_>) {
        if report.status.as_u16() < 400 && self.sampling.one_in > 1 {
            let sampled = self.sampled.fetch_add(1, Ordering::Relaxed);
            if !sampled.is_multiple_of(self.sampling.one_in) {
                return;
            }
        }
        let has_room = self.has_room(self.start.elapsed());
        if !has_room || self.lines.try_send(Some(line(self.format, SystemTime::now(), report))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the present second has room for a line, which is then counted.
    fn has_room(&self, since_start: Duration) -> bool {
        const LINES: u64 = u32::MAX as u64;
        if self.sampling.max_per_s > LINES {
            return true;
        }
        let second = since_start.as_secs() << 32;
        let count = |rate: u64| match rate & LINES {
            _ if rate & !LINES < second => Some(second | 1),
            lines if lines < self.sampling.max_per_s => Some(rate + 1),
            _ => None,
        };
        self.sampling.max_per_s > 0 && self.rate.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }
}

/// Writes the lines until the end of the log.
fn write_lines(waiting: &Receiver<Option<String>>, mut writer: impl Write, dropped: &AtomicU64) {
    let mut next = waiting.recv().ok().flatten();
    while let Some(line) = next {
        let mut written = writer.write_all(line.as_bytes());
        next = match waiting.try_recv() {
            Ok(next) => next,
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                written = written.and_then(|()| writer.flush());
                waiting.recv().ok().flatten()
            }
        };
        if let Err(error) = written {
            dropped.fetch_add(1, Ordering::Relaxed);
            polyserve_core::throttled!(warn, %error, "the access log cannot be written");
        }
    }
    if let Err(error) = writer.flush() {
        polyserve_core::throttled!(warn, %error, "the access log cannot be written");
    }
}

/// The line of an answer that was made at `time`.
fn line(format: LogFormat, time: SystemTime, report: &AnswerReport<'_>) -> String {
    let (request, status) = (report.request, report.status.as_u16());
    match format {
        LogFormat::Json => {
            let line = json!({
                "time": humantime::format_rfc3339_millis(time).to_string(),
                "peer": report.peer.map(|peer| peer.to_string()),
                "user": report.user,
                "method": request.map(|request| request.method.as_str()),
                "target": request.map(|request| cut(request.target)),
                "status": status,
                "bytes": report.bytes,
                "duration_us": report.elapsed.map(|elapsed| elapsed.as_micros() as u64),
            });
            format!("{}\n", in_ascii(&line.to_string()))
        }
        LogFormat::Common => {
            let peer = report.peer.map_or_else(|| String::from("-"), |peer| peer.ip().to_string());
            let request = request.map_or_else(
                || String::from("-"),
                |request| format!("{} {}", request.method, cut(request.target).escape_default()),
            );
            let user = report.user.map_or_else(|| String::from("-"), |user| user.replace(is_unsafe, "_"));
            format!("{peer} - {user} [{}] \"{request}\" {status} {}\n", common_time(time), report.bytes)
        }
    }
}

/// Whether a reader could take a character for the end of the name that it is in.
fn is_unsafe(character: char) -> bool {
    !character.is_ascii_graphic() || character == '"'
}

/// The target, or its start if it is long.
fn cut(target: &str) -> Cow<'_, str> {
    if target.len() <= MAX_TARGET {
        return target.into();
    }
    let end = (0..=MAX_TARGET).rev().find(|at| target.is_char_boundary(*at)).unwrap_or_default();
    format!("{}...", &target[..end]).into()
}

/// The JSON in ASCII. Other characters may end a line for a reader, or control a terminal.
fn in_ascii(json: &str) -> Cow<'_, str> {
    if json.is_ascii() {
        return json.into();
    }
    let mut ascii = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(ascii, "\\u{unit:04x}"); // a string takes all that is written
            }
        }
    }
    ascii.into()
}

/// The time in the common log format: `27/Nov/2026:19:41:51 +0000`.
fn common_time(time: SystemTime) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let rfc3339 = humantime::format_rfc3339_seconds(time).to_string(); // 2026-11-27T19:41:51Z
    let mut common = String::new();
    if let (Some((date, clock)), Some(month)) =
        (rfc3339.trim_end_matches('Z').split_once('T'), rfc3339.get(5..7).and_then(|month| month.parse::<usize>().ok()))
        && let (Some(year), Some(day), Some(month)) = (date.get(..4), date.get(8..), MONTHS.get(month.wrapping_sub(1)))
    {
        let _ = write!(common, "{day}/{month}/{year}:{clock} +0000"); // a string takes all that is written
    }
    common
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use polyserve_core::ReportedRequest;
    use polyserve_core::http::{Method, StatusCode};
    use polyserve_core::sync::lock;

    use super::*;

    /// A writer that the test can block. It keeps the bytes for the test.
    #[derive(Clone, Default)]
    struct Seen(Arc<SeenState>);

    #[derive(Default)]
    struct SeenState {
        /// The bytes, and whether the writer is blocked.
        written: Mutex<(Vec<u8>, bool)>,
        changed: Condvar,
    }

    impl Seen {
        fn lines(&self) -> Vec<String> {
            String::from_utf8(lock(&self.0.written).0.clone()).expect("it is text").lines().map(str::to_owned).collect()
        }

        fn block(&self, blocked: bool) {
            lock(&self.0.written).1 = blocked;
            self.0.changed.notify_all();
        }
    }

    impl Write for Seen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let state = self.0.changed.wait_while(lock(&self.0.written), |(_, blocked)| *blocked);
            state.expect("no test panics with it").0.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn report(status: StatusCode, target: &str) -> AnswerReport<'_> {
        let peer = "127.0.0.1:4000".parse().ok();
        let mut report = AnswerReport::new(status, 166, None, peer);
        report.elapsed = Some(Duration::from_micros(12));
        report.to(Some(ReportedRequest { method: &Method::GET, target }))
    }

    /// The hook of a log.
    fn hook(log: &AccessLog) -> AnswerHook {
        log.observe(ServerConfig::default()).on_answer.expect("it was set")
    }

    #[test]
    fn a_line_has_what_is_known() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_808_511_913);
        let known = report(StatusCode::OK, "/1?\"a").by(Some("alice"));
        let unknown = AnswerReport::new(StatusCode::BAD_REQUEST, 7, None, None);
        let of = |format, report| line(format, time, report);
        assert_eq!(
            of(LogFormat::Json, &known),
            "{\"bytes\":166,\"duration_us\":12,\"method\":\"GET\",\"peer\":\"127.0.0.1:4000\",\"status\":200,\
             \"target\":\"/1?\\\"a\",\"time\":\"2026-11-27T19:41:51.913Z\",\"user\":\"alice\"}\n"
        );
        assert_eq!(
            of(LogFormat::Json, &unknown),
            "{\"bytes\":7,\"duration_us\":null,\"method\":null,\"peer\":null,\"status\":400,\"target\":null,\
             \"time\":\"2026-11-27T19:41:51.913Z\",\"user\":null}\n"
        );
        let common = "127.0.0.1 - alice [27/Nov/2026:19:41:51 +0000] \"GET /1?\\\"a\" 200 166\n";
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

    /// Regression test: a program with a log on a stuck pipe did not end.
    #[test]
    fn a_stuck_log_does_not_hold_the_program() {
        let seen = Seen::default();
        seen.block(true);
        let log = AccessLog::start(seen.clone(), LogFormat::Json, Sampling::default()).expect("a thread starts");
        let hook = hook(&log);
        for _ in 0..3 * MAX_WAITING {
            hook.call(&report(StatusCode::OK, "/1"));
        }
        drop(log);
        seen.block(false); // its thread ends too
    }

    #[test]
    fn errors_are_logged_whatever_the_sampling() {
        let seen = Seen::default();
        let sampling = Sampling { one_in: 10, ..Sampling::default() };
        let log = AccessLog::start(seen.clone(), LogFormat::Common, sampling).expect("a thread starts");
        let hook = hook(&log);
        for _ in 0..20 {
            hook.call(&report(StatusCode::OK, "/1"));
        }
        hook.call(&report(StatusCode::NOT_FOUND, "/2"));
        drop(log);
        let lines = seen.lines();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[2].contains("\"GET /2\" 404"), "{lines:?}");
    }

    #[test]
    fn a_second_has_its_lines() {
        let seen = Seen::default();
        let sampling = Sampling { max_per_s: 2, ..Sampling::default() };
        let log = AccessLog::start(seen, LogFormat::Json, sampling).expect("a thread starts");
        let room = |seconds: &[u64]| -> Vec<bool> {
            seconds.iter().map(|second| log.shared.has_room(Duration::from_secs(*second))).collect()
        };
        assert_eq!(room(&[0, 0, 0, 7, 7, 7, 8]), [true, true, false, true, true, false, true]);
    }

    #[test]
    fn lines_that_find_no_room_are_counted() {
        let seen = Seen::default();
        seen.block(true);
        let log = AccessLog::start(seen.clone(), LogFormat::Json, Sampling::default()).expect("a thread starts");
        let hook = hook(&log);
        // The thread may hold a line, and a buffer of lines.
        let sent = 3 * MAX_WAITING;
        for _ in 0..sent {
            hook.call(&report(StatusCode::OK, "/1"));
        }
        let dropped = log.dropped();
        assert!(dropped > 0);
        seen.block(false);
        drop(log);
        assert_eq!(seen.lines().len() as u64 + dropped, sent as u64);
    }
}
