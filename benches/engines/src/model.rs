//! A model of throughput, latency, memory and cost for a number of nodes, fitted to a recorded measurement. It writes
//! the tables of docs/SCALING.md.
//!
//! * A request costs each part the measured processor time. Servers share no state, so their capacities add up. So do
//!   those of the masters of a sharded engine.
//! * In a queue with random arrivals, latency grows with 1 / (1 - utilisation). The factor is fitted at 50 % of the
//!   rate, and checked at 80 %.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::Failure;
use crate::figures::{Row, read};

const PAGE: &str = "docs/SCALING.md";
const BEGIN: &str = "<!-- tables of ";
const END: &str = "<!-- end of tables -->";

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// The share of reads.
const READS: f64 = 0.95;
/// The planned utilisation of a core.
const UTILISATION: f64 = 0.6;
/// The largest machine of the model: its cores, and its memory for entities in bytes.
const CORES: f64 = 64.0;
const MEMORY: f64 = 256.0 * GIB;
/// The numbers of servers, and the request rate, for which the model predicts a tail latency.
const NODES: [u32; 4] = [1, 2, 4, 8];
const NODES_RATE: f64 = 100_000.0;
/// The price of one core for one hour, in dollars.
const PRICE: f64 = 0.04;
/// From etcd's performance guide: linearizable reads and writes per second of three members with 8 cores each.
const ETCD_READS: f64 = 141_578.0;
const ETCD_WRITES: f64 = 50_104.0;
/// From etcd's guide to limits: the suggested maximum size of a database in bytes.
const ETCD_BYTES: f64 = 8.0 * GIB;
/// From the specification of Redis Cluster: the maximum number of nodes that it is designed for.
const REDIS_NODES: f64 = 1_000.0;
/// From PostgreSQL's limits: the maximum size of a table in bytes.
const POSTGRES_BYTES: f64 = 32.0 * 1024.0 * GIB;

/// Writes the tables into the page, from the record in `directory`. With `check`, returns an error if the page differs.
pub(crate) fn splice(directory: &Path, check: bool) -> Result<(), Failure> {
    let tables = tables(&read(directory)?)?;
    let page = fs::read_to_string(PAGE).map_err(|error| format!("{PAGE}: {error}"))?;
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| format!("{PAGE} has no {BEGIN}"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("{PAGE} has no {END}"))?;
    let spliced = format!("{before}{BEGIN}{} -->\n{tables}{END}{after}", directory.display());
    match spliced == page {
        true => Ok(()),
        false if check => Err(format!("{PAGE} has other tables than {}", directory.display()).into()),
        false => Ok(fs::write(PAGE, spliced)?),
    }
}

/// The costs of a repo for the mix of GETs and PUTs.
struct RepoCosts<'a> {
    get: &'a Row,
    put: &'a Row,
}

impl RepoCosts<'_> {
    fn mixed(&self, field: impl Fn(&Row) -> f64) -> f64 {
        READS * field(self.get) + (1.0 - READS) * field(self.put)
    }

    fn server_us(&self) -> f64 {
        self.mixed(|row| row.server_us)
    }

    fn engine_us(&self) -> f64 {
        self.mixed(|row| row.engine_us)
    }

    /// Returns the cores of the servers and of the engine for `rate` requests per second.
    fn cores(&self, rate: f64) -> (f64, f64) {
        let cores = |us: f64| (rate * us / 1e6 / UTILISATION).ceil();
        (cores(self.server_us()), cores(self.engine_us()))
    }

    /// Returns what the repo needs for `rate` requests per second, in addition to cores.
    fn needs(&self, rate: f64) -> String {
        let (servers, engine) = self.cores(rate);
        match self.get.repo.as_str() {
            "memory" | "durable" if servers > CORES => format!("more than one machine of {CORES:.0} cores"),
            "memory" | "durable" => String::from("one machine"),
            "etcd" => {
                let clusters = (rate * READS / ETCD_READS).max(rate * (1.0 - READS) / ETCD_WRITES) / UTILISATION;
                match clusters.ceil() {
                    1.0 => String::from("one cluster"),
                    clusters => format!("{clusters:.0} clusters, each with a part of the ids"),
                }
            }
            "redis_cluster" if engine > REDIS_NODES => format!("more than {REDIS_NODES:.0} nodes"),
            "redis_cluster" => format!("{:.0} masters of one core, and replicas", engine.max(3.0)),
            _ if engine > CORES => format!("more than one primary of {CORES:.0} cores"),
            _ => String::from("one primary"),
        }
    }

    /// Returns what a billion entities need.
    fn billion(&self) -> String {
        let bytes = self.get.bytes_per_entity * 1e9;
        match self.get.repo.as_str() {
            // `durable` has all entities in memory too.
            "memory" if bytes <= MEMORY => String::from("one machine"),
            "memory" => format!("more than the {} of one machine", gibibytes(MEMORY)),
            "durable" => String::from("the memory of the store below it, and a disk of four times that size"),
            "etcd" => format!("{:.0} clusters of {}", (bytes / ETCD_BYTES).ceil(), gibibytes(ETCD_BYTES)),
            "redis_cluster" => {
                let masters = (bytes / (MEMORY / 8.0)).ceil();
                format!("{masters:.0} masters with {} each, and their replicas", gibibytes(MEMORY / 8.0))
            }
            _ if bytes <= POSTGRES_BYTES => String::from("one table"),
            _ => String::from("more than one table"),
        }
    }
}

impl Row {
    /// Returns the p99 of a GET in milliseconds, or `None` if the servers cannot keep up.
    fn p99_at(&self, utilisation: f64) -> Option<f64> {
        (utilisation < 1.0).then(|| self.p99_half_ms * 0.5 / (1.0 - utilisation))
    }
}

fn tables(rows: &[Row]) -> Result<String, Failure> {
    let mut repos = Vec::new();
    for get in rows.iter().filter(|row| row.request == "GET") {
        let put = rows.iter().find(|row| row.request == "PUT" && row.repo == get.repo);
        repos.push(RepoCosts { get, put: put.ok_or_else(|| format!("{} has no PUT", get.repo))? });
    }
    let mut text = String::new();
    measured(&repos, &mut text)?;
    expected(&repos, &mut text)?;
    latencies(&repos, &mut text)?;
    nodes(&repos, &mut text)?;
    sizes(&repos, &mut text)?;
    costs(&repos, &mut text)?;
    Ok(text)
}

fn measured(repos: &[RepoCosts<'_>], text: &mut String) -> Result<(), Failure> {
    text.push_str("\nMeasured: 256 connections, one core for the server.\n\n");
    text.push_str("| repo | GET/s | PUT/s | server CPU, GET (us) | PUT (us) | engine CPU, GET (us) | PUT (us) |\n");
    text.push_str("|---|---:|---:|---:|---:|---:|---:|\n");
    for RepoCosts { get, put } in repos {
        let engine = |us: f64| if is_in_process(&get.repo) { String::from("-") } else { format!("{us:.0}") };
        writeln!(
            text,
            "| `{}` | {} | {} | {:.0} | {:.0} | {} | {} |",
            get.repo,
            count(get.per_s),
            count(put.per_s),
            get.server_us,
            put.server_us,
            engine(get.engine_us),
            engine(put.engine_us)
        )?;
    }
    Ok(())
}

fn expected(repos: &[RepoCosts<'_>], text: &mut String) -> Result<(), Failure> {
    text.push_str("\nGETs by the client library alone, and the share of 1 / (1/E + 1/M) over HTTP.\n\n");
    text.push_str("| repo | alone, E (GET/s) | over HTTP (GET/s) | share | threads with 1 connection | with 256 |\n");
    text.push_str("|---|---:|---:|---:|---:|---:|\n");
    for RepoCosts { get, .. } in repos.iter().filter(|costs| !is_in_process(&costs.get.repo)) {
        let Row { repo, alone_per_s, per_s, share, threads_before, threads_during, .. } = get;
        let [alone, http] = [alone_per_s, per_s].map(|rate| count(*rate));
        writeln!(text, "| `{repo}` | {alone} | {http} | {share:.2} | {threads_before:.0} | {threads_during:.0} |")?;
    }
    Ok(())
}

fn latencies(repos: &[RepoCosts<'_>], text: &mut String) -> Result<(), Failure> {
    text.push_str("\nThe p99 of a GET with random arrivals. The model is fitted to the first column.\n\n");
    text.push_str(
        "| repo | at 1/2 of the rate (ms) | at 4/5, model (ms) | at 4/5, measured (ms) | at 9/10, model (ms) |\n",
    );
    text.push_str("|---|---:|---:|---:|---:|\n");
    for RepoCosts { get, .. } in repos {
        let Row { repo, p99_half_ms, p99_four_fifths_ms, .. } = get;
        let at =
            |utilisation: f64| get.p99_at(utilisation).map_or_else(|| String::from("-"), |p99| format!("{p99:.1}"));
        writeln!(text, "| `{repo}` | {p99_half_ms:.1} | {} | {p99_four_fifths_ms:.1} | {} |", at(0.8), at(0.9))?;
    }
    Ok(())
}

/// Writes the throughput and the tail latency for each number of servers. The engine is never the limit here, because
/// it grows with the servers.
fn nodes(repos: &[RepoCosts<'_>], text: &mut String) -> Result<(), Failure> {
    writeln!(
        text,
        "\nServers of one core with {:.0} % reads: the requests a second of each number at {:.0} % utilisation, and the p99 of a GET at\n\
         {} requests a second. `-`: too many for so few servers.\n",
        READS * 100.0,
        UTILISATION * 100.0,
        count(NODES_RATE)
    )?;
    text.push_str("| repo |");
    NODES.iter().try_for_each(|nodes| write!(text, " {nodes}: requests/s | p99 (ms) |"))?;
    writeln!(text, "\n|---|{}", "---:|---:|".repeat(NODES.len()))?;
    // `memory` and `durable` are served by one process.
    for costs in repos.iter().filter(|costs| !is_in_process(&costs.get.repo)) {
        write!(text, "| `{}` |", costs.get.repo)?;
        for nodes in NODES.map(f64::from) {
            let rate = nodes / costs.server_us() * 1e6;
            let p99 = costs.get.p99_at(NODES_RATE / rate).map_or_else(|| String::from("-"), |p99| format!("{p99:.1}"));
            write!(text, " {} | {p99} |", count(rate * UTILISATION))?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn sizes(repos: &[RepoCosts<'_>], text: &mut String) -> Result<(), Failure> {
    text.push_str("\nA billion entities of 15 characters. For each entity, as measured: bytes in the process, on the disk, or in\n");
    text.push_str("the engine without its replicas.\n\n");
    text.push_str("| repo | for each entity (B) | for a billion (GiB) | fits |\n|---|---:|---:|---|\n");
    for costs in repos {
        let Row { repo, bytes_per_entity: bytes, .. } = costs.get;
        writeln!(text, "| `{repo}` | {} | {} | {} |", count(*bytes), count(*bytes * 1e9 / GIB), costs.billion())?;
    }
    Ok(())
}

fn costs(repos: &[RepoCosts<'_>], text: &mut String) -> Result<(), Failure> {
    writeln!(
        text,
        "\nCores at {:.0} % utilisation with {:.0} % reads, and the cost of a million requests at {PRICE} dollars for a core and hour.\n",
        UTILISATION * 100.0,
        READS * 100.0
    )?;
    text.push_str("| repo | requests/s | server cores | engine cores | needs | core-seconds for a million | dollars for a million |\n");
    text.push_str("|---|---:|---:|---:|---|---:|---:|\n");
    for costs in repos {
        for rate in [1e4, 1e5, 1e6] {
            let (servers, engine) = costs.cores(rate);
            let seconds = (costs.server_us() + costs.engine_us()) / UTILISATION;
            writeln!(
                text,
                "| `{}` | {} | {} | {} | {} | {seconds:.0} | {:.4} |",
                costs.get.repo,
                count(rate),
                count(servers),
                if is_in_process(&costs.get.repo) { String::from("-") } else { count(engine) },
                costs.needs(rate),
                seconds / 3600.0 * PRICE
            )?;
        }
    }
    Ok(())
}

fn is_in_process(repo: &str) -> bool {
    repo == "memory" || repo == "durable"
}

fn gibibytes(bytes: f64) -> String {
    format!("{:.0} GiB", bytes / GIB)
}

/// Returns a number with thousands separators.
fn count(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
