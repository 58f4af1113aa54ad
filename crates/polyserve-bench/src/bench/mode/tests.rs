use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use polyserve::Shutdown;

use super::*;
use crate::bench::experiment::{BenchPlan, CellEntries};
use crate::bench::sweep::SweepCell;
use crate::experiment::{order, run};
use crate::fixtures;
use crate::journal::Journal;
use crate::turn::Role;

/// Notes the contestants in the order in which they are measured.
#[derive(Debug, Default)]
struct Noted {
    measured: Rc<RefCell<Vec<Key>>>,
    stop_after: Option<usize>,
    stop: Shutdown,
}

impl Turns for Noted {
    fn measure_one(&mut self, key: &Key, _: &mut Notebook<'_, DefinedExperiment>) -> Result<Sample, Absence> {
        self.measured.borrow_mut().push(key.clone());
        if self.stop_after == Some(self.measured.borrow().len()) {
            self.stop.begin(Instant::now());
        }
        let number = key.contestant.len() as f64;
        Ok(Sample { role: Role::Ranked, figures: [(figures::REQUESTS_PER_S.to_owned(), number)].into() })
    }
}

/// Runs three contestants at one cell for four rounds.
fn measured(turns: Noted) -> (Vec<Key>, Vec<(String, f64)>) {
    let (measured, stop) = (Rc::clone(&turns.measured), turns.stop.clone());
    let contestants: Vec<String> = ["a", "bb", "ccc"].map(String::from).to_vec();
    let plan = BenchPlan {
        name: "noted".into(),
        mode: ModeKind::Page,
        compared: figures::REQUESTS_PER_S.into(),
        contestants: contestants.clone(),
        baseline: "a".into(),
        rounds: 4,
        ..BenchPlan::default()
    };
    let cells = vec![CellEntries { cell: SweepCell::new(), contestants }];
    let header = fixtures::header("bench", serde_json::to_value(&plan).unwrap());
    let mut experiment = DefinedExperiment::new(plan, cells, Vec::new(), Box::new(turns));
    let records = run(&mut experiment, &header, &mut Journal::none(), &stop).unwrap();
    let samples = records.samples().map(|(key, sample)| (key.contestant.clone(), sample.figures["requests_per_s"]));
    let samples = samples.collect();
    (measured.take(), samples)
}

/// The page and the tasks were measured in the same order in every round, so that a slow start of the machine hit the same
/// contestant each time.
#[test]
fn contestants_take_turns_in_another_order_in_each_round() {
    let (measured, samples) = measured(Noted::default());
    let names = ["a", "bb", "ccc"];
    let expected: Vec<(usize, &str)> =
        (0..4).flat_map(|pass| order(pass, 3).into_iter().map(move |place| (pass + 1, names[place]))).collect();
    let found: Vec<(usize, &str)> = measured.iter().map(|key| (key.round, key.contestant.as_str())).collect();
    assert_eq!(found, expected);
    assert_eq!(samples.len(), 12);
    assert!(samples.iter().all(|(name, figure)| name.len() as f64 == *figure), "each has its own result: {samples:?}");
}

#[test]
fn no_contestant_is_measured_after_the_stop() {
    let turns = Noted { stop_after: Some(4), ..Noted::default() };
    let (measured, samples) = measured(turns);
    assert_eq!((measured.len(), samples.len()), (4, 3), "the second round is discarded");
}

/// Each was accepted, and had no effect.
#[test]
fn what_a_mode_does_not_read_is_refused_with_its_line() {
    let slow = "kind = \"hold\", behaviour = \"slow-heads\"";
    for (mode, contestant, workload, sweep, why) in [
        ("kind = \"closed\"", "catalog:a/b", "", "held = [1]", "5: held: the mode closed does not sweep it"),
        ("kind = \"closed\"", "catalog:a/b", "", "source = [\"file\"]", "5: source: the mode closed does not"),
        (
            "kind = \"closed\"",
            "catalog:a/b@8",
            "",
            "keys = [1]",
            "2: contestants: the mode closed does not read a number",
        ),
        (
            "kind = \"rate\", rate = 9.0",
            "executor:a",
            "",
            "keys = [1]",
            "2: contestants: the contestants of this mode are",
        ),
        ("kind = \"search\", p99 = \"1ms\"", "catalog:a/b", "", "rate = [1]", "5: rate: the mode search does not"),
        (slow, "catalog:a/b", "mix = \"get=1\", keys = 1", "keys = [1]", "3: keys: the mode hold does not sweep it"),
        (
            slow,
            "catalog:a/b",
            "mix = \"get=1\", keys = 1, dist = \"hot\"",
            "held = [1]",
            "3: dist: the mode hold does not",
        ),
        (
            "kind = \"hold\"",
            "catalog:a/b",
            "mix = \"get=1\", keys = 1",
            "rate = [1]",
            "5: rate: the mode hold does not",
        ),
        (
            "kind = \"page\"",
            "catalog:a",
            "keys = 5",
            "workers = [1]",
            "3: keys: the mode page does not read it, only conn",
        ),
        ("kind = \"page\"", "catalog:a", "", "server_cores = [1]", "5: server_cores: the mode page does not sweep it"),
        ("kind = \"tasks\"", "executor:a", "connections = 5", "tasks = [1]", "3: connections: the mode tasks does not"),
        ("kind = \"tasks\"", "catalog:a", "", "tasks = [1]", "2: contestants: the contestants of this mode are exec"),
        ("kind = \"store\"", "repo:a@2", "", "keys = [1]", "2: contestants: the mode store does not read a number"),
        ("kind = \"store\"", "repo:a", "close = true", "keys = [1]", "3: close: the mode store does not read it"),
    ] {
        let text = format!(
            "name = \"tiny\"\ncontestants = [\"{contestant}\"]\nworkload = {{ {workload} }}\nmode = {{ {mode} }}\n\
             sweep = {{ {sweep} }}\n"
        );
        let Misuse(error) = Definition::parse(Path::new("tiny.toml"), &text, &[]).unwrap_err();
        assert!(error.starts_with(&format!("tiny.toml:{why}")), "{error}");
    }
}
