//! Figures as people read them: thousands separators, KiB and MiB, times with their unit.

use indicatif::HumanFloatCount;

/// A count with thousands separators: `1,234,567`. A fraction is rounded.
pub fn count(value: f64) -> String {
    let whole = value.round_ties_even();
    format!("{}{}", if whole < 0.0 { "-" } else { "" }, HumanFloatCount(whole.abs()))
}

/// A count and its noun, with an `s` unless the count is 1: `1 round`, `1,234 rounds`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number as f64), if number == 1 { "" } else { "s" })
}

/// A number of bytes: `100 B`, `4.0 KiB`, `12.3 MiB`, `1.5 GiB`.
pub fn bytes(value: f64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if value.abs() < 1024.0 {
        return format!("{value:.0} B");
    }
    let mut value = value / 1024.0;
    let mut unit = 0;
    while value.abs() >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

/// A time that is given in microseconds: `90 us`, `1.5 ms`, `2.00 s`.
pub(crate) fn time_us(value: f64) -> String {
    match value {
        value if value < 1000.0 => format!("{value:.0} us"),
        value if value < 1e6 => format!("{:.1} ms", value / 1000.0),
        value => format!("{:.2} s", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_separators() {
        for (value, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-1000.0, "-1,000"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(count(value), text);
        }
    }

    /// Regression test: a table said "after 1 rounds".
    #[test]
    fn one_has_no_plural() {
        for (number, text) in [(0, "0 rounds"), (1, "1 round"), (2, "2 rounds"), (1_234, "1,234 rounds")] {
            assert_eq!(counted(number, "round"), text);
        }
    }

    #[test]
    fn bytes_have_binary_units() {
        for (value, text) in [
            (100.0, "100 B"),
            (4096.0, "4.0 KiB"),
            (4_200_000.0, "4.0 MiB"),
            (1.5 * 1024.0 * 1024.0 * 1024.0, "1.5 GiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        for (value, text) in [(90.0, "90 us"), (1500.0, "1.5 ms"), (2e6, "2.00 s")] {
            assert_eq!(time_us(value), text);
        }
    }
}
