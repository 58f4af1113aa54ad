//! The parts that the twins of article C share, a page that sometimes waits: the command line, the waits, and the bytes of
//! an answer. Each twin has its own code to accept, wait, read the file and write.
//!
//! All deviate from their listings in this: the file, the wait and its frequency are flags; a connection that fails ends
//! its task, and a listing panics.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::Args;

const USAGE: &str = "--page-file PATH [--page-every 10] [--page-wait 2000ms] [--workers N] [--listen 127.0.0.1:0] \
[--until-stdin-ends]";

/// The page: its file and its waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageFlags {
    /// The file, which is read for each request.
    pub file: PathBuf,
    every: u64,
    wait: Duration,
}

impl PageFlags {
    /// Reads the command line. At the end the process prints the number of answers and exits.
    ///
    /// # Errors
    ///
    /// Returns an error if the command line is invalid, or if the file cannot be read.
    pub fn read() -> io::Result<(Args, &'static Self)> {
        let mut page = Self { file: PathBuf::new(), every: 10, wait: Duration::from_secs(2) };
        let args = Args::read(USAGE, |flag, value| page.set(flag, value))?;
        args.exit_at_end()?;
        std::fs::read(&page.file).map_err(|error| {
            io::Error::new(error.kind(), format!("--page-file {}: {error}; {USAGE}", page.file.display()))
        })?;
        Ok((args, Box::leak(Box::new(page))))
    }

    /// Sets the field that `flag` names. Returns whether the value is valid, or `None` if the flag is unknown.
    fn set(&mut self, flag: &str, value: &str) -> Option<bool> {
        match flag {
            "--page-file" => self.file = value.into(),
            "--page-every" => match value.parse() {
                Ok(every) => self.every = every,
                Err(_) => return Some(false),
            },
            "--page-wait" => match value.strip_suffix("ms").and_then(|ms| ms.parse().ok()) {
                Some(ms) => self.wait = Duration::from_millis(ms),
                None => return Some(false),
            },
            _ => return None,
        }
        Some(true)
    }

    /// Returns the wait of the `nth` request, or `None` if it does not wait. Requests are counted from 1 over the whole
    /// server.
    pub fn wait(&self, nth: u64) -> Option<Duration> {
        (self.every > 0 && nth.is_multiple_of(self.every)).then_some(self.wait)
    }
}

/// Returns the bytes of the answer to `request`. `content` is the content of the file.
pub fn answer(request: &[u8], content: &[u8]) -> Vec<u8> {
    let status = if request.starts_with(b"GET / HTTP/1.1\r\n") { "200 OK" } else { "404 Not Found" };
    let length = content.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    [head.as_bytes(), content].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let mut page = PageFlags { file: PathBuf::new(), every: 10, wait: Duration::from_secs(2) };
        let mut set = |flag: &str, value: &str| page.set(flag, value);
        assert_eq!((set("--page-file", "/a"), set("--page-every", "3")), (Some(true), Some(true)));
        assert_eq!((set("--page-wait", "20ms"), set("--pool", "3")), (Some(true), None));
        assert_eq!((set("--page-wait", "2s"), set("--page-every", "x")), (Some(false), Some(false)));
        assert_eq!(page.wait(3), Some(Duration::from_millis(20)));
        assert_eq!((page.wait(1), page.wait(4)), (None, None));
    }
}
