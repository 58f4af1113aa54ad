//! The arguments of `polyserve scale`.

use std::time::Duration;

use polyserve::ServerConfig;
use polyserve_bench::Misuse;
use polyserve_bench::experiment::{RecordArgs, distinct};
use polyserve_bench::scale::experiment::Target;
use polyserve_bench::scale::report::CONNECTION_EACH;
use polyserve_bench::scale::{Axis, PointSettings};
use polyserve_load::{Arrivals, Mix};
use serde_json::{Value, json};

use crate::commands::cores::CoresArgs;
use crate::commands::foreign::PeerArgs;
use crate::commands::seed::SeedArgs;
use crate::commands::times::{SLICES, within};
use crate::config_args::ConfigArgs;

/// Entities that are stored on the other axes.
const KEYS: u64 = 1000;

/// The arguments of `polyserve scale`.
#[derive(Debug, clap::Args)]
pub(crate) struct ScaleArgs {
    /// The axes, separated by commas. [default: all]
    #[arg(long, value_enum, value_name = "AXIS,...", value_delimiter = ',')]
    pub(super) axis: Vec<Axis>,
    /// The points of the axis, separated by commas. Needs exactly one --axis.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(super) points: Vec<u64>,
    /// The servers, separated by commas, or all. [default: pool_server, leader_followers, tokio_tcp, tokio_per_core; quick:
    /// pool_server, tokio_tcp; and the program's own servers]
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    pub(super) servers: Vec<String>,
    /// The repos, separated by commas. [default: sharded and the program's own repos]
    #[arg(long, value_name = "R,...", value_delimiter = ',')]
    pub(super) repos: Vec<String>,
    #[command(flatten)]
    pub(super) peers: PeerArgs,
    /// On the axis of rates: a connection for each request. The rates are per cent of null_accept's throughput.
    #[arg(long)]
    pub(super) no_keepalive: bool,
    /// The number of concurrent connections on the other axes.
    #[arg(long, value_name = "C", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) connections: u32,
    /// The number of stored entities on the other axes. [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(super) keys: Option<u64>,
    /// The length of an entity's description on the other axes, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(super) payload: u32,
    /// Weights of reading and writing. [default: get=1]
    #[arg(long, value_name = "get=95,put=5")]
    pub(super) mix: Option<Mix>,
    /// The number of rounds. The intervals of fewer than 10 are too narrow. [default: 10, quick: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) rounds: Option<u32>,
    /// The time of a point in closed loop; the fixed rate takes 1.5 times that.
    /// [default: 500ms, quick: 250ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(super) slice: Option<Duration>,
    /// Fewer contestants, points and rounds, and shorter slices: less than three minutes.
    #[arg(long)]
    pub(super) quick: bool,
    #[command(flatten)]
    pub(super) random: SeedArgs,
    #[command(flatten)]
    pub(super) cores: CoresArgs,
    #[command(flatten)]
    pub(super) record: RecordArgs,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

impl ScaleArgs {
    pub(super) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 5 } else { 10 }) as usize
    }

    /// Returns the slice. The default is `full` milliseconds, or `quick` in a quick run.
    pub(super) fn slice_or(&self, quick: u64, full: u64) -> Result<Duration, Misuse> {
        let default = Duration::from_millis(if self.quick { quick } else { full });
        let slice = self.slice.unwrap_or(default);
        within("--slice", slice, SLICES).map(|()| slice)
    }

    /// Returns the axes, each once, with their points. The defaults are `all` axes and the `default_points`.
    pub(super) fn axes(
        &self,
        all: &[Axis],
        default_points: impl Fn(Axis) -> Vec<u64>,
    ) -> Result<Vec<(Axis, Vec<u64>)>, Misuse> {
        let mut axes = if self.axis.is_empty() { all.to_vec() } else { self.axis.clone() };
        axes.sort_unstable();
        axes.dedup();
        if !self.points.is_empty() && axes.len() != 1 {
            return Err(Misuse("--points needs exactly one --axis".into()));
        }
        let with_points = |axis| {
            let mut points = if self.points.is_empty() { default_points(axis) } else { self.points.clone() };
            if let Some(large) =
                points.iter().find(|workers| axis == Axis::Workers && **workers > ServerConfig::MAX_WORKERS as u64)
            {
                return Err(Misuse(format!("--points {large}: workers are {} at most", ServerConfig::MAX_WORKERS)));
            }
            points.sort_unstable();
            points.dedup();
            Ok((axis, points))
        };
        axes.into_iter().map(with_points).collect()
    }

    /// The values of the other axes while one axis grows.
    pub(super) fn base(&self, workers: Option<usize>) -> PointSettings {
        PointSettings {
            connections: self.connections as usize,
            keys: self.keys.unwrap_or(KEYS),
            workers,
            payload_bytes: self.payload as usize,
        }
    }

    /// The description of the run, for the record's header.
    pub(super) fn plan(
        &self,
        targets: &[Target],
        axes: &[(Axis, Vec<u64>)],
        mix: Mix,
        slice: Duration,
    ) -> anyhow::Result<Value> {
        let axes = axes.iter().map(|(axis, points)| json!({"axis": axis, "points": points}));
        let mut plan = json!({
            "contestants": distinct(targets.iter().map(|target| &target.name)),
            "axes": axes.collect::<Vec<_>>(),
            "base": self.base(None),
            "mix": mix.to_string(),
            "arrivals": Arrivals::default(),
            "rounds": self.rounds(),
            "slice_s": slice.as_secs_f64(),
            "settings": self.config.given()?,
        });
        if self.no_keepalive {
            plan[CONNECTION_EACH] = json!(true);
        }
        Ok(plan)
    }
}
