//! The experiment in the framework: one cell for each server and kind of crowd.
//!
//! Cost: the measurements of the cells.

use crate::report::Summary;
use serde_json::Value;

use super::bench::{CrowdBench, CrowdSpec};
use super::report::{CrowdOutcome, Key, NAME, Report, Sample};
use super::table;
use crate::compare::Contestant;
use crate::experiment::{Absence, Absent, Experiment, Notebook, Plan, Records};

/// Servers with crowds.
#[derive(Debug)]
pub struct Crowds {
    /// All cells, in the order in which they are measured.
    pub cells: Vec<CrowdCell>,
    /// The cells that cannot be measured.
    pub absent: Vec<Absent<Key>>,
    /// How servers are measured.
    pub bench: CrowdBench,
    /// The description of the run, for the record's header.
    pub description: Value,
}

/// A server with a crowd.
#[derive(Clone, Debug)]
pub struct CrowdCell {
    /// The server.
    pub contestant: Contestant,
    /// The crowd.
    pub crowd: CrowdSpec,
    /// The bound that replaces the figures, if the shape of the server has one.
    pub bound: Option<String>,
}

impl CrowdCell {
    /// Its key.
    pub fn key(&self) -> Key {
        Key { name: self.contestant.name.clone(), kind: self.crowd.kind }
    }
}

impl Experiment for Crowds {
    const NAME: &'static str = NAME;
    const SAMPLE: &'static str = "row";
    const UNITS: &'static str = "rows";
    type Key = Key;
    type Sample = Sample;
    type Report = Report;

    fn describe(&self) -> Value {
        self.description.clone()
    }

    fn plan(&self) -> Plan<Key> {
        Plan { absent: self.absent.clone(), ..Plan::series(self.cells.iter().map(CrowdCell::key)) }
    }

    fn measure(&mut self, key: &Key, notebook: &mut Notebook<'_, Self>) -> Result<Sample, Absence> {
        let cell = self.cells.iter().find(|cell| cell.key() == *key);
        let CrowdCell { contestant, crowd, bound } =
            cell.ok_or_else(|| Absence::failed(format!("{key} is not planned")))?;
        if let Some(bound) = bound.clone() {
            return Ok(Sample {
                crowd_of: crowd.connections,
                outcome: CrowdOutcome::Bound { bound },
                slices: Vec::new(),
            });
        }
        let mut on_step = |step: &str| notebook.progress.begin(format!("{}: {step}", key.name));
        self.bench.measure(contestant, *crowd, &mut on_step)
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        Ok(Report::of(records))
    }

    fn summarize(_: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        Ok(Summary { tables: table::tables(report), charts: report.charts(), ..Summary::default() })
    }

    /// Returns false if the good client was not served with an idle crowd.
    fn is_passed(report: &Report) -> bool {
        report.interrupted || report.rows.iter().all(|row| row.unserved().is_none())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::crowd::CrowdKind;
    use crate::crowd::report::RowContent;
    use crate::experiment::record::FAILURE;
    use crate::fixtures;

    #[test]
    fn rows_are_in_the_order_of_the_plan() {
        let plan = json!({"servers": ["a", "b"], "crowds": [{"kind": "slow-heads", "connections": 9}], "rate": 5.0});
        let failure =
            json!({"kind": FAILURE, "name": "b", "crowd_kind": "slow-heads", "reason": "failed", "why": "no memory"});
        let bound = json!({
            "kind": "row", "name": "a", "crowd_kind": "slow-heads", "crowd_of": 9, "outcome": "bound", "bound": "10s x 8",
        });
        let records = fixtures::records::<Crowds>(&fixtures::header(NAME, plan), &[failure, bound]).unwrap();
        let report = Crowds::report(&records).unwrap();
        assert_eq!(report.rate, 5.0);
        let [a, b] = &report.rows[..] else { panic!("{report:?}") };
        assert_eq!((&*a.name, a.kind, a.crowd_of), ("a", CrowdKind::SlowHeads, 9));
        assert!(matches!(a.outcome(), Some(CrowdOutcome::Bound { bound }) if bound == "10s x 8"), "{a:?}");
        assert!(matches!(&b.content, RowContent::Absence(none) if none.why == "no memory"), "{b:?}");
        assert_eq!((&*b.name, b.crowd_of), ("b", 9));
        let printed = serde_json::to_value(b).unwrap();
        let expected =
            json!({"name": "b", "kind": "slow-heads", "crowd_of": 9, "outcome": "failed", "why": "no memory"});
        assert_eq!(printed, expected);
    }
}
