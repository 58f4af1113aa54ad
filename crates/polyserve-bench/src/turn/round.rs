//! One round: the processes of all its contestants run at once, and are measured in slices in turn.
//!
//! Invariant: a contestant that failed is not measured further in the round. Cost: the memory of all contestants.

use super::contestant::Contestant;
use super::measure::{ContestantSession, Instrument};
use crate::bench::figures::NamedFigures;
use crate::experiment::{Absence, interleaved, order};

/// Measures these contestants in round `number`. `rate` returns the rate of the latencies, in requests per second, from the
/// throughputs of the contestants in this round; without a rate, no latencies are measured. Returns one result for each
/// contestant, in the order of `contestants`. The results mean nothing once the instrument's stop has begun.
pub(crate) fn measure_round(
    instrument: &Instrument,
    contestants: &[&Contestant],
    number: usize,
    rate: impl FnOnce(&[Option<f64>]) -> Option<f64>,
    mut begin: impl FnMut(&Contestant),
) -> Vec<Result<NamedFigures, Absence>> {
    let count = contestants.len();
    let is_stopped = || instrument.stop.is_begun();
    let places: Vec<usize> = (0..count).collect();
    let in_turn = || interleaved(number, &places);
    let mut sessions: Vec<Result<ContestantSession<'_>, Absence>> =
        (0..count).map(|_| Err(Absence::failed("the run was stopped"))).collect();
    for place in in_turn().into_iter().take_while(|_| !is_stopped()) {
        begin(contestants[place]);
        sessions[place] = instrument.start(contestants[place], number);
    }
    // The passes of all rounds are one series: only then each contestant follows each other one equally often.
    let wait = contestants.iter().map(|one| one.wait).max().unwrap_or_default();
    let slices = instrument.slices(wait);
    let first = number.saturating_sub(1) * slices;
    for place in (first..first + slices).flat_map(|pass| order(pass, count)).take_while(|_| !is_stopped()) {
        run_step(&mut sessions[place], |session| instrument.measure(session));
    }
    let throughput = |session: &Result<ContestantSession<'_>, Absence>| Some(session.as_ref().ok()?.requests_per_s());
    let throughputs: Vec<Option<f64>> = sessions.iter().map(throughput).collect();
    if let Some(rate) = rate(&throughputs) {
        for place in in_turn().into_iter().take_while(|_| !is_stopped()) {
            run_step(&mut sessions[place], |session| instrument.take_latency(session, rate));
        }
    }
    sessions.into_iter().map(|session| session.and_then(|session| instrument.end(session))).collect()
}

/// Measures a session that has not failed.
fn run_step<'a>(
    session: &mut Result<ContestantSession<'a>, Absence>,
    step: impl FnOnce(&mut ContestantSession<'a>) -> Result<(), Absence>,
) {
    if let Ok(running) = session
        && let Err(absence) = step(running)
    {
        *session = Err(absence);
    }
}
