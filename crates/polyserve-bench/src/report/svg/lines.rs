//! Lines over an axis, as SVG. The axis is logarithmic. The figures are too, if the largest is more than ten times the
//! smallest; else they begin at zero.
//!
//! Lengths are in pixels. Sixteen colours are hard to tell apart in a legend, so each line's name is at its right end.
//! A name that would overlap another name is moved up or down, and a leader joins it to its line.
//!
//! Invariant: the same chart makes the same text, to the byte. A name may contain any characters. No two names overlap.
//! Cost: some hundred bytes a point.

use std::fmt::Write as _;

use super::Chart;
use super::scale::{LETTER_WIDTH, axis_name, escaped, head, round_figures, short, tick_label, ticks};
use super::style::{Marker, Style};

/// A line.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name, at the end of the line.
    pub name: String,
    /// The style of the line.
    pub style: Style,
    /// Places and figures, from left to right.
    pub points: Vec<(u64, f64)>,
}

/// The min size of a chart. Many or long names make it larger.
const SIZE: (f64, f64) = (860.0, 480.0);
/// The margins of the plot: left, above and below.
const LEFT_MARGIN: f64 = 62.0;
const TOP_MARGIN: f64 = 46.0;
const BOTTOM_MARGIN: f64 = 54.0;
/// From the plot's sides to the first and the last place.
const INSET: f64 = 14.0;
/// From the plot to a name: a leader, and a piece of the line.
const LEADER: f64 = 26.0;
const SAMPLE: f64 = 24.0;
/// The narrowest plot.
const MIN_PLOT: f64 = 400.0;
/// The distance between two names.
const GAP: f64 = 15.0;
/// The ratio of the largest to the smallest figure from which figures are drawn as logarithms.
const MAX_LINEAR: f64 = 10.0;

/// The chart without the end of its file.
pub(super) fn drawn(chart: &Chart, lines: &[Series]) -> String {
    let frame = Frame::around(lines);
    let mut svg = head((frame.width, frame.height), chart, LEFT_MARGIN);
    svg.push_str(&axis_name(((LEFT_MARGIN + frame.right) / 2.0, frame.height - 12.0), &chart.axis));
    svg.push_str(&horizontal_rules(&frame));
    svg.push_str(&vertical_rules(&frame));
    for (line, label) in lines.iter().zip(label_heights(lines, &frame)) {
        svg.push_str(&frame.line(line, label));
    }
    svg
}

/// The position of the plot and of its labels.
#[derive(Debug)]
struct Frame {
    width: f64,
    height: f64,
    right: f64,
    bottom: f64,
    /// All positions on the axis, in order.
    xs: Vec<u64>,
    /// Round figures, in order; the first is at the bottom, the last at the top.
    figures: Vec<f64>,
}

impl Frame {
    fn around(lines: &[Series]) -> Self {
        let points = || lines.iter().flat_map(|line| &line.points);
        let mut xs: Vec<u64> = points().map(|(x, _)| *x).collect();
        xs.sort_unstable();
        xs.dedup();
        let last = xs.last().copied().unwrap_or(0);
        let letters = lines.iter().map(|line| label_of(line, last).chars().count()).max().unwrap_or(0);
        let margin = LEADER + SAMPLE + 4.0 + letters as f64 * LETTER_WIDTH;
        let width = SIZE.0.max(LEFT_MARGIN + MIN_PLOT + margin);
        let height = SIZE.1.max(TOP_MARGIN + BOTTOM_MARGIN + lines.len() as f64 * GAP);
        let low = points().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
        let high = points().map(|(_, y)| *y).fold(0.0, f64::max);
        let figures = if high > 0.0 && high <= MAX_LINEAR * low { from_zero(high) } else { round_figures(low, high) };
        Self { width, height, right: width - margin, bottom: height - BOTTOM_MARGIN, xs, figures }
    }

    /// The largest x of all lines.
    fn last(&self) -> u64 {
        self.xs.last().copied().unwrap_or(0)
    }

    fn x(&self, position: u64) -> f64 {
        // Zero has no logarithm: it is drawn at one half.
        let log = |position: u64| (position as f64).max(0.5).ln();
        let (low, high) = (log(self.xs.first().copied().unwrap_or(0)), log(self.last()));
        let (left, right) = (LEFT_MARGIN + INSET, self.right - INSET);
        if high > low { left + (log(position) - low) / (high - low) * (right - left) } else { (left + right) / 2.0 }
    }

    fn y(&self, figure: f64) -> f64 {
        let (low, high) = (self.figures[0], self.figures[self.figures.len() - 1]);
        let share =
            if low > 0.0 { (figure.ln() - low.ln()) / (high.ln() - low.ln()) } else { (figure - low) / (high - low) };
        self.bottom - share * (self.bottom - TOP_MARGIN)
    }

    /// A line with its marks, its leader and its name, which stands at the height `label`.
    fn line(&self, line: &Series, label: f64) -> String {
        let Style { colour, dashes, mark, is_hollow } = line.style;
        let dashes = dashes.map_or_else(String::new, |dashes| format!(r#" stroke-dasharray="{dashes}""#));
        let fill = if is_hollow { "#fff" } else { colour };
        let at: Vec<(f64, f64)> = line.points.iter().map(|(x, y)| (self.x(*x), self.y(*y))).collect();
        let Some((x, y)) = at.last() else { return String::new() };
        let points = at.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ");
        let (end, sample, text) = (self.right - INSET, self.right + LEADER, self.right + LEADER + SAMPLE + 4.0);
        let name = escaped(&label_of(line, self.last()));
        let mut svg = format!("<g fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.6\">\n");
        // A write to a string does not fail.
        let _ = writeln!(svg, r#"<polyline points="{points}" fill="none"{dashes}/>"#);
        let leader = format!("M{x:.1} {y:.1}H{end:.1}L{sample:.1} {label:.1}");
        let _ = writeln!(svg, r#"<path d="{leader}" fill="none" stroke-width="1" stroke-dasharray="2 2"/>"#);
        let piece = format!("M{sample:.1} {label:.1}h{SAMPLE:.1}");
        let _ = writeln!(svg, r#"<path d="{piece}" fill="none"{dashes}/>"#);
        for (x, y) in at.iter().copied().chain([(sample + SAMPLE / 2.0, label)]) {
            let _ = writeln!(svg, "{}", marked(mark, x, y));
        }
        let label = label + 4.0;
        let _ =
            writeln!(svg, "<text x=\"{text:.1}\" y=\"{label:.1}\" fill=\"#222\" stroke=\"none\">{name}</text>\n</g>");
        svg
    }
}

/// Multiples of a round step, from zero to the first one that is at least `high`.
fn from_zero(high: f64) -> Vec<f64> {
    let mut figures: Vec<f64> = ticks(0.0, high).into_iter().map(|(figure, _)| figure).collect();
    if let [.., before, last] = figures[..]
        && last < high
    {
        figures.push(2.0 * last - before);
    }
    figures
}

/// A line's name, and its last place if other lines go on.
fn label_of(line: &Series, last: u64) -> String {
    match line.points.last() {
        Some((end, _)) if *end < last => {
            let how = if line.points.len() > 1 { "to" } else { "at" };
            format!("{} ({how} {})", line.name, tick_label(*end))
        }
        _ => line.name.clone(),
    }
}

fn marked(mark: Marker, x: f64, y: f64) -> String {
    match mark {
        Marker::Circle => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.2"/>"#),
        Marker::Square => format!(r#"<path d="M{:.1} {:.1}h5.6v5.6h-5.6z"/>"#, x - 2.8, y - 2.8),
        Marker::Triangle => format!(r#"<path d="M{x:.1} {:.1}l3.8 6.6h-7.6z"/>"#, y - 4.2),
        Marker::Diamond => format!(r#"<path d="M{x:.1} {:.1}l4.2 4.2l-4.2 4.2l-4.2 -4.2z"/>"#, y - 4.2),
    }
}

/// A rule for each round figure.
fn horizontal_rules(frame: &Frame) -> String {
    let mut svg = String::from("<g fill=\"#555\" text-anchor=\"end\">\n");
    for figure in &frame.figures {
        let (y, right) = (frame.y(*figure), frame.right);
        let (below, left) = (y + 4.0, LEFT_MARGIN - 8.0);
        let _ = writeln!(svg, r##"<path d="M{LEFT_MARGIN:.1} {y:.1}H{right:.1}" stroke="#ddd"/>"##);
        let _ = writeln!(svg, r#"<text x="{left:.1}" y="{below:.1}">{}</text>"#, short(*figure));
    }
    svg.push_str("</g>\n");
    svg
}

/// A rule for each place, with the place's name if there is room.
fn vertical_rules(frame: &Frame) -> String {
    let mut svg = String::from("<g fill=\"#555\" text-anchor=\"middle\">\n");
    let mut label_end = f64::NEG_INFINITY;
    for position in &frame.xs {
        let (x, bottom, below) = (frame.x(*position), frame.bottom, frame.bottom + 18.0);
        let _ = writeln!(svg, r##"<path d="M{x:.1} {TOP_MARGIN:.1}V{bottom:.1}" stroke="#eee"/>"##);
        let name = tick_label(*position);
        let half = name.len() as f64 * LETTER_WIDTH / 2.0;
        if x - half > label_end {
            label_end = x + half;
            let _ = writeln!(svg, r#"<text x="{x:.1}" y="{below:.1}">{name}</text>"#);
        }
    }
    svg.push_str("</g>\n");
    svg
}

/// The heights of all names, in the order of the lines.
fn label_heights(lines: &[Series], frame: &Frame) -> Vec<f64> {
    let end = |line: &Series| line.points.last().map_or(frame.bottom, |(_, figure)| frame.y(*figure));
    let mut ends: Vec<(usize, f64)> = lines.iter().map(end).enumerate().collect();
    ends.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let spread = spread(&ends.iter().map(|(_, y)| *y).collect::<Vec<_>>(), TOP_MARGIN, frame.bottom);
    let mut heights = vec![0.0; lines.len()];
    for ((line, _), y) in ends.into_iter().zip(spread) {
        heights[line] = y;
    }
    heights
}

/// The heights that are nearest to the sorted `preferred` heights, by the sum of squares. They are at least [`GAP`]
/// apart and, if there is room, between `top` and `bottom`.
///
/// Without the gaps this is an isotonic regression: it replaces neighbours in the wrong order by their mean.
fn spread(preferred: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (index, height) in preferred.iter().enumerate() {
        let mut pool = (height - index as f64 * GAP, 1_usize);
        while let Some((above, count)) = pools.pop_if(|(above, _)| *above > pool.0) {
            let total = count + pool.1;
            pool = ((above * count as f64 + pool.0 * pool.1 as f64) / total as f64, total);
        }
        pools.push(pool);
    }
    let room = bottom - top - preferred.len().saturating_sub(1) as f64 * GAP;
    let tops = pools.into_iter().flat_map(|(at, count)| std::iter::repeat_n(at, count));
    tops.enumerate().map(|(index, at)| at.clamp(top, top + room.max(0.0)) + index as f64 * GAP).collect()
}

#[cfg(test)]
mod tests;
