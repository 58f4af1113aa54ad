//! The experiment of CPU tasks: the cost and the gain of many concurrent tasks, and their order.
//!
//! `t` tasks are submitted at once, or in batches; each reports when it was submitted, began and ended. The threads' CPU
//! time divides the published overhead into two parts, because a task that waits for a core takes no CPU time.
//!
//! * [`sequence`]: the task. [`protocol`]: requests to a contestant, and answers. [`runner`]: our contestants' side.
//! * [`experiment`]: calibration, single runs and observations, in turn. [`figures`]: the figures of an observation. `growth`: of
//!   many.
//! * [`record`]: cells and facts. [`measured`]: all of them. [`published`]: the published figures. [`table`], `chart`, [`claims`], [`report`]: the result.
//!
//! Invariant: every last term equals the precomputed one, bit for bit, in Go too; otherwise there is no figure. All
//! contestants have the same steps and the same starting terms. Cost: `t (t + 1) / 2` tasks on the cores, each contestant.

mod chart;
pub mod claims;
mod contestant;
pub mod experiment;
pub mod figures;
mod growth;
pub mod measured;
pub mod protocol;
pub mod published;
pub mod record;
pub mod report;
pub mod runner;
pub mod sequence;
pub mod table;
