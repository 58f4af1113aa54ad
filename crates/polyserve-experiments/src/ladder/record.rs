//! What a run leaves behind, and what follows from it.
//!
//! Lines are of kind `contestant` (who takes part, and what it was built with), `not_run`, `cell` (a turn of one of them)
//! and `failure`. A later line counts in place of an earlier one: a round that was measured again, a contestant that
//! failed and then did not. But for one that did wrong: it stays out.
//!
//! Invariant: ratios are of turns of one round; who has failed has no figures. Cost: an estimate of 10 000 resamples for
//! each ratio.

use std::cell::RefCell;
use std::collections::HashMap;

use polyserve_lab::journal::{self, Header};
use polyserve_lab::statistics::{Estimate, Interval, Verdict, median, tie_band};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rung::Settings;

/// As what somebody takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A rung.
    Rung,
    /// The lowest rung of a subject once more: what differs between the two is noise.
    Control,
    /// Whom the rungs are also held against.
    Reference,
}

/// Somebody who takes part. Kind `contestant`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contestant {
    /// Its name: that of the rung, `warp+lto`; that of its subject with `(again)`; or `go-fasthttp`.
    pub name: String,
    /// As what.
    pub role: Role,
    /// Whose ladder it is on: a server of ours, or `warp`.
    pub subject: String,
    /// What the rung adds; `None` for the lowest, and for who is no rung.
    pub step: Option<String>,
    /// The name of the rung below.
    pub below: Option<String>,
    /// Whether no rung stands on it.
    pub aside: bool,
    /// What it is built and started with; `None` for a reference.
    pub settings: Option<Settings>,
    /// The length of its program, in bytes.
    pub program_bytes: u64,
    /// A hash of its program.
    pub program_hash: String,
    /// The length of one answer, head and body, in bytes.
    pub answer_bytes: u64,
}

/// Somebody who was to take part and cannot. Kind `not_run`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRun {
    /// Its name.
    pub name: String,
    /// As what it was to take part.
    pub role: Role,
    /// Why.
    pub why: String,
}

/// A turn of a contestant. Kind `cell`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The contestant.
    pub name: String,
    /// The round, from 1.
    pub round: usize,
    /// Right answers a second.
    pub requests_per_s: f64,
    /// Bytes of answers a second, in 2^20 bytes: as wrk has it.
    #[serde(rename = "transfer_MB_s")]
    pub transfer_mb_s: f64,
    /// Right answers for each second of the server's CPU time.
    pub requests_per_cpu_s: Option<f64>,
    /// Right answers.
    pub answered: u64,
    /// How long it was measured.
    pub elapsed_s: f64,
    /// CPU time of the server.
    pub server_cpu_s: Option<f64>,
    /// CPU time of the client.
    pub client_cpu_s: f64,
    /// How long nobody wanted the server's cores.
    pub server_idle_s: Option<f64>,
    /// How long nobody wanted the client's cores.
    pub client_idle_s: Option<f64>,
    /// Context switches of the server for each request.
    pub switches_per_request: Option<f64>,
    /// Resident memory with all connections open.
    #[serde(rename = "loaded_kB")]
    pub loaded_kb: Option<f64>,
}

/// A turn that failed, which ends its contestant's part in the run. Kind `failure`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The contestant.
    pub name: String,
    /// The round; 0 where it was looked at before the first.
    pub round: usize,
    /// Why.
    pub why: String,
    /// Whether it did wrong: then a rerun does not try it again.
    #[serde(default)]
    pub wrong: bool,
}

/// Everything that was recorded.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// Who takes part, in the order of the ladders; references last.
    pub contestants: Vec<Contestant>,
    /// Who cannot.
    pub not_run: Vec<NotRun>,
    /// Who is out.
    pub failed: Vec<Failed>,
    /// Requests that were sent at once on a connection; 0 where it is not known.
    pub pipeline: u64,
    /// Of the resamples.
    pub seed: u64,
    cells: HashMap<String, HashMap<usize, Cell>>,
    /// Those that were asked for already.
    bands: RefCell<HashMap<(String, Figure), Interval>>,
}

/// What is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Figure {
    Throughput,
    Cost,
}

impl Figure {
    fn of(self, cell: &Cell) -> Option<f64> {
        match self {
            Self::Throughput => Some(cell.requests_per_s),
            Self::Cost => cell.requests_per_cpu_s,
        }
    }
}

/// A ratio, and what may be said of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// With its interval.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// What the subject's lowest rung shows against itself: within is noise.
    pub band: Interval,
    /// The one held against the other.
    pub verdict: Verdict,
}

impl Recorded {
    /// Of the lines of a file.
    ///
    /// # Errors
    ///
    /// Where a line is not what its kind says.
    pub fn of(lines: &[Value]) -> anyhow::Result<Self> {
        let mut recorded = Self::default();
        if let Some(Header { plan, environment, .. }) = journal::of_kind(lines, Header::KIND)?.first() {
            recorded.pipeline = plan["pipeline"].as_u64().unwrap_or(0);
            recorded.seed = environment.seed;
        }
        for line in lines {
            match line["kind"].as_str() {
                Some("contestant") => recorded.enter(parsed(line)?),
                Some("not_run") => recorded.leave_out(parsed(line)?),
                Some("cell") => recorded.add(parsed(line)?),
                Some("failure") => recorded.fail(parsed(line)?),
                _ => {}
            }
        }
        Ok(recorded)
    }

    /// Adds somebody who takes part.
    pub fn enter(&mut self, contestant: Contestant) {
        self.not_run.retain(|other| other.name != contestant.name);
        match self.contestants.iter_mut().find(|other| other.name == contestant.name) {
            Some(other) => *other = contestant,
            None => self.contestants.push(contestant),
        }
        // One that was built only in a later run has its place all the same.
        self.contestants.sort_by_key(|one| one.role == Role::Reference);
    }

    /// Adds somebody who cannot take part.
    pub fn leave_out(&mut self, not_run: NotRun) {
        self.not_run.retain(|other| other.name != not_run.name);
        self.not_run.push(not_run);
    }

    /// Adds a turn. Who had failed has not any more, unless it did wrong.
    pub fn add(&mut self, cell: Cell) {
        self.bands.borrow_mut().clear();
        self.failed.retain(|failed| failed.wrong || failed.name != cell.name);
        self.cells.entry(cell.name.clone()).or_default().insert(cell.round, cell);
    }

    /// Adds a turn that failed, in place of what else is said of its contestant; but what it did wrong stays.
    pub fn fail(&mut self, failed: Failed) {
        self.bands.borrow_mut().clear();
        if !self.did_wrong(&failed.name) {
            self.failed.retain(|other| other.name != failed.name);
            self.failed.push(failed);
        }
    }

    /// Whether `name` did wrong in any turn.
    pub fn did_wrong(&self, name: &str) -> bool {
        self.failed.iter().any(|failed| failed.wrong && failed.name == name)
    }

    /// Whether there is a turn of `name` in this round.
    pub fn has(&self, name: &str, round: usize) -> bool {
        self.cells.get(name).is_some_and(|cells| cells.contains_key(&round))
    }

    /// Whether there is any figure of `name`.
    pub fn has_figures(&self, name: &str) -> bool {
        self.cells.contains_key(name) && !self.failed.iter().any(|failed| failed.name == name)
    }

    /// Its turns, in no order.
    pub fn cells(&self, name: &str) -> Vec<&Cell> {
        if self.has_figures(name) { self.cells[name].values().collect() } else { Vec::new() }
    }

    /// The contestant of this name.
    pub fn contestant(&self, name: &str) -> Option<&Contestant> {
        self.contestants.iter().find(|one| one.name == name)
    }

    /// The rungs of `subject`, the lowest first.
    pub fn rungs(&self, subject: &str) -> impl Iterator<Item = &Contestant> {
        self.contestants.iter().filter(move |one| one.role == Role::Rung && one.subject == subject)
    }

    /// The rung of `subject` that adds `step`.
    pub fn rung(&self, subject: &str, step: &str) -> Option<&Contestant> {
        self.rungs(subject).find(|one| one.step.as_deref() == Some(step))
    }

    /// Whose ladders there are, in their order.
    pub fn subjects(&self) -> Vec<&str> {
        let mut subjects: Vec<&str> = Vec::new();
        for one in self.contestants.iter().filter(|one| one.role == Role::Rung) {
            if !subjects.contains(&one.subject.as_str()) {
                subjects.push(&one.subject);
            }
        }
        subjects
    }

    /// Requests a second of one beside another's; `None` where a figure of one of them is wanting.
    pub fn throughput(&self, own: &str, other: &str) -> Option<Ratio> {
        self.ratio(own, other, Figure::Throughput)
    }

    /// Requests for each second of the server's CPU time beside another's.
    pub fn cost(&self, own: &str, other: &str) -> Option<Ratio> {
        self.ratio(own, other, Figure::Cost)
    }

    /// The median of a figure of `name`.
    pub fn middle(&self, name: &str, figure: impl Fn(&Cell) -> Option<f64>) -> Option<f64> {
        let mut values: Vec<f64> = self.cells(name).into_iter().filter_map(figure).collect();
        (!values.is_empty()).then(|| median(&mut values))
    }

    /// CPU time as a share of it and of the time in which nobody wanted the cores, over all turns.
    pub fn busy(&self, name: &str, figures: impl Fn(&Cell) -> Option<(f64, f64)>) -> Option<f64> {
        let parts: Option<Vec<(f64, f64)>> = self.cells(name).into_iter().map(figures).collect();
        let (cpu, idle) = parts?.iter().fold((0.0, 0.0), |(cpu, idle), part| (cpu + part.0, idle + part.1));
        (cpu > 0.0).then(|| cpu / (cpu + idle))
    }

    fn ratio(&self, own: &str, other: &str, figure: Figure) -> Option<Ratio> {
        let estimate = self.estimate(own, other, figure)?;
        let band = self.band(own, figure);
        Some(Ratio { estimate, band, verdict: estimate.verdict(&band) })
    }

    fn estimate(&self, own: &str, other: &str, figure: Figure) -> Option<Estimate> {
        if !self.has_figures(own) || !self.has_figures(other) {
            return None;
        }
        let (own, other) = (&self.cells[own], &self.cells[other]);
        let mut rounds: Vec<usize> = own.keys().filter(|round| other.contains_key(round)).copied().collect();
        rounds.sort_unstable(); // so that a seed gives one interval
        let ratios = rounds.iter().filter_map(|round| Some(figure.of(&own[round])? / figure.of(&other[round])?));
        Estimate::of(&ratios.collect::<Vec<_>>(), self.seed)
    }

    /// What the lowest rung of the ladder of `name` shows against itself.
    fn band(&self, name: &str, figure: Figure) -> Interval {
        let subject = self.contestant(name).map_or("", |one| one.subject.as_str());
        let key = (subject.to_owned(), figure);
        if let Some(known) = self.bands.borrow().get(&key) {
            return *known;
        }
        let of = |role| move |one: &&Contestant| one.subject == subject && one.role == role;
        let control = self.contestants.iter().find(of(Role::Control));
        let lowest = self.rungs(subject).find(|one| one.below.is_none());
        let same = control.zip(lowest).and_then(|(one, other)| self.estimate(&one.name, &other.name, figure));
        let band = tie_band(same.as_ref());
        self.bands.borrow_mut().insert(key, band);
        band
    }
}

fn parsed<T: DeserializeOwned>(line: &Value) -> anyhow::Result<T> {
    Ok(serde_json::from_value(line.clone())?)
}

#[cfg(test)]
mod tests;
