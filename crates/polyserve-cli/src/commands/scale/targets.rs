//! The servers that `polyserve scale` measures, and their places on the axes.

use polyserve::catalog::{Catalog, Entry, Tag};
use polyserve::config::MAX_WORKERS;
use polyserve::env::Settings;
use polyserve_lab::Misuse;
use polyserve_lab::compare::contestant::bound;
use polyserve_lab::experiment::{Absence, Absent};
use polyserve_lab::launch::Launch;
use polyserve_lab::limits;
use polyserve_lab::scale::experiment::Target;
use polyserve_lab::scale::report::Key;
use polyserve_lab::scale::{Axis, PointSettings};

use super::super::entrants::serve;
use super::super::room::{self, roomy};
use super::ScaleArgs;

/// The payload may be this part of the body's limit at most: the rest of an entity is in the body too.
const OF_BODY: usize = 2;

/// Chooses the servers and their places on the axes.
pub(super) struct ServerTargets<'a> {
    pub(super) args: &'a ScaleArgs,
    pub(super) catalog: &'a Catalog,
    pub(super) settings: &'a Settings,
    /// The machine's.
    pub(super) cores: usize,
}

impl ServerTargets<'_> {
    /// The axes and their points. Where descriptors allow fewer connections, that is said.
    pub(super) fn axes(&self) -> Result<Vec<(Axis, Vec<u64>)>, Misuse> {
        let args = self.args;
        let mut axes = args.axis.clone();
        if axes.is_empty() {
            axes = Axis::ALL.into();
        }
        axes.sort_unstable();
        axes.dedup();
        if !args.points.is_empty() && axes.len() != 1 {
            return Err(Misuse("--points needs one --axis: they are of that".into()));
        }
        axes.into_iter().map(|axis| Ok((axis, self.points(axis)?))).collect()
    }

    fn points(&self, axis: Axis) -> Result<Vec<u64>, Misuse> {
        let (quick, given) = (self.args.quick, &self.args.points);
        let usual: Vec<u64> = match axis {
            Axis::Connections if quick => vec![10, 100, 1000],
            Axis::Connections => vec![10, 30, 100, 300, 1000, 3000, 10_000],
            Axis::Keys if quick => vec![1000, 10_000, 100_000],
            Axis::Keys => vec![1000, 10_000, 100_000, 1_000_000],
            Axis::Workers => {
                // Twice the cores, and one step beyond.
                let most = self.cores.max(1).next_power_of_two() as u64 * 4;
                (0..).map(|power| 1 << power).take_while(|workers| *workers <= most).collect()
            }
            Axis::Payload if quick => vec![15, 512, 16_384],
            Axis::Payload => vec![15, 64, 256, 1024, 4096, 16_384],
        };
        let mut points = if given.is_empty() { usual } else { given.clone() };
        match axis {
            Axis::Connections => points = self.within_descriptors(points),
            Axis::Keys => {}
            Axis::Workers => {
                if let Some(many) = points.iter().find(|workers| **workers > MAX_WORKERS as u64) {
                    return Err(Misuse(format!("--points {many}: workers are {MAX_WORKERS} at most")));
                }
            }
            Axis::Payload => {
                let most = (self.settings.config.max_body / OF_BODY) as u64;
                if let Some(large) = points.iter().find(|bytes| **bytes > most) {
                    let why = "the body's limit is --max-body";
                    return Err(Misuse(format!("a payload of {large} bytes is above {most}: {why} {}", most * 2)));
                }
            }
        }
        points.sort_unstable();
        points.dedup();
        Ok(points)
    }

    /// As many of the points as there are descriptors and ports for, and as many connections as there can be in place of
    /// the others. A cell has its connections twice, in closed loop and at the fixed rate.
    fn within_descriptors(&self, points: Vec<u64>) -> Vec<u64> {
        let room = limits::connections(0, 1).min(limits::ports() / 2).max(1);
        if let Some(most) = points.iter().max().filter(|most| **most > room) {
            let why = "the limits on open descriptors and ports allow no more";
            tracing::warn!("{room} connections at most in place of {most}: {why}");
        }
        points.into_iter().map(|count| count.min(room)).collect()
    }

    /// All contestants at all points, and the points that are left out.
    pub(super) fn targets(&self, axes: &[(Axis, Vec<u64>)]) -> anyhow::Result<(Vec<Target>, Vec<Absent<Key>>)> {
        let (args, catalog) = (self.args, self.catalog);
        let tag = if args.quick { Tag::QuickScale } else { Tag::Scale };
        let builtin = Catalog::builtin();
        let servers = if args.servers.is_empty() {
            usual(catalog.servers(), tag, |name| builtin.server(name).is_err())
        } else {
            let full = |name: &String| Ok(catalog.server(name)?.name.clone());
            args.servers.iter().map(full).collect::<anyhow::Result<Vec<_>>>()?
        };
        room::check_flags(self.settings, catalog, servers.iter().map(String::as_str))?;
        let (mut targets, mut absent) = (Vec::new(), Vec::new());
        for server in &servers {
            for repo in self.repos()? {
                let name = format!("{server}/{repo}");
                for (axis, points) in axes {
                    for x in points {
                        let place = args.base(self.settings.config.workers).at(*axis, *x);
                        match self.server(server, &repo, &place)? {
                            Ok(launch) => {
                                targets.push(Target { axis: *axis, x: *x, name: name.clone(), place, launch });
                            }
                            Err(why) => {
                                let key = Key { axis: *axis, x: *x, name: name.clone(), round: 0 };
                                absent.push(Absent { key, absence: Absence::not_available(why), excused: true });
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

    /// A server at a place, with settings under which all its connections are served; or why it is not measured there.
    fn server(&self, server: &str, repo: &str, place: &PointSettings) -> anyhow::Result<Result<Launch, String>> {
        let entry = self.catalog.server(server)?;
        let room = roomy(self.settings, &self.settings.with_pool_size(), place.connections);
        // The number of workers of a flag is for the servers that take one.
        let swept = place.workers.filter(|_| place.workers != self.settings.config.workers);
        let (made, config) = match room::fitted(entry, &room, swept) {
            Ok(made) => made,
            Err(error) => return Ok(Err(error.to_string())),
        };
        if let Some(bound) = bound(&made, &config, place.connections) {
            return Ok(Err(format!("it serves fewer at a time: another connection may wait {bound}")));
        }
        let also: &[&str] = if place.workers.is_some() { &["workers"] } else { &[] };
        let flags = room::flags(&config, &self.args.config.flags(), also);
        Ok(Ok(serve(server, repo, &flags, Vec::new())))
    }

    /// The repos by their full names.
    fn repos(&self) -> anyhow::Result<Vec<String>> {
        if self.args.repos.is_empty() {
            let builtin = Catalog::builtin();
            return Ok(usual(self.catalog.repos(), Tag::Scale, |name| builtin.repo(name).is_err()));
        }
        self.args.repos.iter().map(|name| Ok(self.catalog.repo(name)?.name.clone())).collect()
    }
}

/// Returns the names of the entries with this tag, and of a program's own entries. Returns all names if there are none.
fn usual<M>(entries: &[Entry<M>], tag: Tag, is_own: impl Fn(&str) -> bool) -> Vec<String> {
    let is_usual = |entry: &&Entry<M>| entry.has(tag) || is_own(&entry.name);
    let name = |entry: &Entry<M>| entry.name.clone();
    let chosen: Vec<String> = entries.iter().filter(is_usual).map(name).collect();
    if chosen.is_empty() { entries.iter().map(name).collect() } else { chosen }
}
