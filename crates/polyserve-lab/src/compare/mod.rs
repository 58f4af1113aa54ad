//! Strategies side by side on this machine: every contestant in a process of its own, in turn, round by round, with an
//! interval for every ratio.
//!
//! Each round every contestant has a new process: what luck a process has with its memory's layout is drawn again each
//! time. The processes of a round are there at once, and are measured in slices of about 50 ms in turn: what else the
//! machine does for longer than that falls on all of them alike. Those that are not measured have no connections and
//! rest. The baseline takes part twice, and the ratio of the two is the noise that any other difference is held against.
//! The limits (servers that do next to nothing) take part in every round too.
//!
//! Invariant: a contestant with one wrong answer has no place in the ranking. Cost: rounds x contestants x about half
//! a second; the memory of all contestants at once.
//!
//! # Layout
//!
//! * [`contestant`]: who takes part, and the order of turns. [`contract`]: what those who are not ours keep of ours.
//! * [`measure`]: a turn; [`turn`]: its figures; `seats`: the turns of a round.
//! * [`ranking`]: what came of it; [`table`]: for people; [`record`]: kept.

pub mod contestant;
pub mod contract;
pub mod measure;
pub mod ranking;
pub mod record;
mod seats;
pub mod table;
pub mod turn;

use anyhow::bail;
use polyserve_load::Usage;
use serde_json::{Value, json};

pub use contestant::{Contestant, Role};
pub use measure::{Instrument, Seat};
pub use ranking::Ranking;
pub use record::Record;
pub use turn::Turn;

use contract::Contract;
use ranking::{Entry, Failed, Rate};
use seats::Seats;

use crate::experiment::{Absence, order};
use crate::machine::Cores;
use crate::machine::proc::Spent;
use crate::progress::Progress;
use crate::statistics::median;

/// A comparison that is to be made.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Who takes part. One of them is the baseline; a limit comes first among the limits if it is to set the rate.
    pub contestants: Vec<Contestant>,
    /// How turns are taken.
    pub instrument: Instrument,
    /// Rounds.
    pub rounds: usize,
    /// Whether latencies are taken too.
    pub latency: bool,
    /// Of the resamples.
    pub seed: u64,
    /// Who was to take part and cannot; they are in the record and the ranking by name.
    pub refused: Vec<Failed>,
}

/// The latency is taken at this share of what the limit reaches.
const RATE: f64 = 0.5;

/// The median of so many turns calibrates, and so many are tried at most: a turn in which the machine had no time for us
/// tells nothing.
const CALIBRATIONS: usize = 3;
const ATTEMPTS: usize = 5;
/// The flag of `polyserve serve` that slows it.
const SPIN: &str = "--spin=";

impl Comparison {
    /// Makes it. The calling thread is kept on the client's cores meanwhile.
    ///
    /// # Errors
    ///
    /// Where the baseline fails, for then nothing can be compared, or the record cannot be written. Others that fail are
    /// in the ranking, by name.
    pub fn run(&self, record: &mut Record, progress: &mut Progress) -> anyhow::Result<Ranking> {
        Ok(self.run_in_turns(record, progress)?.0)
    }

    /// [`run`](Self::run), and the turns of everybody who is ranked: for ratios of any two of them.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn run_in_turns(
        &self,
        record: &mut Record,
        progress: &mut Progress,
    ) -> anyhow::Result<(Ranking, Vec<Entry<'_>>)> {
        let before = Cores::available()?;
        self.instrument.client_cores.pin()?;
        let cores: Vec<usize> = self.instrument.cores();
        let begun = Spent::on(&cores);
        let result = Run::new(self).run(record, progress);
        before.pin()?;
        let (mut ranking, turns, is_new) = result?;
        let last = record.before().ranking();
        if is_new || last.is_none_or(|last| last.interrupted) {
            ranking.others = begun.zip(Spent::on(&cores)).map(|(begun, ended)| ended.others_since(&begun));
            record.ranking(&ranking)?;
        } else {
            ranking.others = last.and_then(|last| last.others);
        }
        Ok((ranking, turns))
    }

    /// What is to be measured, for the record's header; the settings of the servers are its caller's to add.
    pub fn plan(&self) -> Value {
        let Instrument { usage, asked, warm_up, slice, latency_slice, .. } = &self.instrument;
        let contestants = self.contestants.iter().map(|one| json!({"name": one.name, "role": one.role}));
        json!({
            "contestants": contestants.collect::<Vec<_>>(),
            "refused": self.refused.iter().map(|refused| &refused.name).collect::<Vec<_>>(),
            "asked": asked,
            "connections": self.instrument.connections,
            "pipeline": if let Usage::KeepAlive { pipeline } = usage { Some(pipeline) } else { None },
            "rounds": self.rounds,
            "warm_up_s": warm_up.as_secs_f64(),
            "slice_s": slice.as_secs_f64(),
            "latency_slice_s": self.latency.then_some(latency_slice.as_secs_f64()),
        })
    }

    /// Turns of the whole run, those that calibrate included; a calibration may take more of them.
    pub fn turns(&self) -> usize {
        self.rounds * self.contestants.len() + CALIBRATIONS * calibrations(&self.contestants, self.latency).len()
    }
}

/// Whose turns come before the first round: for the rate, and for what a slowed contestant has to burn.
fn calibrations(contestants: &[Contestant], latency: bool) -> Vec<usize> {
    let first = |wanted: fn(Role) -> bool| contestants.iter().position(|contestant| wanted(contestant.role));
    let baseline = first(|role| role == Role::Baseline);
    let limit = first(|role| role == Role::Limit).or(baseline).filter(|_| latency);
    let slowed = first(|role| matches!(role, Role::Slowed(_))).and(baseline);
    let mut all: Vec<usize> = limit.into_iter().chain(slowed).collect();
    all.dedup();
    all
}

/// Whether a turn can calibrate.
fn told(turn: &Turn) -> bool {
    turn.requests_per_s * RATE >= 1.0
}

/// A comparison under way.
struct Run<'a> {
    plan: &'a Comparison,
    contestants: Vec<Contestant>,
    turns: Vec<Vec<Option<Turn>>>,
    failed: Vec<Option<Failed>>,
    rate: Option<Rate>,
    contracts: Vec<Contract>,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Comparison) -> Self {
        let count = plan.contestants.len();
        let contestants = plan.contestants.clone();
        let (turns, failed) = (vec![Vec::new(); count], vec![None; count]);
        Self { plan, contestants, turns, failed, rate: None, contracts: Vec::new() }
    }

    /// The ranking, the turns that it rests on, and whether anything was measured for it that was not there before.
    fn run(mut self, record: &mut Record, progress: &mut Progress) -> anyhow::Result<(Ranking, Vec<Entry<'a>>, bool)> {
        for Failed { name, why, .. } in &self.plan.refused {
            record.refusal(name, why)?;
        }
        self.look_at_contracts(record, progress)?;
        let (rounds, failed) = record.before().rounds(&self.contestants, self.plan.rounds);
        self.failed = failed;
        for who in calibrations(&self.contestants, self.plan.latency) {
            let turns = self.calibrating(who, !rounds.is_empty(), record, progress)?;
            self.calibrate(who, &turns);
        }
        let all: Vec<usize> = (0..self.contestants.len()).collect();
        progress.were_over(rounds.len() * all.len());
        let first = rounds.len() + 1;
        rounds.into_iter().for_each(|turns| self.round_over(turns));
        for round in first..=self.plan.rounds {
            if self.is_stopped() {
                break;
            }
            let turns = self.round(round, &all, record, progress)?;
            self.round_over(turns);
        }
        let is_new = first <= self.plan.rounds;
        let (ranking, turns) = self.ranking();
        Ok((ranking, turns, is_new))
    }

    fn round_over(&mut self, turns: Vec<Option<Turn>>) {
        self.turns.iter_mut().zip(turns).for_each(|(turns, turn)| turns.push(turn));
    }

    /// The turns in which `who` calibrates: those that were recorded, and where no round rests on them yet, as many more
    /// as it takes.
    fn calibrating(
        &mut self,
        who: usize,
        are_settled: bool,
        record: &mut Record,
        progress: &mut Progress,
    ) -> anyhow::Result<Vec<Turn>> {
        let name = self.contestants[who].name.clone();
        let recorded = record.before().calibrating(&name).filter(|turn| told(turn)).take(CALIBRATIONS);
        let mut turns: Vec<Turn> = recorded.cloned().collect();
        progress.were_over(if are_settled { CALIBRATIONS } else { turns.len() });
        for attempt in turns.len()..ATTEMPTS {
            if are_settled || turns.len() == CALIBRATIONS || self.failed[who].is_some() || self.is_stopped() {
                break;
            }
            if attempt >= CALIBRATIONS {
                progress.one_more();
            }
            turns.extend(self.round(0, &[who], record, progress)?.into_iter().flatten().filter(told));
        }
        Ok(turns)
    }

    fn is_stopped(&self) -> bool {
        self.plan.instrument.stop.is_begun()
    }

    /// What those who are not ours keep of the contract. Who cannot be started is out in its first turn.
    fn look_at_contracts(&mut self, record: &mut Record, progress: &mut Progress) -> anyhow::Result<()> {
        let judged = |one: &&Contestant| one.is_foreign && matches!(one.role, Role::Baseline | Role::Ranked);
        for contestant in self.plan.contestants.iter().filter(judged) {
            if self.is_stopped() {
                break;
            }
            if let Some(contract) = record.before().contract(&contestant.name) {
                self.contracts.push(contract.clone());
                continue;
            }
            progress.turn(0, &contestant.name);
            if let Ok(contract) = contract::look(contestant, &self.plan.instrument.server_cores) {
                record.contract(&contract)?;
                self.contracts.push(contract);
            }
        }
        Ok(())
    }

    /// A turn for each of `who`; `None` for who is out. All have their processes at once, and slices in turn.
    fn round(
        &mut self,
        round: usize,
        who: &[usize],
        record: &mut Record,
        progress: &mut Progress,
    ) -> anyhow::Result<Vec<Option<Turn>>> {
        let instrument = &self.plan.instrument;
        let rate = self.rate.as_ref().filter(|_| round > 0).map(|rate| rate.requests_per_s);
        let mut seats = Seats::new(who.len());
        let ordered = |pass| order(pass, who.len()).into_iter();
        for place in ordered(round) {
            let contestant = &self.contestants[who[place]];
            progress.turn(round, &contestant.name);
            if self.failed[who[place]].is_none() && !self.is_stopped() {
                seats.seat(place, instrument.start(contestant));
            }
        }
        // The passes of all rounds are one series: only so does everybody follow everybody equally often.
        let wait = self.contestants.iter().map(|one| one.wait).max().unwrap_or_default();
        let slices = instrument.slices(wait);
        let first = round.saturating_sub(1) * slices;
        for place in (first..first + slices).flat_map(ordered) {
            seats.each(place, |seat| if self.is_stopped() { Ok(()) } else { instrument.measure(seat) });
        }
        for place in ordered(round) {
            if let Some(rate) = rate.filter(|_| !self.is_stopped()) {
                seats.each(place, |seat| instrument.take_latency(seat, rate));
            }
        }
        let results: Vec<_> = seats.end(instrument).collect();
        if self.is_stopped() {
            return Ok(vec![None; who.len()]); // it was cut short
        }
        let mut turns = Vec::new();
        for (who, result) in who.iter().zip(results) {
            progress.turn_over();
            turns.push(match result {
                Some(Ok(turn)) => {
                    record.turn(round, &self.contestants[*who], &turn)?;
                    Some(turn)
                }
                Some(Err(absence)) => {
                    self.fail(round, *who, absence, record, progress)?;
                    None
                }
                None => None,
            });
        }
        Ok(turns)
    }

    fn fail(
        &mut self,
        round: usize,
        who: usize,
        Absence { why, .. }: Absence,
        record: &mut Record,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let contestant = &self.contestants[who];
        record.failure(round, contestant, &why)?;
        let name = contestant.name.clone();
        if contestant.role == Role::Baseline {
            bail!("the baseline {name} failed, so nothing can be compared with it: {why}");
        }
        progress.say(&format!("{name} is out: {why}"));
        self.failed[who] = Some(Failed { name, round, why });
        Ok(())
    }

    /// Takes from the turns of `who` what they are to tell. Where they do not tell it, those who need it are out.
    fn calibrate(&mut self, who: usize, turns: &[Turn]) {
        let middle = |figure: fn(&Turn) -> Option<f64>| {
            let mut values: Vec<f64> = turns.iter().filter_map(figure).collect();
            Some(median(&mut values)).filter(|_| !values.is_empty())
        };
        let Contestant { name, role, .. } = &self.contestants[who];
        if self.plan.latency && self.rate.is_none() {
            let rate = middle(|turn| Some(turn.requests_per_s)).map(|all| all * RATE).filter(|rate| *rate >= 1.0);
            self.rate = rate.map(|requests_per_s| Rate { requests_per_s, half_of: name.clone() });
        }
        if *role != Role::Baseline {
            return;
        }
        for (contestant, failed) in self.contestants.iter_mut().zip(&mut self.failed) {
            let Role::Slowed(percent) = contestant.role else { continue };
            if let Some(per_second) = middle(|turn| turn.requests_per_cpu_s) {
                let spin = (1e9 / per_second * percent / 100.0).round();
                contestant.launch.args.push(format!("{SPIN}{spin}").into());
            } else {
                let why = String::from("what a request costs the baseline is not known, so it cannot be slowed");
                *failed = Some(Failed { name: contestant.name.clone(), round: 0, why });
            }
        }
    }

    fn ranking(self) -> (Ranking, Vec<Entry<'a>>) {
        let interrupted = self.is_stopped();
        let entries = self.plan.contestants.iter().zip(self.turns).zip(&self.failed);
        let ranked: Vec<Entry<'a>> = entries
            .filter(|((_, turns), failed)| failed.is_none() && turns.iter().any(Option::is_some))
            .map(|((contestant, turns), _)| Entry { contestant, turns })
            .collect();
        let Instrument { connections, usage, asked, .. } = &self.plan.instrument;
        // Connections that come and go are not what the memory grows by.
        let kept = matches!(usage, Usage::KeepAlive { .. }).then_some(*connections);
        let ranking = Ranking::new(&ranked, kept, self.plan.seed);
        let baseline = self.contestants.iter().find(|contestant| contestant.role == Role::Baseline);
        let ranking = Ranking {
            baseline: baseline.map_or_else(String::new, |baseline| baseline.name.clone()),
            asked: asked.clone(),
            rate: self.rate,
            contracts: self.contracts,
            failed: self.failed.into_iter().flatten().chain(self.plan.refused.iter().cloned()).collect(),
            interrupted,
            ..ranking
        };
        (ranking, ranked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{AddressFrom, Launch};

    fn contestant(role: Role) -> Contestant {
        let launch = Launch { program: "any".into(), args: Vec::new(), env: Vec::new(), address: AddressFrom::Json };
        Contestant::new("", role, launch)
    }

    #[test]
    fn what_calibrates() {
        let [base, ranked, limit] = [Role::Baseline, Role::Ranked, Role::Limit].map(contestant);
        let slowed = contestant(Role::Slowed(5.0));
        let all = [ranked, base, limit, slowed];
        assert_eq!(calibrations(&all, true), [2, 1]);
        assert_eq!(calibrations(&all, false), [1]);
        assert_eq!(calibrations(&all[..2], true), [1], "without a limit the baseline sets the rate");
        assert_eq!(calibrations(&all[..2], false), [] as [usize; 0]);
        assert_eq!(calibrations(&[all[1].clone(), all[3].clone()], true), [0], "one turn does both");
    }
}
