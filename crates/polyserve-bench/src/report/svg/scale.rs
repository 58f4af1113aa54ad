//! Figures, texts and the start of charts.

use super::Chart;

/// An upper estimate of a letter's width.
pub(super) const LETTER_WIDTH: f64 = 7.6;

/// Returns at least two round figures: 1, 2 and 5 times powers of ten, or only the powers of ten over a wide range. The
/// first figure is at most `low`, and the last is at least `high`.
pub(super) fn round_figures(low: f64, high: f64) -> Vec<f64> {
    if !(low > 0.0 && low <= high && high.is_finite()) {
        return vec![1.0, 10.0];
    }
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let steps: &[f64] = if last - first > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let of_power = |power: i32| steps.iter().map(move |step| step * 10_f64.powi(power));
    let all: Vec<f64> = (first..=last).flat_map(of_power).collect();
    let from = all.iter().rposition(|figure| *figure <= low).unwrap_or(0).min(all.len() - 2);
    let to = all.iter().position(|figure| *figure >= high).unwrap_or(all.len() - 1).max(from + 1);
    all[from..=to].to_vec()
}

/// The start of a file: the white ground, and the title at `left`.
pub(super) fn head((width, height): (f64, f64), chart: &Chart, left: f64) -> String {
    let (about, title) = (escaped(&chart.about), escaped(&chart.title));
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" role="img" font-family="system-ui, sans-serif" font-size="12" fill="#222">
<title>{about}</title>
<rect width="{width:.0}" height="{height:.0}" fill="#fff"/>
<text x="{left:.1}" y="24.0" font-size="15" font-weight="600">{title}</text>
"##
    )
}

/// The name of an axis, centred at a place.
pub(super) fn axis_name((x, y): (f64, f64), name: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>\n", escaped(name))
}

/// Vertical rules from `above` to `bottom`, with names below. Each rule is a position, a name and a colour.
pub(super) fn rules(rules: impl IntoIterator<Item = (f64, String, &'static str)>, above: f64, bottom: f64) -> String {
    let below = bottom + 18.0;
    let drawn = rules.into_iter().map(|(at, name, colour)| {
        format!(
            "<path d=\"M{at:.1} {above:.1}V{bottom:.1}\" stroke=\"{colour}\"/>\n<text x=\"{at:.1}\" y=\"{below:.1}\">{name}</text>\n"
        )
    });
    format!("<g fill=\"#555\" text-anchor=\"middle\">\n{}</g>\n", drawn.collect::<String>())
}

/// The multiples of a round step from `low` to `high`, with their texts: at most seven.
pub(super) fn ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let range = high - low;
    if !(range > 0.0 && range.is_finite()) {
        return Vec::new();
    }
    let power = 10_f64.powf((range / 6.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|round| round * power).into_iter().find(|step| range / step <= 6.0);
    let step = step.unwrap_or(10.0 * power);
    let digits = (-(step * 1.001).log10().floor()).max(0.0) as usize;
    let multiples = (low / step - 1e-9).ceil() as i64..=(high / step + 1e-9).floor() as i64;
    multiples.map(|multiple| multiple as f64 * step).map(|figure| (figure, format!("{figure:.digits$}"))).collect()
}

/// Formats a round figure, with the prefix k, M or G.
pub(super) fn short(figure: f64) -> String {
    match figure {
        figure if figure >= 1e9 => format!("{} G", figure / 1e9),
        figure if figure >= 1e6 => format!("{} M", figure / 1e6),
        figure if figure >= 1e3 => format!("{} k", figure / 1e3),
        figure => figure.to_string(),
    }
}

/// Formats a position on an axis exactly: `9000`, `10 k`, `2 M`.
pub(crate) fn tick_label(place: u64) -> String {
    match place {
        place if place >= 1_000_000 && place.is_multiple_of(1_000_000) => format!("{} M", place / 1_000_000),
        place if place >= 10_000 && place.is_multiple_of(1000) => format!("{} k", place / 1000),
        place => place.to_string(),
    }
}

/// Escapes a text for XML and HTML. Control characters are replaced: XML allows none.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            char if char.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        for (low, high, expected) in [
            (0.0, 600.0, &["0", "100", "200", "300", "400", "500", "600"][..]),
            (0.0, 601.0, &["0", "200", "400", "600"]),
            (0.94, 1.13, &["0.95", "1.00", "1.05", "1.10"]),
            (0.0, 1.0, &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (1.0, 1.0, &[]),
            (0.0, f64::NAN, &[]),
        ] {
            let texts: Vec<String> = ticks(low, high).into_iter().map(|(_, text)| text).collect();
            assert_eq!(texts, expected, "{low} to {high}");
        }
    }
}
