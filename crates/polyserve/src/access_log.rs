//! A line for each answer of a server: as JSON, or in the common or the combined log format of web servers.
//!
//! The log has every answer, also those that the server gives itself, such as 400, 408, and 503 at a limit. A thread of its
//! own formats and writes the lines, so a slow disk delays no answer. It writes the lines of some milliseconds together.
//!
//! Invariants: memory is bounded by [`MAX_WAITING`] reports, each with at most 2 KiB of a target and of each other text. A report that
//! finds this number of others, or the rate of the log reached, is dropped and counted. A client cannot begin a line or end a text: every
//! byte that is not printable ASCII is escaped, and so are quotes.
//!
//! Cost of an answer: that of an [`AnswerHook`], a lock that is held for a copy of the report, and a wake-up of the log's thread every
//! [`BATCH_TIME`]. No allocation. An answer that is not sampled costs an addition. The log's thread formats the line and writes it.
//!
//! # Layout
//!
//! * `reports`: what an answer leaves for the log's thread.
//! * `line`: the text of a line.

mod line;
mod reports;

use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use polyserve_core::sync::lock;
use polyserve_core::{AnswerHook, AnswerReport, ServerConfig};

use line::LogLines;
use reports::Reports;

/// The max number of lines that wait to be written.
pub const MAX_WAITING: usize = 4096;

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// An object: `time`, `trace_id`, `peer`, `user`, `method`, `target`, `status`, `bytes`, and `duration_us`, the microseconds since
    /// the first byte of the request. What is not known is `null`.
    #[default]
    Json,
    /// The common log format: `PEER - USER [TIME] "METHOD TARGET VERSION" STATUS BYTES`. What is not known is `-`. Between the quotes, a
    /// quote, a backslash, and what is not printable ASCII is `\xHH` for each byte, as nginx writes it.
    Common,
    /// The combined log format: the common one, and then `"REFERER" "USER_AGENT"`, two fields of the request. It needs a hook that
    /// [sees agents](AnswerHook::with_agents).
    Combined,
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

/// The time for which the log's thread collects lines before it writes them.
pub const BATCH_TIME: Duration = Duration::from_millis(20);

/// The thread writes at once if this number of lines waits.
const FULL_BATCH: usize = MAX_WAITING / 4;

/// Lines are written if they have this length together, in bytes. Few calls, and text that is still in the cache of the processor.
const FULL_WRITE: usize = 64 * 1024;

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
    waiting: Mutex<WaitingReports>,
    changed: Condvar,
    start: Instant,
    sampled: AtomicU64,
    /// The present second since the start, in the upper half, and its number of lines, in the lower half.
    rate: AtomicU64,
    dropped: AtomicU64,
}

/// The reports that wait to be written.
#[derive(Debug, Default)]
struct WaitingReports {
    reports: Reports,
    /// The thread of the log sleeps until there is a report.
    is_awaited: bool,
    has_ended: bool,
}

impl AccessLog {
    /// Starts a log that `writer` takes, which gets the lines of some milliseconds in few calls, each with whole lines.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started. An error of `writer` is logged, and the lines of the call are dropped.
    pub fn start(writer: impl Write + Send + 'static, format: LogFormat, sampling: Sampling) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            format,
            sampling,
            waiting: Mutex::default(),
            changed: Condvar::new(),
            start: Instant::now(),
            sampled: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        });
        let (work, (end, ended)) = (Arc::clone(&shared), sync_channel(1));
        thread::Builder::new().name("polyserve-access-log".into()).spawn(move || {
            work.write_lines(writer);
            let _ = end.send(()); // an error: nothing waits for it
        })?;
        Ok(Self { shared, ended })
    }

    /// Returns the configuration with a hook that logs every answer. A hook that the configuration has is called too.
    #[must_use]
    pub fn observe(&self, mut config: ServerConfig) -> ServerConfig {
        let shared = Arc::clone(&self.shared);
        let mut hook = AnswerHook::new(move |report| shared.log(report));
        if self.shared.format == LogFormat::Combined {
            hook = hook.with_agents();
        }
        config.on_answer = Some(hook.then(config.on_answer.take()));
        config
    }

    /// Returns the number of lines that were dropped: because the queue was full, the rate was reached, or they could not be written.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        lock(&self.shared.waiting).has_ended = true;
        self.shared.changed.notify_one();
        let _ = self.ended.recv_timeout(MAX_END);
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
        let has_room =
            self.sampling.max_per_s == u64::MAX || self.has_room(report.made.saturating_duration_since(self.start));
        if !(has_room && self.keep(report)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds a report to those that wait, unless there are too many.
    fn keep(&self, report: &AnswerReport<'_>) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.reports.len() >= MAX_WAITING {
            return false;
        }
        waiting.reports.push(report);
        let is_full = waiting.reports.len() == FULL_BATCH;
        let wakes = std::mem::take(&mut waiting.is_awaited) || is_full;
        drop(waiting);
        if wakes {
            self.changed.notify_one();
        }
        true
    }

    /// Writes lines until the end of the log.
    fn write_lines(&self, writer: impl Write) {
        let (mut reports, mut lines) = (Reports::default(), LogLines::new(self.format));
        let mut output = Output { writer, is_torn: false };
        while self.take_reports(&mut reports) {
            let now = Clocks::read();
            for report in reports.iter() {
                lines.push(&report, &now);
                if lines.bytes().len() >= FULL_WRITE {
                    self.write(&mut lines, &mut output);
                }
            }
            self.write(&mut lines, &mut output);
            reports.clear();
        }
    }

    /// Writes the lines, if there are any, and removes them.
    fn write(&self, lines: &mut LogLines, output: &mut Output<impl Write>) {
        if lines.count() == 0 {
            return;
        }
        if let Err((written, error)) = output.write(lines.bytes()) {
            self.dropped.fetch_add(lines.count().saturating_sub(written) as u64, Ordering::Relaxed);
            polyserve_core::throttled!(warn, %error, "the access log cannot be written");
        }
        lines.clear();
    }

    /// Waits for reports, and exchanges them for the empty `reports`. Returns false if the log has ended, and no report is left.
    fn take_reports(&self, reports: &mut Reports) -> bool {
        let mut waiting = lock(&self.waiting);
        loop {
            let grows = |waiting: &mut WaitingReports| waiting.reports.len() < FULL_BATCH && !waiting.has_ended;
            let waited = self.changed.wait_timeout_while(waiting, BATCH_TIME, grows);
            (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if waiting.reports.len() > 0 || waiting.has_ended {
                std::mem::swap(&mut waiting.reports, reports);
                return reports.len() > 0;
            }
            waiting.is_awaited = true; // while reports come, no thread has to wake this one for the first one
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
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

/// One moment by two clocks.
struct Clocks {
    monotonic: Instant,
    since_epoch: Duration,
}

impl Clocks {
    fn read() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { monotonic: Instant::now(), since_epoch }
    }

    /// Returns a moment before this one as the time since the epoch.
    fn since_epoch(&self, moment: Instant) -> Duration {
        self.since_epoch.saturating_sub(self.monotonic.saturating_duration_since(moment))
    }
}

/// What the lines are written to.
struct Output<W> {
    writer: W,
    /// An error has left the last line without its end, and the next line must not join it.
    is_torn: bool,
}

impl<W: Write> Output<W> {
    /// Writes lines.
    ///
    /// # Errors
    ///
    /// Returns the error, and the number of lines that were written as a whole.
    fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        if self.is_torn {
            self.write_bytes(b"\n").map_err(|(_, error)| (0, error))?;
        }
        let result = self.write_bytes(lines).and_then(|()| self.writer.flush().map_err(|error| (lines.len(), error)));
        result.map_err(|(written, error)| {
            let ends = lines.iter().take(written).filter(|byte| **byte == b'\n');
            (ends.count(), error)
        })
    }

    /// Writes all bytes.
    ///
    /// # Errors
    ///
    /// Returns the error, and the number of bytes that were written.
    fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.writer.write(rest) {
                Ok(0) => return Err((written, ErrorKind::WriteZero.into())),
                Ok(count) => {
                    written += count;
                    self.is_torn = bytes.get(..written).and_then(<[u8]>::last).is_some_and(|last| *last != b'\n');
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err((written, error)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use polyserve_core::ReportedRequest;
    use polyserve_core::http::{Method, StatusCode, Version};
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
        report.to(Some(ReportedRequest { method: &Method::GET, target, version: Version::HTTP_11 }))
    }

    /// The hook of a log.
    fn hook(log: &AccessLog) -> AnswerHook {
        log.observe(ServerConfig::default()).on_answer.expect("it was set")
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

    /// A disk with room for this number of bytes, and then for none until it has more.
    #[derive(Clone)]
    struct FullDisk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (content, room) = &mut *lock(&self.0);
            let count = bytes.len().min(*room);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            content.extend_from_slice(&bytes[..count]);
            *room -= count;
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Regression test: the line that a full disk has cut and the first one after it were one line, and lines that were written counted as
    /// dropped.
    #[test]
    fn a_line_that_was_cut_spoils_no_other() {
        let (mut reports, mut lines) = (Reports::default(), LogLines::new(LogFormat::Common));
        reports.push(&report(StatusCode::OK, "/1"));
        reports.iter().for_each(|report| lines.push(&report, &Clocks::read()));
        let disk = FullDisk(Arc::new(Mutex::new((Vec::new(), 2 * lines.bytes().len() + 10))));
        let log = AccessLog::start(disk.clone(), LogFormat::Common, Sampling::default()).expect("a thread starts");
        let hook = hook(&log);
        for dropped in [3, 8] {
            (0..5).for_each(|_| hook.call(&report(StatusCode::OK, "/1")));
            while log.dropped() < dropped {
                thread::yield_now();
            }
            assert_eq!(log.dropped(), dropped);
        }
        lock(&disk.0).1 = usize::MAX;
        hook.call(&report(StatusCode::OK, "/2"));
        drop(log);
        let content = String::from_utf8(lock(&disk.0).0.clone()).expect("it is text");
        let lines: Vec<_> = content.lines().collect();
        assert_eq!(lines.len(), 4, "{content}");
        assert!([0, 1, 3].iter().all(|at| lines[*at].ends_with("HTTP/1.1\" 200 166")), "{content}");
        assert_eq!(lines[2].len(), 10, "{content}");
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
        assert!(lines[2].contains("\"GET /2 HTTP/1.1\" 404"), "{lines:?}");
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
