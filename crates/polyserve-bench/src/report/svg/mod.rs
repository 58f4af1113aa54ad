//! Charts as SVG, for pages that run no scripts and may be shown bright or dark.
//!
//! * `lines`: lines over an axis. `intervals`: a ratio with its interval in each row.
//! * `heat_map`: grids of shaded cells. `schedule`: bars from the start to the end of tasks.
//! * `style`: colours and markers of lines. `scale`: figures, texts and the start of charts.
//!
//! Invariant: the same chart makes the same text, to the byte. A name may contain any characters.

mod heat_map;
mod intervals;
mod lines;
mod scale;
mod schedule;
mod style;

pub use heat_map::{Grid, HeatMap};
pub use intervals::{IntervalChart, IntervalRow};
pub use lines::{LineChart, Series};
pub use scale::{escaped, tick_label};
pub use schedule::{Panel, ScheduleChart};
pub use style::{COLOURS, DASHES, GREY, Marker, Style};

/// A chart.
#[derive(Clone, Debug)]
pub enum Chart {
    /// Lines over an axis.
    Lines(LineChart),
    /// A ratio with its interval in each row.
    Intervals(IntervalChart),
    /// Grids of shaded cells.
    HeatMap(HeatMap),
    /// Bars from the start to the end of tasks.
    Schedule(ScheduleChart),
}

impl Chart {
    /// A description for screen readers.
    pub fn about(&self) -> &str {
        match self {
            Self::Lines(chart) => &chart.about,
            Self::Intervals(chart) => &chart.about,
            Self::HeatMap(chart) => &chart.about,
            Self::Schedule(chart) => &chart.about,
        }
    }

    /// The chart with the lines of these names only.
    ///
    /// # Errors
    ///
    /// Returns an error if the chart has no lines, or none of such a name.
    pub fn only(self, names: &[&str]) -> Result<Self, String> {
        let Self::Lines(chart) = self else { return Err("its chart has no lines to choose from".into()) };
        if let Some(unknown) = names.iter().find(|name| chart.lines.iter().all(|line| line.name != **name)) {
            return Err(format!("its chart has no line {unknown:?}"));
        }
        let lines = chart.lines.into_iter().filter(|line| names.contains(&line.name.as_str())).collect();
        let about = format!("Chart: {}, of {}", chart.title, names.join(", "));
        Ok(Self::Lines(LineChart { about, lines, ..chart }))
    }

    /// The chart as a file.
    pub fn to_svg(&self) -> String {
        match self {
            Self::Lines(chart) => lines::to_svg(chart),
            Self::Intervals(chart) => intervals::to_svg(chart),
            Self::HeatMap(chart) => heat_map::to_svg(chart),
            Self::Schedule(chart) => schedule::to_svg(chart),
        }
    }
}
