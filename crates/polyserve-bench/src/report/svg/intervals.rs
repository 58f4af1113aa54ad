//! Ratios with their intervals, a row for each, over a logarithmic axis. The text of each row is at its right end.
//!
//! Invariant: rows are in the given order, and the axis contains 1. Cost: some hundred bytes a row.

use std::fmt::Write as _;

use super::Chart;
use super::scale::{LETTER_WIDTH, axis_name, escaped, head, round_figures, rules, short, ticks};

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalRow {
    /// The name, to the left.
    pub name: String,
    /// The colour, as SVG writes it.
    pub colour: &'static str,
    /// The ratio.
    pub ratio: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end of its interval.
    pub high: f64,
}

/// The width of the plot.
const PLOT_WIDTH: f64 = 420.0;
/// The height of a row.
const ROW_HEIGHT: f64 = 24.0;
/// The margins above and below the plot.
const TOP_MARGIN: f64 = 46.0;
const BOTTOM_MARGIN: f64 = 54.0;
/// From the plot to a text.
const GAP: f64 = 12.0;

/// The chart without the end of its file.
pub(super) fn drawn(chart: &Chart, band: Option<(f64, f64)>, rows: &[IntervalRow]) -> String {
    let texts: Vec<String> =
        rows.iter().map(|row| format!("{:.3} [{:.3}, {:.3}]", row.ratio, row.low, row.high)).collect();
    let widest = |texts: &mut dyn Iterator<Item = &String>| {
        texts.map(|text| text.chars().count()).max().unwrap_or(0) as f64 * LETTER_WIDTH + 2.0 * GAP
    };
    let left = widest(&mut rows.iter().map(|row| &row.name));
    let right = left + PLOT_WIDTH;
    let width = right + widest(&mut texts.iter());
    let bottom = TOP_MARGIN + rows.len() as f64 * ROW_HEIGHT;
    let height = bottom + BOTTOM_MARGIN;
    let low = rows.iter().map(|row| row.low).fold(1.0, f64::min) / 1.05;
    let high = rows.iter().map(|row| row.high).fold(1.0, f64::max) * 1.05;
    let x = |figure: f64| left + (figure / low).ln() / (high / low).ln() * PLOT_WIDTH;

    let mut svg = head((width, height), chart, GAP);
    svg.push_str(&axis_name(((left + right) / 2.0, height - 12.0), &chart.axis));
    if let Some((from, to)) = band.map(|(from, to)| (x(from.max(low)), x(to.min(high)))) {
        let (width, height) = (to - from, bottom - TOP_MARGIN);
        svg.push_str(&format!(
            "<rect x=\"{from:.1}\" y=\"{TOP_MARGIN:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"#eee\"/>\n"
        ));
    }
    let colour = |figure: f64| if (figure - 1.0).abs() < 1e-9 { "#555" } else { "#ddd" };
    let ticks = axis_ticks(low, high).into_iter().map(|(figure, text)| (x(figure), text, colour(figure)));
    svg.push_str(&rules(ticks, TOP_MARGIN, bottom));
    // A write to a string does not fail.
    for ((row, text), index) in rows.iter().zip(&texts).zip(0..) {
        let y = TOP_MARGIN + (f64::from(index) + 0.5) * ROW_HEIGHT;
        let (low_x, high_x, ratio_x, text_y) = (x(row.low), x(row.high), x(row.ratio), y + 4.0);
        let _ = writeln!(svg, "<g fill=\"{0}\" stroke=\"{0}\" stroke-width=\"1.6\">", row.colour);
        let _ = writeln!(
            svg,
            r#"<path d="M{low_x:.1} {:.1}v8M{low_x:.1} {y:.1}H{high_x:.1}M{high_x:.1} {:.1}v8" fill="none"/>"#,
            y - 4.0,
            y - 4.0
        );
        let _ = writeln!(svg, r#"<circle cx="{ratio_x:.1}" cy="{y:.1}" r="3.2"/>"#);
        let (name, name_x, text_x) = (escaped(&row.name), left - GAP, right + GAP);
        let style = "fill=\"#222\" stroke=\"none\"";
        let _ = writeln!(svg, "<text x=\"{name_x:.1}\" y=\"{text_y:.1}\" text-anchor=\"end\" {style}>{name}</text>");
        let _ = writeln!(svg, "<text x=\"{text_x:.1}\" y=\"{text_y:.1}\" {style}>{text}</text>\n</g>");
    }
    svg
}

/// The ticks of the axis, with their texts. Over a small range, they are multiples of a step instead of 1, 2 and 5
/// times powers of ten.
fn axis_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    if high / low < 3.0 {
        return ticks(low, high);
    }
    let is_within = |figure: &f64| (low..=high).contains(figure);
    round_figures(low, high).into_iter().filter(is_within).map(|figure| (figure, short(figure))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::Marks;

    fn svg(band: Option<(f64, f64)>, rows: Vec<IntervalRow>) -> String {
        Chart { marks: Marks::Intervals { band, rows }, ..Chart::default() }.to_svg()
    }

    fn row(name: &str, ratio: f64, low: f64, high: f64) -> IntervalRow {
        IntervalRow { name: name.into(), colour: "#0072B2", ratio, low, high }
    }

    #[test]
    fn a_row_has_its_interval_and_its_text() {
        let rows = vec![row("a + lto", 1.05, 1.02, 1.09), row("b<c>", 4.0, 3.5, 4.5)];
        let svg = svg(Some((0.98, 1.03)), rows);
        assert_eq!(svg.matches("<circle ").count(), 2, "{svg}");
        for text in [">a + lto</text>", ">b&lt;c&gt;</text>", ">1.050 [1.020, 1.090]</text>", ">1</text>", ">2</text>"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("fill=\"#eee\"").count(), 1, "the band: {svg}");
        // The ticks of the axis lie within it.
        assert!(!svg.contains(">0.5</text>") && !svg.contains(">5</text>"), "{svg}");
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    }

    #[test]
    fn an_axis_of_small_differences_has_several_figures() {
        let svg = svg(None, vec![row("a", 1.05, 1.02, 1.09)]);
        assert!(svg.contains(">1.00</text>") && svg.contains(">1.10</text>"), "{svg}");
        assert_eq!(svg.matches(r##"stroke="#555""##).count(), 1, "the line at 1: {svg}");
    }

    #[test]
    fn no_rows_are_no_reason_to_panic() {
        assert!(svg(None, Vec::new()).ends_with("</svg>\n"));
    }
}
