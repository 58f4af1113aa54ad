//! The only date format that RFC 9110 (section 5.6.7) lets a server send.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::{fmt_http_date, parse_http_date};

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn imf_fixdate(time: SystemTime) -> String {
    fmt_http_date(time)
}

/// Parses an IMF-fixdate into seconds since 1970. Returns `None` if any part is wrong, for instance the weekday.
pub(super) fn parse(text: &str) -> Option<u64> {
    let time = parse_http_date(text).ok()?;
    // There are two obsolete formats, which a server may not send.
    let is_fixdate = imf_fixdate(time) == text;
    is_fixdate.then(|| time.duration_since(UNIX_EPOCH).as_ref().map_or(0, Duration::as_secs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_there_and_back() {
        let fixdate = |seconds| imf_fixdate(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(fixdate(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(fixdate(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        for seconds in (0..5_000_000_000).step_by(86_400 * 13 + 7) {
            assert_eq!(parse(&fixdate(seconds)), Some(seconds));
        }
    }

    #[test]
    fn what_is_nearly_a_date_is_none() {
        for text in [
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:60 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
