//! The `Date` header.
//!
//! Invariant: the text is always the date of one second. Each thread formats its own text, so no thread reads a text that
//! another thread is writing.
//!
//! Cost: two comparisons for each refresh, and one formatting a second.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An IMF-fixdate (RFC 9110, 5.6.7). It is formatted again only when its second has passed.
#[derive(Clone, Debug)]
pub struct Date {
    /// The text is that of the times from the first to the second.
    second: [SystemTime; 2],
    /// The line, and what stands before and after it if it is the last line of a head.
    end: [u8; Self::END],
}

impl Date {
    /// The length of [`end_of_head`](Self::end_of_head). A copy of a known length needs no call.
    pub const END: usize = 41;

    /// Creates the date of `now`.
    pub fn new(now: SystemTime) -> Self {
        let mut date = Self { second: [UNIX_EPOCH; 2], end: *b"\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n" };
        date.refresh(now);
        date
    }

    /// Updates the date to `now`.
    #[inline]
    pub fn refresh(&mut self, now: SystemTime) {
        let [begin, end] = self.second;
        if now < begin || now >= end {
            self.format(now);
        }
    }

    #[inline(never)]
    fn format(&mut self, now: SystemTime) {
        let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().min(MAX_SECOND);
        let begin = UNIX_EPOCH.checked_add(Duration::from_secs(second)).unwrap_or(UNIX_EPOCH);
        self.second = [begin, begin.checked_add(Duration::from_secs(1)).unwrap_or(begin)];
        let text = httpdate::fmt_http_date(begin);
        self.end.iter_mut().skip("\r\nDate: ".len()).zip(text.bytes()).for_each(|(end, byte)| *end = byte);
    }

    /// Returns the whole line: the name, a text of 29 bytes, and the end of the line.
    pub fn line(&self) -> &str {
        str::from_utf8(self.end.get(2..Self::END.saturating_sub(2)).unwrap_or_default()).unwrap_or_default()
    }

    /// Returns the last line of a head, with the end of the line before it and the end of the head.
    #[inline]
    pub fn end_of_head(&self) -> &[u8; Self::END] {
        &self.end
    }
}

/// The last second that the format can express: the end of the year 9999.
const MAX_SECOND: u64 = 253_402_300_799;
