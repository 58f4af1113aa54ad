//! What is asked, as flags: how connections are used, and the entities. `load` and `compare` share them.

use polyserve_load::data::Data;
use polyserve_load::{Dist, LoadError, Mix, Traffic, Usage};

use crate::Misuse;

/// A workload.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WorkloadArgs {
    /// Connections at a time.
    #[arg(long, short, value_name = "C", default_value_t = 64)]
    pub(crate) connections: usize,
    /// Requests that are sent at once on a connection.
    #[arg(long, value_name = "D", default_value_t = 1)]
    pipeline: usize,
    /// Every request on a connection of its own.
    #[arg(long, conflicts_with = "pipeline")]
    no_keepalive: bool,
    /// Entities: weights of reading and writing. [default: get=1, in a comparison get=95,put=5]
    #[arg(long, value_name = "get=95,put=5")]
    pub(crate) mix: Option<Mix>,
    /// Entities: how many there are; all are stored first. [default: 10000, in a comparison 1000]
    #[arg(long, value_name = "N")]
    pub(crate) keys: Option<u64>,
    /// Entities: which are asked for, uniform or zipf:0.99. [default: uniform]
    #[arg(long, value_name = "DIST")]
    pub(crate) dist: Option<Dist>,
    /// Entities: the seed of their data and their order.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
}

impl WorkloadArgs {
    /// How connections are used.
    pub(crate) fn usage(&self) -> Usage {
        if self.no_keepalive { Usage::Close } else { Usage::KeepAlive { pipeline: self.pipeline } }
    }

    /// The entities' traffic, `keys` and `mix` where nothing else was said.
    ///
    /// # Errors
    ///
    /// Where there are no keys, too many, or no weight.
    pub(crate) fn entities(&self, keys: u64, mix: Mix) -> Result<Traffic, LoadError> {
        let (keys, mix) = (self.keys.unwrap_or(keys), self.mix.unwrap_or(mix));
        Traffic::entities(&Data::new(self.seed), keys, self.dist.unwrap_or_default(), mix, self.seed)
    }
}

/// What was asked for and cannot be done, as opposed to what failed.
pub(crate) fn misuse(error: LoadError) -> anyhow::Error {
    match error {
        LoadError::Setting(why) => Misuse(why).into(),
        error => error.into(),
    }
}
