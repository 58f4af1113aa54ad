//! Schedules: a bar for each task from its start to its end, in a panel for each contestant.
//!
//! Invariant: all panels have the same linear axis, from 0. Cost: some hundred bytes a task.

use std::fmt::Write as _;

use super::Chart;
use super::scale::{axis_name, escaped, head, rules, ticks};
use super::style::COLOURS;

/// The schedule of a contestant.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The name, above the panel.
    pub name: String,
    /// The start and the end of each task, from top to bottom.
    pub tasks: Vec<(f64, f64)>,
}

/// The width of the plot, and its left margin.
const PLOT_WIDTH: f64 = 760.0;
const LEFT_MARGIN: f64 = 30.0;
/// Where the title begins.
const TITLE_X: f64 = 12.0;
/// The height of a task.
const TASK_HEIGHT: f64 = 9.0;
/// Above a panel, for its name.
const NAME_SPACE: f64 = 24.0;
/// The margins of the chart.
const TOP_MARGIN: f64 = 36.0;
const BOTTOM_MARGIN: f64 = 54.0;

/// The chart without the end of its file.
pub(super) fn drawn(chart: &Chart, panels: &[Panel]) -> String {
    let end = panels.iter().flat_map(|panel| &panel.tasks).map(|(_, end)| *end).fold(0.0, f64::max);
    let span = if end > 0.0 { end * 1.02 } else { 1.0 };
    let x = |time: f64| LEFT_MARGIN + time.max(0.0) / span * PLOT_WIDTH;
    let bottom =
        TOP_MARGIN + panels.iter().map(|panel| NAME_SPACE + panel.tasks.len() as f64 * TASK_HEIGHT).sum::<f64>() + 8.0;

    let mut svg = head((LEFT_MARGIN + PLOT_WIDTH + 40.0, bottom + BOTTOM_MARGIN), chart, TITLE_X);
    svg.push_str(&rules(ticks(0.0, span).into_iter().map(|(tick, name)| (x(tick), name, "#ddd")), TOP_MARGIN, bottom));
    let mut y = TOP_MARGIN;
    for (panel, index) in panels.iter().zip(0..) {
        let _ = writeln!(
            svg,
            r#"<text x="{LEFT_MARGIN:.1}" y="{:.1}" font-weight="600">{}</text>"#,
            y + NAME_SPACE - 7.0,
            escaped(&panel.name)
        );
        y += NAME_SPACE;
        let _ = writeln!(svg, r#"<g fill="{}">"#, COLOURS[(index + 2) % COLOURS.len()]);
        for (start, end) in &panel.tasks {
            let (start_x, end_x) = (x(*start), x(*end));
            let (width, height) = ((end_x - start_x).max(0.5), TASK_HEIGHT - 2.0);
            let _ = writeln!(svg, r#"<rect x="{start_x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#);
            y += TASK_HEIGHT;
        }
        svg.push_str("</g>\n");
    }
    svg.push_str(&axis_name((LEFT_MARGIN + PLOT_WIDTH / 2.0, bottom + BOTTOM_MARGIN - 12.0), &chart.axis));
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::svg::Marks;

    #[test]
    fn a_task_is_a_bar_from_its_start_to_its_end() {
        let panel = |name: &str, tasks: &[(f64, f64)]| Panel { name: name.into(), tasks: tasks.to_vec() };
        let panels = vec![panel("a<b>", &[(0.0, 300.0), (300.0, 600.0)]), panel("c", &[(0.0, 600.0)])];
        let svg = Chart { marks: Marks::Schedules(panels), ..Chart::default() }.to_svg();
        assert_eq!(svg.matches("<rect x=").count(), 3, "{svg}");
        for bar in [r#"x="30.0" y="60.0" width="372.5""#, r#"x="402.5" y="69.0" width="372.5""#, r#"width="745.1""#] {
            assert!(svg.contains(bar), "{bar}: {svg}");
        }
        assert!(svg.contains(">a&lt;b&gt;</text>") && svg.contains(">600</text>"), "{svg}");
    }

    #[test]
    fn nothing_to_draw_is_no_reason_to_panic() {
        assert!(Chart { marks: Marks::Schedules(Vec::new()), ..Chart::default() }.to_svg().ends_with("</svg>\n"));
    }
}
