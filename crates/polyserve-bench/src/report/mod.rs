//! The parts of a report: tables, claims and charts. It depends on no other module.
//!
//! * [`Table`]: aligned columns, for people and in Markdown.
//! * [`wrapped`]: lines of at most `WIDTH` characters.
//! * `shortened`: names of at most a number of characters.
//! * [`figures`]: numbers with separators and units.
//! * [`Claim`]: a published claim, and whether it holds here.
//! * [`Summary`]: the tables, charts, claims and CSV files of one experiment.
//! * [`svg`]: charts as SVG files.

mod claims;
pub mod figures;
pub mod svg;
mod table;
mod text;

pub(crate) use claims::shown_claims;
pub use claims::{Claim, ClaimVerdict, counted_verdicts};
pub use table::{Column, Table, in_markdown, or_empty};
pub(crate) use table::{EMPTY_CELL, Tone};
pub use text::wrapped;
pub(crate) use text::{MAX_NAME, WIDTH, shortened};

use svg::Chart;

/// The result of an experiment, in parts that reports draw.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The answer in words, if the experiment gives one: a sentence, and lines that explain it.
    pub answer: Vec<String>,
    /// Tables by their names.
    pub tables: Vec<(String, Table)>,
    /// Charts by their names.
    pub charts: Vec<(String, Chart)>,
    /// Verdicts on published claims.
    pub claims: Vec<Claim>,
    /// CSV files: the suffix after the record's name in the file's name, and the content.
    pub csv: Vec<(String, String)>,
}
