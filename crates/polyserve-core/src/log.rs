//! What polyserve logs about requests that fail: one line of a bounded length, and one line in [`PERIOD`] for each kind of
//! failure. So neither an engine that is away nor a client that causes errors fills a disk.

use std::error::Error;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::text::shortened;

/// The time after a message in which messages of the same kind are counted and not logged.
pub const PERIOD: Duration = Duration::from_secs(5);

/// The max length of an error's text, in bytes.
pub const MAX_TEXT: usize = 500;

#[derive(Debug, Default)]
struct Throttled {
    last: Option<Instant>,
    suppressed: u64,
}

impl Throttled {
    const NEW: Self = Self { last: None, suppressed: 0 };

    fn due_at(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < PERIOD) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// The throttles of one store or service: one for each line of code that logs. Two stores of a process do not share them, so a store
/// that fails often hides no message of another one. Used by [`throttled!`](crate::throttled).
///
/// Cost: a clock, and a lock held for a search through the lines that have logged, of which there are few.
#[derive(Debug, Default)]
pub struct LogThrottles(Mutex<Vec<(&'static Location<'static>, Throttled)>>);

impl LogThrottles {
    /// Creates throttles that allow the first message of each line.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the number of messages suppressed since the last one of the caller's line, if a message is to be logged now.
    /// Otherwise counts this one as suppressed.
    #[track_caller]
    pub fn due(&self) -> Option<u64> {
        let line = Location::caller();
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = lines.iter().position(|(known, _)| *known == line).unwrap_or_else(|| {
            lines.push((line, Throttled::NEW));
            lines.len() - 1
        });
        lines.get_mut(found)?.1.due_at(Instant::now())
    }
}

/// Logs a message, such as `throttled!(warn, %error, "cannot accept")`, unless this line of code logged one within the
/// last [`PERIOD`](crate::log::PERIOD). The next message has the number of those that were suppressed.
///
/// `throttled!(of throttles, warn, ...)` has a state in [`LogThrottles`](crate::log::LogThrottles), and not one for all of the
/// process.
#[macro_export]
macro_rules! throttled {
    (of $throttles:expr, $level:ident, $($message:tt)+) => {
        if let ::std::option::Option::Some(suppressed) = $throttles.due() {
            let suppressed = ::std::option::Option::Some(suppressed).filter(|count| *count > 0);
            ::tracing::$level!(suppressed, $($message)+);
        }
    };
    ($level:ident, $($message:tt)+) => {{
        static THROTTLES: $crate::log::LogThrottles = $crate::log::LogThrottles::new();
        $crate::throttled!(of THROTTLES, $level, $($message)+);
    }};
}

/// Returns the text of an error and of its causes, each once: `error connecting to server: Connection refused`. It is one
/// line of at most [`MAX_TEXT`] bytes.
///
/// Some client libraries say only `db error`, and the reason is in the source. Others repeat the text of the source.
pub fn in_one_line(error: &(dyn Error + 'static)) -> String {
    with_causes(&error.to_string(), error.source())
}

/// Adds the texts of a cause and of its causes to `text`, unless they are there already. The result is one line of at most
/// [`MAX_TEXT`] bytes.
pub fn with_causes(text: &str, mut source: Option<&(dyn Error + 'static)>) -> String {
    let mut line = first_line(text);
    while let Some(error) = source {
        let cause = first_line(&error.to_string());
        if !line.contains(&cause) {
            line.push_str(": ");
            line.push_str(&cause);
        }
        source = error.source();
    }
    shortened(line, MAX_TEXT)
}

/// The first line of a text, without control characters. Engines show what was stored or sent in the lines that follow.
fn first_line(text: &str) -> String {
    let line = text.trim_start().lines().next().unwrap_or_default();
    line.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    /// Regression test: while the process had no descriptor left, each of twenty attempts a second was logged.
    #[test]
    fn a_message_is_logged_once_in_a_period() {
        let (mut throttle, start) = (Throttled::NEW, Instant::now());
        let mut due = |millis| throttle.due_at(start + Duration::from_millis(millis));
        assert_eq!([0, 50, 4_999, 5_000, 5_050, 30_000].map(&mut due), [Some(0), None, None, Some(2), None, Some(1)]);
    }

    /// Regression test: two stores of a process shared the state of a line, so the failures of one hid those of the other.
    #[test]
    fn stores_and_lines_do_not_share_a_throttle() {
        let stores = [LogThrottles::default(), LogThrottles::default()];
        let lines: [fn(&LogThrottles) -> bool; 2] = [|store| store.due().is_some(), |store| store.due().is_some()];
        for store in &stores {
            assert_eq!(lines.map(|line| line(store)), [true, true]);
            assert_eq!(lines.map(|line| line(store)), [false, false]);
        }
    }

    /// An error, and its cause.
    #[derive(Debug)]
    struct LayeredError(String, Option<Box<LayeredError>>);

    impl fmt::Display for LayeredError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.0)
        }
    }

    impl Error for LayeredError {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_ref().map(|source| &**source as _)
        }
    }

    /// Regression test: PostgreSQL's `DETAIL` has the row that was rejected, and stood on a line of its own in the log.
    #[test]
    fn a_text_is_one_line_of_bounded_length() {
        let cause = "ERROR: new row violates a check\nDETAIL: Failing row contains (1, secret).\nHINT: none";
        let error = |cause: &str| LayeredError("db error".into(), Some(Box::new(LayeredError(cause.into(), None))));
        assert_eq!(in_one_line(&error(cause)), "db error: ERROR: new row violates a check");
        assert_eq!(in_one_line(&error("a\rb\u{1b}[1mc")), "db error: a b [1mc");
        assert_eq!(in_one_line(&error("")), "db error");
        let long = in_one_line(&error(&"é".repeat(10_000)));
        assert!(long.len() <= MAX_TEXT && long.ends_with("é..."), "{} bytes", long.len());
    }
}
