//! The experiment of one optimisation at a time: `GET /welcome` answers `Welcome!`, and every rung of the ladder is
//! measured against the one below, and against the same in Go.
//!
//! Every rung is a program of its own, built before anything is measured. All take part in every round, in slices in turn,
//! as in a [comparison](polyserve_lab::compare); each subject's lowest rung takes part twice, and what differs between the two is
//! the noise that its other ratios are held against.
//!
//! Invariant: one answer that is not right, and a rung has no figures; a round that was not ended counts for nobody. Cost:
//! rounds x contestants x about 0.4 s; the memory of all contestants at once.
//!
//! # Layout
//!
//! * [`rung`]: what the rungs are. [`variant`]: how they are built. [`entry`]: who takes part.
//! * [`look`]: whether an answer is what it should be. This module: the rounds.
//! * [`record`]: what is kept, and what follows; [`table`]: for people and as CSV; [`claims`]: of what was published.

pub mod claims;
pub mod entry;
pub mod look;
#[cfg(test)]
mod made_up;
pub mod record;
pub mod rung;
pub mod table;
pub mod variant;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use polyserve_load::{Exchange, LoadError, Traffic};

pub use entry::Climber;
pub use record::Recorded;

use polyserve_lab::Misuse;
use polyserve_lab::compare::{Instrument, Seat, Turn};
use polyserve_lab::experiment::Absence;
use polyserve_lab::experiment::order;
use polyserve_lab::journal::Journal;
use polyserve_lab::machine::Cores;
use polyserve_lab::progress::Progress;
use record::{Cell, Failed};

/// A ladder that is to be measured.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// Who takes part.
    pub climbers: Vec<Climber>,
    /// How turns are taken.
    pub instrument: Instrument,
    /// Rounds.
    pub rounds: usize,
}

/// What is asked of everybody.
///
/// # Errors
///
/// None: it is a request.
pub fn traffic() -> Result<Traffic, LoadError> {
    let welcome = Exchange::new("GET", look::TARGET).with(|welcome| welcome.answers = vec![look::BODY.to_vec()]);
    Traffic::expecting(vec![welcome])
}

/// As wrk counts a megabyte.
const MEGABYTE: f64 = 1_048_576.0;

impl Ladder {
    /// Measures what is not recorded yet, and records it. The calling thread is kept on the client's cores meanwhile.
    ///
    /// # Errors
    ///
    /// Where a program is another one than what was recorded is of, or nothing can be recorded.
    pub fn run(&self, recorded: &mut Recorded, journal: &mut Journal, progress: &mut Progress) -> anyhow::Result<()> {
        let before = Cores::available()?;
        self.instrument.client_cores.pin()?;
        let result = self.climb(recorded, journal, progress);
        before.pin()?;
        result
    }

    /// Turns of a whole run.
    pub fn turns(&self) -> usize {
        self.rounds * self.climbers.len()
    }

    fn climb(&self, recorded: &mut Recorded, journal: &mut Journal, progress: &mut Progress) -> anyhow::Result<()> {
        let mut fit = self.enter(recorded, journal, progress)?;
        let mut out: HashSet<&str> = HashSet::new();
        for round in 1..=self.rounds {
            if fit.iter().all(|climber| recorded.has(&climber.record.name, round)) {
                progress.were_over(fit.len());
                continue;
            }
            let turns = self.round(round, &fit, progress);
            if self.is_stopped() {
                return Ok(()); // it was cut short
            }
            for (climber, turn) in turns {
                match turn {
                    Ok(turn) => {
                        let cell = cell(climber, recorded, round, &turn);
                        journal.line("cell", &cell)?;
                        recorded.add(cell);
                    }
                    Err(absence) => {
                        out.insert(&climber.record.name);
                        fail(climber, round, absence, recorded, journal, progress)?;
                    }
                }
            }
            fit.retain(|climber| !out.contains(climber.record.name.as_str()));
        }
        Ok(())
    }

    /// Looks at those who are new, and records who takes part: who is fit. Who was out before is tried again, unless it did
    /// wrong: who is asked often enough may be lucky.
    fn enter(
        &self,
        recorded: &mut Recorded,
        journal: &mut Journal,
        progress: &mut Progress,
    ) -> anyhow::Result<Vec<&Climber>> {
        let mut fit = Vec::new();
        for climber in &self.climbers {
            let name = &climber.record.name;
            let known = recorded.contestant(name);
            if known.is_some_and(|known| known.program_hash != climber.record.program_hash) {
                let why = "has been built anew since it was measured: record into another directory";
                return Err(Misuse(format!("{name} {why}")).into());
            }
            let is_known = known.is_some();
            if recorded.did_wrong(name) {
                progress.were_over(self.rounds);
                continue;
            }
            if is_known {
                fit.push(climber);
                continue;
            }
            if self.is_stopped() {
                break;
            }
            progress.turn(0, name);
            match look::look(&climber.contestant.launch, &self.instrument.server_cores) {
                Ok(answer_bytes) => {
                    let entered = record::Contestant { answer_bytes, ..climber.record.clone() };
                    journal.line("contestant", &entered)?;
                    recorded.enter(entered);
                    fit.push(climber);
                }
                Err(absence) => fail(climber, 0, absence, recorded, journal, progress)?,
            }
        }
        Ok(fit)
    }

    fn is_stopped(&self) -> bool {
        self.instrument.stop.is_begun()
    }

    /// A turn for each of `who`. All have their processes at once, and slices in turn.
    fn round<'a>(
        &'a self,
        round: usize,
        who: &[&'a Climber],
        progress: &mut Progress,
    ) -> Vec<(&'a Climber, Result<Turn, Absence>)> {
        let order = |pass| order(pass, who.len()).into_iter();
        let mut seats: HashMap<usize, Result<Seat<'a>, Absence>> = HashMap::new();
        for place in order(round) {
            if !self.is_stopped() {
                progress.turn(round, &who[place].record.name);
                seats.insert(place, self.instrument.start(&who[place].contestant));
            }
        }
        let slices = self.instrument.slices(Duration::ZERO);
        let first = (round - 1) * slices;
        for place in (first..first + slices).flat_map(order) {
            if let Some(Ok(seat)) = seats.get_mut(&place)
                && !self.is_stopped()
                && let Err(absence) = self.instrument.measure(seat)
            {
                seats.insert(place, Err(absence));
            }
        }
        let mut turns = Vec::new();
        for (place, climber) in who.iter().enumerate() {
            let Some(seat) = seats.remove(&place) else { continue };
            turns.push((*climber, seat.and_then(|seat| self.instrument.end(seat))));
            progress.turn_over();
        }
        turns
    }
}

fn fail(
    climber: &Climber,
    round: usize,
    absence: Absence,
    recorded: &mut Recorded,
    journal: &mut Journal,
    progress: &Progress,
) -> anyhow::Result<()> {
    let (wrong, why) = (absence.is_wrong(), absence.why);
    let failed = Failed { name: climber.record.name.clone(), round, why, wrong };
    progress.say(&format!("{} is out: {}", failed.name, failed.why));
    journal.line("failure", &failed)?;
    recorded.fail(failed);
    Ok(())
}

fn cell(climber: &Climber, recorded: &Recorded, round: usize, turn: &Turn) -> Cell {
    let name = climber.record.name.clone();
    let answer_bytes = recorded.contestant(&name).map_or(0, |one| one.answer_bytes);
    Cell {
        name,
        round,
        requests_per_s: turn.requests_per_s,
        transfer_mb_s: turn.requests_per_s * answer_bytes as f64 / MEGABYTE,
        requests_per_cpu_s: turn.requests_per_cpu_s,
        answered: turn.answered,
        elapsed_s: turn.elapsed_s,
        server_cpu_s: turn.server_cpu_s,
        client_cpu_s: turn.client_cpu_s,
        server_idle_s: turn.server_idle_s,
        client_idle_s: turn.client_idle_s,
        switches_per_request: turn.switches_per_request,
        loaded_kb: turn.loaded_bytes.map(|bytes| bytes as f64 / 1024.0),
    }
}
