//! The wire corpus at an address.

use super::probe::{Probe, ProbeResult, ask, brief, has_status};
use crate::client::{Client, Ending, Response};
use crate::wire::{Case, CaseEnd, cases_of_address};

/// Sends the cases of the property in their order, each on a connection of its own.
pub(super) fn check(probe: &Probe, property: &str) -> Result<(), String> {
    cases_of_address(property).iter().try_for_each(|case| check_case(probe, case))
}

fn check_case(probe: &Probe, case: &Case) -> Result<(), String> {
    let statuses = case.expected.statuses.as_slice();
    match case.expected.end {
        CaseEnd::Ends if statuses[0] >= 400 => probe.ends_with(&case.bytes),
        CaseEnd::Unfinished => {
            let ProbeResult { statuses: answers, ending } = probe.all(&case.bytes)?;
            match answers.as_slice() {
                [] => Err(format!("no answer to {}: {ending:?}", brief(&case.bytes))),
                [status] if statuses.contains(status) => Ok(()),
                answers => Err(format!("{answers:?} to {}", brief(&case.bytes))),
            }
        }
        CaseEnd::Free => answer(&mut probe.client()?, case).map(drop),
        CaseEnd::Keep => {
            let mut client = probe.client()?;
            (0..3).try_for_each(|_| {
                let response = answer(&mut client, case)?;
                match (response.closes(), case.is_1_0() && !response.lists("Connection", "keep-alive")) {
                    (true, _) => Err(format!("an unasked Connection: close in the answer to {}", brief(&case.bytes))),
                    (_, true) => Err(format!("no Connection: keep-alive in the answer to {}", brief(&case.bytes))),
                    (false, false) => Ok(()),
                }
            })
        }
        CaseEnd::Last | CaseEnd::Ends => {
            let mut client = probe.client()?;
            let response = answer(&mut client, case)?;
            if case.expected.end == CaseEnd::Last && !response.closes() {
                return Err(format!("no Connection: close in the answer to {}", brief(&case.bytes)));
            }
            match client.end() {
                (rest, Ending::Closed) if rest.is_empty() => Ok(()),
                (rest, Ending::Closed) => {
                    Err(format!("{} bytes follow the answer to {}", rest.len(), brief(&case.bytes)))
                }
                (_, Ending::Reset) => Err(format!("a reset after {}", brief(&case.bytes))),
                (_, Ending::Silent) => Err(format!("the connection lives on after {}", brief(&case.bytes))),
            }
        }
    }
}

/// Sends a case, and reads an answer with the status, the body and the text that it is to have.
fn answer(client: &mut Client, case: &Case) -> Result<Response, String> {
    let response = ask(client, &case.bytes)?;
    has_status(&case.bytes, &response, &case.expected.statuses)?;
    match case.expected.fault(case, &response) {
        Some(_) => Err(format!("another body or header field than expected in the answer to {}", brief(&case.bytes))),
        None => Ok(response),
    }
}
