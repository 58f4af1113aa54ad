//! The flag `--seed`, which every command with random numbers has.

/// The seed of a command's random numbers.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct SeedArgs {
    /// The seed of all random numbers: data, their order and resamples. The same seed gives the same numbers.
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
}
