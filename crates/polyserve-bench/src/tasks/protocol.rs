//! The protocol between the instrument and a contestant, in lines of JSON: a request, a line for each finished task, and a
//! line that ends the answer. Our contestants and the program in Go use the same protocol.

use serde::{Deserialize, Serialize};

use super::sequence::{TermOrder, Terms};

/// A request to run tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunRequest {
    /// The starting terms of each task.
    pub starts: Vec<Terms>,
    /// The number of steps of each task.
    pub steps: u64,
    /// The order of the operands in the recurrence.
    pub order: TermOrder,
    /// The size of the batches; 0 if all tasks are in one.
    pub batch: usize,
    /// Whether each step also tests for convergence, as the published code does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check: bool,
}

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum AnswerLine {
    /// A task that was run.
    Ran(RanTask),
    /// The end of the answer: all tasks were run.
    Done(Done),
    /// The tasks could not be run.
    Failed(RunError),
}

/// A task that was run. Times are in nanoseconds from a moment of the contestant's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RanTask {
    /// The number of the task, from 1.
    pub task: usize,
    /// When it was handed over.
    pub submitted_ns: i64,
    /// When the task began, read inside the task.
    pub started_ns: i64,
    /// When the task ended, read inside the task.
    pub finished_ns: i64,
    /// The CPU time of the task's thread; `None` if it is not known for a thread.
    pub cpu_ns: Option<i64>,
    /// The bits of its last term.
    pub bits: u64,
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    /// The CPU time of the whole process during the request.
    pub process_cpu_ns: i64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunError {
    /// A short reason.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_told_apart() {
        let ran =
            r#"{"task":1,"submitted_ns":1,"started_ns":2,"finished_ns":3,"cpu_ns":null,"bits":18446744073709551615}"#;
        let line: AnswerLine = serde_json::from_str(ran).unwrap();
        assert!(matches!(line, AnswerLine::Ran(RanTask { task: 1, cpu_ns: None, bits: u64::MAX, .. })), "{line:?}");
        let line: AnswerLine = serde_json::from_str(r#"{"process_cpu_ns":5}"#).unwrap();
        assert_eq!(line, AnswerLine::Done(Done { process_cpu_ns: 5 }));
        let line: AnswerLine = serde_json::from_str(r#"{"error":"no"}"#).unwrap();
        assert_eq!(line, AnswerLine::Failed(RunError { error: "no".into() }));
        assert!(serde_json::from_str::<AnswerLine>(r#"{"task":1}"#).is_err());
        // The program in Go reads these names.
        let request =
            RunRequest { starts: vec![[0.5; 3]], steps: 3, order: TermOrder::AsPublished, batch: 8, check: false };
        let line = r#"{"starts":[[0.5,0.5,0.5]],"steps":3,"order":"as_published","batch":8}"#;
        assert_eq!(serde_json::to_string(&request).unwrap(), line);
        let checked = serde_json::to_string(&RunRequest { check: true, ..request }).unwrap();
        assert_eq!(checked, line.replace("8}", r#"8,"check":true}"#));
    }
}
