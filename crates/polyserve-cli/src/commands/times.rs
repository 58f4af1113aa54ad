//! Flags that are times: their form and their bounds.

use std::ops::RangeInclusive;
use std::time::Duration;

use polyserve_bench::Misuse;

/// The bounds of a measured slice, and of its warm-up.
pub(crate) const SLICES: RangeInclusive<Duration> = Duration::from_millis(10)..=HOUR;
const HOUR: Duration = Duration::from_secs(3600);

/// The time that a flag is given as.
pub(crate) fn time(text: &str) -> Result<Duration, &'static str> {
    humantime::parse_duration(text).map_err(|_| "it is not a time such as 10s, 500ms or 2m")
}

/// Checks that the time of `flag` is in `range`.
pub(crate) fn within(flag: &str, time: Duration, range: RangeInclusive<Duration>) -> Result<(), Misuse> {
    if range.contains(&time) {
        return Ok(());
    }
    let [from, to] = [range.start(), range.end()].map(|end| humantime::format_duration(*end));
    Err(Misuse(format!("{flag} {time:?} is not from {from} to {to}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_for_a_time_out_of_range_lists_the_range() {
        assert!(within("--slice", Duration::from_millis(10), SLICES).is_ok() && within("--wait", HOUR, SLICES).is_ok());
        let Misuse(why) = within("--slice", Duration::from_millis(9), SLICES).unwrap_err();
        assert_eq!(why, "--slice 9ms is not from 10ms to 1h");
        assert!(within("--slice", HOUR + Duration::from_nanos(1), SLICES).is_err());
    }
}
