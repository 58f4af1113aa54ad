//! The result of an experiment as tables, charts, claims and CSV files.

use super::svg::Chart;
use super::{Claim, Table};

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
