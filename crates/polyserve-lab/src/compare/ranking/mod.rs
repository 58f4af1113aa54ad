//! What came of a comparison: a row for everybody, with a verdict on speed and, where it counts, one on cost.
//!
//! A cost (requests for each second of the server's CPU time) counts only where nothing was won by waiting: the
//! server's cores were busy, the throughput is not below the baseline's, and neither is the latency worse.
//!
//! Busy is who used all the time that others left of its cores: on a machine that is shared, a server can have no time to
//! spare with half a core.
//!
//! Invariant: a ratio is taken within a round. Cost: an estimate or two a row.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::contestant::{Contestant, Role};
use super::measure::{Turn, microseconds};
use super::statistics::{Estimate, Interval, Verdict, median, tie_band};

/// From this share of its time on, somebody was busy.
pub const BUSY: f64 = 0.95;
/// A cost counts only where the throughput's interval begins here or above.
pub const LEAST_THROUGHPUT: f64 = 0.95;
/// A cost counts only where the p99 at the fixed rate is at most so much of the baseline's.
pub const MOST_LATENCY: f64 = 1.2;
/// More requests than this share that were due and not sent: the rate was too much.
const MOST_BEHIND: f64 = 0.01;

/// The result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Ranking {
    /// The baseline's name.
    pub baseline: String,
    /// Rounds that were begun.
    pub rounds: usize,
    /// Requests a second at which latencies were taken.
    pub rate: Option<f64>,
    /// Ratios within are ties.
    pub bands: Bands,
    /// The best throughput first; then the baseline against itself, then the limits.
    pub rows: Vec<Row>,
    /// Who is out, and why.
    pub failed: Vec<Failed>,
    /// Which share of its cores' time others have had, if that is known.
    pub others: Option<f64>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// The bands of ties; none without the baseline's second entry.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bands {
    /// Of requests a second.
    pub throughput: Option<Interval>,
    /// Of requests for each second of the server's CPU time.
    pub cost: Option<Interval>,
}

/// Somebody who is out.
#[derive(Clone, Debug, Serialize)]
pub struct Failed {
    /// Its name.
    pub name: String,
    /// The round; 0 where it was not even started.
    pub round: usize,
    /// Why.
    pub why: String,
}

/// A ratio to the baseline, and what may be said of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Compared {
    /// The ratio.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// What may be said.
    pub verdict: Verdict,
}

/// A share of what a limit reaches.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// The limit's name.
    pub of: String,
    /// The median of the rounds' shares.
    pub share: f64,
}

/// Latencies of all rounds together.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latencies {
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 99 %, in microseconds.
    pub p99_us: f64,
    /// 99.9 %, in microseconds.
    pub p999_us: f64,
    /// Whether the rate was more than it can do: then these say how long the slice was.
    pub overloaded: bool,
}

/// A contestant's figures: medians over its rounds, where nothing else is said.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// As what it took part.
    pub role: Role,
    /// Requests a second, beside the baseline.
    pub throughput: Option<Compared>,
    /// Requests for each second of the server's CPU time, beside the baseline.
    pub cost: Option<Compared>,
    /// Why the cost does not count, if it does not.
    pub cost_void: Option<Void>,
    /// Requests a second.
    pub requests_per_s: f64,
    /// Requests for each second of the server's CPU time.
    pub requests_per_cpu_s: Option<f64>,
    /// What it reaches of each limit.
    pub shares: Vec<Share>,
    /// The latency at the fixed rate.
    pub latency: Option<Latencies>,
    /// What stands in place of the latency, by the shape of the server.
    pub bound: Option<String>,
    /// Context switches a request, of threads that live on.
    pub switches_per_request: Option<f64>,
    /// Resident memory under load, in bytes.
    pub loaded_bytes: Option<f64>,
    /// By how much the connections made that grow, each, in bytes.
    pub bytes_per_connection: Option<f64>,
    /// The server's CPU time as a share of what others left of its cores' time.
    pub server_busy: Option<f64>,
    /// The client's CPU time as a share of what others left of its cores' time.
    pub client_busy: Option<f64>,
    /// Who had no time to spare: `server`, `client`, `both` or `neither`.
    pub saturated: &'static str,
}

/// A contestant, and its turns by round.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Who.
    pub contestant: &'a Contestant,
    /// A turn for each round; `None` where there was none.
    pub turns: Vec<Option<Turn>>,
}

impl Ranking {
    /// Ranks `entries`; those who are out are not among them.
    pub fn new(entries: &[Entry<'_>], connections: usize, seed: u64) -> Self {
        let of = |wanted: fn(Role) -> bool| entries.iter().filter(move |entry| wanted(entry.contestant.role));
        let baseline = of(|role| role == Role::Baseline).next();
        let same = of(|role| role == Role::Same).next();
        let estimate = |entry: &Entry<'_>, figure: Figure| {
            baseline.and_then(|base| Estimate::of(&ratios(entry, base, figure), seed))
        };
        let band = |figure| same.and_then(|same| estimate(same, figure)).map(|same| tie_band(Some(&same)));
        let bands = Bands { throughput: band(throughput), cost: band(cost) };
        let compared = |entry: &Entry<'_>, figure, band: Option<Interval>| {
            let band = band.unwrap_or_else(|| tie_band(None));
            estimate(entry, figure).map(|estimate| Compared { estimate, verdict: estimate.verdict(&band) })
        };
        let limits: Vec<_> = of(|role| role == Role::Limit).collect();
        let mut rows: Vec<Row> = entries
            .iter()
            .map(|entry| {
                let mut row = Row::new(entry, connections);
                row.throughput = compared(entry, throughput, bands.throughput);
                row.cost = compared(entry, cost, bands.cost);
                row.shares = limits.iter().filter_map(|limit| share(entry, limit)).collect();
                row
            })
            .collect();
        if let Some(base) = rows.iter().find(|row| row.role == Role::Baseline).cloned() {
            rows.iter_mut().filter(|row| row.cost.is_some()).for_each(|row| row.cost_void = void(row, &base));
        }
        rows.sort_by(|a, b| place(a).cmp(&place(b)).then(b.ratio().total_cmp(&a.ratio())));
        Self {
            baseline: baseline.map_or_else(String::new, |base| base.contestant.name.clone()),
            rounds: entries.iter().map(|entry| entry.turns.len()).max().unwrap_or(0),
            rate: None,
            bands,
            rows,
            failed: Vec::new(),
            others: None,
            interrupted: false,
        }
    }
}

type Figure = fn(&Turn) -> Option<f64>;

fn throughput(turn: &Turn) -> Option<f64> {
    Some(turn.requests_per_s)
}

fn cost(turn: &Turn) -> Option<f64> {
    turn.requests_per_cpu_s
}

/// The ratios of those rounds that both have.
fn ratios(own: &Entry<'_>, other: &Entry<'_>, figure: Figure) -> Vec<f64> {
    let rounds = own.turns.iter().zip(&other.turns);
    rounds.filter_map(|(own, other)| Some(figure(own.as_ref()?)? / figure(other.as_ref()?)?)).collect()
}

fn share(own: &Entry<'_>, limit: &Entry<'_>) -> Option<Share> {
    let mut ratios = ratios(own, limit, throughput);
    if own.contestant.role == Role::Limit || ratios.is_empty() {
        return None;
    }
    Some(Share { of: limit.contestant.name.clone(), share: median(&mut ratios) })
}

/// Where in the table.
fn place(row: &Row) -> u8 {
    match row.role {
        Role::Baseline | Role::Ranked | Role::Slowed(_) => 0,
        Role::Same => 1,
        Role::Limit => 2,
    }
}

/// Why a cost does not count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Void {
    /// The server had time to spare: it was busy for so much of what it could have had, if that is known.
    Idle(Option<f64>),
    /// So had the baseline's.
    BaselineIdle(Option<f64>),
    /// The throughput may be so much of the baseline's.
    Throughput(f64),
    /// One of the two has no latency.
    NoLatency,
    /// One of the two cannot keep up with the latency's rate.
    Overloaded,
    /// The p99 is so many times the baseline's.
    Latency(f64),
}

/// Why the cost of `own` does not count beside that of `base`, if it does not.
fn void(own: &Row, base: &Row) -> Option<Void> {
    for (why, busy) in [(Void::Idle as fn(_) -> _, own.server_busy), (Void::BaselineIdle, base.server_busy)] {
        if busy.is_none_or(|busy| busy < BUSY) {
            return Some(why(busy));
        }
    }
    let low = own.throughput.map_or(0.0, |compared| compared.estimate.interval.low);
    if low < LEAST_THROUGHPUT {
        return Some(Void::Throughput(low));
    }
    let (Some(latency), Some(reference)) = (own.latency, base.latency) else { return Some(Void::NoLatency) };
    if latency.overloaded || reference.overloaded {
        return Some(Void::Overloaded);
    }
    let ratio = latency.p99_us / reference.p99_us;
    (ratio > MOST_LATENCY).then_some(Void::Latency(ratio))
}

/// CPU time as a share of it and of the time in which nobody wanted the cores, over all turns: an idle time has steps
/// that one turn alone is too short for. Without idle times, the share of the cores' time that the turns give.
fn busy(turns: &[&Turn], figures: impl Fn(&Turn) -> (Option<f64>, Option<f64>, Option<f64>)) -> Option<f64> {
    let (mut cpu, mut idle, mut shares) = (0.0, Some(0.0), Vec::new());
    for turn in turns {
        let (spent, nobody, share) = figures(turn);
        cpu += spent?;
        idle = idle.zip(nobody).map(|(sum, nobody)| sum + nobody);
        shares.extend(share);
    }
    match idle {
        Some(idle) if cpu > 0.0 => Some(cpu / (cpu + idle)),
        _ if shares.is_empty() => None,
        _ => Some(median(&mut shares)),
    }
}

impl Row {
    fn new(entry: &Entry<'_>, connections: usize) -> Self {
        let Contestant { name, role, bound, .. } = entry.contestant;
        let turns: Vec<&Turn> = entry.turns.iter().flatten().collect();
        let middle = |figure: &dyn Fn(&Turn) -> Option<f64>| {
            let mut values: Vec<f64> = turns.iter().filter_map(|turn| figure(turn)).collect();
            (!values.is_empty()).then(|| median(&mut values))
        };
        let server_busy = busy(&turns, |turn| (turn.server_cpu_s, turn.server_idle_s, turn.server_busy));
        let client_busy = busy(&turns, |turn| (Some(turn.client_cpu_s), turn.client_idle_s, Some(turn.client_busy)));
        Self {
            name: name.clone(),
            role: *role,
            throughput: None,
            cost: None,
            cost_void: None,
            requests_per_s: middle(&|turn| throughput(turn)).unwrap_or(0.0),
            requests_per_cpu_s: middle(&|turn| cost(turn)),
            shares: Vec::new(),
            latency: latencies(&turns),
            bound: bound.clone(),
            switches_per_request: middle(&|turn| turn.switches_per_request),
            loaded_bytes: middle(&|turn| turn.loaded_bytes.map(|bytes| bytes as f64)),
            bytes_per_connection: middle(&|turn| {
                let (before, loaded) = turn.resident_bytes.zip(turn.loaded_bytes)?;
                Some(loaded.saturating_sub(before) as f64 / connections as f64)
            }),
            server_busy,
            client_busy,
            saturated: saturated(server_busy.unwrap_or(0.0), client_busy.unwrap_or(0.0)),
        }
    }

    /// The throughput's ratio to the baseline's; 0 where there is none.
    pub fn ratio(&self) -> f64 {
        self.throughput.map_or(0.0, |compared| compared.estimate.ratio)
    }
}

fn saturated(server: f64, client: f64) -> &'static str {
    match (server >= BUSY, client >= BUSY) {
        (true, true) => "both",
        (true, false) => "server",
        (false, true) => "client",
        (false, false) => "neither",
    }
}

fn latencies(turns: &[&Turn]) -> Option<Latencies> {
    let mut all: Option<Histogram<u64>> = None;
    let mut behind = 0;
    for latency in turns.iter().filter_map(|turn| turn.latency.as_ref()) {
        behind += latency.behind;
        match &mut all {
            // Both have the bounds that the load generator gives them.
            Some(all) => all.add(&latency.histogram).ok()?,
            None => all = Some(latency.histogram.clone()),
        }
    }
    let all = all?;
    Some(Latencies {
        p50_us: microseconds(&all, 0.5),
        p99_us: microseconds(&all, 0.99),
        p999_us: microseconds(&all, 0.999),
        overloaded: behind as f64 > MOST_BEHIND * (all.len() + behind) as f64,
    })
}

#[cfg(test)]
mod tests;
