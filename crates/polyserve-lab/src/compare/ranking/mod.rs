//! What came of a comparison: a row for everybody, with a verdict on speed and, where it counts, one on cost.
//!
//! A cost (requests for each second of the server's CPU time) counts only where nothing was won by waiting: see
//! [`void`](Void). One that does not count is there all the same, with the reason. Beside the baseline's stand the
//! shares of what each limit reaches, of both figures.
//!
//! Busy is who used all the time that others left of its cores: on a machine that is shared, a server can have no time to
//! spare with half a core.
//!
//! Invariant: a ratio is taken within a round. Cost: an estimate or two a row.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::contestant::{Contestant, Role};
use super::contract::Contract;
use super::turn::{Latency, Turn, microseconds};
use crate::statistics::{Estimate, Interval, Verdict, median, tie_band};

mod void;

use void::Pair;
pub use void::{LEAST_THROUGHPUT, MOST_LATENCY, Side, Void};

/// From this share of its time on, somebody was busy.
pub const BUSY: f64 = 0.95;
/// More requests than this share of a round's that were due and not sent: the rate was too much in that round.
const MOST_BEHIND: f64 = 0.01;

/// The result of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ranking {
    /// The baseline's name.
    pub baseline: String,
    /// Rounds that were begun.
    pub rounds: usize,
    /// What was asked, in words.
    pub asked: String,
    /// At what rate latencies were taken.
    pub rate: Option<Rate>,
    /// Ratios within are ties.
    pub bands: Bands,
    /// The best throughput first; then the baseline against itself, then the limits.
    pub rows: Vec<Row>,
    /// What those who are not ours keep of the contract.
    pub contracts: Vec<Contract>,
    /// Who is out, and why.
    pub failed: Vec<Failed>,
    /// Which share of its cores' time others have had, if that is known.
    pub others: Option<f64>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// The rate at which latencies were taken: half of what somebody reaches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Requests a second.
    pub requests_per_s: f64,
    /// Whose half it is.
    pub half_of: String,
}

/// The bands of ties; none without the baseline's second entry.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Bands {
    /// Of requests a second.
    pub throughput: Option<Interval>,
    /// Of requests for each second of the server's CPU time.
    pub cost: Option<Interval>,
}

/// Somebody who is out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failed {
    /// Its name.
    pub name: String,
    /// The round; 0 where it was not even started.
    pub round: usize,
    /// Why.
    pub why: String,
}

impl Failed {
    /// Whether it failed in a round: then no rerun tries it again.
    pub fn stays_out(&self) -> bool {
        self.round > 0
    }
}

/// A ratio to the baseline, and what may be said of it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Compared {
    /// The ratio.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// What may be said.
    pub verdict: Verdict,
}

/// What a contestant reaches of a limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Share {
    /// The limit's name.
    pub of: String,
    /// Of its requests a second.
    pub throughput: Option<Estimate>,
    /// Of its requests for each second of the server's CPU time.
    pub cost: Option<Estimate>,
    /// Why that of the cost does not count, if it does not.
    pub cost_void: Option<Void>,
}

/// Latencies at the fixed rate: of all rounds together in a [`Row`], where nothing else is said.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Latencies {
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 99 %, in microseconds.
    pub p99_us: f64,
    /// 99.9 %, in microseconds.
    pub p999_us: f64,
    /// Whether the rate was more than it can do in most rounds: then these say how long the slice was. One round may be
    /// somebody else's.
    pub overloaded: bool,
}

/// A contestant's figures: medians over its rounds, where nothing else is said.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// The p99 at the fixed rate, beside the baseline's.
    pub p99: Option<Estimate>,
    /// What stands in place of the latency, by the shape of the server.
    pub bound: Option<String>,
    /// Context switches a request, of threads that live on.
    pub switches_per_request: Option<f64>,
    /// Resident memory under load, in bytes.
    pub loaded_bytes: Option<f64>,
    /// By how much the connections made that grow, each, in bytes; where they were kept.
    pub bytes_per_connection: Option<f64>,
    /// The server's CPU time as a share of what others left of its cores' time.
    pub server_busy: Option<f64>,
    /// The client's CPU time as a share of what others left of its cores' time.
    pub client_busy: Option<f64>,
    /// Who had no time to spare: `server`, `client`, `both` or `neither`.
    pub saturated: String,
}

/// A contestant, and its turns by round.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Who.
    pub contestant: &'a Contestant,
    /// A turn for each round; `None` where there was none.
    pub turns: Vec<Option<Turn>>,
}

impl Entry<'_> {
    /// The median of what each round shows by itself: a round in which somebody else took the machine counts for one vote.
    /// In all rounds together its slowest requests may be the hundredth that the p99 is of.
    pub fn usual_latencies(&self) -> Option<Latencies> {
        let turns: Vec<&Turn> = self.turns.iter().flatten().collect();
        let middle = |figure: fn(&Latency) -> f64| {
            let mut values: Vec<f64> = turns.iter().filter_map(|turn| turn.latency.as_ref()).map(figure).collect();
            (!values.is_empty()).then(|| median(&mut values))
        };
        Some(Latencies {
            p50_us: middle(|latency| latency.p50_us)?,
            p99_us: middle(|latency| latency.p99_us)?,
            p999_us: middle(|latency| latency.p999_us)?,
            overloaded: overloaded(&turns),
        })
    }
}

impl Ranking {
    /// Ranks `entries`; those who are out are not among them. `kept` is how many connections each had, where they were
    /// kept.
    pub fn new(entries: &[Entry<'_>], kept: Option<usize>, seed: u64) -> Self {
        let mut rows: Vec<Row> = entries.iter().map(|entry| Row::new(entry, kept)).collect();
        let of = |wanted: Role| entries.iter().position(|entry| entry.contestant.role == wanted);
        let pair = |own: usize, other: usize| {
            let estimate = |figure| Estimate::of(&ratios(&entries[own], &entries[other], figure), seed);
            Pair { throughput: estimate(throughput), cost: estimate(cost), p99: estimate(p99) }
        };
        let baseline = of(Role::Baseline);
        let same = baseline.zip(of(Role::Same)).map(|(base, same)| pair(same, base));
        let band = |same: Option<Estimate>| same.map(|same| tie_band(Some(&same)));
        let bands = Bands {
            throughput: band(same.as_ref().and_then(|same| same.throughput)),
            cost: band(same.as_ref().and_then(|same| same.cost)),
        };
        let compared = |estimate: Option<Estimate>, band: Option<Interval>| {
            let band = band.unwrap_or_else(|| tie_band(None));
            estimate.map(|estimate| Compared { estimate, verdict: estimate.verdict(&band) })
        };
        let alone = rows.clone();
        for (own, row) in rows.iter_mut().enumerate() {
            if let Some(base) = baseline {
                let pair = pair(own, base);
                row.throughput = compared(pair.throughput, bands.throughput);
                row.cost = compared(pair.cost, bands.cost);
                row.p99 = pair.p99;
                row.cost_void = pair.void(&alone[own], &alone[base]);
            }
            let limits = entries.iter().enumerate().filter(|(_, entry)| entry.contestant.role == Role::Limit);
            for (limit, Entry { contestant, .. }) in limits.filter(|_| alone[own].role != Role::Limit) {
                let pair = pair(own, limit);
                let cost_void = pair.void(&alone[own], &alone[limit]);
                let Pair { throughput, cost, .. } = pair;
                row.shares.push(Share { of: contestant.name.clone(), throughput, cost, cost_void });
            }
        }
        rows.sort_by(|a, b| place(a).cmp(&place(b)).then(b.ratio().total_cmp(&a.ratio())));
        Self {
            baseline: baseline.map_or_else(String::new, |base| entries[base].contestant.name.clone()),
            rounds: entries.iter().map(|entry| entry.turns.len()).max().unwrap_or(0),
            asked: String::new(),
            rate: None,
            bands,
            rows,
            contracts: Vec::new(),
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

fn p99(turn: &Turn) -> Option<f64> {
    turn.latency.as_ref().map(|latency| latency.p99_us)
}

/// The ratio of the two ones' requests a second, over the rounds that both have.
pub fn throughput_ratio(own: &Entry<'_>, other: &Entry<'_>, seed: u64) -> Option<Estimate> {
    Estimate::of(&ratios(own, other, throughput), seed)
}

/// The ratios of those rounds that both have.
fn ratios(own: &Entry<'_>, other: &Entry<'_>, figure: Figure) -> Vec<f64> {
    let rounds = own.turns.iter().zip(&other.turns);
    rounds.filter_map(|(own, other)| Some(figure(own.as_ref()?)? / figure(other.as_ref()?)?)).collect()
}

/// Where in the table.
fn place(row: &Row) -> u8 {
    match row.role {
        Role::Baseline | Role::Ranked | Role::Slowed(_) => 0,
        Role::Same => 1,
        Role::Limit => 2,
    }
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
    fn new(entry: &Entry<'_>, kept: Option<usize>) -> Self {
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
            p99: None,
            bound: bound.clone(),
            switches_per_request: middle(&|turn| turn.switches_per_request),
            loaded_bytes: middle(&|turn| turn.loaded_bytes.map(|bytes| bytes as f64)),
            bytes_per_connection: middle(&|turn| {
                let (before, loaded) = turn.resident_bytes.zip(turn.loaded_bytes)?;
                Some(loaded.saturating_sub(before) as f64 / kept? as f64)
            }),
            server_busy,
            client_busy,
            saturated: saturated(server_busy.unwrap_or(0.0), client_busy.unwrap_or(0.0)).to_owned(),
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

/// Whether the rate was too much in most rounds.
fn overloaded(turns: &[&Turn]) -> bool {
    let latencies = || turns.iter().filter_map(|turn| turn.latency.as_ref());
    let due = |latency: &Latency| latency.histogram.len() + latency.behind;
    let too_much = latencies().filter(|latency| latency.behind as f64 > MOST_BEHIND * due(latency) as f64);
    too_much.count() * 2 > latencies().count()
}

fn latencies(turns: &[&Turn]) -> Option<Latencies> {
    let mut all: Option<Histogram<u64>> = None;
    for latency in turns.iter().filter_map(|turn| turn.latency.as_ref()) {
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
        overloaded: overloaded(turns),
    })
}

#[cfg(test)]
mod tests;
