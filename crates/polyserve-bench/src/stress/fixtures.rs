//! Made-up records, for tests.

use crate::experiment::Records;
use crate::fixtures;
use crate::journal::as_line;
use serde_json::{Value, json};

use super::outcome::{GroupOutcome, RoundOutcome};
use super::report::{Sample, Tested};
use super::{NAME, Stress};

/// The line of a round.
pub(super) fn line(server: &str, mode: &str, requests: u64, error_count: u64) -> Value {
    let group = |phase: &str| GroupOutcome {
        phase: phase.into(),
        samples: 100,
        requests_per_s: 1234.5,
        received_kb_s: 60.0,
        sent_kb_s: 70.0,
        ..GroupOutcome::default()
    };
    let outcome = RoundOutcome {
        connections_at_once: 300,
        groups: ["put-new", "get", "put-update", "total"].map(group).into(),
        connections: requests,
        answers: requests,
        error_count,
        ..RoundOutcome::default()
    };
    let tested = Tested { server: server.into(), repo: "any".into() };
    let sample = Sample { lang: tested.lang().into(), requests, outcome };
    let mut line = as_line("round", &sample).unwrap();
    (line["server"], line["repo"], line["mode"]) = (server.into(), "any".into(), mode.into());
    line
}

/// A record.
pub(super) fn records(lines: &[Value]) -> Records<Stress> {
    fixtures::records(&fixtures::header(NAME, json!({"requests": 40})), lines).unwrap()
}
