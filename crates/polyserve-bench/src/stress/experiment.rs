//! The experiment: one server over one store, a round for each way to use connections.
//!
//! One record can hold the rounds of several servers and stores: the description does not name them.

use crate::experiment::{Absence, Experiment, Notebook, Plan, Records};
use crate::report::Summary;
use polyserve::Shutdown;
use serde_json::Value;

use super::report::{Key, Report, SUBJECT, Sample, Tested};
use super::{ConnectionMode, NAME, Scenario, Subject, claims, round, table};

/// The stress scenario against one server over one store.
#[derive(Clone, Debug)]
pub struct Stress {
    /// The server and the store.
    pub subject: Subject,
    /// The requests.
    pub scenario: Scenario,
    /// The modes, with a round for each.
    pub modes: Vec<ConnectionMode>,
    /// The description of the run, for the record's header.
    pub description: Value,
    /// Begins when the run must end.
    pub stop: Shutdown,
}

impl Stress {
    fn tested(&self) -> Tested {
        let Subject { server, repo, .. } = &self.subject;
        Tested { server: server.clone(), repo: repo.clone() }
    }
}

impl Experiment for Stress {
    const NAME: &'static str = NAME;
    const SAMPLE: &'static str = "round";
    const UNITS: &'static str = "requests";
    type Key = Key;
    type Sample = Sample;
    type Report = Report;

    fn describe(&self) -> Value {
        self.description.clone()
    }

    /// Records the subject: the report of a record is about the subject of its last run.
    fn prepare(&mut self, notebook: &mut Notebook<'_, Self>) -> anyhow::Result<()> {
        let (tested, known) = (self.tested(), notebook.records().facts(SUBJECT)?);
        if known.last() == Some(&tested) { Ok(()) } else { notebook.fact(SUBJECT, &tested) }
    }

    fn plan(&self) -> Plan<Key> {
        let tested = self.tested();
        Plan::series(self.modes.iter().map(|mode| Key { tested: tested.clone(), mode: mode.name().to_owned() }))
    }

    fn measure(&mut self, key: &Key, notebook: &mut Notebook<'_, Self>) -> Result<Sample, Absence> {
        let mode = self.modes.iter().find(|mode| mode.name() == key.mode);
        let mode = mode.ok_or_else(|| Absence::failed(format!("{key} is not planned")))?;
        let outcome = round::run(&self.subject, &self.scenario, *mode, notebook.progress, &self.stop);
        let outcome = outcome.map_err(|error| Absence::failed(format!("{error:#}")))?;
        Ok(Sample { lang: key.tested.lang().to_owned(), requests: self.scenario.total(), outcome })
    }

    fn weight(&self, _: &Key) -> usize {
        self.scenario.total() as usize
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        Report::of(records)
    }

    fn summarize(_: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        let csv = vec![(String::new(), table::csv(&report.recorded)?)];
        let claims = claims::claims(&report.recorded)?;
        Ok(Summary { tables: table::tables(&report.recorded)?, claims, csv, ..Summary::default() })
    }

    fn is_passed(report: &Report) -> bool {
        report.passed || (report.interrupted && !report.has_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stress::fixtures::{line, records};

    /// A record can hold several servers. The report is about the server of the last run; without its line, about the last
    /// measured server.
    #[test]
    fn the_report_is_about_the_last_subject() {
        let subject = serde_json::json!({"kind": SUBJECT, "server": "a", "repo": "any"});
        let lines = [line("a", "close", 40, 0), line("b", "close", 40, 2)];
        let report = Stress::report(&records(&[std::slice::from_ref(&subject), &lines[..]].concat())).unwrap();
        assert_eq!((report.server.as_str(), report.rounds.len(), report.passed), ("a", 1, true));
        assert_eq!(report.recorded.len(), 2);
        let report = Stress::report(&records(&lines)).unwrap();
        assert_eq!((report.server.as_str(), report.rounds.len(), report.passed), ("b", 1, false));
        assert_eq!(report.rounds[0].outcome.error_count, 2);
    }

    #[test]
    fn a_server_that_cannot_be_tested_has_not_passed() {
        let failure = serde_json::json!({
            "kind": "failure", "server": "a", "repo": "any", "mode": "close", "reason": "failed", "why": "no memory",
        });
        let report = Stress::report(&records(&[line("a", "keep-alive", 40, 0), failure])).unwrap();
        assert!(!report.passed && report.to_string().contains("no figures: a over any, close: no memory"), "{report}");
    }
}
