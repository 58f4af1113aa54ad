use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use polyserve::Shutdown;
use serde::Deserialize;
use serde_json::json;

use super::plan::Absent;
use super::record::End;
use super::*;
use crate::fixtures::{self, TestDir};
use crate::journal::{Header, Journal, read};
use crate::progress::Progress;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Key {
    name: String,
    round: usize,
}

impl Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, round {}", self.name, self.round)
    }
}

fn key(name: &str, round: usize) -> Key {
    Key { name: name.into(), round }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sample {
    per_s: f64,
}

/// An experiment of two contestants in three rounds. It notes the measured keys, and fails for given keys.
#[derive(Default)]
struct Fake {
    measured: Rc<RefCell<Vec<Key>>>,
    fails: HashMap<Key, Absence>,
    absent: Vec<Absent<Key>>,
    together: bool,
    /// The batches; if empty, the batches of three rounds.
    batches: Vec<Batch<Key>>,
    weight: usize,
    /// The part of the weight by which a measurement advances the progress bar.
    advances: usize,
    stop_after: Option<usize>,
    /// The number of samples that decides.
    decided_by: Option<usize>,
    stop: Shutdown,
}

#[derive(Serialize)]
struct FakeReport {
    samples: usize,
    calibrations: Vec<u32>,
}

impl Display for FakeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} samples", self.samples)
    }
}

#[derive(Serialize, Deserialize)]
struct Calibration {
    steps: u32,
}

impl Experiment for Fake {
    const NAME: &'static str = "fake";
    type Key = Key;
    type Sample = Sample;
    type Report = FakeReport;

    fn describe(&self) -> Value {
        json!({"rounds": 3})
    }

    fn prepare(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        if notebook.records().facts::<Calibration>("calibration")?.is_empty() {
            notebook.fact("calibration", &Calibration { steps: 7 })?;
        }
        Ok(())
    }

    fn plan(&self) -> Plan<Key> {
        if !self.batches.is_empty() {
            return Plan::new(self.batches.clone());
        }
        let rounds = (1..=3).map(|round| interleaved(round - 1, &["a", "b"].map(|name| key(name, round))));
        let batch = |keys| Batch { keys, together: self.together };
        Plan { absent: self.absent.clone(), ..Plan::new(rounds.map(batch).collect()) }
    }

    fn measure(&mut self, key: &Key, notebook: &mut Notebook<'_, Self>) -> Result<Sample, Absence> {
        notebook.progress.advance(self.advances);
        self.measured.borrow_mut().push(key.clone());
        if Some(self.measured.borrow().len()) == self.stop_after {
            self.stop.begin(Instant::now());
        }
        self.fails.get(key).map_or(Ok(Sample { per_s: 1.0 }), |absence| Err(absence.clone()))
    }

    fn excludes(_: &Absence, of: &Key, key: &Key) -> bool {
        of.name == key.name
    }

    fn is_essential(&self, key: &Key) -> bool {
        key.name == "essential"
    }

    fn is_decided(&self, records: &Records<Self>) -> bool {
        self.decided_by.is_some_and(|count| records.samples().count() >= count)
    }

    fn weight(&self, _: &Key) -> usize {
        self.weight
    }

    fn report(records: &Records<Self>) -> anyhow::Result<FakeReport> {
        let calibrations: Vec<Calibration> = records.facts("calibration")?;
        let calibrations = calibrations.iter().map(|calibration| calibration.steps).collect();
        Ok(FakeReport { samples: records.samples().count(), calibrations })
    }

    fn summarize(_: &Records<Self>, _: &FakeReport) -> anyhow::Result<Summary> {
        Ok(Summary::default())
    }
}

fn header() -> Header {
    fixtures::header("fake", json!({"rounds": 3}))
}

/// Runs `fake` with its record in `dir`. Returns the records, and the measured keys.
fn run_in(dir: &Path, mut fake: Fake) -> anyhow::Result<(Records<Fake>, Vec<Key>)> {
    let (header, stop, measured) = (header(), fake.stop.clone(), fake.measured.clone());
    let mut journal = Journal::open(Some(dir), &header)?;
    let records = run(&mut fake, &header, &mut journal, &stop)?;
    let measured = measured.borrow().clone();
    Ok((records, measured))
}

fn fails(at: Key, absence: Absence) -> Fake {
    Fake { fails: HashMap::from([(at, absence)]), ..Fake::default() }
}

/// The record on the disk equals the record in memory, with the facts.
fn check_recorded(dir: &Path, records: &Records<Fake>) {
    let lines = read(&dir.join("fake.jsonl")).unwrap();
    let read = Records::<Fake>::of(&lines).unwrap();
    assert_eq!(read.samples().collect::<Vec<_>>(), records.samples().collect::<Vec<_>>());
    assert_eq!(read.end, records.end);
    assert_eq!(Fake::report(&read).unwrap().calibrations, [7]);
}

#[test]
fn a_later_run_measures_what_is_missing() {
    let dir = TestDir::new("experiment-resume");
    let (records, measured) = run_in(&dir, Fake { stop_after: Some(3), ..Fake::default() }).unwrap();
    assert_eq!((measured.len(), records.samples().count()), (3, 2), "the cell under way is discarded");
    assert!(records.is_interrupted() && !records.is_failed());
    assert_eq!(records.end.unwrap().missing, 4);
    check_recorded(&dir, &records);
    let (records, measured) = run_in(&dir, Fake::default()).unwrap();
    assert_eq!((measured.len(), records.samples().count()), (4, 6));
    assert_eq!(records.end.unwrap().missing, 0);
    check_recorded(&dir, &records);
    let (_, measured) = run_in(&dir, Fake::default()).unwrap();
    assert_eq!(measured, []);
}

/// A decided experiment is complete: no cell is missing, and a later run measures nothing more.
#[test]
fn a_run_ends_once_it_is_decided() {
    let dir = TestDir::new("experiment-decided");
    for measured_now in [4, 0] {
        let batches = (1..=3).map(|round| Batch::series(["a", "b"].map(|name| key(name, round)))).collect();
        let (records, measured) = run_in(&dir, Fake { decided_by: Some(3), batches, ..Fake::default() }).unwrap();
        assert_eq!((measured.len(), records.samples().count()), (measured_now, 4));
        assert_eq!(records.end, Some(End { missing: 0, planned: 4, interrupted: false }));
        check_recorded(&dir, &records);
    }
}

#[test]
fn contestants_take_turns() {
    let dir = TestDir::new("experiment-turns");
    let (_, measured) = run_in(&dir, Fake::default()).unwrap();
    let expected = ["a", "b", "b", "a", "b", "a"];
    assert_eq!(measured.iter().map(|key| &*key.name).collect::<Vec<_>>(), expected);
}

#[test]
fn a_failure_excludes_its_contestant_until_the_next_run() {
    let dir = TestDir::new("experiment-failure");
    let (records, measured) = run_in(&dir, fails(key("b", 2), Absence::failed("no memory"))).unwrap();
    assert_eq!(measured.iter().filter(|key| key.name == "b").count(), 2, "{measured:?}");
    assert_eq!(records.end.unwrap().missing, 0, "a cell with a reason is not missing");
    assert!(records.is_failed());
    let (records, measured) = run_in(&dir, Fake::default()).unwrap();
    assert_eq!(measured, [key("b", 2), key("b", 3)]);
    assert!(!records.is_failed() && records.samples().count() == 6);
    check_recorded(&dir, &records);
}

#[test]
fn a_wrong_answer_is_never_measured_again() {
    for absence in [Absence::wrong("status 500"), Absence::timed_out("60 s")] {
        let dir = TestDir::new("experiment-wrong");
        let fake = fails(key("b", 2), absence.clone());
        let (records, _) = run_in(&dir, fake).unwrap();
        assert_eq!(records.is_failed(), absence.is_wrong());
        let (records, measured) = run_in(&dir, Fake::default()).unwrap();
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
        let (records, _) = run_in(&dir, Fake { stop_after: Some(3), ..fails(key("a", 1), absence) }).unwrap();
        assert!(records.is_interrupted());
        assert_eq!(records.is_failed(), is_failed);
    }
}

#[test]
fn an_absent_contestant_fails_the_run_if_it_was_asked_for() {
    for excused in [true, false] {
        let dir = TestDir::new("experiment-absent");
        let absence = Absence::not_available("go is not installed");
        let absent = || vec![Absent { key: key("b", 1), absence: absence.clone(), excused }];
        let (records, measured) = run_in(&dir, Fake { absent: absent(), ..Fake::default() }).unwrap();
        assert_eq!(measured, ["a"; 3].into_iter().zip(1..).map(|(name, round)| key(name, round)).collect::<Vec<_>>());
        assert_eq!((records.is_failed(), records.end.unwrap().missing), (!excused, 0));
        let (records, measured) = run_in(&dir, Fake::default()).unwrap();
        assert_eq!((measured.len(), records.samples().count()), (3, 6), "it is available now");
    }
}

/// Samples of one round are compared with each other only: a round with a gap is measured again as a whole.
#[test]
fn cells_of_a_round_stay_together() {
    let dir = TestDir::new("experiment-together");
    let fake = || Fake { together: true, ..Fake::default() };
    let (records, _) = run_in(&dir, Fake { stop_after: Some(3), ..fake() }).unwrap();
    assert_eq!(records.samples().count(), 2, "the round that was cut short is discarded");
    let failing = Fake { together: true, ..fails(key("b", 3), Absence::failed("no memory")) };
    let (_, measured) = run_in(&dir, failing).unwrap();
    assert_eq!(measured.len(), 4);
    let (records, measured) = run_in(&dir, fake()).unwrap();
    assert_eq!((measured.len(), records.samples().count()), (2, 6), "{measured:?}");
}

/// One call that fails is one line of the record, although it has several cells.
#[test]
fn an_excluded_cell_of_a_batch_has_no_absence_of_its_own() {
    struct Visits;
    impl Experiment for Visits {
        const NAME: &'static str = "fake";
        type Key = Key;
        type Sample = Sample;
        type Report = FakeReport;
        fn describe(&self) -> Value {
            json!({"rounds": 3})
        }
        fn plan(&self) -> Plan<Key> {
            Plan::new(vec![Batch::together([key("a", 1), key("a", 2)]), Batch::series([key("b", 1)])])
        }
        fn measure_together(&mut self, keys: &[Key], _: &mut Notebook<'_, Self>) -> Vec<Result<Sample, Absence>> {
            let result =
                |key: &Key| if key.name == "a" { Err(Absence::wrong("500")) } else { Ok(Sample { per_s: 1.0 }) };
            keys.iter().map(result).collect()
        }
        fn excludes(_: &Absence, of: &Key, key: &Key) -> bool {
            of.name == key.name
        }
        fn report(_: &Records<Self>) -> anyhow::Result<FakeReport> {
            anyhow::bail!("nothing to report")
        }
        fn summarize(_: &Records<Self>, _: &FakeReport) -> anyhow::Result<Summary> {
            Ok(Summary::default())
        }
    }
    let records = run(&mut Visits, &header(), &mut Journal::none(), &Shutdown::new()).unwrap();
    let absent = records.absences().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    assert_eq!((absent, records.end.unwrap().missing), (vec![key("a", 1)], 0));
    assert!(records.sample(&key("b", 1)).is_some(), "a series is measured by the same function");
}

/// A measurement can advance the progress bar by parts of its weight: each cell still counts once.
#[test]
fn a_cell_advances_the_bar_by_its_weight() {
    let mut progress = Progress::hidden();
    let mut fake = Fake { weight: 4, advances: 3, ..Fake::default() };
    fake.batches = vec![Batch::together([key("a", 1), key("a", 2)]), Batch::series([key("b", 1)])];
    run_with(&mut fake, &header(), &mut Journal::none(), &mut progress, &Shutdown::new()).unwrap();
    assert_eq!(progress.position(), 3 * 4);
}

#[test]
fn an_essential_failure_ends_the_run() {
    let mut fake = fails(key("essential", 1), Absence::failed("no memory"));
    fake.batches = vec![Batch::series([key("essential", 1), key("a", 1)])];
    let error = run(&mut fake, &header(), &mut Journal::none(), &Shutdown::new()).unwrap_err();
    assert!(error.to_string().contains("essential, round 1 failed"), "{error}");
}

#[test]
fn an_incomplete_record_says_what_is_missing() {
    let dir = TestDir::new("experiment-incomplete");
    let read = || KnownExperiment::new::<Fake>("A fake").read(&read(&dir.join("fake.jsonl")).unwrap()).unwrap();
    run_in(&dir, Fake { stop_after: Some(3), ..Fake::default() }).unwrap();
    assert_eq!(read().incomplete.unwrap(), "4 of 6 planned measurements are missing");
    drop(Journal::open(Some(&dir), &header()).unwrap()); // a run that was killed at once
    assert_eq!(read().incomplete.unwrap(), "the run has not ended, or it was killed");
    run_in(&dir, Fake::default()).unwrap();
    assert_eq!(read().incomplete, None);
}

/// An experiment can print its report in its own format. The caller can pass a progress bar.
#[test]
fn a_run_with_a_hidden_bar_is_printed_by_the_experiment() {
    let (header, stop) = (header(), Shutdown::new());
    let mut fake = Fake::default();
    let records = run_with(&mut fake, &header, &mut Journal::none(), &mut Progress::hidden(), &stop).unwrap();
    let report = Fake::report(&records).unwrap();
    assert_eq!((fake.text(&report), records.samples().count()), ("6 samples".into(), 6));
}
