//! `polyserve trial`: whether comparisons can be believed.

use std::process::ExitCode;

use anyhow::Context as _;
use polyserve::Shutdown;
use polyserve::catalog::Catalog;
use polyserve_lab::Misuse;
use polyserve_lab::compare::{Comparison, Contestant, Instrument, Role};
use polyserve_lab::experiment::{Execution, RecordArgs};
use polyserve_lab::machine::Environment;
use polyserve_lab::machine::cores::Cores;
use polyserve_lab::statistics::LEAST_ROUNDS;
use polyserve_lab::trial::{NAME, TrialKind, TrialPart, Trials};

use super::compare::PlanArgs;
use super::stop;

/// The arguments of `polyserve trial`.
#[derive(Debug, clap::Args)]
pub(crate) struct TrialArgs {
    /// The number of comparisons of the baseline with itself.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    same: u32,
    /// The number of comparisons of the baseline with itself, slowed by --slowed.
    #[arg(long, value_name = "M", default_value_t = 0, requires = "slowed", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    times: u32,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    record: RecordArgs,
}

/// Runs the trials.
pub(crate) fn run(
    catalog: &Catalog,
    args: &TrialArgs,
    json: bool,
    allocator: &'static str,
) -> anyhow::Result<ExitCode> {
    if args.same == 0 && args.times == 0 {
        return Err(Misuse(String::from("a trial needs --same N, or --slowed PERCENT --times M")).into());
    }
    if args.plan.rounds() < LEAST_ROUNDS {
        return Err(Misuse(format!("a trial needs --rounds {LEAST_ROUNDS} or more: fewer decide nothing")).into());
    }
    let stop = stop::on_signal()?;
    let available = Cores::available().context("the cores of this machine are not known")?;
    let mut parts = Vec::new();
    for (kind, times) in [(TrialKind::Same, args.same), (TrialKind::Slowed, args.times)] {
        if times > 0 {
            parts.push(TrialPart { kind, times, comparison: args.comparison(catalog, kind, &available, &stop)? });
        }
    }
    let [server_cores, client_cores] = match parts.first() {
        Some(TrialPart { comparison: Comparison { instrument, .. }, .. }) => {
            let Instrument { server_cores, client_cores, .. } = instrument;
            [server_cores, client_cores]
        }
        None => [&available; 2],
    };
    let environment = Environment::of(&available, [server_cores, client_cores], args.plan.seed(), allocator);
    let slowed_percent = args.plan.slowed.unwrap_or(0.0);
    let mut trials = Trials { parts, slowed_percent, environment: environment.clone(), stop: stop.clone() };
    Execution { environment, record: &args.record, name: NAME, json, stop: &stop }.run(&mut trials)
}

impl TrialArgs {
    /// The comparison of the baseline, the baseline again, and the contestant that is judged.
    fn comparison(
        &self,
        catalog: &Catalog,
        kind: TrialKind,
        available: &Cores,
        stop: &Shutdown,
    ) -> anyhow::Result<Comparison> {
        let mut plan = self.plan.clone();
        plan.slowed = plan.slowed.filter(|_| kind == TrialKind::Slowed);
        let mut comparison = plan.comparison(catalog, None, available, stop)?;
        comparison.latency = false;
        comparison.absent.clear();
        comparison.contestants.retain(|one| !matches!(one.role, Role::Limit | Role::Ranked));
        if kind == TrialKind::Same {
            let baseline = comparison.contestants.iter().find(|one| one.role == Role::Baseline).cloned();
            let same =
                baseline.map(|one| Contestant { name: format!("{} (same)", one.name), role: Role::Ranked, ..one });
            comparison.contestants.extend(same);
        }
        Ok(comparison)
    }
}
