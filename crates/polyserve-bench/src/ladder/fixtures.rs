//! Made-up records, for tests.

use crate::experiment::Records;
use crate::fixtures;
use serde_json::{Value, json};

use super::{Ladder, NAME, Results};

/// The line of a contestant. The subject is the first part of the name.
pub(super) fn contestant(name: &str, role: &str, step: Option<&str>, below: Option<&str>) -> Value {
    let is_aside = step.is_some_and(|step| ["target-cpu", "waker-array", "header-hash"].contains(&step));
    let subject = name.split(['+', ' ']).next().unwrap();
    json!({"kind": "contestant", "name": name, "role": role, "subject": subject, "step": step, "below": below,
        "aside": is_aside, "settings": null, "program_bytes": 1, "program_hash": "", "answer_bytes": 100})
}

/// The line of a sample.
pub(super) fn cell(name: &str, round: usize, requests_per_s: f64) -> Value {
    json!({"kind": "cell", "name": name, "round": round, "requests_per_s": requests_per_s, "transfer_MB_s": 1.0,
        "requests_per_cpu_s": requests_per_s, "answered": 10, "elapsed_s": 1.0, "server_cpu_s": 1.0,
        "client_cpu_s": 0.5, "server_idle_s": 0.0, "client_idle_s": 0.5, "switches_per_request": 0.1, "loaded_kB": 9.0})
}

/// The line of a contestant that is not available.
pub(super) fn absent(name: &str, role: &str, why: &str) -> Value {
    json!({"kind": "failure", "name": name, "role": role, "round": 0, "reason": "not_available", "why": why})
}

/// A record with one request at a time.
pub(super) fn records(lines: &[Value]) -> Records<Ladder> {
    fixtures::records(&fixtures::header(NAME, json!({"pipelines": [1]})), lines).unwrap()
}

/// The results of such a record.
pub(super) fn results(lines: &[Value]) -> Results {
    Results::of(&records(lines), 1).unwrap()
}
