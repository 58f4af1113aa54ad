//! The arguments of `polyserve recommend`.

use std::path::PathBuf;
use std::time::Duration;

use crate::commands::memory::MemoryArgs;
use crate::commands::seed::SeedArgs;
use crate::commands::service::{ServiceArgs, goal};
use crate::commands::times::time;

/// The arguments of `polyserve recommend`. It asks for missing ones at a terminal; elsewhere it uses the defaults.
#[derive(Debug, clap::Args)]
pub(crate) struct RecommendArgs {
    /// The percentage of requests that read; the others write. [default: 95]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(super) reads: Option<u32>,
    /// Concurrent connections. [default: 64]
    #[arg(long, short, value_name = "C")]
    pub(super) connections: Option<usize>,
    /// Whether connections are kept. Otherwise each request has its own. [default: true]
    #[arg(long, value_name = "true|false")]
    pub(super) keep_alive: Option<bool>,
    /// How long a request waits for another service, without a thread. [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) wait: Option<Duration>,
    /// The time for which a request blocks its thread, like a client library without async. [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) blocking_wait: Option<Duration>,
    /// The CPU time that the application takes for a request, in addition to the server's. [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) cpu_per_request: Option<Duration>,
    /// Requests per second, at which the latencies are measured. [default: half of the slowest candidate's throughput, of those with
    /// at least a quarter of the best]
    #[arg(long, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(super) rate: Option<u32>,
    /// Characters of an entity's description. [default: 15]
    #[arg(long, value_name = "BYTES")]
    pub(super) payload: Option<usize>,
    /// The number of entities. [default: 10000]
    #[arg(long, value_name = "N")]
    pub(super) keys: Option<u64>,
    /// The number of the server's cores; the client has the others. [default: half of all]
    #[arg(long, value_name = "N")]
    pub(super) cores: Option<usize>,
    /// The max latency of 99 % of the requests. [default: no goal]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) p99: Option<Duration>,
    /// The same as --p99, in the words of compare.
    #[arg(long, value_name = "p99=10ms", conflicts_with = "p99", value_parser = goal)]
    pub(super) goal: Option<Duration>,
    #[command(flatten)]
    pub(super) service: ServiceArgs,
    #[command(flatten)]
    pub(super) memory: MemoryArgs,
    /// Whether an answered write must survive the end of the process. [default: false]
    #[arg(long, value_name = "true|false")]
    pub(super) durable: Option<bool>,
    /// Whether one machine is enough. [default: one]
    #[arg(long, value_name = "one|several", value_parser = several)]
    pub(super) machines: Option<bool>,
    /// The max duration of the run. With enough time, the capacity of the choice is searched after the comparison.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "90s")]
    pub(super) time: Duration,
    /// The number of rounds; fewer than 10 decide nothing. [default: what the time allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: Option<u32>,
    /// The servers, separated by commas. [default: a few that suit the workload]
    #[arg(long, visible_alias = "server", value_name = "S,...", value_delimiter = ',')]
    pub(super) servers: Vec<String>,
    /// The repos, separated by commas. [default: one to three that suit the workload]
    #[arg(long, visible_alias = "repo", value_name = "R,...", value_delimiter = ',')]
    pub(super) repos: Vec<String>,
    #[command(flatten)]
    pub(super) random: SeedArgs,
    /// Ask no questions: use the defaults.
    #[arg(long)]
    pub(super) defaults: bool,
    /// A directory to record in: recommend.jsonl, recommend-compare.jsonl and recommend-capacity.jsonl with every measurement. A run that was ended early
    /// is resumed there.
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
}

/// Parses a number of machines. Returns whether there are several.
fn several(text: &str) -> Result<bool, &'static str> {
    match text {
        "one" => Ok(false),
        "several" => Ok(true),
        _ => Err("it is one or several"),
    }
}
