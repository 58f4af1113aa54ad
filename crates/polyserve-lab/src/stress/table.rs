//! Recorded rounds as tables, and as CSV with the published columns first.

use std::io;

use serde_json::Value;

use super::record::{RoundLine, rounds_of};
use super::report::Group;
use crate::output::Table;

/// A table for each mode.
///
/// # Errors
///
/// Where a line is no round.
pub fn tables(lines: &[Value]) -> anyhow::Result<Vec<(String, Table)>> {
    let rounds = rounds_of(lines)?;
    let mut tables = Vec::new();
    for mode in ["close", "keep-alive", "burst"] {
        let of: Vec<&RoundLine> = rounds.iter().filter(|line| line.round.mode == mode).collect();
        let Some(first) = of.first() else { continue };
        let (requests, connections) = (first.requests, first.round.connections_at_once);
        let header = ["server", "repo", "phase", "samples", "error %", "requests/s", "received kB/s", "sent kB/s"];
        let mut table = Table::of_numbers(&header);
        for line in of {
            for group in &line.round.groups {
                table.row(vec![
                    line.server.clone(),
                    line.repo.clone(),
                    group.phase.clone(),
                    group.samples.to_string(),
                    format!("{:.2}", group.error_pct),
                    format!("{:.1}", group.requests_per_s),
                    format!("{:.2}", group.received_kb_s),
                    format!("{:.2}", group.sent_kb_s),
                ]);
            }
        }
        tables.push((format!("{mode}: {requests} requests, {connections} connections at once"), table));
    }
    Ok(tables)
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
