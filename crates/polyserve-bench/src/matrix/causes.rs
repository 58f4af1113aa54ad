//! Causes of the published figures, each switched on and off: pairs of contestants that differ in one thing. The builds
//! without optimisation also differ in their program, which has fewer strategies than the program of the others: this changes
//! their resident memory, and hardly their times.
//!
//! A pair is compared in every cell of both contestants, by the CPU time and the time of a request. The table has the
//! median, the smallest and the largest ratio. The last rows compare the two languages, first as published, then
//! without the causes.
//!
//! Cost: a pass over the cells for each pair.

use crate::contestants::{GC_OFF, OLD_GC, PRINTING};
use crate::report::Table;
use crate::statistics::median_of;

use super::claims::{REPO, TWIN, classic};
use super::{Cell, DEBUG, Key, UNOPTIMISED};

/// The table of the pairs that were measured; `None` without any.
pub(super) fn table(cells: &[Cell]) -> Option<Table> {
    let classic = classic();
    let unoptimised = format!("{UNOPTIMISED}{classic}");
    let as_published = format!("{DEBUG}{classic}");
    let [printing, gc_off, old_gc, go] = [PRINTING, GC_OFF, OLD_GC, TWIN].map(String::from);
    let pairs = [
        ("a build without optimisation, in Rust", &unoptimised, &classic),
        ("a line printed for each request, in Rust without optimisation", &as_published, &unoptimised),
        ("both, in Rust", &as_published, &classic),
        ("a line printed for each request, in Go", &printing, &go),
        ("no garbage collector in Go (GOGC=off)", &gc_off, &go),
        ("the garbage collector of before Go 1.26", &old_gc, &go),
        ("Rust to Go, with both as published", &as_published, &printing),
        ("Rust to Go, with neither", &classic, &go),
    ];
    let mut table = Table::of_texts(&["cause", "contestants", "cells", "CPU us/req, ratio", "request ms, ratio"]);
    let mut is_any = false;
    for (cause, with, without) in pairs {
        let of = |figure: fn(&Cell) -> f64| ratios(cells, with, without, figure);
        let cpu = of(|cell| cell.sample.server_cpu_us_per_request);
        let time = of(|cell| cell.sample.per_request_ms);
        if cpu.is_empty() {
            continue;
        }
        let short = |name: &str| name.trim_end_matches(&format!("/{REPO}")).to_owned();
        let names = format!("{} to {}", short(with), short(without));
        table.row(vec![cause.to_owned(), names, cpu.len().to_string(), shown(&cpu), shown(&time)]);
        is_any = true;
    }
    is_any.then_some(table)
}

/// The ratios of a figure in the cells that both contestants have.
fn ratios(cells: &[Cell], own: &str, other: &str, figure: fn(&Cell) -> f64) -> Vec<f64> {
    let of = |name: &str| {
        let name = name.to_owned();
        cells.iter().filter(move |cell| cell.key.contestant == name && !cell.key.control)
    };
    let ratio = |cell: &Cell| {
        let key = Key { contestant: other.to_owned(), ..cell.key.clone() };
        let other = of(other).find(|cell| cell.key == key)?;
        Some(figure(cell) / figure(other)).filter(|ratio| ratio.is_finite())
    };
    of(own).filter_map(ratio).collect()
}

/// `2.31 (1.90 to 3.05)`: the median, the least and the largest.
fn shown(ratios: &[f64]) -> String {
    let (min, max) =
        ratios.iter().fold((f64::INFINITY, 0.0_f64), |(min, max), ratio| (min.min(*ratio), max.max(*ratio)));
    match median_of(ratios.iter().copied()) {
        Some(median) => format!("{median:.2} ({min:.2} to {max:.2})"),
        None => String::from("-"),
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::Records;

    use super::*;
    use crate::matrix::claims::CLASSIC;
    use crate::matrix::report::Report;
    use crate::matrix::{Matrix, fixtures};

    #[test]
    fn a_pair_that_was_measured_has_a_row() {
        let classic = format!("{CLASSIC}/{REPO}");
        let cell = |name: &str, lang: &str, round: u32, cpu: f64| {
            let mut line = fixtures::cell(name, lang, false, round);
            line["kind"] = "cell".into();
            line["server_cpu_us_per_request"] = cpu.into();
            line
        };
        let header = fixtures::header(&serde_json::json!({"contestants": [classic, TWIN]}), "0");
        let unoptimised = format!("{UNOPTIMISED}{classic}");
        let lines = [
            header,
            cell(&classic, "rust", 1, 10.0),
            cell(&classic, "rust", 2, 20.0),
            cell(&unoptimised, "rust", 1, 30.0),
            cell(&unoptimised, "rust", 2, 40.0),
            cell(TWIN, "go", 1, 20.0),
            cell(GC_OFF, "go", 1, 15.0),
        ];
        let records = Records::<Matrix>::of(&lines).unwrap();
        let text = table(&Report::of(&records).unwrap().cells).unwrap().markdown();
        let name = format!("| {UNOPTIMISED}{CLASSIC} to {CLASSIC} | 2 | 2.50 (2.00 to 3.00) | 1.00 (1.00 to 1.00) |");
        assert!(text.contains("| a build without optimisation, in Rust ") && text.contains(&name), "{text}");
        assert!(
            text.contains("| Rust to Go, with neither | pool_classic/mpsc_pool to go/twin-rwmutex | 1 | 0.50 "),
            "{text}"
        );
        assert!(text.contains("(GOGC=off) | go/twin-rwmutex-gc-off to go/twin-rwmutex | 1 | 0.75 "), "{text}");
        assert!(!text.contains("printed") && !text.contains("1.26"), "{text}");
        assert!(table(&[]).is_none());
    }
}
