//! Lines on standard error that delay no thread.
//!
//! The log has lines of threads that serve. A pipe that no process reads, or a stuck disk, would stop such a thread, and the next ones at
//! the lock of standard error. So a thread of its own writes the lines.
//!
//! Invariants: at most [`MAX_WAITING`] bytes wait. A line that finds no room is dropped and counted, and a line tells their number once
//! there is room. Cost: a thread; a line costs a lock, a copy, and a wake-up.

use std::fmt;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use polyserve::sync::lock;

/// The max bytes of the lines that wait to be written.
const MAX_WAITING: usize = 256 * 1024;

/// The max time in which the last lines are written, as for the last lines of an access log.
const MAX_END: Duration = Duration::from_secs(2);

/// The start of the line about dropped lines. Their number follows.
const DROPPED: &str = "lines of the log that were dropped, because standard error was not read: ";

/// The thread that writes the lines. Dropping it writes those that wait, and takes at most [`MAX_END`].
#[derive(Debug)]
pub(crate) struct LogOutput {
    lines: Arc<LogLines>,
    /// The thread has written its last line.
    ended: Receiver<()>,
}

/// The lines that wait to be written. [`Write::write`] adds a line.
#[derive(Debug, Default)]
pub(crate) struct LogLines {
    waiting: Mutex<WaitingLines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WaitingLines {
    text: Vec<u8>,
    /// The thread writes those that it took last.
    is_writing: bool,
    dropped: u64,
    has_ended: bool,
}

impl LogOutput {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses the thread.
    pub(crate) fn start(writer: impl Write + Send + 'static) -> io::Result<Self> {
        let lines = Arc::<LogLines>::default();
        let (work, (end, ended)) = (Arc::clone(&lines), sync_channel(1));
        thread::Builder::new().name("polyserve-log".into()).spawn(move || {
            work.write_all_to(writer);
            let _ = end.send(()); // an error: nothing waits for it
        })?;
        Ok(Self { lines, ended })
    }

    /// Where the lines are added.
    pub(crate) fn lines(&self) -> Arc<LogLines> {
        Arc::clone(&self.lines)
    }
}

impl Drop for LogOutput {
    fn drop(&mut self) {
        lock(&self.lines.waiting).has_ended = true;
        self.lines.changed.notify_all();
        let _ = self.ended.recv_timeout(MAX_END);
    }
}

impl LogLines {
    /// Adds a line.
    pub(crate) fn add(&self, line: impl fmt::Display) {
        self.push(format!("{line}\n").as_bytes());
    }

    fn push(&self, line: &[u8]) {
        let mut waiting = lock(&self.waiting);
        if waiting.text.len().saturating_add(line.len()) > MAX_WAITING {
            waiting.dropped += 1;
            return;
        }
        waiting.text.extend_from_slice(line);
        drop(waiting);
        self.changed.notify_all();
    }

    /// Waits until no line waits any more, at most [`MAX_END`].
    pub(crate) fn await_written(&self) {
        let is_unwritten = |waiting: &mut WaitingLines| waiting.is_writing || !waiting.text.is_empty();
        drop(self.changed.wait_timeout_while(lock(&self.waiting), MAX_END, is_unwritten));
    }

    /// Writes lines until the end. An error drops the lines that were taken last: a full disk may have room later.
    fn write_all_to(&self, mut writer: impl Write) {
        let mut text = Vec::new();
        while self.take(&mut text) {
            let _ = writer.write_all(&text).and_then(|()| writer.flush());
            text.clear();
        }
    }

    /// Waits for lines, and exchanges them for the empty `text`. Returns false after the end, if none is left.
    fn take(&self, text: &mut Vec<u8>) -> bool {
        let is_idle = |waiting: &mut WaitingLines| waiting.text.is_empty() && !waiting.has_ended;
        let mut waiting = lock(&self.waiting);
        waiting.is_writing = false;
        self.changed.notify_all();
        let waiting = self.changed.wait_while(waiting, is_idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        waiting.is_writing = true;
        std::mem::swap(&mut waiting.text, text);
        if waiting.dropped > 0 {
            text.extend_from_slice(format!("{DROPPED}{}\n", waiting.dropped).as_bytes());
            waiting.dropped = 0;
        }
        !text.is_empty()
    }
}

impl Write for &LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_can_be_awaited() {
        let (mut reader, writer) = io::pipe().unwrap();
        let log = LogOutput::start(writer).unwrap();
        log.lines().add("last words");
        log.lines().await_written();
        let mut text = [0; 11];
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        io::Read::read_exact(&mut reader, &mut text).unwrap();
        assert_eq!(&text, b"last words\n");
    }

    #[test]
    fn lines_that_find_no_room_are_counted() {
        let (mut reader, writer) = io::pipe().unwrap();
        let log = LogOutput::start(writer).unwrap();
        let line = "x".repeat(999);
        let added = 4 * MAX_WAITING / 1000; // more than wait, are in the hands of the thread, and are in the pipe
        (0..added).for_each(|_| log.lines().add(&line));
        let text = thread::spawn(move || io::read_to_string(&mut reader).unwrap());
        drop(log);
        let text = text.join().unwrap();
        let (written, reports): (Vec<_>, Vec<_>) = text.lines().partition(|written| *written == line);
        let dropped = reports.iter().map(|report| report.split_once(DROPPED).unwrap().1.parse::<usize>().unwrap());
        let dropped: usize = dropped.sum();
        assert!(dropped > 0);
        assert_eq!(written.len() + dropped, added);
    }
}
