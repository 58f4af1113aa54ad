//! `polyserve matrix`: the published matrix of pool sizes and connections.

use std::process::ExitCode;
use std::time::Duration;

use polyserve::ServerConfig;
use polyserve_bench::experiment::distinct;
use polyserve_bench::matrix::plan::MatrixAxes;
use polyserve_bench::matrix::{Bench, Matrix, MatrixCandidate};
use polyserve_bench::{Misuse, limits};
use serde_json::json;

use super::session::Context;

mod args;
mod contestants;

pub(crate) use args::MatrixArgs;
use contestants::MatrixContestants;

/// The published pool sizes.
const POOLS: [usize; 6] = [2, 4, 8, 16, 32, 64];
/// The pool sizes of a quick run.
const QUICK_POOLS: [usize; 3] = [2, 8, 32];
const CONNECTIONS: [usize; 3] = [10, 100, 1000];
const REQUESTS: u64 = 100_000;
const QUICK_REQUESTS: u64 = 20_000;
/// After this time a quick run begins no cell, unless --requests was given.
const QUICK_TIME: Duration = Duration::from_secs(150);

pub(crate) fn run(context: Context<'_>, args: &MatrixArgs) -> anyhow::Result<ExitCode> {
    let session = context.start()?;
    let axes = args.axes()?;
    if args.config.clone().take("workers").is_some() {
        return Err(Misuse("--workers is set by the pool sizes: use --pools 2,4,8".into()).into());
    }
    let settings = args.config.settings(None)?;
    let [server_cores, client_cores] = args.cores.of(&session.available)?;
    let requests = args.requests.unwrap_or(if args.quick { QUICK_REQUESTS } else { REQUESTS });
    let environment = session.environment([&server_cores, &client_cores], 0);
    let profile = environment.profile.clone();
    let max_connections = axes.connections.iter().copied().max().unwrap_or(0);
    let flags = args.config.flags();
    let contestants =
        MatrixContestants { args, flags: &flags, settings: &settings, profile: &profile, max_connections };
    let candidates = contestants.candidates(session.catalog, &axes.pools)?;
    let description = json!({
        "contestants": candidates.iter().map(MatrixCandidate::name).collect::<Vec<_>>(),
        "pools": axes.pools, "connections": axes.connections, "requests": requests,
        "methods": axes.methods, "rounds": axes.rounds, "quick": args.quick, "settings": flags,
    });
    let bench = Bench { server_cores, client_cores, requests, stop: session.stop.clone() };
    let mut matrix = Matrix::new(candidates, axes, description, bench);
    matrix.named.clone_from(&args.servers);
    matrix.time_limit = (args.quick && args.requests.is_none()).then_some(QUICK_TIME);
    session.run(&args.record, environment, &mut matrix)
}

impl MatrixArgs {
    fn axes(&self) -> anyhow::Result<MatrixAxes> {
        let default_pools: &[usize] = if self.quick { &QUICK_POOLS } else { &POOLS };
        let or_default = |given: &[usize], default: &[usize]| {
            distinct(if given.is_empty() { default } else { given }.iter().copied())
        };
        let (pools, connections) =
            (or_default(&self.pools, default_pools), or_default(&self.connections, &CONNECTIONS));
        if let Some(size) = pools.iter().find(|size| !(1..=ServerConfig::MAX_WORKERS).contains(*size)) {
            return Err(Misuse(format!("--pools {size} is not from 1 to {}", ServerConfig::MAX_WORKERS)).into());
        }
        if connections.contains(&0) {
            return Err(Misuse("--connections 0 is not 1 or more".into()).into());
        }
        let max_connections = connections.iter().copied().max().unwrap_or(0);
        limits::check_connections(max_connections, limits::connections(0))?;
        Ok(MatrixAxes { pools, connections, methods: distinct(self.methods.iter().copied()), rounds: self.rounds })
    }
}
