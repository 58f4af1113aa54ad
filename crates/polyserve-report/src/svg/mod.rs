//! Charts as SVG, for pages that run no scripts and may be shown bright or dark.
//!
//! * `lines`: lines over an axis. `intervals`: a ratio with its interval in each row.
//! * `style`: colours and markers of lines. `scale`: figures and texts.
//!
//! Invariant: the same chart makes the same text, to the byte. A name may contain any characters.

mod intervals;
mod lines;
mod scale;
mod style;

pub use intervals::{Interval, IntervalChart};
pub use lines::{LineChart, Series};
pub use scale::count;
pub use style::{COLOURS, DASHES, GREY, Marker, Style};

/// A chart.
#[derive(Clone, Debug)]
pub enum Chart {
    /// Lines over an axis.
    Lines(LineChart),
    /// A ratio with its interval in each row.
    Intervals(IntervalChart),
}

impl Chart {
    /// A description for screen readers.
    pub fn about(&self) -> &str {
        match self {
            Self::Lines(chart) => &chart.about,
            Self::Intervals(chart) => &chart.about,
        }
    }

    /// The chart as a file.
    pub fn drawn(&self) -> String {
        match self {
            Self::Lines(chart) => lines::drawn(chart),
            Self::Intervals(chart) => intervals::drawn(chart),
        }
    }
}
