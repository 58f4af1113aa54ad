//! The samples of a record, and their ratios.
//!
//! Invariant: a ratio is of samples of the same rounds. A contestant that failed has no figures. Cost: an estimate of 10 000
//! resamples for each ratio.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use crate::experiment::{Absence, Experiment, Failed, Reason, Records, distinct};
use crate::statistics::{Estimate, Interval, Verdict, median_of, tie_band};
use serde::Serialize;
use serde_json::Value;

use super::entry;
use super::record::{BEFORE_ROUNDS, ENTRY, Key, NotRun, RungEntry, RungRole, Sample};

/// The connections of the published load.
pub const PUBLISHED_CONNECTIONS: u64 = 1000;

/// Returns the numbers of requests at once of a record, the smallest first.
pub fn pipelines(plan: &Value) -> Vec<usize> {
    let listed = plan["pipelines"].as_array().into_iter().flatten();
    let mut all: Vec<usize> = listed.filter_map(Value::as_u64).map(|pipeline| pipeline as usize).collect();
    all.sort_unstable();
    all
}

/// The samples of a record with one number of requests at once.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The contestants, in the order of the ladders. References come last.
    pub entries: Vec<RungEntry>,
    /// The contestants that are not available.
    pub not_run: Vec<NotRun>,
    /// The contestants that failed.
    pub failed: Vec<Failed<Key>>,
    /// The number of requests that were sent at once on a connection; 0 if it is not known.
    pub pipeline: usize,
    /// The number of connections, if it is recorded.
    pub connections: Option<u64>,
    /// The seed of the resamples.
    seed: u64,
    /// The samples by contestant, then by round. The rounds are sorted, so that a seed determines the interval.
    samples: HashMap<String, BTreeMap<usize, Sample>>,
    /// The estimates of each pair that were made by now.
    estimates: RefCell<HashMap<RungPair, Option<Estimate>>>,
}

/// The names of two contestants, and the figure of their ratio.
type RungPair = (String, String, Quantity);

/// The figure of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Quantity {
    Throughput,
    Cost,
}

impl Quantity {
    fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Self::Throughput => Some(sample.requests_per_s),
            // A turn without an answer is the worst, and not a missing one.
            Self::Cost => sample.requests_per_cpu_s.or_else(|| (sample.answered == 0).then_some(0.0)),
        }
    }
}

/// A ratio of two contestants, and its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The ratio with its interval.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// The noise: the interval of the control's ratio.
    pub band: Interval,
    /// The verdict.
    pub verdict: Verdict,
}

impl Results {
    /// The results of the samples with this number of requests at once.
    ///
    /// # Errors
    ///
    /// Returns an error if a contestant does not have its fields.
    pub fn of<E>(records: &Records<E>, pipeline: usize) -> anyhow::Result<Self>
    where
        E: Experiment<Key = Key, Sample = Sample>,
    {
        let connections = records.header.plan["connections"].as_u64();
        let mut results = Self { pipeline, connections, seed: records.header.environment.seed, ..Self::default() };
        let is_of = |key: &Key| [0, pipeline].contains(&key.pipeline);
        for (Key { name, round, .. }, sample) in records.samples().filter(|(key, _)| is_of(key)) {
            results.samples.entry(name.clone()).or_default().insert(*round, sample.clone());
        }
        records.facts(ENTRY)?.into_iter().for_each(|entry| results.enter(entry));
        // A contestant that has an entry was built and started in a later run.
        let is_settled = |key: &Key| key.round == BEFORE_ROUNDS && results.entry(&key.name).is_some();
        let failed = records.failed().into_iter().filter(|failed| failed.wrong || !is_settled(&failed.key)).collect();
        let not_run = |(key, absence): (&Key, &Absence)| {
            let role = if entry::server(&key.name).is_some() { RungRole::Reference } else { RungRole::Rung };
            NotRun { name: key.name.clone(), role, why: absence.why.clone() }
        };
        let is_absent = |(key, absence): &(&Key, &Absence)| absence.reason == Reason::NotAvailable && !is_settled(key);
        let not_run = records.absences().filter(is_absent).map(not_run).collect();
        Ok(Self { failed, not_run, ..results })
    }

    /// Adds a contestant. It replaces an earlier one of the same name.
    fn enter(&mut self, entry: RungEntry) {
        match self.entries.iter_mut().find(|other| other.name == entry.name) {
            Some(other) => *other = entry,
            None => self.entries.push(entry),
        }
        // A rung that was built only in a later run comes before the references too.
        self.entries.sort_by_key(|entry| entry.role == RungRole::Reference);
    }

    /// Returns true if the contestant has figures.
    pub fn has_figures(&self, name: &str) -> bool {
        self.samples.contains_key(name) && !self.failed.iter().any(|failed| failed.key.name == name)
    }

    /// The samples of a contestant, by round; none if it has no figures.
    pub fn samples(&self, name: &str) -> Vec<&Sample> {
        self.samples_by_round(name).map(|(_, sample)| sample).collect()
    }

    /// The rounds of a contestant and its samples; none if it has no figures.
    pub(super) fn samples_by_round(&self, name: &str) -> impl Iterator<Item = (usize, &Sample)> {
        let samples = self.samples.get(name).filter(|_| self.has_figures(name));
        samples.into_iter().flatten().map(|(round, sample)| (*round, sample))
    }

    /// The seed of the resamples.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// The contestant of this name.
    pub fn entry(&self, name: &str) -> Option<&RungEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The rungs of `subject`, the lowest first.
    pub fn rungs(&self, subject: &str) -> impl Iterator<Item = &RungEntry> {
        self.entries.iter().filter(move |entry| entry.role == RungRole::Rung && entry.subject == subject)
    }

    /// The rung of `subject` that adds `step`.
    pub fn rung(&self, subject: &str, step: &str) -> Option<&RungEntry> {
        self.rungs(subject).find(|entry| entry.step.as_deref() == Some(step))
    }

    /// The subjects, in the order of their ladders.
    pub fn subjects(&self) -> Vec<&str> {
        distinct(self.entries.iter().filter(|entry| entry.role == RungRole::Rung).map(|entry| entry.subject.as_str()))
    }

    /// The ratio of requests per second; `None` if one of the two has no figures.
    pub fn throughput(&self, name: &str, baseline: &str) -> Option<Ratio> {
        self.ratio(name, baseline, Quantity::Throughput)
    }

    /// The ratio of requests for each second of the server's CPU time; `None` if one of the two has no figures.
    pub fn cost(&self, name: &str, baseline: &str) -> Option<Ratio> {
        self.ratio(name, baseline, Quantity::Cost)
    }

    /// Whether the load was the published one: one request at a time on each of [`PUBLISHED_CONNECTIONS`].
    pub fn is_published_load(&self) -> bool {
        self.pipeline == 1 && self.connections.is_none_or(|connections| connections == PUBLISHED_CONNECTIONS)
    }

    /// The median of a figure of `name`.
    pub fn median(&self, name: &str, figure: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        median_of(self.samples(name).into_iter().filter_map(figure))
    }

    /// How busy the server's cores were, from 0 to 1, without the time that other processes took.
    pub fn server_busy(&self, name: &str) -> Option<f64> {
        self.busy(name, |sample| (sample.server_cpu_s.zip(sample.server_idle_s), sample.server_busy))
    }

    /// How busy the client's cores were, from 0 to 1, without the time that other processes took.
    pub fn client_busy(&self, name: &str) -> Option<f64> {
        self.busy(name, |sample| (sample.client_idle_s.map(|idle| (sample.client_cpu_s, idle)), sample.client_busy))
    }

    /// CPU time as a share of CPU time and idle time, over all samples, without the time that other processes took. The idle time
    /// includes the opening of connections, so the result is at least the median of the shares of the measured time. `figures`
    /// returns the two times, and the share.
    fn busy(&self, name: &str, figures: impl Fn(&Sample) -> (Option<(f64, f64)>, Option<f64>)) -> Option<f64> {
        let all: Vec<_> = self.samples(name).into_iter().map(figures).collect();
        let spent: Option<Vec<(f64, f64)>> = all.iter().map(|(spent, _)| *spent).collect();
        let (cpu, idle) = spent?.iter().fold((0.0, 0.0), |(cpu, idle), part| (cpu + part.0, idle + part.1));
        let of_spent = (cpu > 0.0).then(|| cpu / (cpu + idle));
        let of_time = median_of(all.iter().filter_map(|(_, share)| *share));
        [of_spent, of_time].into_iter().flatten().reduce(f64::max)
    }

    fn ratio(&self, name: &str, baseline: &str, quantity: Quantity) -> Option<Ratio> {
        let estimate = self.estimate(name, baseline, quantity)?;
        let band = self.band(name, quantity);
        Some(Ratio { estimate, band, verdict: estimate.verdict(&band) })
    }

    fn estimate(&self, name: &str, baseline: &str, quantity: Quantity) -> Option<Estimate> {
        let key = (name.to_owned(), baseline.to_owned(), quantity);
        let known = self.estimates.borrow().get(&key).copied();
        known.unwrap_or_else(|| {
            let computed = self.computed_estimate(name, baseline, quantity);
            self.estimates.borrow_mut().insert(key, computed);
            computed
        })
    }

    fn computed_estimate(&self, name: &str, baseline: &str, quantity: Quantity) -> Option<Estimate> {
        if !self.has_figures(name) || !self.has_figures(baseline) {
            return None;
        }
        let baseline = &self.samples[baseline];
        let ratios = self.samples[name]
            .iter()
            .filter_map(|(round, sample)| Some(quantity.of(sample)? / quantity.of(baseline.get(round)?)?));
        Estimate::of(&ratios.collect::<Vec<_>>(), self.seed)
    }

    /// The noise of the ladder of `name`: the ratio of the control to the lowest rung.
    fn band(&self, name: &str, quantity: Quantity) -> Interval {
        let subject = self.entry(name).map_or("", |entry| entry.subject.as_str());
        let of = |role| move |entry: &&RungEntry| entry.subject == subject && entry.role == role;
        let control = self.entries.iter().find(of(RungRole::Control));
        let lowest = self.rungs(subject).find(|rung| rung.below.is_none());
        let noise =
            control.zip(lowest).and_then(|(control, lowest)| self.estimate(&control.name, &lowest.name, quantity));
        tie_band(noise.as_ref())
    }
}

#[cfg(test)]
mod tests;
