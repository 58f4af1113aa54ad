//! The builds of the rungs: one small package, built for each variant into a directory of its own.
//!
//! Invariant: only the settings decide the build; compiler flags of the environment are not used. A variant that cannot be
//! built does not prevent the others. Cost: one to three minutes for each variant the first time, on two cores; later the
//! time in which cargo checks the files. No build runs during a measurement.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::launch::build;
use polyserve::Shutdown;
use polyserve::catalog::Catalog;

use super::patch::{self, PACKAGE, Patch};
use super::rung::BuildSettings;

/// A binary of the package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// The servers of the built-in catalog on threads or on tokio.
    Serve,
    /// All servers of the built-in catalog. This build takes longer.
    ServeAll,
    /// warp.
    Warp,
}

impl Binary {
    /// Returns the smallest build with `server`.
    pub fn with(server: &str) -> Self {
        let catalog = Catalog::builtin();
        let code = catalog.server(server).ok().and_then(|entry| entry.code.as_ref());
        if code.is_some_and(|code| [None, Some("tokio")].contains(&code.feature)) {
            Self::Serve
        } else {
            Self::ServeAll
        }
    }

    /// The binary's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serve | Self::ServeAll => "serve",
            Self::Warp => "warp",
        }
    }

    /// The package's feature for this binary.
    fn feature(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::ServeAll => "all",
            Self::Warp => "warp",
        }
    }

    /// The settings of the build. warp has flags for the other settings.
    pub fn built_with(self, settings: &BuildSettings) -> BuildSettings {
        match self {
            Self::Serve | Self::ServeAll => settings.clone(),
            Self::Warp => {
                let BuildSettings { pipeline_flush, date_cache, date_each, .. } = BuildSettings::lowest();
                BuildSettings { pipeline_flush, date_cache, date_each, ..settings.clone() }
            }
        }
    }
}

/// A binary with settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The binary.
    pub binary: Binary,
    /// The settings.
    pub settings: BuildSettings,
}

impl Variant {
    /// The patches of its sources. warp has none of our code.
    fn patches(&self) -> Result<Vec<&'static Patch>, String> {
        let BuildSettings { pipeline_flush, date_cache, patch, .. } = &self.settings;
        let is_ours = self.binary != Binary::Warp;
        [
            (is_ours && !pipeline_flush).then_some("without-pipeline-flush"),
            (is_ours && !date_cache).then_some("without-date-cache"),
            patch.as_deref(),
        ]
        .into_iter()
        .flatten()
        .map(|name| Patch::of(name).ok_or_else(|| format!("there is no patch {name}")))
        .collect()
    }
}

/// Our sources, and the directory of the builds.
#[derive(Clone, Debug)]
pub struct LadderSources {
    root: PathBuf,
    target: PathBuf,
}

impl LadderSources {
    /// The sources in the directory `root`; `None` for the sources of this build.
    pub fn new(root: Option<&Path>) -> Self {
        let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = root.map_or_else(own, Path::to_owned);
        let root = root.canonicalize().unwrap_or(root); // cargo is started there
        let target = root.join("target/ladder");
        Self { root, target }
    }

    /// Builds all of `variants`, with notices on standard error. Returns each program, or why it was not built.
    pub fn build(&self, variants: &[Variant], stop: &Shutdown) -> Vec<Result<PathBuf, String>> {
        let all = variants.len();
        variants.iter().zip(1..).map(|(variant, number)| self.variant(variant, (number, all), stop)).collect()
    }

    fn exists(&self) -> Result<(), String> {
        let package = self.root.join(PACKAGE);
        let is_there = package.join("Cargo.toml").is_file();
        if is_there { Ok(()) } else { Err(format!("{} has no Cargo.toml", package.display())) }
    }

    fn variant(&self, variant: &Variant, (number, all): (usize, usize), stop: &Shutdown) -> Result<PathBuf, String> {
        self.exists()?;
        if stop.is_begun() {
            return Err(String::from("it was interrupted before it was built"));
        }
        let name = variant.binary.name();
        let target = self.target.join(variant.settings.to_string());
        let patches = variant.patches()?;
        let mut command = if patches.is_empty() {
            cargo(variant, &self.root, &target)
        } else {
            let names: Vec<&str> = patches.iter().map(|patch| patch.name).collect();
            let copy = self.target.join("patched").join(names.join("+"));
            let arguments = patch::copy(&self.root, &patches, &copy)?;
            let mut command = cargo(variant, &copy, &target);
            command.args(arguments);
            command
        };
        if variant.settings.patch.is_none() {
            command.arg("--locked"); // a patched dependency changes the lock file
        }
        build::run(command, &format!("building {number} of {all}: {name} into {}", target.display()), stop)?;
        Ok(target.join("release").join(format!("{name}{}", std::env::consts::EXE_SUFFIX)))
    }
}

/// The command that builds a variant of the sources in `root`.
fn cargo(Variant { binary, settings }: &Variant, root: &Path, target: &Path) -> Command {
    let BuildSettings { lto, codegen_units, allocator, .. } = settings;
    let lto = if lto == "false" { lto.clone() } else { format!("{lto:?}") };
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // cargo runs in the package's directory, so that it uses the package's toolchain.
    command.current_dir(root.join(PACKAGE)).args(["build", "--color=never", "--release"]);
    command.arg("--target-dir").arg(target).args(["--bin", binary.name(), "--features", binary.feature()]);
    if allocator != "system" {
        command.args(["--features", allocator]);
    }
    command.args(["--config", &format!("profile.release.lto={lto}")]);
    command.args(["--config", &format!("profile.release.codegen-units={codegen_units}")]);
    command.env("CARGO_ENCODED_RUSTFLAGS", rustflags(settings).join("\u{1f}"));
    command
}

fn rustflags(settings: &BuildSettings) -> Vec<&'static str> {
    [
        // A patch can leave code of a dependency unused.
        (settings.patch.is_some(), "--cap-lints=allow"),
        (settings.target_cpu == "native", "-Ctarget-cpu=native"),
    ]
    .into_iter()
    .filter_map(|(is_set, flag)| is_set.then_some(flag))
    .collect()
}

/// The fingerprint of a program: the length of its file in bytes, and a hash of the file (FNV-1a).
///
/// # Errors
///
/// Returns an error if the file cannot be read.
pub fn fingerprint(program: &Path) -> io::Result<(u64, String)> {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = fs::read(program)?;
    let hash = bytes.iter().fold(BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    Ok((bytes.len() as u64, format!("{hash:016x}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::rung::{STEPS, rungs};

    #[test]
    fn the_package_has_the_features() {
        let manifest = fs::read_to_string(LadderSources::new(None).root.join(PACKAGE).join("Cargo.toml")).unwrap();
        for feature in ["serve", "all", "warp", "jemalloc", "mimalloc"] {
            assert!(manifest.lines().any(|line| line.starts_with(&format!("{feature} = ["))), "{feature}");
        }
    }

    #[test]
    fn the_smaller_build_has_the_servers_on_threads_and_tokio() {
        for name in ["sequential", "pool_server", "pool_classic/stealing_pool", "tokio_tcp", "tokio_per_core"] {
            assert_eq!(Binary::with(name), Binary::Serve, "{name}");
        }
        for name in ["tokio_hyper", "smol", "futures_pool", "pool_server/futures_tasks", "mine"] {
            assert_eq!(Binary::with(name), Binary::ServeAll, "{name}");
        }
    }

    #[test]
    fn the_settings_are_arguments_of_cargo() {
        let all = rungs(&STEPS);
        let arguments = |settings: &BuildSettings| {
            let variant = Variant { binary: Binary::Serve, settings: settings.clone() };
            let command = cargo(&variant, Path::new("/s"), Path::new("/t"));
            let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
            let flags = command.get_envs().find(|(name, _)| *name == "CARGO_ENCODED_RUSTFLAGS").unwrap().1.unwrap();
            (args.join(" "), flags.to_string_lossy().into_owned())
        };
        let (lowest, flags) = arguments(&all[0].settings);
        assert!(lowest.contains("lto=false") && lowest.contains("codegen-units=16"), "{lowest}");
        assert!(!lowest.contains("malloc") && flags.is_empty(), "{lowest} {flags}");
        let (highest, flags) = arguments(&all[STEPS.len()].settings);
        assert!(highest.contains("lto=\"fat\"") && highest.contains("--features jemalloc"), "{highest}");
        assert_eq!(flags, "-Ctarget-cpu=native");
    }

    #[test]
    fn the_lower_rungs_of_our_servers_are_patched() {
        let names = |binary: Binary, settings: &BuildSettings| -> Vec<&str> {
            let variant = Variant { binary, settings: binary.built_with(settings) };
            variant.patches().unwrap().iter().map(|patch| patch.name).collect()
        };
        let mut settings = BuildSettings::lowest();
        assert_eq!(names(Binary::Serve, &settings), ["without-pipeline-flush", "without-date-cache"]);
        assert!(names(Binary::Warp, &settings).is_empty());
        settings.pipeline_flush = true;
        settings.patch = Some(String::from("waker-array"));
        assert_eq!(names(Binary::ServeAll, &settings), ["without-date-cache", "waker-array"]);
        assert_eq!(names(Binary::Warp, &settings), ["waker-array"]);
        (settings.date_cache, settings.patch) = (true, None);
        assert!(names(Binary::Serve, &settings).is_empty());
    }

    #[test]
    fn warp_is_built_once_for_the_settings_of_its_start() {
        let mut settings = BuildSettings::lowest();
        settings.pipeline_flush = true;
        assert_eq!(Binary::Warp.built_with(&settings), BuildSettings::lowest());
        assert_eq!(Binary::Serve.built_with(&settings), settings);
    }

    #[test]
    fn without_sources_nothing_is_built() {
        let variant = Variant { binary: Binary::Warp, settings: BuildSettings::lowest() };
        let built = LadderSources::new(Some(Path::new("/nonexistent"))).build(&[variant], &Shutdown::new());
        assert!(matches!(&built[..], [Err(why)] if why.contains("/nonexistent/benches/ladder has no Cargo.toml")));
    }
}
