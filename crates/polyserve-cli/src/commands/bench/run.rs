//! What a run of a definition is made from, for all modes.

use std::process::ExitCode;

use polyserve::catalog::Catalog;
use polyserve_bench::Misuse;
use polyserve_bench::bench::matches;
use polyserve_bench::bench::mode::closed::ClosedMode;
use polyserve_bench::bench::mode::{Mode, ModeKind, Turns};
use polyserve_bench::bench::{
    BenchPlan, CellEntries, ContestantOrigin, DefinedExperiment, Definition, Key, Pattern, SweepCell,
};
use polyserve_bench::claim::ClaimDefinition;
use polyserve_bench::contestants::{self, BuiltProgram, Program, Registry, Serves};
use polyserve_bench::experiment::{Absence, Absent, RecordArgs, distinct};
use polyserve_bench::limits;
use polyserve_bench::machine::Environment;
use serde_json::Value;

use super::super::cores::CoresArgs;
use super::super::session::MeasurementSession;
use crate::config_args::ConfigArgs;

/// What a run of a definition is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) session: &'a MeasurementSession<'a>,
    pub(crate) definition: &'a Definition,
    /// The programs from outside the catalog that may take part.
    pub(crate) registry: &'a Registry,
    pub(crate) cores: &'a CoresArgs,
    pub(crate) config: &'a ConfigArgs,
    pub(crate) seed: u64,
    pub(crate) record: &'a RecordArgs,
    /// A part of the names of the contestants that take part, besides the baseline.
    pub(crate) only: Option<&'a str>,
    /// Whether only the quick part is measured.
    pub(crate) quick: bool,
}

impl Run<'_> {
    /// The patterns of the contestants, that of the baseline last.
    pub(super) fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.definition.contestants.iter().chain(&self.definition.baseline)
    }

    /// Whether the contestant takes part.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.only.is_none_or(|only| matches(&format!("*{only}*"), name))
    }

    /// The settings of a closed loop, if the mode has one.
    pub(super) fn closed_mode(&self) -> Option<&ClosedMode> {
        match &self.definition.mode {
            Mode::Closed(mode) | Mode::Compare(mode) => Some(mode),
            _ => None,
        }
    }

    /// Returns an error if the process cannot have the connections of a cell. Each server has the same limit for its own ends.
    pub(crate) fn check_connections(definition: &Definition) -> Result<(), Misuse> {
        let mut cells = definition.cells().into_iter();
        cells.try_for_each(|cell| {
            limits::check_connections(definition.workload.at(&cell).connections, limits::connections(0))
        })
    }

    /// Runs the experiment, records it, prints its report.
    pub(super) fn report(
        &self,
        environment: Environment,
        experiment: &mut DefinedExperiment,
    ) -> anyhow::Result<ExitCode> {
        self.session.run_named(self.record, environment, &self.definition.name, experiment)
    }

    /// Measures the contestants at these cells, and reports.
    pub(super) fn measure(
        &self,
        (cells, baseline): (Vec<CellEntries>, String),
        left_out: Vec<Absent>,
        environment: Environment,
        turns: impl Turns + 'static,
    ) -> anyhow::Result<ExitCode> {
        let names = distinct(cells.iter().flat_map(|one| one.contestants.iter().cloned()));
        let plan = self.plan((names, baseline), &left_out)?;
        self.report(environment, &mut DefinedExperiment::new(plan, cells, left_out, Box::new(turns)))
    }

    /// The description of a run of these contestants and this baseline.
    pub(super) fn plan(
        &self,
        (contestants, baseline): (Vec<String>, String),
        absent: &[Absent],
    ) -> anyhow::Result<BenchPlan> {
        let definition = self.definition;
        let mut names = contestants.iter().chain(absent.iter().map(|absent| &absent.key.contestant));
        if let Some(only) = self.only
            && !names.any(|name| self.wants(name))
        {
            let why = "no contestant has this text in its name; without --only, the table names all of them";
            return Err(Misuse(format!("--only {only}: {why}")).into());
        }
        // A scenario lists what could not take part.
        if contestants.is_empty() && definition.mode.kind() != ModeKind::Scenario {
            let why = absent.first().map_or("no contestant has such a name", |absent| absent.absence.why.as_str());
            return Err(definition.misuse("contestants", format!("there is nothing to measure: {why}")).into());
        }
        if self.only.is_none() && !self.quick {
            let is_known =
                |name: &&String| contestants.contains(name) || absent.iter().any(|one| one.key.contestant == **name);
            if let Some(unknown) = definition.controls.iter().find(|name| !is_known(name)) {
                return Err(definition.misuse("controls", format!("there is no contestant {unknown:?}")).into());
            }
            check_claims(definition, contestants.iter().chain(absent.iter().map(|absent| &absent.key.contestant)))?;
        }
        let is_of = |program: &Program, name: &str| {
            name.strip_prefix(program.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['@', ' ']))
        };
        let takes_part = |program: &&Program| contestants.iter().any(|name| is_of(program, name));
        let programs = self.registry.programs().filter(takes_part);
        let programs = programs.map(|program| (program.name().to_owned(), program.started())).collect();
        let not_allowed = self.not_allowed();
        if !not_allowed.is_empty() {
            let all: Vec<String> = not_allowed.iter().map(|(name, reason)| format!("{name} ({reason})")).collect();
            eprintln!("left out, because the system does not allow it: {}", all.join(", "));
        }
        Ok(BenchPlan {
            name: definition.name.clone(),
            about: definition.about.clone(),
            workload: definition.mode.in_words(&definition.workload, &definition.sweep),
            mode: definition.mode.kind(),
            compared: definition.mode.compared().to_owned(),
            axes: definition.sweep.keys().copied().collect(),
            contestants,
            baseline,
            charts: definition.charts.clone(),
            quick: self.quick,
            rounds: definition.rounds,
            definition: serde_json::to_value(&definition.table)?,
            settings: self.config.given()?,
            not_allowed,
            programs,
            requests: Value::Null,
        })
    }

    /// The programs from outside the catalog that the definition names. Builds those that take part.
    pub(super) fn programs(&self) -> Result<Vec<BuiltProgram>, Misuse> {
        let Self { definition, registry, session, .. } = self;
        let is_peer = |pattern: &&Pattern| pattern.origin == ContestantOrigin::Peer;
        let patterns: Vec<&Pattern> = self.patterns().filter(is_peer).collect();
        let service = definition.workload.service.as_deref();
        let is_of_mode = |program: &Program| match definition.mode.kind() {
            _ if service.is_some() => service.is_some_and(|service| program.answers(service)),
            _ if definition.workload.welcome => *program.serves() == Serves::Welcome,
            ModeKind::Tasks => *program.serves() == Serves::Tasks,
            ModeKind::Page => *program.serves() == Serves::Page,
            ModeKind::Scenario => program.keeps_entities(),
            ModeKind::Closed
            | ModeKind::Rate
            | ModeKind::Search
            | ModeKind::Hold
            | ModeKind::Store
            | ModeKind::Trial
            | ModeKind::Overload
            | ModeKind::Compare => program.is_server(),
        };
        // A star stands for the servers that do not ask to be named.
        let is_asked = |program: &Program, pattern: &Pattern| {
            let is_named = program.short_name() == pattern.name;
            let is_meant = !program.is_server() || registry.servers().any(|server| server == program);
            is_of_mode(program) && (is_named || (is_meant && pattern.matches(program.short_name())))
        };
        let is_one_asked = |program: &&Program| patterns.iter().any(|pattern| is_asked(program, pattern));
        let asked: Vec<&Program> = registry.programs().filter(is_one_asked).collect();
        if let Some(unknown) = patterns.iter().find(|pattern| asked.iter().all(|program| !is_asked(program, pattern))) {
            let names: Vec<&str> =
                registry.programs().filter(|program| is_of_mode(program)).map(Program::short_name).collect();
            let fault = match (registry.named(&unknown.name), service) {
                (Some(_), Some(service)) => format!(
                    "the entry of peer:{} has no serves = {{ service = {service:?} }}, so it does not answer the requests to the service {service}",
                    unknown.name
                ),
                (Some(_), None) => format!("peer:{} does not serve what this mode measures", unknown.name),
                (None, _) => {
                    format!("there is no peer:{}; --contestants FILE adds servers of your own", unknown.name)
                }
            };
            let there_are = if names.is_empty() {
                String::from("there is none")
            } else {
                format!("there are {}", names.join(", "))
            };
            let why = format!("{fault}; {there_are}");
            return Err(definition.misuse("contestants", why));
        }
        let variant = self.closed_mode().and_then(|mode| mode.variant.as_deref()).unwrap_or(session.allocator());
        // What --only leaves out is not built.
        let baseline = definition.baseline.as_ref().or(definition.contestants.first());
        let is_wanted = |program: &&Program| {
            let mut own = patterns.iter().filter(|pattern| is_asked(program, pattern));
            own.any(|pattern| baseline == Some(pattern) || self.wants(&pattern.sized(program.name().to_owned())))
        };
        let built = contestants::build(asked.iter().copied().filter(is_wanted), variant, &session.stop);
        let of = |program: &Program| {
            let left_out = || BuiltProgram {
                program: program.clone(),
                file: Err(String::from("--only leaves it out")),
                is_absent: false,
            };
            built.iter().find(|one| one.program == *program).cloned().unwrap_or_else(left_out)
        };
        Ok(asked.into_iter().map(of).collect())
    }
}

/// Returns a contestant that cannot take part at a cell. `excused`: the run succeeds without it.
pub(super) fn absent(name: &str, cell: &SweepCell, why: String, excused: bool) -> Absent {
    let key = Key { contestant: name.to_owned(), cell: cell.clone(), round: 0 };
    Absent { key, absence: Absence::not_available(why), excused }
}

/// Returns an error if a claim is about a contestant that the definition does not name.
fn check_claims<'a>(definition: &Definition, known: impl Iterator<Item = &'a String>) -> Result<(), Misuse> {
    let known = distinct(known);
    let unknown = |claim: &ClaimDefinition| claim.contestant_names().find(|name| !known.contains(name)).cloned();
    match definition.claims.iter().find_map(|claim| Some((claim, unknown(claim)?))) {
        Some((claim, name)) => {
            let known = known.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            Err(definition.claim_misuse(claim, format!("there is no contestant {name:?}; there are {known}")))
        }
        None => Ok(()),
    }
}

/// The program with our own servers, to be built as `variant`.
pub(super) fn own_program(variant: &str, registry: &Registry, catalog: &Catalog) -> Result<Program, Misuse> {
    let entries = Catalog::builtin();
    if catalog.servers().iter().any(|entry| entries.server(&entry.name).is_err()) {
        return Err(Misuse(String::from("--variant builds the built-in servers, and this program has others")));
    }
    let own = registry.programs().find(|program| *program.serves() == Serves::Catalog);
    let own = own.ok_or_else(|| Misuse(String::from("--variant: no contestant serves the catalog")))?;
    match own.variants().any(|known| known == variant) {
        true => Ok(own.clone()),
        false => {
            let known = own.variants().collect::<Vec<_>>().join(", ");
            Err(Misuse(format!("--variant {variant}: there is no such variant, only {known}")))
        }
    }
}
