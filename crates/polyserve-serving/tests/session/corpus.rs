//! The wire corpus of the conformance kit: each case in one piece, and byte by byte.

use std::sync::Arc;

use polyserve_conformance::wire::{Case, CaseEnd, CaseScope, cases};
use polyserve_core::{Echo, ServerConfig};
use polyserve_serving::http1::{HttpState, Phase, SessionStep};

use super::support::*;

/// A request behind a case. A server that continued after a refusal would answer it.
const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

/// Cases that are longer are not sent byte by byte.
const MAX_SLOW: usize = 10_000;

/// Returns what is wrong with the answer to a case.
fn fault(case: &Case) -> Option<String> {
    let server = HttpState::new(Arc::new(Echo), &case.configured(ServerConfig::default()));
    let has_next = matches!(case.expected.end, CaseEnd::Keep | CaseEnd::Last | CaseEnd::Ends);
    let bytes = [case.bytes.as_slice(), if has_next { NEXT } else { b"" }].concat();
    let (output, step) = ask(&server, &bytes);
    let (codes, closes) = statuses(output.as_bytes());
    let status = case.expected.statuses[0];
    // A close that the client has asked for lingers only if there is more to read.
    let is_asked_for = status < 400 && matches!(step, SessionStep::Close { .. });
    if bytes.len() <= MAX_SLOW {
        let (slow_output, slow_step) = ask_slowly(&server, &bytes);
        if slow_output != output || slow_step != step && !is_asked_for {
            return Some(format!("byte by byte: {slow_step:?}, {slow_output}in one piece: {step:?}, {output}"));
        }
    }
    let is_right = match case.expected.end {
        CaseEnd::Keep => codes == [status, 200] && closes == 0 && step == SessionStep::Read(Phase::Idle),
        CaseEnd::Last | CaseEnd::Ends | CaseEnd::Unfinished => codes == [status] && closes == 1 && step == LINGER,
        CaseEnd::Free | CaseEnd::Then | CaseEnd::Maybe => codes == [status],
    };
    let answer = output.split("HTTP/1.1 ").nth(1).unwrap_or_default();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let is_body_right = match &case.expected.body {
        Some(body) if case.is_head() => head.contains(&format!("Content-Length: {}\r\n", body.len())),
        Some(expected) => body.as_bytes() == expected,
        None => !case.is_head() || body.is_empty(),
    };
    (!is_right || !is_body_right).then(|| format!("{step:?}, {output}"))
}

#[test]
fn every_case_of_the_corpus() {
    let faults: Vec<String> = cases()
        .iter()
        .filter(|case| matches!(case.scope, CaseScope::Server | CaseScope::Codec))
        .filter_map(|case| Some(format!("{case}\n{}\n", fault(case)?)))
        .collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
