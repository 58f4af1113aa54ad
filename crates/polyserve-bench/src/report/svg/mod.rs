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

pub use heat_map::Grid;
pub use intervals::IntervalRow;
pub use lines::Series;
pub use scale::escaped;
pub use schedule::Panel;
pub(crate) use style::{COLOURS, DASHES, GREY};
pub use style::{Marker, Style};

/// A chart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// A description for screen readers.
    pub about: String,
    /// The name of the axis.
    pub axis: String,
    /// What is drawn.
    pub marks: Marks,
}

/// What a chart draws.
#[derive(Clone, Debug)]
pub enum Marks {
    /// Lines over an axis. All figures are above 0, and every line has a point.
    Lines(Vec<Series>),
    /// A ratio with its interval in each row, from top to bottom, and a grey band of ratios that are no difference. All figures are
    /// above 0.
    Intervals {
        /// The band.
        band: Option<(f64, f64)>,
        /// The rows.
        rows: Vec<IntervalRow>,
    },
    /// Grids of shaded cells, from left to right and from top to bottom, with the axis of their columns. All figures are above 0.
    Grids(Vec<Grid>),
    /// Bars from the start to the end of tasks: a panel below the other.
    Schedules(Vec<Panel>),
}

impl Default for Marks {
    fn default() -> Self {
        Self::Lines(Vec::new())
    }
}

impl Chart {
    /// The chart with the lines of these names only.
    ///
    /// # Errors
    ///
    /// Returns an error if the chart has no lines, or none of such a name.
    pub fn only(self, names: &[&str]) -> Result<Self, String> {
        let Marks::Lines(mut lines) = self.marks else { return Err("its chart has no lines to choose from".into()) };
        if let Some(unknown) = names.iter().find(|name| lines.iter().all(|line| line.name != **name)) {
            return Err(format!("its chart has no line {unknown:?}"));
        }
        lines.retain(|line| names.contains(&line.name.as_str()));
        let about = format!("Chart: {}, of {}", self.title, names.join(", "));
        Ok(Self { about, marks: Marks::Lines(lines), ..self })
    }

    /// The chart as a file.
    pub fn to_svg(&self) -> String {
        let drawn = match &self.marks {
            Marks::Lines(lines) => lines::drawn(self, lines),
            Marks::Intervals { band, rows } => intervals::drawn(self, *band, rows),
            Marks::Grids(grids) => heat_map::drawn(self, grids),
            Marks::Schedules(panels) => schedule::drawn(self, panels),
        };
        drawn + "</svg>\n"
    }
}
