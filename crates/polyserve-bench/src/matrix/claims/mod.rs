//! The verdicts on the claims of the article, by the classic pool and its twin in Go: [`CLASSIC`] over [`REPO`], and
//! [`TWIN`].
//!
//! The published servers were debug builds in Rust, and printed a line for each request in both languages. If both were
//! measured in this way, each claim has two verdicts: of the servers as they were run then, and of release builds that print
//! nothing. Each set of verdicts has an error budget of its own.
//!
//! Each claim is about ratios of cells that differ in one setting; module `ratio_test` decides the verdict. CPU use is
//! in per cent of the elapsed time, as published. If the server's cores were full in a fifth of the cells, CPU use
//! cannot differ, and the CPU time of a request replaces it. If the client was full in a fifth of the cells,
//! `FullClient` limits the verdicts on times and bytes.
//!
//! The published tables are judged in the same way: `Claim::published` has that verdict. They have no control, so every
//! difference in them counts.

use std::collections::BTreeSet;

use crate::contestants::PRINTING;
use crate::machine::Cores;
use crate::report::Claim;
use crate::statistics::median_of;
use anyhow::Context as _;

use super::compared::{CellTable, ComparedCell, Lang, Measure};
use super::ratio_test::{
    Band, Decision, Frequency, MIN_RATIOS, SeriesGrowth, Votes, decide, holm, median_interval, trend,
};
use super::{Cell, CellMethod, DEBUG, NAME};

/// The strategy of the published server: a job for each connection, through a channel.
pub const CLASSIC: &str = "pool_classic/mpsc_pool";
/// The published store.
pub const REPO: &str = "two_level";
/// The published server in Go.
pub const TWIN: &str = "go/twin-rwmutex";

/// The share of cells with full cores, of the server or of the client, from which the other cells are too few for a verdict.
const MIN_FULL_SHARE: f64 = 0.2;
/// The CPU use, in per cent of its threads' time, from which the client counts as full.
const CLIENT_FULL: f64 = 95.0;
/// The CPU use of server and client together, in per cent of their shared cores' time, from which the client counts as full.
/// The rest is the kernel's work for the network, which counts for neither.
const SHARED_CORES_FULL: f64 = 90.0;
/// The number of connections at which the article saw the time of a request jump: its largest one.
const JUMP_CONNECTIONS: usize = 1000;

/// Whether a claim holds, and the figures.
struct Judgement(Decision, String);

type ClaimRule = fn(&CellTable) -> Judgement;

/// The effect of a full client on a claim: a full client makes all servers look alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FullClient {
    /// No effect: the figure depends only on the server.
    NoEffect,
    /// It hides differences, so the lack of one does not refute the claim. Only cells with at least this number of
    /// connections count.
    Hides(usize),
    /// The client's own time grows with the connections, so there is no verdict. Only cells with the two largest
    /// numbers of connections count.
    Grows,
}

/// Every claim, its judgement, and the effect of a full client.
const CLAIMS: [(&str, ClaimRule, FullClient); 11] = [
    ("CPU grows with the pool", cpu_grows, FullClient::NoEffect),
    ("Rust uses less CPU until the pool exceeds the cores, then Go does", cpu_of_both, FullClient::NoEffect),
    ("CPU falls as connections grow", cpu_falls, FullClient::NoEffect),
    ("Memory grows with the pool", memory_grows, FullClient::NoEffect),
    ("Memory grows with the pool more steeply in Rust", memory_steeper, FullClient::NoEffect),
    ("Rust always uses less memory", memory_less, FullClient::NoEffect),
    ("Rust answers faster", faster, FullClient::Hides(0)),
    ("Rust nearly always transfers more", transfers, FullClient::Hides(0)),
    ("At 1000 connections latency jumps", jumps, FullClient::Grows),
    (
        "At 1000 connections latency (connecting) is lower in Go, while processing is slower there",
        connect_and_processing,
        FullClient::Hides(JUMP_CONNECTIONS),
    ),
    ("PUT costs more than GET", put_costs, FullClient::NoEffect),
];

/// The verdict on each claim, from the measured cells. `cores` lists the server's cores, such as `0,1`, and the client's.
///
/// # Errors
///
/// Returns an error if `cores` are not lists of cores, or the published figures cannot be read.
pub fn claims(cores: [&str; 2], cells: &[Cell]) -> anyhow::Result<Vec<Claim>> {
    let parsed = |cores: &str| cores.parse::<Cores>().map_err(anyhow::Error::msg).context("the cores of a record");
    let cores = [parsed(cores[0])?, parsed(cores[1])?];
    let published = CellTable::published()?;
    let published = sharing_error(CLAIMS.iter().map(|(_, rule, _)| rule(&published)).collect());
    let mut as_run = as_run_of(cells).map(|[rust, go]| judged(cells, [&rust, &go], &cores).into_iter());
    let release = judged(cells, [&classic(), TWIN], &cores);

    let mut claims = Vec::new();
    for (((name, ..), Judgement(published, then)), release) in CLAIMS.iter().zip(published).zip(release) {
        let claim = |name: &str, Judgement(decision, figure): Judgement| Claim::new(NAME, name, decision.holds, figure);
        let Claim { verdict, figure: then, .. } = claim(name, Judgement(published, then));
        let published = format!("the article's tables, by the same test: {verdict}. {then}");
        match as_run.as_mut().and_then(Iterator::next) {
            Some(as_run) => {
                claims.push(claim(&format!("{name} (as run then)"), as_run).with_published(published));
                claims.push(claim(&format!("{name} (release builds)"), release));
            }
            None => claims.push(claim(name, release).with_published(published)),
        }
    }
    Ok(claims)
}

/// The judgement of each claim by these two contestants, in Rust and in Go. `cores` are the server's and the client's.
fn judged(cells: &[Cell], both: [&str; 2], cores: &[Cores; 2]) -> Vec<Judgement> {
    let table = CellTable::measured(cells, both, cores[0].count());
    let own = cells.iter().filter(|cell| !cell.key.control && both.contains(&cell.key.contestant.as_str()));
    let client: Vec<(usize, bool)> = own.map(|cell| (cell.key.connections, is_client_full(cell, cores))).collect();
    sharing_error(CLAIMS.iter().map(|(_, rule, full)| full.apply(rule(&table), &client)).collect())
}

/// Whether the client had no time left in this cell. On shared cores it waits for the server, too.
fn is_client_full(cell: &Cell, [server, client]: &[Cores; 2]) -> bool {
    let busy = cell.sample.client_busy_pct;
    let threads = client.count().min(cell.key.connections) as f64;
    let both = cell.sample.avg_cpu_pct + busy * threads;
    busy >= CLIENT_FULL || (server == client && both >= SHARED_CORES_FULL * server.count() as f64)
}

/// The judgements that remain if the claims share one error budget.
fn sharing_error(judgements: Vec<Judgement>) -> Vec<Judgement> {
    let decisions: Vec<Decision> = judgements.iter().map(|Judgement(decision, _)| *decision).collect();
    let remain = holm(&decisions);
    let shared = |(Judgement(decision, figure), remains): (Judgement, bool)| match (remains, decision.p) {
        (false, Some(p)) if decision.holds.is_some() => {
            let claims = decisions.len();
            let why = format!("p = {p:.3} is too large for {claims} claims (Holm)");
            Judgement(Decision::UNDECIDED, format!("{figure}; {why}"))
        }
        _ => Judgement(decision, figure),
    };
    judgements.into_iter().zip(remain).map(shared).collect()
}

/// The contestant that represents the published server.
pub(super) fn classic() -> String {
    format!("{CLASSIC}/{REPO}")
}

/// The contestants that were run like the published servers, in Rust and in Go: they print a line for each request, and the one
/// in Rust is a debug build. `None` unless both were measured.
pub(super) fn as_run_of(cells: &[Cell]) -> Option<[String; 2]> {
    let names = [format!("{DEBUG}{}", classic()), PRINTING.to_owned()];
    let is_measured = |name: &String| cells.iter().any(|cell| cell.key.contestant == *name);
    names.iter().all(is_measured).then_some(names)
}

impl FullClient {
    /// The judgement with the effect of a full client; `cells` has the number of connections of each cell, and whether the
    /// client was full.
    fn apply(self, Judgement(holds, figure): Judgement, cells: &[(usize, bool)]) -> Judgement {
        let (least, decision_if_full) = match self {
            Self::NoEffect => return Judgement(holds, figure),
            Self::Hides(least) => (least, if holds.is_tie { Decision::UNDECIDED } else { holds }),
            Self::Grows => {
                let two = two_largest(cells.iter().map(|(connections, _)| *connections));
                (two.map_or(0, |[fewer, _]| fewer), Decision::UNDECIDED)
            }
        };
        let selected = || cells.iter().filter(|(connections, _)| *connections >= least);
        let full = selected().filter(|(_, is_full)| *is_full).count();
        let share = full as f64 / selected().count().max(1) as f64;
        if share < MIN_FULL_SHARE {
            return Judgement(holds, figure);
        }
        let why = "of the cells, which may hide differences between servers";
        Judgement(decision_if_full, format!("{figure}; the client was full in {:.0} % {why}", share * 100.0))
    }
}

impl CellTable {
    /// The measure of CPU use, and its name.
    fn cpu(&self) -> (Measure, String) {
        let full = self.full();
        if full < MIN_FULL_SHARE {
            return (Measure::CpuPct, "CPU %".into());
        }
        (
            Measure::CpuPerRequest,
            format!("CPU time of a request (the cores were full in {:.0} % of the cells)", full * 100.0),
        )
    }

    /// Judges ratios that are claimed to be above 1.
    fn judgement(&self, ratios: &[(ComparedCell, f64)], measure: Measure, frequency: Frequency) -> Judgement {
        let (Some(band), false) = (self.band(measure), ratios.is_empty()) else { return too_few_cells(ratios.len()) };
        let own: Vec<f64> = ratios.iter().map(|(_, ratio)| *ratio).collect();
        let factor = band.factor(frequency);
        let interval = median_interval(&own).filter(|_| frequency == Frequency::Mostly);
        let interval = interval.map_or_else(String::new, |interval| format!(" {interval}"));
        let median = format!("median {:.3}{interval}", finite_median(ratios).unwrap_or(0.0));
        let [above, others] = self.counted(ratios, factor);
        // A claim of "mostly" is decided by the median, the others by the number of cells.
        let (mut text, of) = match frequency {
            Frequency::Mostly => (format!("{median}; {above}, {others}"), "the median"),
            _ => (format!("{above}; {others}, {median}"), "a cell"),
        };
        if band != Band::NONE {
            text.push_str(&format!(", noise of {of} {:.1} %", (factor - 1.0) * 100.0));
        }
        Judgement(decide(&own, frequency, band), text)
    }

    /// The numbers of cells with a ratio above 1 by more than this factor, of all; then of each method, and those below 1.
    fn counted(&self, ratios: &[(ComparedCell, f64)], factor: f64) -> [String; 2] {
        let of = |method: Option<CellMethod>| {
            let selected = ratios.iter().filter(|(cell, _)| method.is_none_or(|method| cell.method == method));
            Votes::of(selected.map(|(_, ratio)| *ratio), factor)
        };
        let (all, get, put) = (of(None), of(Some(CellMethod::Get)), of(Some(CellMethod::Put)));
        let mut others = String::new();
        if get.all() > 0 && put.all() > 0 {
            others.push_str(&format!("GET {} of {}, PUT {} of {}, ", get.above, get.all(), put.above, put.all()));
        }
        others.push_str(&format!("below 1 in {}", all.below));
        [format!("above 1 in {} of {} cells", all.above, all.all()), others]
    }

    /// Judges whether both languages grow over a series; `down` if the claim is that they fall.
    fn trends(&self, measure: Measure, of: impl Fn(Lang) -> Vec<SeriesGrowth>, down: bool) -> Judgement {
        let Some(band) = self.band(measure) else { return too_few_cells(0) };
        let mut both = Vec::new();
        for (lang, name) in [(Lang::Rust, "Rust"), (Lang::Go, "Go")] {
            let series = of(lang);
            let factors: Vec<f64> = series.iter().map(|own| own.factor).collect();
            let votes = Votes::of(factors.iter().copied(), 1.0);
            let (count, verb) = if down { (votes.below, "falls") } else { (votes.above, "grows") };
            let median = median_of(factors).unwrap_or(0.0);
            let text = match votes.all() {
                0 => format!("{name} has no series of 3"),
                all => format!("{name} {verb} in {count} of {all} series, median factor {median:.3}"),
            };
            both.push(Judgement(trend(&series, down, band), text));
        }
        both.into_iter().reduce(Judgement::and).unwrap_or_else(|| too_few_cells(0))
    }
}

impl Judgement {
    /// The judgement on a claim of two parts. The part that decides comes first: one that is refuted, or else undecided.
    fn and(self, other: Self) -> Self {
        let decision = self.0.and(other.0);
        let [first, second] = if other.0.holds == decision.holds && self.0.holds != decision.holds {
            [other.1, self.1]
        } else {
            [self.1, other.1]
        };
        Self(decision, format!("{first}; {second}"))
    }
}

/// The median of the finite ratios.
fn finite_median(ratios: &[(ComparedCell, f64)]) -> Option<f64> {
    median_of(ratios.iter().map(|(_, ratio)| *ratio).filter(|ratio| ratio.is_finite()))
}

/// The judgement of too few cells.
fn too_few_cells(cells: usize) -> Judgement {
    Judgement(
        Decision::UNDECIDED,
        format!("{cells} pairs of cells, or too few of the control: {MIN_RATIOS} of each are needed"),
    )
}

fn cpu_grows(table: &CellTable) -> Judgement {
    let (measure, name) = table.cpu();
    let Judgement(holds, text) = table.trends(measure, |lang| table.over_pools(lang, measure), false);
    Judgement(holds, format!("{name}, smallest pool to largest: {text}"))
}

fn cpu_of_both(table: &CellTable) -> Judgement {
    let (measure, name) = table.cpu();
    let Some(cores) = table.cores else {
        return Judgement(Decision::UNDECIDED, "the number of cores is not published".into());
    };
    let part = |of, to, what: String, is_part: fn(usize, usize) -> bool| {
        let all = table.ratios(of, to, measure).into_iter();
        let selected: Vec<_> = all.filter(|(cell, _)| is_part(cell.pool, cores)).collect();
        let Judgement(decision, text) = match selected.is_empty() {
            true => Judgement(Decision::UNDECIDED, "there is no such pool".into()),
            false => table.judgement(&selected, measure, Frequency::Mostly),
        };
        Judgement(decision, format!("{name}, {what}: {text}"))
    };
    let small = format!("Go to Rust, pools of at most {cores}");
    let large = "Rust to Go, larger pools".to_owned();
    part(Lang::Go, Lang::Rust, small, |pool, cores| pool <= cores).and(part(
        Lang::Rust,
        Lang::Go,
        large,
        |pool, cores| pool > cores,
    ))
}

fn cpu_falls(table: &CellTable) -> Judgement {
    let (measure, name) = table.cpu();
    let Judgement(holds, text) = table.trends(measure, |lang| table.over_connections(lang, measure), true);
    Judgement(holds, format!("{name}, fewest connections to most: {text}"))
}

fn memory_grows(table: &CellTable) -> Judgement {
    let Judgement(holds, text) = table.trends(Measure::Memory, |lang| table.over_pools(lang, Measure::Memory), false);
    Judgement(holds, format!("resident memory, smallest pool to largest: {text}"))
}

fn memory_steeper(table: &CellTable) -> Judgement {
    let series = table.ratio_over_pools(Lang::Rust, Lang::Go, Measure::Memory);
    let (Some(band), false) = (table.band(Measure::Memory), series.is_empty()) else { return too_few_cells(0) };
    let ratios: Vec<f64> = series.iter().map(|own| own.factor).collect();
    let Votes { above, .. } = Votes::of(ratios.iter().copied(), 1.0);
    let (holds, all) = (trend(&series, false, band), ratios.len());
    let factor = median_of(ratios).unwrap_or(0.0);
    let text = format!("Rust's factor is above Go's in {above} of {all} series, median ratio {factor:.3}");
    Judgement(holds, text)
}

fn memory_less(table: &CellTable) -> Judgement {
    let Judgement(holds, text) =
        table.judgement(&table.ratios(Lang::Go, Lang::Rust, Measure::Memory), Measure::Memory, Frequency::Always);
    let of_no_file = finite_median(&table.ratios(Lang::Go, Lang::Rust, Measure::Anonymous));
    let anonymous =
        of_no_file.map_or_else(String::new, |ratio| format!("; anonymous memory, Go to Rust: median {ratio:.3}"));
    Judgement(holds, format!("resident memory, Go to Rust: {text}{anonymous}"))
}

fn faster(table: &CellTable) -> Judgement {
    let ratios = table.ratios(Lang::Go, Lang::Rust, Measure::PerRequest);
    let Judgement(holds, text) = table.judgement(&ratios, Measure::PerRequest, Frequency::Mostly);
    Judgement(holds, format!("time of a request, Go to Rust: {text}"))
}

fn transfers(table: &CellTable) -> Judgement {
    let ratios = table.ratios(Lang::Rust, Lang::Go, Measure::Received);
    let Judgement(holds, text) = table.judgement(&ratios, Measure::Received, Frequency::NearlyAlways);
    Judgement(holds, format!("KiB received a second, Rust to Go: {text}"))
}

/// The two largest numbers, in ascending order.
fn two_largest(counts: impl Iterator<Item = usize>) -> Option<[usize; 2]> {
    let mut downwards = counts.collect::<BTreeSet<usize>>().into_iter().rev();
    let most = downwards.next()?;
    Some([downwards.next()?, most])
}

/// Compares the time of a request at the max number of connections, if at least [`JUMP_CONNECTIONS`], with the time at the
/// next smaller number.
///
/// Each of c concurrent requests takes c / throughput (Little's law). At the same throughput, ten times the connections
/// take ten times as long: a queue, and not a jump. So the ratio of the times is divided by the ratio of the numbers.
/// The result is a jump if it is above 1 by more than noise, and the opposite if it is below.
fn jumps(table: &CellTable) -> Judgement {
    let Some([fewer, most]) = two_largest(table.cells.iter().map(|cell| cell.connections)) else {
        return Judgement(Decision::UNDECIDED, "one number of connections".into());
    };
    if most < JUMP_CONNECTIONS {
        return Judgement(Decision::UNDECIDED, format!("{most} connections at most were measured"));
    }
    let same = |one: &ComparedCell, other: &ComparedCell| {
        (one.lang, one.method, one.pool, one.round) == (other.lang, other.method, other.pool, other.round)
    };
    let with = |connections: usize| table.cells.iter().filter(move |cell| cell.connections == connections);
    let ratios = |measure| -> Vec<(ComparedCell, f64)> {
        let pair = |cell: &ComparedCell| {
            let before = with(fewer).find(|before| same(before, cell))?;
            Some((*cell, cell.figure(measure) / before.figure(measure)))
        };
        with(most).filter_map(pair).collect()
    };
    let median = |measure| finite_median(&ratios(measure)).unwrap_or(0.0);
    let times = most as f64 / fewer as f64;
    let scaled: Vec<(ComparedCell, f64)> =
        ratios(Measure::PerRequest).into_iter().map(|(cell, ratio)| (cell, ratio / times)).collect();
    let Judgement(holds, text) = table.judgement(&scaled, Measure::PerRequest, Frequency::Mostly);
    let (mean, connect) = (median(Measure::PerRequest), median(Measure::Connect));
    let text = format!(
        "time at {most} connections to that at {fewer}, divided by {times:.0}: {text}; median not divided {mean:.1}, of \
         connecting alone {connect:.1}"
    );
    Judgement(holds, text)
}

fn connect_and_processing(table: &CellTable) -> Judgement {
    let many = |of, to, measure, what: &str| {
        let all = table.ratios(of, to, measure).into_iter();
        let selected: Vec<_> = all.filter(|(cell, _)| cell.connections >= JUMP_CONNECTIONS).collect();
        let Judgement(decision, text) = match selected.is_empty() {
            true => Judgement(Decision::UNDECIDED, format!("nothing was measured at {JUMP_CONNECTIONS} connections")),
            false => table.judgement(&selected, measure, Frequency::Mostly),
        };
        Judgement(decision, format!("{what}: {text}"))
    };
    let connecting = "connecting (ab's wait there, the call alone here), Rust to Go";
    many(Lang::Rust, Lang::Go, Measure::Connect, connecting).and(many(
        Lang::Go,
        Lang::Rust,
        Measure::Processing,
        "processing, Go to Rust",
    ))
}

fn put_costs(table: &CellTable) -> Judgement {
    let ratios = table.put_to_get(Measure::CpuPerRequest);
    let Judgement(holds, text) = table.judgement(&ratios, Measure::CpuPerRequest, Frequency::Mostly);
    let time = median_of(table.put_to_get(Measure::PerRequest).into_iter().map(|(_, ratio)| ratio)).unwrap_or(0.0);
    Judgement(holds, format!("CPU time of a request, PUT to GET: {text}; median of its time {time:.3}"))
}

#[cfg(test)]
mod tests;
