//! What is asked, as flags: the entity workload and how connections are used.

use polyserve_load::data::Data;
use polyserve_load::{Dist, LoadError, Mix, Traffic, Usage};

use crate::Misuse;

/// The workload of a comparison.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct WorkloadArgs {
    /// Connections at a time.
    #[arg(long, value_name = "C", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Requests that are sent at once on a connection.
    #[arg(long, value_name = "D", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pipeline: u16,
    /// Every request on a connection of its own.
    #[arg(long, conflicts_with = "pipeline")]
    no_keepalive: bool,
    /// Weights of reading and writing.
    #[arg(long, value_name = "MIX", default_value = "get=95,put=5")]
    mix: Mix,
    /// How many entities there are.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    keys: u64,
    /// How often each is asked for: uniform, or zipf:0.99.
    #[arg(long, value_name = "DIST", default_value = "uniform")]
    dist: Dist,
    /// Of data, draws and resamples.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

impl WorkloadArgs {
    pub(crate) fn connections(&self) -> usize {
        self.connections as usize
    }

    pub(crate) fn usage(&self) -> Usage {
        if self.no_keepalive { Usage::Close } else { Usage::KeepAlive { pipeline: self.pipeline.into() } }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The entities' traffic.
    ///
    /// # Errors
    ///
    /// Where there are no keys, too many, or no weight.
    pub(crate) fn traffic(&self) -> Result<Traffic, Misuse> {
        Traffic::entities(&Data::new(self.seed), self.keys, self.dist, self.mix, self.seed).map_err(misuse)
    }
}

/// A load that cannot be asked for.
#[allow(clippy::needless_pass_by_value)] // for `map_err`
pub(crate) fn misuse(error: LoadError) -> Misuse {
    Misuse(error.to_string())
}
