//! `polyserve seam`: the cost of the repo trait. Stores take turns in one process.

use std::process::ExitCode;

use polyserve::catalog::{Catalog, RepoEntry, Tag};
use polyserve_bench::Misuse;
use polyserve_bench::experiment::{Absence, RecordArgs};
use polyserve_bench::output::print_json;
use polyserve_bench::stores::bare::{HASH_MAP, NAMES, PREFIX, TYPED, TYPED_PREFIX};
use polyserve_bench::stores::cell::memory_estimate;
use polyserve_bench::stores::process::Processes;
use polyserve_bench::stores::record::StoreSettings;
use polyserve_bench::stores::seam::{Seam, SeamGroup, SeamRun, SeamSetup};
use polyserve_bench::stores::store_set::Lookups;

use super::entrants::part_of;
use super::scale::{memory_shortage, store_names};
use super::seed::SeedArgs;
use super::session::Context;

/// The arguments of `polyserve seam`.
#[derive(Debug, clap::Args)]
pub(crate) struct SeamArgs {
    /// The baseline: a repo or a bare map. [default: for each repo its bare map, and for sharded bare/dashmap and
    /// bare/papaya; each repo as a trait object, and as its own type]
    #[arg(long, value_name = "S")]
    baseline: Option<String>,
    /// The stores, separated by commas: repos, repos without dynamic dispatch (typed/sharded), and bare maps.
    /// [default: dashmap, papaya, scc and sharded, each typed too; with --baseline all]
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    stores: Vec<String>,
    /// Numbers of threads, separated by commas.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// Whether each get depends on the previous get, as in a request, or not, as in a loop over known ids. One value, or both
    /// separated by a comma.
    #[arg(long, value_name = "HOW,...", value_delimiter = ',', value_enum, default_value = "dependent,independent")]
    lookups: Vec<Lookups>,
    /// Stored entities.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    keys: u64,
    /// Bytes of an entity's description.
    #[arg(long, value_name = "BYTES", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    payload: u32,
    /// The number of gets of each thread in a turn. [default: the number of entities]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    gets: Option<u64>,
    /// The number of rounds. Every second round starts a new process with newly filled stores. A verdict needs 20.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Fail if a ratio's 95 % interval reaches above this.
    #[arg(long, value_name = "RATIO")]
    at_most: Option<f64>,
    /// The rounds of one process, as JSON. A run starts its processes with this flag.
    #[arg(long, value_name = "JSON", hide = true)]
    part: Option<String>,
    #[command(flatten)]
    random: SeedArgs,
    #[command(flatten)]
    record: RecordArgs,
}

/// The size of an id, in bytes. Ids are drawn before the measured time.
const ID_BYTES: u64 = size_of::<u32>() as u64;

pub(crate) fn run(context: Context<'_>, args: &SeamArgs) -> anyhow::Result<ExitCode> {
    if let Some(part) = &args.part {
        let run: SeamRun = serde_json::from_str(part)
            .map_err(|error| Misuse(format!("--part {part:?} is not a run in JSON: {error}")))?;
        print_json(&run.run(context.catalog)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.at_most.is_some_and(|ratio| !(ratio.is_finite() && ratio > 0.0)) {
        return Err(Misuse("--at-most is not a ratio".into()).into());
    }
    let session = context.start()?;
    let setup = SeamSetup {
        groups: args.groups(session.catalog)?,
        threads: args.threads.iter().map(|threads| *threads as usize).collect(),
        lookups: args.lookups.clone(),
        rounds: args.rounds as usize,
        keys: args.keys,
        payload_bytes: args.payload as usize,
        gets: args.gets.unwrap_or(args.keys),
        seed: args.random.seed,
    };
    args.fits(&setup)?;
    let environment = session.environment([&session.available; 2], args.random.seed);
    let processes = Processes { stop: session.stop.clone(), patience: setup.patience() };
    let measure = move |run: &SeamRun| {
        let launch = part_of("seam", "part", run).map_err(|error| Absence::failed(error.to_string()))?;
        processes.value(&launch)
    };
    let mut seam = Seam { setup, at_most: args.at_most, measure: Box::new(measure) };
    session.run(&args.record, environment, &mut seam)
}

impl SeamArgs {
    fn groups(&self, catalog: &Catalog) -> anyhow::Result<Vec<SeamGroup>> {
        let given = if self.stores.is_empty() { Vec::new() } else { store_names(catalog, &self.stores)? };
        let Some(baseline) = &self.baseline else { return Ok(with_their_own_maps(catalog, &given)?) };
        let baseline = store_names(catalog, std::slice::from_ref(baseline))?.remove(0);
        let all = if given.is_empty() { store_names(catalog, &[])? } else { given };
        let is_possible = |name: &String| self.threads.iter().all(|threads| *threads == 1) || name != HASH_MAP;
        if !is_possible(&baseline) || (!self.stores.is_empty() && !all.iter().all(is_possible)) {
            return Err(Misuse(format!("{HASH_MAP} is for one thread: --threads 1")).into());
        }
        let stores: Vec<String> = all.into_iter().filter(|name| *name != baseline && is_possible(name)).collect();
        Ok(vec![SeamGroup { baseline, stores }])
    }

    /// Returns an error if there is not enough memory for the largest group of stores.
    fn fits(&self, setup: &SeamSetup) -> Result<(), Misuse> {
        let stores = setup.groups.iter().map(|group| group.stores.len() as u64 + 2).max().unwrap_or(0);
        let place = StoreSettings { keys: self.keys, threads: 0, payload_bytes: self.payload as usize };
        let max_threads = setup.threads.iter().max().map_or(0, |threads| *threads as u64);
        let id_bytes = setup.gets.saturating_mul(max_threads).saturating_mul(ID_BYTES);
        match memory_shortage((memory_estimate(&place) * stores).saturating_add(id_bytes) as f64) {
            None => Ok(()),
            Some((needs, free)) => Err(Misuse(format!(
                "{stores} stores and the ids of their gets may need {needs:.1} GB at once, and {free:.1} GB are available"
            ))),
        }
    }
}

/// Returns the names of the bare maps that this repo is measured next to.
fn maps(entry: &RepoEntry) -> Vec<&'static str> {
    let map = |tag: &Tag| if let Tag::NextToMap(map) = tag { Some(*map) } else { None };
    entry.tags.iter().filter_map(map).collect()
}

/// Groups repos by the bare maps that they are compared with: a group for each map. Only the `given` repos take part,
/// if any are given.
fn with_their_own_maps(catalog: &Catalog, given: &[String]) -> Result<Vec<SeamGroup>, Misuse> {
    let is_known = |name: &str| TYPED.contains(&name) || catalog.repo(name).is_ok();
    let variants = |name: &str| [name.to_owned(), format!("{TYPED_PREFIX}{name}")];
    let mut tagged: Vec<(&str, Vec<&str>)> = catalog
        .repos()
        .iter()
        .map(|entry| (entry.name.as_str(), maps(entry)))
        .filter(|(_, maps)| !maps.is_empty())
        .collect();
    tagged.sort_by_key(|(_, maps)| maps.len()); // first the repos that are one map behind the seam
    let names =
        if given.is_empty() { tagged.iter().flat_map(|(name, _)| variants(name)).collect() } else { given.to_vec() };
    let mut groups: Vec<SeamGroup> = Vec::new();
    for name in names.into_iter().filter(|name| is_known(name)) {
        let repo = name.strip_prefix(TYPED_PREFIX).unwrap_or(&name);
        let maps = tagged.iter().find(|(name, _)| *name == repo).map_or_else(|| vec![repo], |(_, maps)| maps.clone());
        let baselines = maps.iter().map(|map| format!("{PREFIX}{map}"));
        for baseline in baselines.filter(|map| NAMES.contains(&&**map)) {
            match groups.iter_mut().find(|group| group.baseline == baseline) {
                Some(group) => group.stores.push(name.clone()),
                None => groups.push(SeamGroup { baseline, stores: vec![name.clone()] }),
            }
        }
    }
    let is_grouped = |name: &&String| groups.iter().any(|group| group.stores.contains(name));
    match given.iter().find(|name| !is_grouped(name)) {
        Some(name) => Err(Misuse(format!("{name} has no bare map to compare with: set --baseline"))),
        None => Ok(groups),
    }
}
