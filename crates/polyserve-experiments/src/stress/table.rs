//! Recorded rounds as tables, and as CSV with the published columns first.

use std::io;

use anyhow::Context as _;
use polyserve_report::{NOTHING, Table};
use serde::Deserialize;
use serde_json::Value;

use super::record::{RoundLine, rounds_of};
use super::report::Group;
use crate::published::STRESS;

/// A published line.
#[derive(Debug, Deserialize)]
struct Published {
    lang: String,
    phase: String,
    samples: u64,
    error_pct: f64,
    requests_per_s: f64,
    #[serde(rename = "received_kB_s")]
    received_kb_s: f64,
    #[serde(rename = "sent_kB_s")]
    sent_kb_s: f64,
}

/// How connections were used where it was published: one for each request.
const PUBLISHED_MODE: &str = "close";

/// A table for each mode; the published rows stand above ours of their mode.
///
/// # Errors
///
/// Where a line is no round.
pub fn tables(lines: &[Value]) -> anyhow::Result<Vec<(String, Table)>> {
    let rounds = rounds_of(lines)?;
    let mut tables = Vec::new();
    for mode in [PUBLISHED_MODE, "keep-alive", "burst"] {
        let of: Vec<&RoundLine> = rounds.iter().filter(|line| line.round.mode == mode).collect();
        let Some(first) = of.first() else { continue };
        let (requests, connections) = (first.requests, first.round.connections_at_once);
        let header = ["server", "repo", "phase", "samples", "error %", "requests/s", "received kB/s", "sent kB/s"];
        let mut table = Table::of_numbers(&header);
        for row in published()?.iter().filter(|_| mode == PUBLISHED_MODE) {
            let Published { lang, phase, samples, error_pct, requests_per_s, received_kb_s, sent_kb_s } = row;
            let figures = [*error_pct, *requests_per_s, *received_kb_s, *sent_kb_s];
            table.row(cells(&format!("{lang} (published)"), NOTHING, phase, *samples, figures));
        }
        for line in of {
            for group in &line.round.groups {
                let Group { phase, samples, error_pct, requests_per_s, received_kb_s, sent_kb_s, .. } = group;
                let figures = [*error_pct, *requests_per_s, *received_kb_s, *sent_kb_s];
                table.row(cells(&line.server, &line.repo, phase, *samples, figures));
            }
        }
        tables.push((format!("{mode}: {requests} requests, {connections} connections at once"), table));
    }
    Ok(tables)
}

fn published() -> anyhow::Result<Vec<Published>> {
    let rows = csv::Reader::from_reader(STRESS.as_bytes()).into_deserialize();
    rows.collect::<Result<_, _>>().context("the published figures of the stress scenario")
}

fn cells(server: &str, repo: &str, phase: &str, samples: u64, figures: [f64; 4]) -> Vec<String> {
    let [errors, requests, received, sent] = figures;
    let figures = [format!("{errors:.2}"), format!("{requests:.1}"), format!("{received:.2}"), format!("{sent:.2}")];
    [server.to_owned(), repo.to_owned(), phase.to_owned(), samples.to_string()].into_iter().chain(figures).collect()
}

/// Writes the groups of all rounds as CSV, with a header.
///
/// # Errors
///
/// Where `out` fails.
pub fn write_csv(rounds: &[RoundLine], out: impl io::Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let published = ["lang", "phase", "samples", "error_pct", "requests_per_s", "received_kB_s", "sent_kB_s"];
    csv.write_record(published.iter().chain(&["server", "repo", "mode", "refused", "error_count"]))?;
    for RoundLine { server, repo, lang, round, .. } in rounds {
        for group in &round.groups {
            let Group { phase, samples, error_pct, refused, requests_per_s, received_kb_s, sent_kb_s, .. } = group;
            let numbers = [error_pct, requests_per_s, received_kb_s, sent_kb_s].map(ToString::to_string);
            let own = [server.clone(), repo.clone(), round.mode.clone(), refused.to_string()];
            let cells = [lang.clone(), phase.clone(), samples.to_string()].into_iter().chain(numbers).chain(own);
            csv.write_record(cells.chain([round.error_count.to_string()]))?;
        }
    }
    csv.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stress::record::ROUND;
    use crate::stress::report::{Final, Round};
    use polyserve_lab::journal::as_line;

    fn line(mode: &str) -> Value {
        let group = |phase: &str| Group {
            phase: phase.into(),
            samples: 100,
            errors: 0,
            error_pct: 0.0,
            refused: 0,
            requests_per_s: 1234.5,
            received_kb_s: 60.0,
            sent_kb_s: 70.0,
        };
        let round = Round {
            mode: mode.into(),
            connections_at_once: 300,
            groups: ["put-new", "get", "put-update", "total"].map(group).into(),
            connections: 400,
            reconnects: 0,
            final_state: Final::default(),
            store_count: None,
            drain: None,
            answers: 400,
            error_count: 0,
            errors: Vec::new(),
        };
        as_line(ROUND, &RoundLine::new("any", "some", 400, round)).unwrap()
    }

    #[test]
    fn the_published_rows_stand_above_ours_of_their_mode() {
        let tables = tables(&[line("close"), line("keep-alive")]).unwrap();
        let [(close, rows), (_, kept)] = &tables[..] else { panic!("{tables:?}") };
        assert_eq!(close, "close: 400 requests, 300 connections at once");
        let rows = rows.rows();
        assert_eq!((rows.len(), kept.rows().len()), (1 + 8 + 4, 1 + 4));
        assert_eq!(rows[4], ["rust (published)", "-", "total", "40000", "0.00", "882.3", "57.09", "184.95"]);
        assert_eq!(rows[8], ["go (published)", "-", "total", "40000", "0.00", "1663.3", "107.23", "348.67"]);
        assert_eq!(rows[9], ["any", "some", "put-new", "100", "0.00", "1234.5", "60.00", "70.00"]);
    }
}
