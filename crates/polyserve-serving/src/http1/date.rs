//! The `Date` header.
//!
//! Invariant: the text is always the date of one second. Each thread formats its own text, so no thread reads a text that
//! another thread is writing.
//!
//! Cost: a comparison for each refresh by the monotonic clock, two for one by the system's; one formatting a second.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An IMF-fixdate (RFC 9110, 5.6.7). It is formatted again only when its second has passed.
#[derive(Clone, Debug)]
pub struct Date {
    /// The text is that of the times from the first to the second.
    second: [SystemTime; 2],
    /// The end of that second by the monotonic clock. `None` if it is not known.
    until: Option<Instant>,
    /// A whole head with this date: that of JSON with two digits of length, which are zero. Its end is that of each head.
    json_head: [u8; Self::JSON_HEAD],
}

/// What precedes the length in the head of JSON.
pub(super) const JSON_START: &[u8; 65] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";

impl Date {
    /// The length of [`end_of_head`](Self::end_of_head). A copy of a known length needs no call.
    pub const END: usize = 41;

    /// The length of [`json_head`](Self::json_head).
    pub(super) const JSON_HEAD: usize = JSON_START.len() + 2 + Self::END;

    /// Creates the date of `now`.
    pub fn new(now: SystemTime) -> Self {
        let mut json_head = [b'0'; Self::JSON_HEAD];
        let parts = JSON_START.iter().chain(b"00\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n");
        json_head.iter_mut().zip(parts).for_each(|(byte, part)| *byte = *part);
        let mut date = Self { second: [UNIX_EPOCH; 2], until: None, json_head };
        date.refresh(now);
        date
    }

    /// Updates the date to `now`.
    #[inline]
    pub fn refresh(&mut self, now: SystemTime) {
        self.until = None;
        let [begin, end] = self.second;
        if now < begin || now >= end {
            self.format(now);
        }
    }

    /// Updates the date to `now` of the monotonic clock. Reads the clock of the system at the end of a second only, so that
    /// a caller that needs the monotonic time reads one clock. If the clock of the system is set, the date follows within a second.
    #[inline]
    pub fn refresh_at(&mut self, now: Instant) {
        if self.until.is_none_or(|until| now >= until) {
            self.read_clock(now);
        }
    }

    #[inline(never)]
    fn read_clock(&mut self, now: Instant) {
        let wall = SystemTime::now();
        self.refresh(wall);
        let left = self.second[1].duration_since(wall).unwrap_or_default().min(Duration::from_secs(1));
        self.until = now.checked_add(left);
    }

    #[inline(never)]
    fn format(&mut self, now: SystemTime) {
        let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().min(MAX_SECOND);
        let begin = UNIX_EPOCH.checked_add(Duration::from_secs(second)).unwrap_or(UNIX_EPOCH);
        self.second = [begin, begin.checked_add(Duration::from_secs(1)).unwrap_or(begin)];
        let text = httpdate::fmt_http_date(begin);
        let start = JSON_START.len().saturating_add("00\r\nDate: ".len());
        self.json_head.iter_mut().skip(start).zip(text.bytes()).for_each(|(head, byte)| *head = byte);
    }

    /// Returns the whole line: the name, a text of 29 bytes, and the end of the line.
    pub fn line(&self) -> &str {
        str::from_utf8(self.end_of_head().get(2..Self::END.saturating_sub(2)).unwrap_or_default()).unwrap_or_default()
    }

    /// Returns the last line of a head, with the end of the line before it and the end of the head.
    #[inline]
    pub fn end_of_head(&self) -> &[u8; Self::END] {
        self.json_head.last_chunk().unwrap_or(&[0; Self::END]) // it is longer
    }

    /// Returns the head of an answer with JSON, which is copied as a whole. The two digits after [`JSON_START`] are zero.
    #[inline]
    pub(super) fn json_head(&self) -> &[u8; Self::JSON_HEAD] {
        &self.json_head
    }
}

/// The last second that the format can express: the end of the year 9999.
const MAX_SECOND: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_current(date: &Date, before: SystemTime) -> bool {
        let texts = [before, SystemTime::now()].map(|time| format!("Date: {}", httpdate::fmt_http_date(time)));
        texts.iter().any(|text| date.line().trim_end() == text)
    }

    /// By the monotonic clock, the date is read at the end of its second, and not before.
    #[test]
    fn the_monotonic_clock_tells_when_the_second_ends() {
        let mut date = Date::new(UNIX_EPOCH);
        let (before, now) = (SystemTime::now(), Instant::now());
        date.refresh_at(now);
        assert!(is_current(&date, before), "{}", date.line());
        let until = date.until.unwrap();
        assert!(now < until && until <= now + Duration::from_secs(1));
        date.json_head[JSON_START.len() + 10] = b'x';
        date.refresh_at(now);
        assert!(date.line().starts_with("Date: x"), "its second has not passed");
        date.second = [UNIX_EPOCH; 2]; // the clock of the system may not have reached the next second
        let before = SystemTime::now();
        date.refresh_at(until);
        assert!(is_current(&date, before), "{}", date.line());
        date.refresh(UNIX_EPOCH + Duration::from_secs(5));
        let before = SystemTime::now();
        date.refresh_at(until);
        assert!(is_current(&date, before), "a date that was set is not kept: {}", date.line());
    }
}
