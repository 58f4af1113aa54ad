//! The servers that `polyserve scale` measures, and their places on the axes.

use polyserve::Shutdown;
use polyserve::catalog::{Catalog, Tag};
use polyserve::env::Settings;
use polyserve_bench::Misuse;
use polyserve_bench::experiment::Absent;
use polyserve_bench::limits;
use polyserve_bench::scale::experiment::Target;
use polyserve_bench::scale::report::Key;
use polyserve_bench::scale::{Axis, PointSettings};

use super::super::entrants::{ServerLaunches, left_out};
use super::super::foreign;
use super::super::names::{ALL, full_names, repo_names, tagged_or_own};
use super::super::room;
use super::args::ScaleArgs;

/// The max payload is the body's limit divided by this number. The body also has the rest of the entity.
const BODY_PER_PAYLOAD: usize = 2;

/// The max point of the axis of rates, in per cent.
const MAX_RATE: u64 = 100;

/// Chooses the servers and their places on the axes.
pub(super) struct ServerTargets<'a> {
    pub(super) args: &'a ScaleArgs,
    pub(super) catalog: &'a Catalog,
    pub(super) settings: &'a Settings,
    pub(super) servers: ServerLaunches<'a>,
    /// The number of the machine's cores.
    pub(super) cores: usize,
}

impl ServerTargets<'_> {
    /// The axes and their points. If descriptors allow fewer connections, the log has a warning.
    pub(super) fn axes(&self) -> Result<Vec<(Axis, Vec<u64>)>, Misuse> {
        let mut axes = self.args.axes(&Axis::ALL, |axis| self.default_points(axis))?;
        let rate_flags = [("--no-keepalive", self.args.no_keepalive), ("--peers", !self.args.peers.peers.is_empty())];
        if let Some((flag, _)) = rate_flags.iter().find(|(_, is_given)| *is_given)
            && axes.iter().any(|(axis, _)| *axis != Axis::Rate)
        {
            return Err(Misuse(format!("{flag} needs --axis rate, without another axis")));
        }
        for (axis, points) in &mut axes {
            let max = (self.settings.config.max_body / BODY_PER_PAYLOAD) as u64;
            match axis {
                Axis::Connections => Self::limit_to_descriptors(points),
                Axis::Payload => {
                    if let Some(large) = points.iter().find(|bytes| **bytes > max) {
                        let why = "the body's limit is --max-body";
                        return Err(Misuse(format!("a payload of {large} bytes is above {max}: {why} {}", max * 2)));
                    }
                }
                Axis::Rate => {
                    if let Some(large) = points.iter().find(|percent| **percent > MAX_RATE) {
                        let why = "they are per cent of the null server's throughput";
                        return Err(Misuse(format!("--points {large}: {why}, {MAX_RATE} at most")));
                    }
                }
                Axis::Keys | Axis::Workers => {}
            }
        }
        Ok(axes)
    }

    fn default_points(&self, axis: Axis) -> Vec<u64> {
        let quick = self.args.quick;
        match axis {
            Axis::Connections if quick => vec![10, 100, 1000],
            Axis::Connections => vec![10, 30, 100, 300, 1000, 3000, 10_000],
            Axis::Keys if quick => vec![1000, 10_000, 100_000],
            Axis::Keys => vec![1000, 10_000, 100_000, 1_000_000],
            Axis::Workers => {
                // Powers of two, to at least four times the cores.
                let max_workers = self.cores.max(1).next_power_of_two() as u64 * 4;
                (0..).map(|power| 1 << power).take_while(|workers| *workers <= max_workers).collect()
            }
            Axis::Rate if quick => vec![1, 10, 50],
            Axis::Rate => vec![1, 10, 25, 50, 75],
            Axis::Payload if quick => vec![15, 512, 16_384],
            Axis::Payload => vec![15, 64, 256, 1024, 4096, 16_384],
        }
    }

    /// Limits the points to the descriptors and ports. A cell has its connections twice, in closed loop and at the fixed
    /// rate.
    fn limit_to_descriptors(points: &mut Vec<u64>) {
        let max_connections = limits::connections(0).min(limits::ports() / 2).max(1);
        if let Some(requested) = points.iter().max().filter(|requested| **requested > max_connections) {
            let why = "the limits on open descriptors and ports allow no more";
            tracing::warn!("{max_connections} connections at most in place of {requested}: {why}");
        }
        points.iter_mut().for_each(|count| *count = max_connections.min(*count));
        points.dedup();
    }

    /// The foreign servers at all points, and those that are left out. Builds them.
    pub(super) fn foreign(
        &self,
        axes: &[(Axis, Vec<u64>)],
        allocator: &str,
        stop: &Shutdown,
    ) -> Result<(Vec<Target>, Vec<Absent<Key>>), Misuse> {
        let place = self.args.base(self.settings.config.workers);
        let connections = (!self.args.no_keepalive).then_some(place.connections);
        let (mut targets, mut absent) = (Vec::new(), Vec::new());
        let points = || axes.iter().flat_map(|(axis, points)| points.iter().map(|x| (*axis, *x)));
        for server in foreign::built(&self.args.peers, place.workers, connections, allocator, stop)? {
            let foreign::BuiltServer { name, launch, is_excused } = server;
            for (axis, x) in points() {
                match &launch {
                    Ok(launch) => targets.push(Target { axis, x, name: name.clone(), place, launch: launch.clone() }),
                    Err(why) => {
                        absent.push(left_out(Key { axis, x, name: name.clone(), round: 0 }, why, is_excused));
                    }
                }
            }
        }
        Ok((targets, absent))
    }

    /// All contestants of the catalog at all points, and the points that are left out.
    pub(super) fn targets(&self, axes: &[(Axis, Vec<u64>)]) -> anyhow::Result<(Vec<Target>, Vec<Absent<Key>>)> {
        let (args, catalog) = (self.args, self.catalog);
        let tag = if args.quick { Tag::QuickScale } else { Tag::Scale };
        let builtin = Catalog::builtin();
        let servers = match args.servers.as_slice() {
            [] => tagged_or_own(catalog.servers(), builtin.servers(), tag),
            [all] if all == ALL => catalog.servers().iter().map(|entry| entry.name.clone()).collect(),
            names => full_names(names, |name| catalog.server(name))?,
        };
        let repos = if args.repos.is_empty() {
            tagged_or_own(catalog.repos(), builtin.repos(), Tag::Scale)
        } else {
            repo_names(catalog, &args.repos)?
        };
        room::check_flags(self.settings, catalog, servers.iter().map(String::as_str))?;
        let (mut targets, mut absent) = (Vec::new(), Vec::new());
        for server in &servers {
            for repo in &repos {
                let name = format!("{server}/{repo}");
                for (axis, points) in axes {
                    for x in points {
                        let place = args.base(self.settings.config.workers).at(*axis, *x);
                        let PointSettings { connections, workers, .. } = place;
                        match self.servers.launch([server, repo], connections, workers)? {
                            Ok(launch) => {
                                targets.push(Target { axis: *axis, x: *x, name: name.clone(), place, launch });
                            }
                            Err(why) => {
                                let key = Key { axis: *axis, x: *x, name: name.clone(), round: 0 };
                                absent.push(left_out(key, why, true));
                            }
                        }
                    }
                }
            }
        }
        if targets.is_empty() {
            let why = absent.first().map_or("the catalog has no server", |absent| absent.absence.why.as_str());
            return Err(Misuse(format!("there is nothing to measure: {why}")).into());
        }
        Ok((targets, absent))
    }
}
