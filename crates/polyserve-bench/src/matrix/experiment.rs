//! The experiment: every contestant in every cell, in turn, round by round.
//!
//! Invariant: a contestant that is not available has one absence for all of its cells. Cost: that of the cells, and a build
//! of the servers in Go.

use std::time::Duration;

use crate::contestants::{self, GO, Program};
use crate::experiment::{Absence, Absent, Experiment, Notebook, Plan, Reason, Records};
use crate::report::Summary;
use serde_json::Value;

use super::claims::CLASSIC;
use super::plan::{self, MatrixAxes};
use super::report::{Report, planned};
use super::{Bench, CellMethod, Entrant, Key, NAME, Origin, Sample, causes, chart, csv, table};
use crate::ladder::variant::{Binary, LadderSources};

/// The executor column of the servers in Go.
const EXECUTOR_OF_GO: &str = "goroutines";

/// A contestant before the builds.
#[derive(Clone, Debug)]
pub enum MatrixCandidate {
    /// A Rust server, ready to start.
    Ready(Entrant),
    /// A server from outside the catalog, which must be built.
    Program(Program),
    /// A Rust server that must be built without optimisation. The build replaces the program of its processes.
    Debug(Entrant, Binary),
    /// A server that rejects the settings: its name, and why.
    Rejected(String, String),
}

impl MatrixCandidate {
    /// The contestant's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Ready(entrant) | Self::Debug(entrant, _) => &entrant.name,
            Self::Program(server) => server.name(),
            Self::Rejected(name, _) => name,
        }
    }
}

/// Pool sizes against connections.
#[derive(Debug)]
pub struct Matrix {
    /// All contestants.
    pub candidates: Vec<MatrixCandidate>,
    /// The contestants that the command line names: the run fails if one of them is not available.
    pub named: Vec<String>,
    /// The sources of the servers without optimisation.
    pub sources: LadderSources,
    /// The cells.
    pub axes: MatrixAxes,
    /// After this time no cell begins.
    pub time_limit: Option<Duration>,
    /// The description of the run, for the record's header.
    pub description: Value,
    /// Measures the cells.
    pub bench: Bench,
    entrants: Vec<Entrant>,
    absent: Vec<Absent<Key>>,
}

impl Matrix {
    /// The experiment. It has no cells before [`prepare`](Experiment::prepare).
    pub fn new(candidates: Vec<MatrixCandidate>, axes: MatrixAxes, description: Value, bench: Bench) -> Self {
        let (named, entrants, absent) = (Vec::new(), Vec::new(), Vec::new());
        let sources = LadderSources::new(None);
        Self { candidates, named, sources, axes, time_limit: None, description, bench, entrants, absent }
    }

    fn exclude(&mut self, name: &str, why: &str) {
        let excused = !self.named.iter().any(|named| named == name);
        self.absent.push(Absent { key: Key::of_all(name), absence: Absence::not_available(why), excused });
    }

    /// Builds the servers in Go and the servers without optimisation. Adds the control: the classic pool, or else the
    /// first contestant.
    fn enter(&mut self) {
        let candidates = self.candidates.clone();
        for candidate in candidates {
            match candidate {
                MatrixCandidate::Ready(entrant) => self.entrants.push(entrant),
                MatrixCandidate::Rejected(name, why) => self.exclude(&name, &why),
                MatrixCandidate::Debug(mut entrant, binary) => match self.sources.debug(binary, &self.bench.stop) {
                    Ok(program) => {
                        entrant.pools.iter_mut().for_each(|(_, launch)| launch.program.clone_from(&program));
                        self.entrants.push(entrant);
                    }
                    Err(why) => self.exclude(&entrant.name, &why),
                },
                MatrixCandidate::Program(server) => {
                    let [built] = &contestants::build([&server], "", &self.bench.stop)[..] else { continue };
                    let pool = |size: &usize| Ok::<_, String>((Some(*size), built.launch(Some(*size))?));
                    match self.axes.pools.iter().map(pool).collect() {
                        Ok(pools) => {
                            let (name, origin) = (server.name().to_owned(), origin_of(&server));
                            self.entrants.push(Entrant { name, control: false, origin, pools });
                        }
                        Err(why) => self.exclude(server.name(), &why),
                    }
                }
            }
        }
        let named = |strategy: &str| self.entrants.iter().find(|entrant| entrant.name.starts_with(strategy));
        if let Some(baseline) = named(CLASSIC).or(self.entrants.first()) {
            self.entrants.push(Entrant { control: true, ..baseline.clone() });
        }
    }
}

/// The columns of a program. Its store is the published store, or Go's own concurrent map.
fn origin_of(server: &Program) -> Origin {
    let (lang, executor) = if server.name().starts_with(GO) { ("go", EXECUTOR_OF_GO) } else { ("rust", "") };
    let kind = server.name().split_once('/').map_or(server.name(), |(_, kind)| kind);
    let (kind, variant) = kind.split_once('-').unwrap_or((kind, kind));
    let repo = if variant == "syncmap" { "sync_map" } else { "two_level" };
    Origin {
        lang: lang.into(),
        server: kind.into(),
        executor: executor.into(),
        repo: repo.into(),
        variant: variant.into(),
    }
}

impl Experiment for Matrix {
    const NAME: &'static str = NAME;
    type Key = Key;
    type Sample = Sample;
    type Report = Report;

    fn describe(&self) -> Value {
        self.description.clone()
    }

    fn prepare(&mut self, _: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        self.enter();
        Ok(())
    }

    fn plan(&self) -> Plan<Key> {
        let cells = Plan::series(plan::keys(&self.axes, &self.entrants));
        Plan { absent: self.absent.clone(), time_limit: self.time_limit, ..cells }
    }

    fn measure(&mut self, key: &Key, _: &mut Notebook<'_, Self>) -> Result<Sample, Absence> {
        let is_its = |entrant: &&Entrant| (&entrant.name, entrant.control) == (&key.contestant, key.control);
        let entrant = self.entrants.iter().find(is_its);
        let pool = |entrant: &Entrant| {
            let launch =
                entrant.pools.iter().find(|(size, _)| *size == key.pool_size).map(|(_, launch)| launch.clone());
            Some((entrant.origin.clone(), launch?))
        };
        let (origin, launch) =
            entrant.and_then(pool).ok_or_else(|| Absence::failed(format!("{key} is not planned")))?;
        self.bench.measure(key, &origin, &launch)
    }

    /// A contestant that is not available has no cells. Any other absence is of one cell.
    fn excludes(absence: &Absence, of: &Key, key: &Key) -> bool {
        match absence.reason {
            Reason::NotAvailable => of.is_of_same_entry(key),
            _ => of == key,
        }
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        Report::of(records)
    }

    fn summarize(records: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        let methods: Vec<CellMethod> = planned(&records.header, "methods");
        let csv = |method: CellMethod| Ok((format!("_{}", method.name()), csv::of_method(&report.cells, method)?));
        let csv = methods.into_iter().map(csv).collect::<anyhow::Result<_>>()?;
        let (mut tables, charts) = (table::tables(&report.cells, &report.failed)?, chart::charts(&report.cells)?);
        tables.extend(causes::table(&report.cells).map(|table| (String::from("Causes"), table)));
        Ok(Summary { tables, charts, claims: report.claims.clone(), csv, ..Summary::default() })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::contestants::Registry;
    use crate::machine::Cores;
    use polyserve::Shutdown;

    use super::*;
    use crate::matrix::claims::TWIN;

    fn candidate(name: &str) -> MatrixCandidate {
        MatrixCandidate::Ready(plan::tests::entrant(name, &[Some(2)]))
    }

    /// The twin in Go, without sources.
    fn twin() -> MatrixCandidate {
        let registry = Registry::repository().clone().with_sources(GO, Some(Path::new("/nonexistent")));
        MatrixCandidate::Program(registry.named(TWIN).unwrap().clone())
    }

    /// The experiment with these contestants, after the builds. There are no sources of servers in Go.
    fn entered(candidates: Vec<MatrixCandidate>, named: &[&str]) -> Matrix {
        let axes = MatrixAxes { pools: vec![2], connections: vec![10], methods: vec![CellMethod::Get], rounds: 1 };
        let one = Cores::from(0);
        let bench = Bench { server_cores: one.clone(), client_cores: one, requests: 1, stop: Shutdown::new() };
        let mut matrix = Matrix::new(candidates, axes, Value::Null, bench);
        matrix.named = named.iter().map(ToString::to_string).collect();
        matrix.sources = LadderSources::new(Some(Path::new("/nonexistent")));
        matrix.enter();
        matrix
    }

    #[test]
    fn the_control_is_the_classic_pool_or_the_first_contestant() {
        let classic = format!("{CLASSIC}/any");
        let control = |names: &[&str]| {
            let plan = entered(names.iter().map(|name| candidate(name)).collect(), &[]).plan();
            let controls: Vec<String> =
                plan.keys().filter(|key| key.control).map(|key| key.contestant.clone()).collect();
            assert_eq!(plan.keys().count(), names.len() + controls.len());
            controls
        };
        assert_eq!(control(&[]), [""; 0]);
        assert_eq!(control(&["a", "b"]), ["a"]);
        assert_eq!(control(&["a", &classic, "b"]), [classic.as_str()]);
        let matrix = entered(vec![twin(), candidate("b")], &[]);
        assert!(matrix.plan().keys().all(|key| key.contestant == "b"), "a twin that was not built has no cells");
    }

    #[test]
    fn a_server_that_cannot_be_built_is_left_out_with_the_reason() {
        let debug = MatrixCandidate::Debug(plan::tests::entrant("debug/a", &[Some(2)]), Binary::Serve);
        let plan = entered(vec![debug, candidate("b")], &[]).plan();
        assert!(plan.keys().all(|key| key.contestant == "b"));
        let [absent] = &plan.absent[..] else { panic!("{:?}", plan.absent) };
        assert_eq!(absent.key, Key::of_all("debug/a"));
        assert!(absent.absence.why.contains("/nonexistent/benches/ladder has no Cargo.toml"), "{absent:?}");
    }

    #[test]
    fn a_contestant_that_is_named_is_not_excused() {
        let candidates = || vec![twin(), candidate("b")];
        for (named, excused) in [(&[][..], true), (&[TWIN][..], false)] {
            let plan = entered(candidates(), named).plan();
            let [absent] = &plan.absent[..] else { panic!("{:?}", plan.absent) };
            assert_eq!((&absent.key, absent.excused), (&Key::of_all(TWIN), excused));
            assert_eq!(absent.absence.reason, Reason::NotAvailable);
        }
    }

    /// An absent contestant has no cells; a wrong answer is of one cell, and the control is an entry of its own.
    #[test]
    fn what_an_absence_excludes() {
        let at = |round: u32| Key {
            contestant: "a".into(),
            control: false,
            method: CellMethod::Put,
            pool_size: Some(4),
            connections: 10,
            round,
        };
        let wrong = Absence::wrong("any");
        assert!(Matrix::excludes(&wrong, &at(1), &at(1)) && !Matrix::excludes(&wrong, &at(1), &at(2)));
        let (key, absent) = (Key::of_all("a"), Absence::not_available("any"));
        assert!(Matrix::excludes(&absent, &key, &at(2)));
        assert!(!Matrix::excludes(&absent, &key, &Key { control: true, ..at(2) }));
    }
}
