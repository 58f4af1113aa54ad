//! The wire corpus at an address.

use super::probe::{Probe, ProbeResult, ask, brief, has_status};
use crate::client::{Client, Ending, Response};
use crate::wire::{Case, CaseEnd, cases_of_address};

/// Sends the cases of the property in their order. Each has a connection of its own, unless it goes on with that of the case before.
pub(super) fn check(probe: &Probe, property: &str) -> Result<(), String> {
    let mut open = None;
    for case in cases_of_address(property) {
        match case.expected.end {
            CaseEnd::Ends if case.expected.statuses[0] >= 400 => probe.ends_with(&case.bytes)?,
            CaseEnd::Unfinished => check_unfinished(probe, &case)?,
            end => {
                let mut client = open.take().map_or_else(|| probe.client(), Ok)?;
                check_case(&mut client, &case)?;
                open = (end == CaseEnd::Then).then_some(client);
            }
        }
    }
    Ok(())
}

fn check_unfinished(probe: &Probe, case: &Case) -> Result<(), String> {
    let ProbeResult { statuses, ending } = probe.all(&case.bytes)?;
    match statuses.as_slice() {
        [] => Err(format!("no answer to {}: {ending:?}", brief(&case.bytes))),
        [status] if case.expected.statuses.contains(status) => Ok(()),
        answers => Err(format!("{answers:?} to {}", brief(&case.bytes))),
    }
}

fn check_case(client: &mut Client, case: &Case) -> Result<(), String> {
    let response = answer(client, case)?;
    match case.expected.end {
        CaseEnd::Free | CaseEnd::Then | CaseEnd::Maybe => Ok(()),
        CaseEnd::Keep => {
            is_kept(case, &response)?;
            (1..3).try_for_each(|_| is_kept(case, &answer(client, case)?))
        }
        CaseEnd::Last | CaseEnd::Unfinished if !response.closes() => {
            Err(format!("no Connection: close in the answer to {}", brief(&case.bytes)))
        }
        CaseEnd::Last | CaseEnd::Ends | CaseEnd::Unfinished => match client.end() {
            (rest, Ending::Closed) if rest.is_empty() => Ok(()),
            (rest, Ending::Closed) => Err(format!("{} bytes follow the answer to {}", rest.len(), brief(&case.bytes))),
            (_, Ending::Reset) => Err(format!("a reset after {}", brief(&case.bytes))),
            (_, Ending::Silent) => Err(format!("the connection lives on after {}", brief(&case.bytes))),
        },
    }
}

fn is_kept(case: &Case, response: &Response) -> Result<(), String> {
    if response.closes() {
        return Err(format!("an unasked Connection: close in the answer to {}", brief(&case.bytes)));
    }
    if case.is_1_0() && !response.lists("Connection", "keep-alive") {
        return Err(format!("no Connection: keep-alive in the answer to {}", brief(&case.bytes)));
    }
    Ok(())
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
