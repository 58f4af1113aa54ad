//! The only date format that RFC 9110 (section 5.6.7) lets a server send.

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `Sun, 06 Nov 1994 08:49:37 GMT`, from seconds since 1970.
pub(crate) fn imf_fixdate(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    let mut day = days;
    while day >= year_length(year) {
        day -= year_length(year);
        year += 1;
    }
    let mut month = 0;
    while day >= month_length(year, month) {
        day -= month_length(year, month);
        month += 1;
    }
    // The first of January 1970 was a Thursday.
    let (weekday, name) = (DAYS[((days + 3) % 7) as usize], MONTHS[month]);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{weekday}, {:02} {name} {year} {hour:02}:{minute:02}:{second:02} GMT", day + 1)
}

/// Parses an IMF-fixdate into seconds since 1970. Returns `None` if any part is wrong, for instance the weekday.
pub(super) fn parse(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| -> Option<u64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let month = MONTHS.iter().position(|name| text.get(8..11) == Some(name))?;
    let (day, year) = (number(5, 7)?, number(12, 16)?);
    let (hour, minute, second) = (number(17, 19)?, number(20, 22)?, number(23, 25)?);
    if year < 1970 {
        return None;
    }
    let days: u64 = (1970..year).map(year_length).sum::<u64>()
        + (0..month).map(|month| month_length(year, month)).sum::<u64>()
        + day.checked_sub(1)?;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    // Formatting it again checks the rest: ranges, separators, the weekday, the length.
    (imf_fixdate(seconds) == text).then_some(seconds)
}

fn year_length(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn month_length(year: u64, month: usize) -> u64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_there_and_back() {
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(imf_fixdate(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(imf_fixdate(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        for seconds in (0..5_000_000_000).step_by(86_400 * 13 + 7) {
            assert_eq!(parse(&imf_fixdate(seconds)), Some(seconds));
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
