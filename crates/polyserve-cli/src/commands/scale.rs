//! `polyserve scale`: the growth of throughput, cost, latency and memory along five axes.

use std::process::ExitCode;

use polyserve_bench::scale::Scale;
use polyserve_bench::scale::bench::{ScaleBench, ScaleLimit};
use polyserve_load::{Mix, Usage};

use super::entrants::{LIMIT, ServerLaunches, accept_limit, limit_launch};
use super::session::Context;
use super::workload::{misuse, reference_traffic};

mod args;
mod targets;

pub(crate) use args::ScaleArgs;

use targets::ServerTargets;

pub(crate) fn run(context: Context<'_>, args: &ScaleArgs) -> anyhow::Result<ExitCode> {
    let session = context.start()?;
    let cores = args.cores.of(&session.available)?;
    let (mix, slice) = (args.mix.unwrap_or(Mix { get: 1, put: 0 }), args.slice_or(250, 500)?);
    let settings = args.config.settings(None)?;
    let flags = args.config.flags();
    let connection_each = args.no_keepalive;
    let servers = ServerLaunches { catalog: session.catalog, settings: &settings, flags: &flags, connection_each };
    let (catalog, cores_count) = (session.catalog, session.available.count());
    let server_targets = ServerTargets { args, catalog, settings: &settings, servers, cores: cores_count };
    let axes = server_targets.axes()?;
    let (mut targets, mut absent) = server_targets.targets(&axes)?;
    let (foreign, left_out) = server_targets.foreign(&axes, context.allocator, &session.stop)?;
    targets.extend(foreign);
    absent.extend(left_out);
    let description = args.plan(&targets, &axes, mix, slice)?;
    let [server, client] = &cores;
    let environment = session.environment([server, client], args.random.seed);
    client.pin()?;
    let times = [slice / 2, slice, slice / 2];
    let traffic = reference_traffic(args.base(None).keys, mix).map_err(misuse)?;
    let (name, launch) = if args.no_keepalive { accept_limit() } else { (LIMIT, limit_launch()) };
    let limit = ScaleLimit { name, launch, traffic };
    let mut instrument = ScaleBench::new(cores, times, mix, args.random.seed, limit, session.stop.clone());
    if args.no_keepalive {
        instrument.usage = Usage::Close;
    }
    let mut scale = Scale { targets, absent, rounds: args.rounds(), description, instrument };
    session.run(&args.record, environment, &mut scale)
}
