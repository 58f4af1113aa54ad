//! Figures and texts of charts.

/// A letter's width, rather more than less.
pub(super) const LETTER: f64 = 7.6;

/// Ones, twos and fives (ones alone over many powers of ten) from the last that is not above `low` to the first that is not
/// below `high`; at least two of them.
pub(super) fn round(low: f64, high: f64) -> Vec<f64> {
    if !(low > 0.0 && low <= high && high.is_finite()) {
        return vec![1.0, 10.0];
    }
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let steps: &[f64] = if last - first > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let power = |power: i32| steps.iter().map(move |step| step * 10_f64.powi(power));
    let all: Vec<f64> = (first..=last).flat_map(power).collect();
    let from = all.iter().rposition(|figure| *figure <= low).unwrap_or(0).min(all.len() - 2);
    let to = all.iter().position(|figure| *figure >= high).unwrap_or(all.len() - 1).max(from + 1);
    all[from..=to].to_vec()
}

/// A round figure.
pub(super) fn short(figure: f64) -> String {
    match figure {
        figure if figure >= 1e9 => format!("{} G", figure / 1e9),
        figure if figure >= 1e6 => format!("{} M", figure / 1e6),
        figure if figure >= 1e3 => format!("{} k", figure / 1e3),
        figure => figure.to_string(),
    }
}

/// A place, to the last digit.
pub fn count(place: u64) -> String {
    match place {
        place if place >= 1_000_000 && place.is_multiple_of(1_000_000) => format!("{} M", place / 1_000_000),
        place if place >= 10_000 && place.is_multiple_of(1000) => format!("{} k", place / 1000),
        place => place.to_string(),
    }
}

/// A text that stands for itself in XML, which has no control characters at all.
pub(super) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '&' => shown.push_str("&amp;"),
            '"' => shown.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => shown.push(char::REPLACEMENT_CHARACTER),
            char if char.is_control() => shown.push(char::REPLACEMENT_CHARACTER),
            char => shown.push(char),
        }
    }
    shown
}
