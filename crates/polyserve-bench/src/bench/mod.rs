//! Experiments from definitions: contestants, a sweep, a mode and a number of rounds make rows.
//!
//! A [`Definition`] is a TOML file. Each combination of the sweep's values is a cell. In every round each contestant has a new
//! process at each cell. The processes of a cell run at once and are measured in [turns](crate::turn). The mode is the part in the
//! middle: a closed loop, a fixed rate, a search of the capacity, connections that are held, groups of requests, or a comparison
//! of a contestant with itself.
//!
//! The baseline takes part twice at each cell. The difference of the two entries is the noise.
//!
//! Invariants: the samples of a cell and a round were measured together; a contestant with a wrong answer has no figures at any
//! cell, and one that failed has none at its cell. Cost: rounds x cells x contestants x about half a second.
//!
//! # Layout
//!
//! * `definition`: the file. `workload`: its requests; `sweep`: its cells; `pattern`: names of contestants.
//! * `derived`: figures of several cells, for claims. `published`: published figures, next to measured ones.
//! * [`mode`]: what is measured in a turn. `figures`: the names, units and directions of all figures.
//! * `experiment`: the experiment in the framework. `report`: rows, ranks, tables and charts;
//!   [`ranking`]: the result of a comparison.

pub(crate) mod definition;
pub(crate) mod derived;
pub(crate) mod experiment;
pub(crate) mod figures;
pub mod mode;
pub(crate) mod pattern;
pub(crate) mod published;
pub mod ranking;
pub(crate) mod report;
pub(crate) mod sweep;
pub(crate) mod workload;

pub use definition::{ChartDefinition, ChartKind, Definition, Quick};
pub use experiment::{BenchPlan, BenchResult, CellEntries, DefinedExperiment, Key, Sample};
pub use pattern::{ContestantOrigin, Pattern, matches};
pub use published::PublishedFigures;
pub use report::{BenchRow, Report};
pub use sweep::{CellValue, SweepAxis, SweepCell};
pub use workload::{BenchWorkload, welcome};

/// The name of the experiment and of its command.
pub const NAME: &str = "bench";
