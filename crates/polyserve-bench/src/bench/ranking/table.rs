//! A ranking for people.

use std::fmt::{self, Write as _};

use crate::report::figures::{bytes, count, counted, time_us};
use crate::report::{EMPTY_CELL, Table, Tone, WIDTH, or_empty, wrapped};

use super::{BUSY, MAX_LATENCY, MIN_THROUGHPUT, Ranking, RankingRow, Share, Side, Void};
use crate::output::{INDENT, LATE_NOTE, MAX_LITTLES_LAW_ERROR, latency_text, rate_text};
use crate::statistics::{Compared, Interval, MAX_TIE, MIN_ROUNDS, Verdict};
use crate::turn::{Role, bound_in_words};

impl fmt::Display for Ranking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(false, false))
    }
}

impl Ranking {
    /// Returns the ranking for people: with all columns and notes if it is `wide`, with colours for a terminal.
    pub(crate) fn text(&self, wide: bool, is_coloured: bool) -> String {
        let mut text = String::new();
        let _ = self.write(&mut text, wide, is_coloured); // writing to a string does not fail
        text
    }

    fn write(&self, f: &mut String, wide: bool, is_coloured: bool) -> fmt::Result {
        let Self { baseline, rounds, asked, rows, interrupted, .. } = self;
        let ended = if *interrupted { ", ended early" } else { "" };
        let until = if self.stops_when_sure { ", until sure" } else { "" };
        let wrap = |text: &str| if wide { text.to_owned() } else { wrapped(text, INDENT) };
        let rounds_text = counted(*rounds as u64, "round");
        let title = format!("baseline {baseline}, {rounds_text}{until}{ended}; medians, 95 % intervals");
        f.push_str(&wrap(&format!("{}\n\n{title}\nworkload: {asked}\n\n", self.answer())));
        let table = if wide { wide_table(rows) } else { terminal_table(self) };
        f.push_str(&if is_coloured { table.coloured() } else { table.wide() });
        f.push('\n');
        let mut notes = String::new();
        self.write_notes(&mut notes, wide)?;
        f.push_str(&wrap(&notes));
        Ok(())
    }

    fn write_notes(&self, f: &mut String, wide: bool) -> fmt::Result {
        let Self { rounds, rows, contracts, failed, .. } = self;
        if wide { notes(f, self) } else { legend(f, self) }?;
        let shares = rows.iter().filter_map(|row| Some((&row.name, row.under_way?)));
        let broken = shares.filter(|(_, share)| (share - 1.0).abs() > MAX_LITTLES_LAW_ERROR);
        let broken: Vec<String> = broken.map(|(name, share)| format!("{name} {share:.2}")).collect();
        if !broken.is_empty() {
            let named = broken.join(", ");
            writeln!(f, "Little's law: rate x mean latency is this share of the connections: {named}")?;
            writeln!(f, "   (a wait exceeded a slice, or connections were replaced)")?;
        }
        if *rounds < MIN_ROUNDS {
            writeln!(f, "too few rounds for a verdict: {rounds} of {MIN_ROUNDS}")?;
        }
        if let Some(others) = self.others.filter(|others| *others > MIN_OTHERS_SHARE) {
            writeln!(f, "other processes had {:.0} % of the cores' time: the intervals are wider", others * 100.0)?;
        }
        contracts.iter().try_for_each(|contract| writeln!(f, "{contract}"))?;
        failed.iter().try_for_each(|failed| writeln!(f, "not ranked: {}: {}", failed.name, failed.why))
    }
}

/// The table of at most [`WIDTH`] characters: without the memory, then without the share of the limit, without the p50, and with
/// shortened names, if it is wider.
fn terminal_table(ranking: &Ranking) -> Table {
    let rows = &ranking.rows;
    // The notes below name the rates that break Little's law.
    let mut table = narrow_table(ranking, |row| count(row.requests_per_s));
    for column in ["memory", OF_LIMIT, "p50"] {
        if table.width() > WIDTH {
            table = table.without(column);
        }
    }
    let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    match table.width().saturating_sub(WIDTH) {
        0 => table,
        excess => table.with_names_of(longest.saturating_sub(excess)),
    }
}

/// The table with whole names and without the columns that few readers need.
fn narrow_table(Ranking { rows, goal_us, .. }: &Ranking, rate: impl Fn(&RankingRow) -> String) -> Table {
    let limit = rows.first().and_then(|row| row.shares.first()).map(|share| share.of.as_str());
    let goal = goal_us.map(|goal_us| format!("<= {}?", time_us(goal_us)));
    let mut header = vec!["#", "contestant", "req/s", "ratio, 95 %", "verdict"];
    header.extend(limit.map(|_| OF_LIMIT));
    header.extend(["CPU us/req", "p50", "p99"]);
    header.extend(goal.as_deref());
    header.push("memory");
    let mut table = Table::of_numbers(&header).named_by(2).with_texts_in(1).with_texts_in(4);
    for row in rows {
        let [ratio, interval, verdict] = compared(row, row.throughput, 2, ["faster", "slower"]);
        let share = row.shares.iter().find(|share| Some(share.of.as_str()) == limit).and_then(|share| share.throughput);
        let cpu = row.requests_per_cpu_s.map(|per_s| {
            let doubt = if row.cost_void.is_some() { "~" } else { "" };
            format!("{doubt}{:.2}", 1e6 / per_s)
        });
        let [p50, p99, _] = latencies(row);
        let mut cells = vec![
            row.rank.map_or_else(String::new, |rank| rank.to_string()),
            row.name.clone(),
            rate(row),
            if interval.is_empty() { ratio } else { format!("{ratio} {interval}") },
            verdict,
        ];
        cells.extend(limit.map(|_| or_empty(share.map(|share| format!("{:.2}", share.ratio)))));
        cells.extend([or_empty(cpu), p50, p99]);
        cells.extend(goal.as_ref().map(|_| row.rank.map_or_else(String::new, |_| met(row.meets_goal).to_owned())));
        cells.push(or_empty(row.loaded_bytes.map(bytes)));
        table.row(cells);
        let tone = match (row.role, row.throughput.map(|compared| compared.verdict)) {
            (Role::Same | Role::Limit, _) => Some(Tone::Quiet),
            (Role::Ranked | Role::Slowed(_), Some(Verdict::Faster)) => Some(Tone::Good),
            (Role::Ranked | Role::Slowed(_), Some(Verdict::Slower)) => Some(Tone::Bad),
            _ => None,
        };
        tone.into_iter().for_each(|tone| table.tone(4, tone));
    }
    table
}

/// The header of the share of a limit.
const OF_LIMIT: &str = "of limit";

/// Whether a goal is met, in words.
fn met(meets_goal: Option<bool>) -> &'static str {
    match meets_goal {
        Some(true) => "yes",
        Some(false) => "no",
        None => "too near",
    }
}

/// The three verdicts. `band` is the noise.
fn verdict_note(band: Interval) -> String {
    format!(
        "different: the interval does not meet {band}, the noise; tie: it contains 1, and lies within {:.0} % of 1; \
         else too few rounds, and the difference that they could have shown.",
        MAX_TIE * 100.0
    )
}

/// The meaning of the narrow table's columns, in a few lines.
fn legend(f: &mut String, ranking: &Ranking) -> fmt::Result {
    let Ranking { bands, rows, rate, .. } = ranking;
    match bands.throughput {
        Some(_) if ranking.stops_when_sure => writeln!(f, "{UNTIL_SURE}")?,
        Some(band) => {
            writeln!(
                f,
                "ratio: throughput relative to the baseline. Those with one rank do not differ from the first of them."
            )?;
            writeln!(f, "{}", verdict_note(band))?;
        }
        None => writeln!(f, "the baseline was not measured twice: no difference can be distinguished from noise")?,
    }
    let limit = rows.first().and_then(|row| row.shares.first());
    let of_limit = limit.map_or_else(String::new, |share| format!("{OF_LIMIT}: share of {}'s throughput; ", share.of));
    writeln!(f, "{of_limit}CPU us/req: server's CPU time; ~: it does not count (--wide: why).")?;
    match rate.as_ref().filter(|_| rows.iter().any(|row| row.latency.is_some())) {
        Some(rate) => {
            let (per_s, arrivals, origin) = (count(rate.requests_per_s), rate.arrivals, rate.origin());
            let is_late = rows.iter().any(|row| row.latency.is_some_and(|latency| latency.is_client_late()));
            let late = if is_late { " ~: the client was late." } else { "" };
            writeln!(f, "p50, p99: from the intended start at {per_s} req/s ({arrivals}), {origin}.{late}")
        }
        None => Ok(()),
    }
}

/// Both tables of a ranking, with the workload in their names; none without a row.
pub(crate) fn tables(ranking: &Ranking) -> Vec<(String, Table)> {
    let Ranking { asked, baseline, rounds, rows, .. } = ranking;
    if rows.is_empty() {
        return Vec::new();
    }
    let name = format!("{asked}; baseline {baseline}, {}", counted(*rounds as u64, "round"));
    let wide = (format!("{name}; all columns"), wide_table(rows));
    vec![(name, narrow_table(ranking, |row| rate_text(row.requests_per_s, row.under_way))), wide]
}

fn wide_table(rows: &[RankingRow]) -> Table {
    let limits: Vec<&str> =
        rows.first().into_iter().flat_map(|row| &row.shares).map(|share| share.of.as_str()).collect();
    let shares: Vec<String> = limits.iter().map(|limit| format!("of {limit}")).collect();
    let latency = rows.iter().any(|row| row.latency.is_some());
    let mut header = vec!["contestant", "throughput", "95 %", "verdict", "req/s"];
    header.extend(shares.iter().map(String::as_str));
    header.extend(["cost", "95 %", "verdict"]);
    if latency {
        header.extend(["p50", "p99", "p99.9"]);
    }
    header.extend(["switches/req", "memory", "memory/connection", "saturated"]);
    let mut table = Table::of_numbers(&header);
    for row in rows {
        table.row(cells(row, &limits, latency));
    }
    table
}

/// The meaning of ratios and ties in a comparison that stops when it is sure.
const UNTIL_SURE: &str = "\
    ratio: relative to the geometric mean of the baseline's two entries; the intervals hold after any number of rounds.\n\
    different: the interval does not contain 1, and the interval of the baseline's second entry does; tie: it contains 1, and\n    lies within 5 % of 1; else too few rounds.";

/// The share of the cores' time from which on other processes are mentioned.
const MIN_OTHERS_SHARE: f64 = 0.05;

fn cells(row: &RankingRow, limits: &[&str], latency: bool) -> Vec<String> {
    let mut cells = vec![row.name.clone()];
    let (faster, cheaper) = (["faster", "slower"], ["cheaper", "dearer"]);
    cells.extend(compared(row, row.throughput, 3, faster));
    cells.push(rate_text(row.requests_per_s, row.under_way));
    cells.extend(limits.iter().map(|limit| {
        let share = row.shares.iter().find(|share| share.of == *limit);
        or_empty(share.map(of_limit))
    }));
    let mut cost = compared(row, row.cost, 3, cheaper);
    if let Some(void) = row.cost_void.filter(|_| !matches!(row.role, Role::Baseline | Role::Same)) {
        cost[2] = why(void, "baseline");
    }
    cells.extend(cost);
    if latency {
        cells.extend(latencies(row));
    }
    cells.push(or_empty(row.switches_per_request.map(|switches| format!("{switches:.3}"))));
    cells.push(or_empty(row.loaded_bytes.map(bytes)));
    cells.push(or_empty(row.bytes_per_connection.map(bytes)));
    cells.push(row.saturated.clone());
    cells
}

/// The shares of a limit: `0.69 cpu 0.71 [0.690, 0.730]`, and why the share of the cost does not count.
fn of_limit(Share { throughput, cost, cost_void, .. }: &Share) -> String {
    let mut cell = or_empty(throughput.map(|throughput| format!("{:.2}", throughput.ratio)));
    if let Some(cost) = cost {
        let _ = write!(cell, " cpu {:.2} {}", cost.ratio, cost.interval); // writing to a string does not fail
    }
    if let Some(void) = cost_void {
        cell.push(' ');
        cell.push_str(&why(*void, "limit"));
    }
    cell
}

/// The ratio, its interval and its verdict. A limit is not ranked, and the baseline's ratio is 1.
fn compared(row: &RankingRow, compared: Option<Compared>, digits: usize, [more, less]: [&str; 2]) -> [String; 3] {
    let Some(compared) = compared else { return [EMPTY_CELL, "", ""].map(String::from) };
    let ratio = format!("{:.digits$}", compared.estimate.ratio);
    let verdict = match row.role {
        Role::Baseline => return [ratio, String::new(), String::from("baseline")],
        Role::Same => String::from("A/A"),
        Role::Limit => String::from("limit"),
        Role::Ranked | Role::Slowed(_) => compared.in_words(more, less),
    };
    let Interval { low, high } = compared.estimate.interval;
    [ratio, format!("[{low:.digits$}, {high:.digits$}]"), verdict]
}

/// The p50, the p99 and the p99.9, or what stands in their place.
fn latencies(row: &RankingRow) -> [String; 3] {
    match (&row.bound, row.latency) {
        (Some(bound), _) => [String::new(), bound_in_words(bound), String::new()],
        (None, None) => [EMPTY_CELL; 3].map(String::from),
        (None, Some(latency)) if latency.overloaded => ["", "overloaded", ""].map(String::from),
        (None, Some(latency)) => {
            [latency.p50_us, latency.p99_us, latency.p999_us].map(|us| latency_text(us, latency.lateness_p99_us))
        }
    }
}

/// Why a cost does not count compared with the cost of `other`, in a word or two.
fn why(void: Void, other: &str) -> String {
    let owner = |side: Side| if side == Side::Own { String::new() } else { format!("{other} ") };
    match void {
        Void::Idle { side, busy: Some(busy) } => format!("~{}{:.0} % busy", owner(side), busy * 100.0),
        Void::Idle { side, busy: None } => format!("~{}busy?", owner(side)),
        Void::ClientSaturated { .. } => String::from("~client full"),
        Void::Throughput { side, .. } => format!("~{}throughput", owner(side)),
        Void::NoLatency => String::from("~no p99"),
        Void::Overloaded { side } => format!("~{}overloaded", owner(side)),
        Void::Latency { side, ratio } => format!("~{}p99 x {ratio:.2}", owner(side)),
        Void::LatencyUndecided { side, .. } => format!("~{}p99 undecided", owner(side)),
    }
}

fn notes(f: &mut String, ranking: &Ranking) -> fmt::Result {
    let Ranking { bands, rows, rate, .. } = ranking;
    match (bands.throughput, bands.cost) {
        (Some(_), _) if ranking.stops_when_sure => writeln!(f, "{UNTIL_SURE}")?,
        (Some(throughput), cost) => {
            let cost = cost.map_or_else(String::new, |cost| format!(", cost {cost}"));
            writeln!(f, "noise: the baseline relative to itself (A/A): throughput {throughput}{cost}")?;
            writeln!(f, "{}", verdict_note(throughput))?;
        }
        (None, _) => writeln!(f, "the baseline was not measured twice: no difference can be distinguished from noise")?,
    }
    writeln!(f, "cost: requests per second of the server's CPU time; of LIMIT, cpu: the share of the limit's cost")?;
    void_notes(f, rows)?;
    if let Some(rate) = rate.as_ref().filter(|_| rows.iter().any(|row| row.latency.is_some())) {
        let (per_s, arrivals, origin) = (count(rate.requests_per_s), rate.arrivals, rate.origin());
        writeln!(f, "p50, p99, p99.9: from the intended start at {per_s} requests/s, {arrivals} arrivals, {origin}")?;
        if rows.iter().any(|row| row.latency.is_some_and(|latency| latency.is_client_late())) {
            writeln!(f, "{LATE_NOTE}")?;
        }
        if rows.iter().any(|row| row.latency.is_some_and(|latency| latency.overloaded)) {
            writeln!(f, "overloaded: in most rounds the server could not keep that rate")?;
        }
    }
    writeln!(f, "switches: of threads that did not end")?;
    if rows.iter().any(|row| row.bound.is_some()) {
        writeln!(f, "up to N waits of TIME: a bound, not measured: the head timeout for each connection ahead")?;
    }
    Ok(())
}

/// The meaning of the marks of costs that do not count, if there are any.
fn void_notes(f: &mut String, rows: &[RankingRow]) -> fmt::Result {
    let voids =
        || rows.iter().flat_map(|row| row.shares.iter().map(|share| share.cost_void).chain([row.cost_void])).flatten();
    if voids().next().is_some() {
        let busy = BUSY * 100.0;
        writeln!(
            f,
            "~: a cost that does not count: a server was less than {busy:.0} % busy, or the cheaper server may have less than \
             {MIN_THROUGHPUT} of the other server's throughput, or its p99 may be above {MAX_LATENCY} of the other server's"
        )?;
    }
    if voids().any(|void| matches!(void, Void::ClientSaturated { .. })) {
        writeln!(f, "~client full: the client was saturated: the cost includes the server's wake-ups")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
