//! A prediction of throughput and p99, from recorded comparisons, before anything is measured.
//!
//! A record has the share of a null server's throughput that each server reached, and its p99 at a fixed rate. The model:
//!
//! ```text
//! time of a request = 1 / (share x null server's throughput here) + CPU time of the application / cores
//! throughput        = 1 / time of a request, and at most requests under way / time that a request waits
//! p99               = recorded p99 x time of a request here / there x (1 - load there) / (1 - load here) + the waits
//! ```
//!
//! A load is the rate divided by the throughput. The repo in memory, the payload, and the mix of reads and writes have no effect
//! in the model: the null server gets the same mix. So the prediction is a first guess, and the recommendation prints its error.
//!
//! Invariant: a server has no prediction if it has no record, or if its store is on a disk or in an engine. Cost: the caller
//! measures the null server.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::candidates::Candidate;
use super::workload::Workload;
use crate::compare::ranking::{Ranking, RankingEntry, entries};
use crate::compare::{self, Comparison, Role};
use crate::experiment::Records;
use crate::journal::{first_header, read};

/// The null servers for kept connections, and for connections of one request each.
pub const LIMITS: [&str; 2] = ["null_epoll", "null_accept"];
/// The max load with a prediction of the p99. At a higher load, the p99 depends on the length of the measurement.
const MAX_LOAD: f64 = 0.95;
/// The curves that were recorded for the docs.
const EMBEDDED: &str = include_str!("curves.csv");
const COLUMNS: &str = "server,keep_alive,share,p99_us,rate_per_s,limit_per_s,record";

/// The figures of a server in a recorded comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The server's name.
    pub server: String,
    /// Whether connections were kept.
    pub keep_alive: bool,
    /// The share of the null server's throughput.
    pub share: f64,
    /// The p99 at the rate, in microseconds; `None` if it was overloaded, or serves one connection at a time.
    pub p99_us: Option<f64>,
    /// The rate of the p99, in requests per second.
    pub rate_per_s: f64,
    /// The throughput of the null server, in requests per second.
    pub limit_per_s: f64,
    /// The record, with its date and processor.
    pub record: String,
}

/// The curves to predict from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// One for each server and kind of connections.
    pub curves: Vec<Curve>,
}

/// The predicted and the measured figures of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The candidate.
    pub name: String,
    /// The predicted requests per second; `None` without a record of the server.
    pub requests_per_s: Option<f64>,
    /// The predicted p99 in microseconds; `None` without a recorded p99, or if the rate is too high.
    pub p99_us: Option<f64>,
    /// The measured requests per second; `None` before the measurement, or if it failed.
    pub measured_per_s: Option<f64>,
    /// The measured p99 in microseconds.
    pub measured_p99_us: Option<f64>,
}

/// The predictions of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predictions {
    /// The null server. Its throughput scales the records.
    pub limit: String,
    /// Its throughput here, in requests per second.
    pub limit_per_s: f64,
    /// The records.
    pub records: Vec<String>,
    /// One for each candidate.
    pub candidates: Vec<Prediction>,
}

impl Curves {
    /// The curves of this program.
    ///
    /// # Errors
    ///
    /// Returns an error if a line does not have its fields.
    pub fn embedded() -> anyhow::Result<Self> {
        let curves = EMBEDDED.lines().skip(1).map(|line| curve(line).with_context(|| line.to_owned()));
        Ok(Self { curves: curves.collect::<anyhow::Result<_>>()? })
    }

    /// The curves of recorded comparisons without pipelining.
    ///
    /// # Errors
    ///
    /// Returns an error if a file is no such record.
    pub fn of_records(paths: &[impl AsRef<Path>]) -> anyhow::Result<Self> {
        let mut curves = Vec::new();
        for path in paths.iter().map(AsRef::as_ref) {
            let record = path.file_stem().unwrap_or_default().to_string_lossy();
            let own = of_record(path, &record).with_context(|| path.display().to_string())?;
            curves.extend(own);
        }
        Ok(Self { curves })
    }

    /// The lines of [`embedded`](Self::embedded) curves.
    pub fn csv(&self) -> String {
        let mut text = format!("{COLUMNS}\n");
        for Curve { server, keep_alive, share, p99_us, rate_per_s, limit_per_s, record } in &self.curves {
            let p99_us = p99_us.map_or_else(String::new, |p99_us| format!("{p99_us:.1}"));
            // Writing to a string does not fail.
            let _ =
                writeln!(text, "{server},{keep_alive},{share:.4},{p99_us},{rate_per_s:.0},{limit_per_s:.0},{record}");
        }
        text
    }

    /// Predicts what the candidates do under `workload`, if the null server has this throughput here.
    pub fn predict(&self, candidates: &[Candidate], workload: &Workload, limit_per_s: f64) -> Predictions {
        let limit = LIMITS[usize::from(!workload.keep_alive)].to_owned();
        let model = |candidate| self.model(candidate, workload, limit_per_s);
        let models: Vec<Option<Model<'_>>> = candidates.iter().map(model).collect();
        // Without a given rate, the latencies are measured at half of the first candidate's throughput.
        let first = models.first().and_then(Option::as_ref).map(|model| model.requests_per_s() / 2.0);
        let rate = workload.rate_per_s.or(first);
        let mut records: Vec<String> = models.iter().flatten().map(|model| model.curve.record.clone()).collect();
        records.sort();
        records.dedup();
        let predicted = |(candidate, model): (&Candidate, &Option<Model<'_>>)| Prediction {
            name: candidate.name(),
            requests_per_s: model.as_ref().map(Model::requests_per_s),
            p99_us: model.as_ref().zip(rate).and_then(|(model, rate)| model.p99_us(rate)),
            measured_per_s: None,
            measured_p99_us: None,
        };
        let candidates = candidates.iter().zip(&models).map(predicted).collect();
        Predictions { limit, limit_per_s, records, candidates }
    }
}

impl Curves {
    fn model<'a>(&'a self, candidate: &'a Candidate, workload: &'a Workload, limit_per_s: f64) -> Option<Model<'a>> {
        if candidate.has_location() {
            return None;
        }
        let is_match = |curve: &&Curve| curve.server == candidate.server && curve.keep_alive == workload.keep_alive;
        let curve = self.curves.iter().find(is_match)?;
        Some(Model { curve, candidate, workload, limit_per_s })
    }
}

/// A curve, applied to a workload.
struct Model<'a> {
    curve: &'a Curve,
    candidate: &'a Candidate,
    workload: &'a Workload,
    limit_per_s: f64,
}

impl Model<'_> {
    /// The time of a request at saturation, in seconds.
    fn request_s(&self) -> f64 {
        let cpu_s = self.workload.cpu_ms / 1000.0 / self.workload.cores.max(1) as f64;
        1.0 / (self.curve.share * self.limit_per_s) + cpu_s
    }

    fn waits_ms(&self) -> f64 {
        self.workload.wait_ms + self.workload.blocking_wait_ms
    }

    fn requests_per_s(&self) -> f64 {
        let connections = self.workload.connections;
        let under_way = self.candidate.workers.map_or(connections, |workers| workers.min(connections));
        let bound = under_way as f64 / (self.waits_ms() / 1000.0);
        (1.0 / self.request_s()).min(bound)
    }

    fn p99_us(&self, rate: f64) -> Option<f64> {
        let Curve { share, p99_us, rate_per_s, limit_per_s, .. } = *self.curve;
        let (load_there, load_here) = (rate_per_s / (share * limit_per_s), rate / self.requests_per_s());
        if load_there > MAX_LOAD || load_here > MAX_LOAD {
            return None;
        }
        let slower = self.request_s() * share * limit_per_s;
        Some(p99_us? * slower * (1.0 - load_there) / (1.0 - load_here) + self.waits_ms() * 1000.0)
    }
}

/// A line of [`Curves::csv`].
fn curve(line: &str) -> anyhow::Result<Curve> {
    let [server, keep_alive, share, p99_us, rate_per_s, limit_per_s, record] =
        line.splitn(7, ',').collect::<Vec<_>>().try_into().ok().context("a curve has 7 fields")?;
    Ok(Curve {
        server: server.to_owned(),
        keep_alive: keep_alive.parse()?,
        share: share.parse()?,
        p99_us: if p99_us.is_empty() { None } else { Some(p99_us.parse()?) },
        rate_per_s: rate_per_s.parse()?,
        limit_per_s: limit_per_s.parse()?,
        record: record.to_owned(),
    })
}

/// The curves of a recorded comparison. If a server has several repos, the fastest counts.
fn of_record(path: &Path, name: &str) -> anyhow::Result<Vec<Curve>> {
    let lines = read(path)?;
    if lines.first().is_none_or(|line| line["experiment"] != compare::NAME) {
        bail!("it is no record of polyserve compare");
    }
    let header = first_header(&lines)?;
    let pipeline = &header.plan["pipeline"];
    if !pipeline.is_null() && *pipeline != 1 {
        bail!("the record has pipelined requests; a prediction needs a record without pipelining");
    }
    let keep_alive = !pipeline.is_null();
    let limit = LIMITS[usize::from(!keep_alive)];
    let records = Records::<Comparison>::of(&lines)?;
    let (ranking, entries) = (Ranking::of(&records)?, entries(&records)?);
    let rate = ranking.rate.as_ref().context("it has no latencies")?.requests_per_s;
    let limit_row = ranking.rows.iter().find(|row| row.role == Role::Limit && row.name == limit);
    let limit_per_s = limit_row.with_context(|| format!("it has no {limit}"))?.requests_per_s;
    let day = lines[0]["date"].as_str().and_then(|date| date.split('T').next()).unwrap_or("an unknown day").to_owned();
    let cpu = header.environment.cpu.replace(',', " ");
    let mut curves: Vec<Curve> = Vec::new();
    for row in ranking.rows.iter().filter(|row| matches!(row.role, Role::Baseline | Role::Ranked)) {
        let share = row.shares.iter().find(|share| share.of == limit).and_then(|share| share.throughput);
        let (Some(share), Some((server, _))) = (share, row.name.rsplit_once('/')) else { continue };
        if curves.iter().any(|known| known.server == server) {
            continue;
        }
        let entry = entries.iter().find(|entry| entry.name == row.name);
        let latency = entry.and_then(RankingEntry::usual_latencies).filter(|latency| !latency.overloaded);
        curves.push(Curve {
            server: server.to_owned(),
            keep_alive,
            share: share.ratio,
            p99_us: latency.filter(|_| row.bound.is_none()).map(|latency| latency.p99_us),
            rate_per_s: rate,
            limit_per_s,
            record: format!("{name} of {day} ({cpu})"),
        });
    }
    Ok(curves)
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::workload;
    use super::*;

    const RECORDED: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../polyserve-cli/tests/fixtures/records/compare.jsonl");

    fn candidate(server: &str, workers: Option<usize>) -> Candidate {
        Candidate { server: server.into(), repo: "sharded".into(), workers }
    }

    fn curves() -> Curves {
        let curve = |server: &str, share, p99_us| Curve {
            server: server.into(),
            keep_alive: true,
            share,
            p99_us,
            rate_per_s: 40_000.0,
            limit_per_s: 100_000.0,
            record: "test".into(),
        };
        Curves { curves: vec![curve("fast", 0.8, Some(400.0)), curve("slow", 0.4, Some(900.0))] }
    }

    fn near(figure: Option<f64>, expected: f64) {
        assert!(figure.is_some_and(|figure| (figure / expected - 1.0).abs() < 1e-9), "{figure:?}, not {expected}");
    }

    /// Half as fast a machine, and the same load: everything takes twice as long.
    #[test]
    fn a_record_is_scaled_by_the_null_server() {
        let candidates = [candidate("fast", None), candidate("slow", None), candidate("unknown", None)];
        let predictions = curves().predict(&candidates, &workload(), 50_000.0);
        let [fast, slow, unknown] = predictions.candidates.as_slice() else { panic!("{predictions:?}") };
        near(fast.requests_per_s, 40_000.0);
        near(fast.p99_us, 800.0);
        near(slow.requests_per_s, 20_000.0);
        // The rate, half of the first server's throughput, is the whole throughput of this server.
        assert_eq!(slow.p99_us, None);
        assert_eq!((unknown.requests_per_s, unknown.p99_us), (None, None));
        assert_eq!((predictions.limit.as_str(), predictions.records), ("null_epoll", vec![String::from("test")]));
        // The records are of stores in memory.
        let engine = Candidate { repo: "etcd:http://127.0.0.1:2379".into(), ..candidate("fast", None) };
        assert!(curves().predict(&[engine], &workload(), 50_000.0).records.is_empty());
        let closed = Workload { keep_alive: false, ..workload() };
        let predictions = curves().predict(&candidates, &closed, 50_000.0);
        assert_eq!((predictions.limit.as_str(), predictions.records.len()), ("null_accept", 0));
    }

    #[test]
    fn waits_bound_the_throughput_and_are_part_of_the_latency() {
        let waiting = Workload { wait_ms: 10.0, connections: 64, rate_per_s: Some(400.0), ..workload() };
        let candidates = [candidate("fast", None), candidate("fast", Some(8))];
        let predictions = curves().predict(&candidates, &waiting, 100_000.0).candidates;
        near(predictions[0].requests_per_s, 6400.0);
        near(predictions[1].requests_per_s, 800.0);
        near(predictions[0].p99_us, 400.0 * 0.5 / (1.0 - 400.0 / 6400.0) + 10_000.0);
        let busy = Workload { cpu_ms: 1.0, cores: 2, ..workload() };
        near(curves().predict(&candidates[..1], &busy, 100_000.0).candidates[0].requests_per_s, 1e6 / 512.5);
    }

    /// Curves are read back as they were written. A record has the known curves.
    #[test]
    fn curves_of_a_record() {
        let curves = Curves::of_records(&[RECORDED]).unwrap();
        let text = curves.csv();
        assert!(text.starts_with(COLUMNS) && curves.curves.len() > 1, "{text}");
        for (line, known) in text.lines().skip(1).zip(&curves.curves) {
            let read = curve(line).unwrap();
            assert_eq!((&read.server, read.keep_alive, &read.record), (&known.server, known.keep_alive, &known.record));
            assert!((read.share - known.share).abs() < 1e-4 && known.share > 0.0, "{line}");
        }
        assert!(curve("fast,true,0.8").is_err());
    }

    #[test]
    fn the_embedded_curves_have_servers_of_both_kinds_of_connections() {
        let curves = Curves::embedded().unwrap().curves;
        for keep_alive in [true, false] {
            let own = curves.iter().filter(|curve| curve.keep_alive == keep_alive);
            assert!(own.clone().any(|curve| curve.server == "tokio_tcp") && own.count() > 5);
        }
        assert!(curves.iter().all(|curve| curve.share > 0.0 && curve.share < 3.0));
    }
}
