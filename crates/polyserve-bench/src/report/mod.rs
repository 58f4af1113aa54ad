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
mod summary;
pub mod svg;
mod table;
mod text;

pub(crate) use claims::shown_claims;
pub use claims::{Claim, ClaimVerdict, counted_verdicts};
pub use summary::Summary;
pub use table::{Column, Table, in_markdown, or_empty};
pub(crate) use table::{EMPTY_CELL, Tone};
pub use text::wrapped;
pub(crate) use text::{MAX_NAME, WIDTH, shortened};
