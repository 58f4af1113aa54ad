//! The experiment in the framework: one cell for each entrant, measured one by one.
//!
//! Cost: that of the cells.

use serde_json::{Value, json};

use crate::experiment::{Absence, Absent, Experiment, Notebook, Plan, Records, interleaved};
use crate::report::Summary;

use super::record::{Key, Sample};
use super::report::Report;
use super::{Conditions, PagePart, PageServer, chart, table};

/// The page that sometimes waits, on all entrants.
#[derive(Debug)]
pub struct WaitingPage {
    /// How the servers of the published part and the twins are loaded.
    pub published: Conditions,
    /// How the servers of the sweep are loaded.
    pub sweep: Conditions,
    /// All entrants of all parts, in the order in which they are measured.
    pub entrants: Vec<PageServer>,
    /// The servers that cannot be measured.
    pub absent: Vec<Absent<Key>>,
    /// Whether it is a quick run.
    pub quick: bool,
    /// The settings that were given.
    pub settings: Value,
}

impl Experiment for WaitingPage {
    const NAME: &'static str = "page";
    const UNITS: &'static str = "servers";
    type Key = Key;
    type Sample = Sample;
    type Report = Report;

    fn describe(&self) -> Value {
        let planned = |part: PagePart| -> Vec<Value> {
            let entrants = self.entrants.iter().filter(|entrant| entrant.part == part);
            entrants
                .map(|PageServer { name, workers, requests, page, rounds, .. }| {
                    json!([name, workers, requests, page, rounds])
                })
                .collect()
        };
        let Conditions { connections, every, wait, .. } = &self.sweep;
        json!({
            "quick": self.quick,
            "wait_s": wait.as_secs_f64(),
            "every": every,
            "connections": connections,
            "published": planned(PagePart::Published),
            "twins": planned(PagePart::Twins),
            "sweep": planned(PagePart::Sweep),
            "settings": self.settings,
        })
    }

    fn plan(&self) -> Plan<Key> {
        let keys = |part: PagePart, round: usize| -> Vec<Key> {
            let own = self.entrants.iter().filter(|entrant| entrant.part == part && round <= entrant.rounds);
            own.map(|entrant| entrant.key(round)).collect()
        };
        let rounds = self.entrants.iter().map(|entrant| entrant.rounds).max().unwrap_or_default();
        let twins = (1..=rounds).flat_map(|round| interleaved(round, &keys(PagePart::Twins, round)));
        let published = keys(PagePart::Published, 1);
        let all = published.into_iter().chain(twins).chain(keys(PagePart::Sweep, 1));
        Plan { absent: self.absent.clone(), ..Plan::series(all) }
    }

    fn measure(&mut self, key: &Key, _: &mut Notebook<'_, Self>) -> Result<Sample, Absence> {
        let entrant = self.entrants.iter().find(|entrant| entrant.key(key.round) == *key);
        let entrant = entrant.ok_or_else(|| Absence::failed(format!("{key} is not planned")))?;
        match key.part {
            PagePart::Published | PagePart::Twins => self.published.measure(entrant),
            PagePart::Sweep => self.sweep.measure(entrant),
        }
    }

    fn report(records: &Records<Self>) -> anyhow::Result<Report> {
        Report::of(records)
    }

    fn summarize(_: &Records<Self>, report: &Report) -> anyhow::Result<Summary> {
        let Report { rows, claims, .. } = report;
        Ok(Summary {
            tables: table::tables(rows)?,
            charts: chart::charts(rows)?,
            claims: claims.clone(),
            csv: table::csv_files(rows)?,
            ..Summary::default()
        })
    }
}
