//! `polyserve trial`: whether comparisons find differences that exist, and no others.

use std::process::ExitCode;

use polyserve_bench::Misuse;
use polyserve_bench::compare::{Comparison, Contestant, Role};
use polyserve_bench::experiment::RecordArgs;
use polyserve_bench::statistics::MIN_ROUNDS;
use polyserve_bench::trial::{TrialKind, TrialPart, Trials};

use super::compare::{PlanArgs, cores_of};
use super::session::{Context, MeasurementSession};

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

pub(crate) fn run(context: Context<'_>, args: &TrialArgs) -> anyhow::Result<ExitCode> {
    if args.same == 0 && args.times == 0 {
        return Err(Misuse(String::from("a trial needs --same N, or --slowed PERCENT --times M")).into());
    }
    if args.plan.rounds() < MIN_ROUNDS {
        return Err(Misuse(format!("a trial needs --rounds {MIN_ROUNDS} or more: fewer decide nothing")).into());
    }
    let session = context.start()?;
    let mut parts = Vec::new();
    for (kind, times) in [(TrialKind::Same, args.same), (TrialKind::Slowed, args.times)] {
        if times > 0 {
            parts.push(TrialPart { kind, times, comparison: args.comparison(&session, kind)? });
        }
    }
    // At least one of the numbers is above 0.
    let cores = parts.first().map(|part| cores_of(&part.comparison));
    let environment = session.environment(cores.unwrap_or([&session.available; 2]), args.plan.seed());
    let slowed_percent = args.plan.slowed.unwrap_or(0.0);
    let mut trials = Trials { parts, slowed_percent, environment: environment.clone(), stop: session.stop.clone() };
    session.run(&args.record, environment, &mut trials)
}

impl TrialArgs {
    /// The comparison of the baseline, the baseline again, and the contestant that is judged.
    fn comparison(&self, session: &MeasurementSession<'_>, kind: TrialKind) -> anyhow::Result<Comparison> {
        let mut plan = self.plan.clone();
        plan.slowed = plan.slowed.filter(|_| kind == TrialKind::Slowed);
        let mut comparison = plan.comparison(session, None)?;
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
