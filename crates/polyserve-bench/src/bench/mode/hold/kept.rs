//! How much of its throughput a server keeps next to an idle crowd.
//!
//! Three processes of the server are measured in turn: one holds the crowd, and two do not. The ratio of the latter two is the
//! noise of this server, so a difference needs an interval wholly outside it.

use super::{CONTROL_SHARE, KEPT_SHARE};
use crate::bench::report::{BenchRow, ratio_text};
use crate::bench::sweep::{CellValue, SweepAxis};
use crate::experiment::Records;
use crate::report::{Table, or_empty};
use crate::statistics::{Compared, Estimate, tie_band};

/// The shares of all servers, with a verdict for each; `None` if no server was measured next to an idle crowd. A record without
/// the control decides nothing.
pub(crate) fn table(records: &Records, rows: &[BenchRow], axes: &[SweepAxis]) -> Option<Table> {
    let seed = records.header.environment.seed;
    let names = axes.iter().map(ToString::to_string);
    let header: Vec<String> =
        names.chain(["contestant", "kept, 95 %", "control, 95 %", "verdict"].map(String::from)).collect();
    let mut table = Table::of_numbers(&header).named_by(axes.len() + 1).with_texts_in(axes.len());
    table = table.with_texts_in(axes.len() + 3);
    for row in rows {
        let share = |name: &str| {
            let own = records.samples().filter(|(key, _)| key.contestant == row.contestant && key.cell == row.cell);
            Estimate::of(&own.filter_map(|(_, sample)| sample.figures.get(name).copied()).collect::<Vec<_>>(), seed)
        };
        let (Some(kept), control) = (share(KEPT_SHARE), share(CONTROL_SHARE)) else { continue };
        let place = axes.iter().map(|axis| or_empty(row.cell.get(axis).map(CellValue::to_string)));
        let verdict = match &control {
            Some(control) => Compared::of(kept, &tie_band(Some(control))).in_words("faster", "slower"),
            None => String::from("no control"),
        };
        let shares = [ratio_text(&kept), or_empty(control.as_ref().map(ratio_text))];
        table.row(place.chain([row.contestant.clone()]).chain(shares).chain([verdict]).collect());
    }
    table.if_any()
}
