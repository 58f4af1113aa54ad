//! The figures that others published: the CSV files in `published`, each with a header.
//!
//! Invariant: the files have no figure that was measured here. A table that compares published and measured figures reads
//! the columns that it needs.

use anyhow::Context as _;
use serde::de::DeserializeOwned;

/// The text of the file of this name.
pub(crate) fn file(name: &str) -> Option<&'static str> {
    let files = [
        ("paper_matrix_get.csv", MATRIX_GET),
        ("paper_matrix_put.csv", MATRIX_PUT),
        ("stress.csv", STRESS),
        ("conctest_go.csv", include_str!("../published/conctest_go.csv")),
        ("conctest_rust.csv", include_str!("../published/conctest_rust.csv")),
        ("page_delay.csv", PAGE),
        ("page_rows.csv", include_str!("../published/page_rows.csv")),
        ("page_bytes.csv", include_str!("../published/page_bytes.csv")),
        ("welcome_ladder.csv", LADDER),
    ];
    files.into_iter().find(|(known, _)| *known == name).map(|(_, text)| text)
}

/// The rows of a file.
///
/// # Errors
///
/// Returns an error if the file does not have the columns of `T`.
pub(crate) fn rows<T: DeserializeOwned>(text: &str) -> anyhow::Result<Vec<T>> {
    let rows = csv::Reader::from_reader(text.as_bytes()).into_deserialize();
    rows.collect::<Result<_, _>>().context("the published figures")
}

/// The matrix of pool sizes and connections, with GET.
pub(crate) const MATRIX_GET: &str = include_str!("../published/paper_matrix_get.csv");
/// The matrix of pool sizes and connections, with PUT.
pub(crate) const MATRIX_PUT: &str = include_str!("../published/paper_matrix_put.csv");
/// The stress scenario, in Rust and in Go.
pub const STRESS: &str = include_str!("../published/stress.csv");
/// The page that sometimes waits.
pub const PAGE: &str = include_str!("../published/page_delay.csv");
/// The ladder of optimisations.
pub(crate) const LADDER: &str = include_str!("../published/welcome_ladder.csv");
