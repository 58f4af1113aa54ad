//! CPU tasks: the cost and the gain of many concurrent tasks, and their order. The [mode `tasks`](crate::bench::mode::tasks)
//! measures them.
//!
//! `t` tasks are submitted at once, or in batches; each reports when it was submitted, began and ended. The threads' CPU
//! time divides the published overhead into two parts, because a task that waits for a core takes no CPU time.
//!
//! * `sequence`: the task. `protocol`: requests to a contestant, and answers. [`runner`]: our contestants' side;
//!   `contestant`: the instrument's.
//! * `figures`: the figures of an observation. `table`: tables and schedules.

pub(crate) mod contestant;
pub(crate) mod figures;
pub(crate) mod protocol;
pub mod runner;
pub(crate) mod sequence;
pub(crate) mod table;
