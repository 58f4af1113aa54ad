//! The experiment of tasks that only compute: what running many of them at once costs and gains, and who runs when.
//!
//! `t` tasks are handed over at once, or in batches; each says when it was handed over, began and ended. What the published
//! cost calls overhead is told apart by the threads' processor time: a task that waits for a core costs nobody anything.
//!
//! * [`sequence`]: the task. [`talk`]: how a contestant is asked for some. [`runner`]: our contestants' side.
//! * [`experiment`]: calibration, single runs and observations, in turn. [`figures`]: what is computed of them.
//! * [`record`]: a record's lines. [`files`]: the published ones. [`table`], [`claims`]: what is said of them.
//!
//! Invariant: every last term is what was computed beforehand, bit for bit, in Go too; otherwise there is no figure. All
//! contestants have the same steps and the same starting terms. Cost: `t (t + 1) / 2` tasks on the cores, each contestant.

pub mod claims;
pub mod experiment;
pub mod figures;
pub mod files;
mod member;
pub mod record;
pub mod runner;
pub mod sequence;
pub mod table;
pub mod talk;
