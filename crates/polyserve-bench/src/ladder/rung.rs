//! The rungs: the step that each adds to the rung below, and its settings.
//!
//! The published rungs have their published names: `warp+lto+jemalloc+pipeline-flush`. A rung that is tried aside is compared
//! with the rung below, and no other rung builds on it.
//!
//! Invariant: a rung differs from the rung below by one setting.

use std::fmt;

use crate::Misuse;
use serde::{Deserialize, Serialize};

use super::patch::Patch;

/// One optimisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RungStep {
    /// Link-time optimisation, in parts.
    ThinLto,
    /// Link-time optimisation of the whole program.
    Lto,
    /// Another allocator, tried aside.
    Mimalloc,
    /// The published allocator's successor.
    Jemalloc,
    /// Pipelined answers are sent together.
    PipelineFlush,
    /// tokio's array of wakers is initialised, as before the published change; tried aside.
    WakerArray,
    /// Another hash of header names, tried aside.
    HeaderHash,
    /// One reading of the clock in 256, tried aside.
    ClockReads,
    /// One codegen unit for each crate in place of 16.
    CodegenUnits,
    /// The `Date` is formatted once per second in place of once per answer.
    DateCache,
    /// A `Date` is formatted per answer, in place of hyper's own `Date` per second; tried aside.
    DateEach,
    /// All instructions of this processor, tried aside.
    TargetCpu,
}

/// All steps, the lowest first.
pub const STEPS: [RungStep; 12] = [
    RungStep::ThinLto,
    RungStep::Lto,
    RungStep::Mimalloc,
    RungStep::Jemalloc,
    RungStep::PipelineFlush,
    RungStep::WakerArray,
    RungStep::HeaderHash,
    RungStep::ClockReads,
    RungStep::DateEach,
    RungStep::CodegenUnits,
    RungStep::DateCache,
    RungStep::TargetCpu,
];

/// The steps of a quick run.
pub const QUICK: [RungStep; 3] = [RungStep::Lto, RungStep::Jemalloc, RungStep::PipelineFlush];

impl RungStep {
    /// The step's name in flags and in the names of rungs.
    pub fn name(self) -> &'static str {
        match self {
            Self::ThinLto => "thin-lto",
            Self::Lto => "lto",
            Self::Mimalloc => "mimalloc",
            Self::Jemalloc => "jemalloc",
            Self::PipelineFlush => "pipeline-flush",
            Self::WakerArray => "waker-array",
            Self::HeaderHash => "header-hash",
            Self::ClockReads => "clock-reads",
            Self::CodegenUnits => "codegen-units",
            Self::DateCache => "date-cache",
            Self::DateEach => "date-each",
            Self::TargetCpu => "target-cpu",
        }
    }

    /// Returns true if no other rung builds on this step.
    pub fn is_aside(self) -> bool {
        self.patch().is_some() || matches!(self, Self::Mimalloc | Self::DateEach | Self::TargetCpu)
    }

    /// The patch that the step adds; `None` if it adds none.
    pub fn patch(self) -> Option<&'static Patch> {
        Patch::of(self.name())
    }

    fn applied(self, below: &BuildSettings) -> BuildSettings {
        let mut settings = below.clone();
        match self {
            Self::ThinLto => settings.lto = String::from("thin"),
            Self::Lto => settings.lto = String::from("fat"),
            Self::Mimalloc | Self::Jemalloc => settings.allocator = self.name().to_owned(),
            Self::PipelineFlush => settings.pipeline_flush = true,
            Self::CodegenUnits => settings.codegen_units = 1,
            Self::DateCache => settings.date_cache = true,
            Self::DateEach => settings.date_each = true,
            Self::TargetCpu => settings.target_cpu = String::from("native"),
            Self::WakerArray | Self::HeaderHash | Self::ClockReads => settings.patch = Some(self.name().to_owned()),
        }
        settings
    }
}

/// The steps of these names, the lowest first, each once.
///
/// # Errors
///
/// Returns [`Misuse`] if a name is not the name of a step.
pub fn steps(names: &[String]) -> Result<Vec<RungStep>, Misuse> {
    if let Some(unknown) = names.iter().find(|name| !STEPS.iter().any(|step| step.name() == name.as_str())) {
        let all = STEPS.map(RungStep::name).join(", ");
        return Err(Misuse(format!("--rungs: there is no rung {unknown:?}, only {all}")));
    }
    Ok(STEPS.into_iter().filter(|step| names.iter().any(|name| name == step.name())).collect())
}

/// The settings of a rung's build and start.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BuildSettings {
    /// Link-time optimisation: `false` (cargo's default: within each crate), `thin` or `fat`.
    pub lto: String,
    /// The number of codegen units of each crate.
    pub codegen_units: u32,
    /// The allocator: `system`, `jemalloc` or `mimalloc`.
    pub allocator: String,
    /// The processor of the build: `generic` or `native`.
    pub target_cpu: String,
    /// Whether pipelined answers are sent together.
    pub pipeline_flush: bool,
    /// Whether the `Date` of our servers is formatted once per second. That of warp is on every rung.
    pub date_cache: bool,
    /// Whether the `Date` of warp is formatted once per answer.
    #[serde(default)]
    pub date_each: bool,
    /// The name of the patch of a dependency.
    #[serde(default)]
    pub patch: Option<String>,
}

impl BuildSettings {
    /// The settings of the lowest rung: cargo's default release profile, without our two optimisations.
    pub fn lowest() -> Self {
        Self {
            lto: String::from("false"),
            codegen_units: 16,
            allocator: String::from("system"),
            target_cpu: String::from("generic"),
            pipeline_flush: false,
            date_cache: false,
            date_each: false,
            patch: None,
        }
    }

    /// The differences from the lowest rung, in the order of the rungs.
    pub fn added(&self) -> Vec<&str> {
        let lowest = Self::lowest();
        let lto = if self.lto == "thin" { "thin-lto" } else { "lto" };
        [
            (self.lto != lowest.lto, lto),
            (self.allocator != lowest.allocator, self.allocator.as_str()),
            (self.pipeline_flush, "pipeline-flush"),
            (self.codegen_units != lowest.codegen_units, "codegen-units"),
            (self.date_cache, "date-cache"),
            (self.date_each, "date-each"),
            (self.target_cpu != lowest.target_cpu, "target-cpu"),
            (self.patch.is_some(), self.patch.as_deref().unwrap_or_default()),
        ]
        .into_iter()
        .filter_map(|(is_added, name)| is_added.then_some(name))
        .collect()
    }

    /// The name of a subject's rung with these settings: `warp+lto`.
    pub fn name_for(&self, subject: &str) -> String {
        std::iter::once(subject).chain(self.added()).collect::<Vec<_>>().join("+")
    }
}

/// The name of the build's directory: `base`, or `lto+jemalloc`.
impl fmt::Display for BuildSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let added = self.added();
        f.write_str(&if added.is_empty() { String::from("base") } else { added.join("+") })
    }
}

/// A rung.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    /// The step that it adds; `None` for the lowest rung.
    pub step: Option<RungStep>,
    /// The settings.
    pub settings: BuildSettings,
    /// The index of the rung below; `None` for the lowest rung.
    pub below: Option<usize>,
}

/// The ladder of these steps, the lowest rung first.
pub fn rungs(steps: &[RungStep]) -> Vec<Rung> {
    let mut rungs = vec![Rung { step: None, settings: BuildSettings::lowest(), below: None }];
    let mut top = 0;
    for &step in steps {
        let settings = step.applied(&rungs[top].settings);
        rungs.push(Rung { step: Some(step), settings, below: Some(top) });
        if !step.is_aside() {
            top = rungs.len() - 1;
        }
    }
    rungs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_rungs_have_their_names() {
        let names: Vec<String> = rungs(&QUICK).iter().map(|rung| rung.settings.name_for("warp")).collect();
        let published = crate::published::LADDER;
        for name in &names {
            assert!(published.lines().any(|line| line.split(',').next() == Some(name)), "{name}");
        }
        assert_eq!(names.len(), 4);
    }

    #[test]
    fn one_setting_differs_from_the_rung_below_and_nothing_stands_aside() {
        let all = rungs(&STEPS);
        assert_eq!(all.len(), STEPS.len() + 1);
        for rung in &all[1..] {
            let below = &all[rung.below.unwrap()];
            let json = |rung: &Rung| serde_json::to_value(&rung.settings).unwrap().as_object().unwrap().clone();
            let (own, other) = (json(rung), json(below));
            assert_eq!(own.iter().filter(|(name, value)| other[*name] != **value).count(), 1, "{rung:?}");
            assert!(below.step.is_none_or(|step| !step.is_aside()), "{rung:?}");
        }
        let at = |step| all.iter().find(|rung| rung.step == Some(step)).unwrap();
        assert_eq!(at(RungStep::Mimalloc).below, at(RungStep::Jemalloc).below);
        assert_eq!(
            at(RungStep::TargetCpu).settings.to_string(),
            "lto+jemalloc+pipeline-flush+codegen-units+date-cache+target-cpu"
        );
        let mut names: Vec<String> = all.iter().map(|rung| rung.settings.to_string()).collect();
        names.dedup();
        assert_eq!((names.len(), names[0].as_str()), (all.len(), "base"), "a directory each");
    }

    #[test]
    fn steps_by_name() {
        let named = |names: &[&str]| steps(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(named(&["jemalloc", "lto", "lto"]).unwrap(), [RungStep::Lto, RungStep::Jemalloc]);
        let Misuse(why) = named(&["pgo"]).unwrap_err();
        assert!(why.contains("\"pgo\"") && why.contains("thin-lto"), "{why}");
    }
}
