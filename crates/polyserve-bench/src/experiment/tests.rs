use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use polyserve::Shutdown;
use serde::{Deserialize, Serialize};

use super::*;
use crate::bench::mode::{ModeKind, Turns};
use crate::bench::{BenchPlan, CellEntries, DefinedExperiment, Key, NAME, Sample, SweepCell, figures};
use crate::fixtures::{self, TestDir};
use crate::journal::{Header, Journal, read};
use crate::progress::Progress;
use crate::turn::Role;

fn key(name: &str, round: usize) -> Key {
    Key { contestant: name.into(), cell: SweepCell::new(), round }
}

/// Turns that note the measured keys, and fail for given keys.
#[derive(Debug, Default)]
struct Fake {
    measured: Rc<RefCell<Vec<Key>>>,
    fails: HashMap<Key, Absence>,
    weight: usize,
    /// The part of the weight by which a measurement advances the progress bar.
    advances: usize,
    stop_after: Option<usize>,
    /// The number of samples that decides.
    decided_by: Option<usize>,
    stop: Shutdown,
}

#[derive(Serialize, Deserialize)]
struct Calibration {
    steps: u32,
}

impl Turns for Fake {
    fn prepare(&mut self, notebook: &mut Notebook<'_>) -> anyhow::Result<()> {
        if notebook.records.facts::<Calibration>("calibration")?.is_empty() {
            notebook.fact("calibration", &Calibration { steps: 7 })?;
        }
        Ok(())
    }

    fn measure_one(&mut self, key: &Key, notebook: &mut Notebook<'_>) -> Result<Sample, Absence> {
        notebook.progress.advance(self.advances);
        self.measured.borrow_mut().push(key.clone());
        if Some(self.measured.borrow().len()) == self.stop_after {
            self.stop.begin(Instant::now());
        }
        let per_s = key.contestant.len() as f64;
        let sample = Sample { role: Role::Ranked, figures: [(figures::REQUESTS_PER_S.to_owned(), per_s)].into() };
        self.fails.get(key).map_or(Ok(sample), |absence| Err(absence.clone()))
    }

    fn is_decided(&self, records: &Records, _: &[String]) -> bool {
        self.decided_by.is_some_and(|count| records.samples().count() >= count)
    }

    fn weight(&self, _: &Key) -> usize {
        self.weight
    }
}

/// Modes: cells are measured one by one, and the contestants of a round are measured together.
const SINGLE: ModeKind = ModeKind::Overload;
const TOGETHER: ModeKind = ModeKind::Page;

/// Runs `fake` with these contestants for three rounds.
fn run_of(
    dir: Option<&Path>,
    (mode, contestants): (ModeKind, &[&str]),
    absent: Vec<Absent>,
    fake: Fake,
) -> anyhow::Result<(Records, Vec<Key>)> {
    let contestants: Vec<String> = contestants.iter().copied().map(String::from).collect();
    let plan = BenchPlan {
        name: "fake".into(),
        mode,
        compared: figures::REQUESTS_PER_S.into(),
        baseline: contestants[0].clone(),
        contestants: contestants.clone(),
        rounds: 3,
        ..BenchPlan::default()
    };
    let (stop, measured, weight) = (fake.stop.clone(), Rc::clone(&fake.measured), fake.weight);
    let cells = vec![CellEntries { cell: SweepCell::new(), contestants }];
    let mut experiment = DefinedExperiment::new(plan, cells, absent, Box::new(fake));
    let header = fixtures::header(NAME, experiment.describe());
    let mut journal = Journal::open(dir, &header)?;
    let mut progress = Progress::hidden();
    let records = run_with(&mut experiment, &header, &mut journal, &mut progress, &stop)?;
    assert_eq!(progress.position(), (weight * 3 * experiment.plan.contestants.len()) as u64);
    Ok((records, measured.take()))
}

/// Runs two contestants, measured one by one, with their record in `dir`. Returns the records, and the measured keys.
fn run_in(dir: &Path, fake: Fake) -> (Records, Vec<Key>) {
    run_of(Some(dir), (SINGLE, &["a", "b"]), Vec::new(), fake).unwrap()
}

fn fails(at: Key, absence: Absence) -> Fake {
    Fake { fails: HashMap::from([(at, absence)]), ..Fake::default() }
}

/// The record on the disk equals the record in memory, with the facts.
fn check_recorded(dir: &Path, records: &Records) {
    let lines = read(&dir.join("bench.jsonl")).unwrap();
    let read = Records::of(&lines).unwrap();
    let samples = |records: &Records| format!("{:?}", records.samples().collect::<Vec<_>>());
    assert_eq!(samples(&read), samples(records));
    assert_eq!(read.end, records.end);
    assert_eq!(read.facts::<Calibration>("calibration").unwrap().iter().map(|one| one.steps).collect::<Vec<_>>(), [7]);
}

#[test]
fn a_later_run_measures_what_is_missing() {
    let dir = TestDir::new("experiment-resume");
    let (records, measured) = run_in(&dir, Fake { stop_after: Some(3), ..Fake::default() });
    assert_eq!((measured.len(), records.samples().count()), (3, 2), "the cell under way is discarded");
    assert!(records.is_interrupted() && !records.is_failed());
    assert_eq!(records.end.unwrap().missing, 4);
    check_recorded(&dir, &records);
    let (records, measured) = run_in(&dir, Fake::default());
    assert_eq!((measured.len(), records.samples().count()), (4, 6));
    assert_eq!(records.end.unwrap().missing, 0);
    check_recorded(&dir, &records);
    let (_, measured) = run_in(&dir, Fake::default());
    assert_eq!(measured, []);
}

/// A decided experiment is complete: no cell is missing, and a later run measures nothing more.
#[test]
fn a_run_ends_once_it_is_decided() {
    let dir = TestDir::new("experiment-decided");
    for measured_now in [4, 0] {
        let fake = Fake { decided_by: Some(3), ..Fake::default() };
        let (records, measured) = run_of(Some(&dir), (TOGETHER, &["a", "b"]), Vec::new(), fake).unwrap();
        assert_eq!((measured.len(), records.samples().count()), (measured_now, 4));
        assert_eq!(records.end, Some(End { missing: 0, planned: 4, interrupted: false }));
        check_recorded(&dir, &records);
    }
}

/// The page and the tasks were measured in the same order in every round, so that a slow start of the machine hit the same
/// contestant each time.
#[test]
fn contestants_take_turns_in_another_order_in_each_round() {
    let names = ["a", "bb", "ccc"];
    for mode in [SINGLE, TOGETHER] {
        let (records, measured) = run_of(None, (mode, &names), Vec::new(), Fake::default()).unwrap();
        let expected: Vec<Key> =
            (0..3).flat_map(|pass| order(pass, 3).into_iter().map(move |place| key(names[place], pass + 1))).collect();
        assert_eq!(measured, expected);
        let is_own = |(key, sample): (&Key, &Sample)| sample.figures["requests_per_s"] == key.contestant.len() as f64;
        assert!(records.samples().count() == 9 && records.samples().all(is_own), "each has its own result");
    }
}

#[test]
fn a_failure_excludes_its_contestant_until_the_next_run() {
    let dir = TestDir::new("experiment-failure");
    let (records, measured) = run_in(&dir, fails(key("b", 2), Absence::failed("no memory")));
    assert_eq!(measured.iter().filter(|key| key.contestant == "b").count(), 2, "{measured:?}");
    assert_eq!(records.end.unwrap().missing, 0, "a cell with a reason is not missing");
    assert!(records.is_failed());
    let (records, measured) = run_in(&dir, Fake::default());
    assert_eq!(measured, [key("b", 2), key("b", 3)]);
    assert!(!records.is_failed() && records.samples().count() == 6);
    check_recorded(&dir, &records);
}

#[test]
fn a_wrong_answer_is_never_measured_again() {
    for absence in [Absence::wrong("status 500"), Absence::timed_out("60 s")] {
        let dir = TestDir::new("experiment-wrong");
        let (records, _) = run_in(&dir, fails(key("b", 2), absence.clone()));
        assert_eq!(records.is_failed(), absence.is_wrong());
        let (records, measured) = run_in(&dir, Fake::default());
        assert_eq!(measured, []);
        assert_eq!(records.absence(&key("b", 3)), Some(&absence));
        assert_eq!((records.is_failed(), records.end.unwrap().missing), (absence.is_wrong(), 0));
    }
}

/// A wrong answer counts also if a signal ends the run after it.
#[test]
fn an_interrupted_run_fails_by_a_wrong_answer_only() {
    for (absence, is_failed) in [(Absence::wrong("status 500"), true), (Absence::failed("no memory"), false)] {
        let dir = TestDir::new("experiment-interrupted");
        let (records, _) = run_in(&dir, Fake { stop_after: Some(3), ..fails(key("a", 1), absence) });
        assert!(records.is_interrupted());
        assert_eq!(records.is_failed(), is_failed);
    }
}

#[test]
fn an_absent_contestant_fails_the_run_if_it_was_asked_for() {
    for excused in [true, false] {
        let dir = TestDir::new("experiment-absent");
        let absence = Absence::not_available("go is not installed");
        let absent = vec![Absent { key: key("b", 1), absence, excused }];
        let (records, measured) = run_of(Some(&dir), (SINGLE, &["a", "b"]), absent, Fake::default()).unwrap();
        assert_eq!(measured, [1, 2, 3].map(|round| key("a", round)));
        assert_eq!((records.is_failed(), records.end.unwrap().missing), (!excused, 0));
        let (records, measured) = run_in(&dir, Fake::default());
        assert_eq!((measured.len(), records.samples().count()), (3, 6), "it is available now");
    }
}

/// A signal that ends a build leaves no reason in the record: a later run builds the contestant.
#[test]
fn an_interrupted_build_is_no_failure() {
    let fake = Fake::default();
    fake.stop.begin(Instant::now());
    let absence = Absence::not_available("it was interrupted while it was built");
    let absent = vec![Absent { key: key("b", 1), absence, excused: false }];
    let (records, measured) = run_of(None, (SINGLE, &["a", "b"]), absent, fake).unwrap();
    assert_eq!((measured.len(), records.absences().count()), (0, 0));
    assert!(records.is_interrupted() && !records.is_failed());
}

/// Samples of one round are compared with each other only: a round with a gap is measured again as a whole.
#[test]
fn cells_of_a_round_stay_together() {
    let dir = TestDir::new("experiment-together");
    let run = |fake| run_of(Some(&dir), (TOGETHER, &["a", "b"]), Vec::new(), fake).unwrap();
    let (records, measured) = run(Fake { stop_after: Some(3), ..Fake::default() });
    assert_eq!((measured.len(), records.samples().count()), (3, 2), "the round that was cut short is discarded");
    let (_, measured) = run(fails(key("b", 3), Absence::failed("no memory")));
    assert_eq!(measured.len(), 4);
    let (records, measured) = run(Fake::default());
    assert_eq!((measured.len(), records.samples().count()), (2, 6), "{measured:?}");
}

/// A measurement can advance the progress bar by parts of its weight: each cell still counts once. [`run_of`] checks it.
#[test]
fn a_cell_advances_the_bar_by_its_weight() {
    for mode in [SINGLE, TOGETHER] {
        let fake = Fake { weight: 4, advances: 3, ..Fake::default() };
        run_of(None, (mode, &["a", "b"]), Vec::new(), fake).unwrap();
    }
}

#[test]
fn an_essential_failure_ends_the_run() {
    let fake = fails(key("a", 1), Absence::failed("no memory"));
    let error = run_of(None, (ModeKind::Compare, &["a", "b"]), Vec::new(), fake).unwrap_err();
    assert!(error.to_string().contains("round 1: a failed"), "{error}");
}

#[test]
fn an_incomplete_record_says_what_is_missing() {
    let dir = TestDir::new("experiment-incomplete");
    let lines = || read(&dir.join("bench.jsonl")).unwrap();
    let incomplete = || recorded(&lines()).unwrap().incomplete;
    run_in(&dir, Fake { stop_after: Some(3), ..Fake::default() });
    assert_eq!(incomplete().unwrap(), "4 of 6 planned measurements are missing");
    let header: Header = serde_json::from_value(lines().remove(0)).unwrap();
    drop(Journal::open(Some(&dir), &header).unwrap()); // a run that was killed at once
    assert_eq!(incomplete().unwrap(), "the run has not ended, or it was killed");
    run_in(&dir, Fake::default());
    assert_eq!(incomplete(), None);
}
