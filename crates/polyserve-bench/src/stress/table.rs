//! Rounds as tables, and as CSV with the published columns first.

use crate::experiment::{self, with_short_floats};
use crate::report::figures::count;
use crate::report::{EMPTY_CELL, Table};
use serde::Deserialize;

use super::claims::MODE;
use super::outcome::GroupOutcome;
use super::report::{Key, RoundRecord, Tested};
use crate::published::{self, STRESS};

/// A published row.
#[derive(Debug, Deserialize)]
struct PublishedRow {
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

/// A table for each mode. The published rows stand above ours of the same mode.
///
/// # Errors
///
/// Returns an error if the published figures are not CSV.
pub fn tables(rounds: &[RoundRecord]) -> anyhow::Result<Vec<(String, Table)>> {
    let mut tables = Vec::new();
    for mode in [MODE, "close", "keep-alive"] {
        let of: Vec<&RoundRecord> = rounds.iter().filter(|round| round.key.mode == mode).collect();
        let Some(RoundRecord { sample: first, .. }) = of.first() else { continue };
        let (requests, connections) = (first.requests, first.outcome.connections_at_once);
        let header =
            ["server", "repo", "phase", "samples", "refused", "error %", "requests/s", "received KiB/s", "sent KiB/s"];
        let mut table = Table::of_numbers(&header);
        for row in published::rows(STRESS)?.iter().filter(|_| mode == MODE) {
            let PublishedRow { lang, phase, samples, error_pct, requests_per_s, received_kb_s, sent_kb_s } = row;
            let figures = [*error_pct, *requests_per_s, *received_kb_s, *sent_kb_s];
            table.row(cells(&format!("{lang} (published)"), EMPTY_CELL, phase, [*samples, 0], figures));
        }
        for RoundRecord { key: Key { tested: Tested { server, repo }, .. }, sample } in of {
            for group in &sample.outcome.groups {
                let GroupOutcome {
                    phase, samples, refused, error_pct, requests_per_s, received_kb_s, sent_kb_s, ..
                } = group;
                let figures = [*error_pct, *requests_per_s, *received_kb_s, *sent_kb_s];
                table.row(cells(server, repo, phase, [*samples, *refused], figures));
            }
        }
        tables.push((format!("{mode}: {requests} requests, {connections} connections at once"), table));
    }
    Ok(tables)
}

/// The cells of a row. `counts` has the numbers of samples and of rejected requests.
fn cells(server: &str, repo: &str, phase: &str, counts: [u64; 2], figures: [f64; 4]) -> Vec<String> {
    let [errors, requests, received, sent] = figures;
    let figures = [format!("{errors:.2}"), count(requests), count(received), count(sent)];
    let counts = counts.map(|number| count(number as f64));
    [server, repo, phase].map(str::to_owned).into_iter().chain(counts).chain(figures).collect()
}

/// The rounds as CSV, a row for each group. The published columns come first.
///
/// # Errors
///
/// Returns an error if a row cannot be written.
pub fn csv(rounds: &[RoundRecord]) -> anyhow::Result<String> {
    const COLUMNS: &str = "\
        lang,phase,samples,error_pct,requests_per_s,received_kB_s,sent_kB_s,server,repo,mode,refused,error_count";
    let row = |round: &RoundRecord, group: &GroupOutcome| {
        let mut row = with_short_floats(group);
        let RoundRecord { key: Key { tested: Tested { server, repo }, mode }, sample } = round;
        for (name, value) in [("lang", &sample.lang), ("server", server), ("repo", repo), ("mode", mode)] {
            row[name] = value.as_str().into();
        }
        row["error_count"] = sample.outcome.error_count.into();
        row
    };
    let rows = rounds.iter().flat_map(|round| round.sample.outcome.groups.iter().map(move |group| row(round, group)));
    experiment::csv(COLUMNS, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stress::fixtures::{line, records};
    use crate::stress::report::Report;

    #[test]
    fn the_published_rows_stand_above_ours_of_their_mode() {
        let records = records(&[line("some", "close", 400, 0), line("some", "burst", 400, 0)]);
        let rounds = Report::of(&records).unwrap().recorded;
        let tables = tables(&rounds).unwrap();
        let [(burst, rows), (_, close)] = &tables[..] else { panic!("{tables:?}") };
        assert_eq!(burst, "burst: 400 requests, 300 connections at once");
        let rows = rows.rows();
        assert_eq!((rows.len(), close.rows().len()), (1 + 8 + 4, 1 + 4));
        assert_eq!(rows[4], ["rust (published)", "-", "total", "40,000", "0", "0.00", "882", "57", "185"]);
        assert_eq!(rows[8], ["go (published)", "-", "total", "40,000", "0", "0.00", "1,663", "107", "349"]);
        assert_eq!(rows[9], ["some", "any", "put-new", "100", "0", "0.00", "1,234", "60", "70"]);
        assert_eq!(csv(&rounds).unwrap().lines().count(), 1 + 2 * 4);
    }
}
