//! Rungs with other sources: patches are applied to a copy of our sources, or to a copy of a dependency.
//!
//! The patches are files in `benches/ladder/patches`. A dependency is copied from cargo's source of the locked version.
//! Invariant: a patch that does not apply is an error, so that no rung is measured without its patch. Cost: a copy of some
//! 10 MB, git for each patch, and `cargo metadata` for a dependency.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The directory of the ladder's package in our sources.
pub(super) const PACKAGE: &str = "benches/ladder";

/// Our sources that the ladder builds.
const OURS: [&str; 3] = ["Cargo.toml", "crates", PACKAGE];

/// A patch.
#[derive(Debug)]
pub struct Patch {
    /// The name of the file, without `.patch`.
    pub name: &'static str,
    /// The dependency that it changes; `None` for our sources.
    pub dependency: Option<&'static str>,
}

/// All patches. Those of our sources remove what a rung adds; the others have the name of their rung.
pub(super) static PATCHES: [Patch; 5] = [
    Patch { name: "without-pipeline-flush", dependency: None },
    Patch { name: "without-date-cache", dependency: None },
    Patch { name: "waker-array", dependency: Some("tokio") },
    Patch { name: "header-hash", dependency: Some("http") },
    Patch { name: "clock-reads", dependency: Some("hyper") },
];

impl Patch {
    /// The patch of this name; `None` if there is none.
    pub fn of(name: &str) -> Option<&'static Self> {
        PATCHES.iter().find(|patch| patch.name == name)
    }

    /// Applies the patch of our sources in `root` to `copy`, a copy of `original`. With `--check`, only tests whether it applies.
    fn apply(&self, root: &Path, original: &Path, copy: &Path, options: &[&str]) -> Result<(), String> {
        let file = root.join(PACKAGE).join("patches").join(format!("{}.patch", self.name));
        let mut command = Command::new("git");
        command.arg("apply").args(options).arg(&file).current_dir(copy);
        // In a repository, git would take the paths as relative to its root.
        command
            .env("GIT_CEILING_DIRECTORIES", copy.parent().unwrap_or(copy))
            .env_remove("GIT_DIR")
            .env_remove("GIT_WORK_TREE");
        let output = command.output().map_err(|error| format!("git cannot be started: {error}"))?;
        let why = String::from_utf8_lossy(&output.stderr);
        let failed = || format!("{} does not apply to {}: {}", file.display(), original.display(), why.trim());
        if output.status.success() { Ok(()) } else { Err(failed()) }
    }
}

/// Copies our sources in `root` into `target`, with `patches`. Returns the arguments of cargo that select the patched
/// dependencies.
///
/// # Errors
///
/// Returns an error if a dependency is missing, a patch does not apply, or the copy cannot be written.
pub(super) fn copy(root: &Path, patches: &[&Patch], target: &Path) -> Result<Vec<String>, String> {
    let not_copied = |error: io::Error| format!("the sources cannot be copied to {}: {error}", target.display());
    let new = target.with_extension("new");
    let _ = fs::remove_dir_all(&new); // an interrupted run may have left it
    fs::create_dir_all(&new).map_err(not_copied)?;
    for part in OURS {
        mirror(&root.join(part), &new.join(part)).map_err(not_copied)?;
    }
    let mut arguments = Vec::new();
    for patch in patches {
        let Some(dependency) = patch.dependency else {
            patch.apply(root, root, &new, &[])?;
            continue;
        };
        let source = source_of(&root.join(PACKAGE), dependency)?;
        let copy = new.join(dependency);
        mirror(&source, &copy).map_err(not_copied)?;
        patch.apply(root, &source, &copy, &[])?;
        let path = target.join(dependency);
        arguments.extend([String::from("--config"), format!("patch.crates-io.{dependency}.path={path:?}")]);
    }
    mirror(&new, target).and_then(|()| fs::remove_dir_all(&new)).map_err(not_copied)?;
    Ok(arguments)
}

/// Makes `to` a copy of `from`, without cargo's build directories. Equal files keep their time, so that cargo does not build
/// them again.
fn mirror(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        let bytes = fs::read(from)?;
        return if fs::read(to).is_ok_and(|old| old == bytes) { Ok(()) } else { fs::write(to, bytes) };
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(to)? {
        let old = entry?;
        match from.join(old.file_name()).exists() {
            true => {}
            false if old.file_type()?.is_dir() => fs::remove_dir_all(old.path())?,
            false => fs::remove_file(old.path())?,
        }
    }
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        if name != "target" {
            mirror(&from.join(&name), &to.join(&name))?;
        }
    }
    Ok(())
}

/// The directory of the source of a dependency, in the version of the package's lock file.
fn source_of(package: &Path, dependency: &str) -> Result<PathBuf, String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(package).args(["metadata", "--locked", "--all-features", "--format-version=1"]);
    let output = command.output().map_err(|error| format!("cargo cannot be started: {error}"))?;
    let failed = || format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|_| failed())?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifest =
        packages.filter(|package| package["name"] == dependency).find_map(|package| package["manifest_path"].as_str());
    let manifest = manifest.ok_or_else(|| format!("the package does not depend on {dependency}"))?;
    Ok(Path::new(manifest).parent().unwrap_or(Path::new("")).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::TestDir;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
    }

    /// The workspace has the same versions of the dependencies as the package of the ladder.
    #[test]
    fn every_patch_applies() {
        let root = root();
        for patch in &PATCHES {
            let source = patch.dependency.map_or_else(|| root.clone(), |name| source_of(&root, name).unwrap());
            patch.apply(&root, &source, &source, &["--check"]).unwrap();
        }
        let mut files: Vec<_> = fs::read_dir(root.join(PACKAGE).join("patches")).unwrap().map(Result::unwrap).collect();
        files.retain(|file| !PATCHES.iter().any(|patch| file.file_name() == *format!("{}.patch", patch.name)));
        assert!(files.is_empty(), "no rung has the patches {files:?}");
    }

    #[test]
    fn a_copy_has_its_patches_and_files_that_stay_keep_their_time() {
        let (root, dir) = (root(), TestDir::new("ladder-patch"));
        let target = dir.join("copy");
        let ours: Vec<&Patch> = PATCHES.iter().filter(|patch| patch.dependency.is_none()).collect();
        let text = |of: &Path, file: &str| fs::read_to_string(of.join(file)).unwrap();
        let time = |file: &str| fs::metadata(target.join(file)).unwrap().modified().unwrap();
        let [read, respond] =
            ["read", "respond"].map(|name| format!("crates/polyserve-serving/src/http1/session/{name}.rs"));
        assert!(copy(&root, &ours, &target).unwrap().is_empty());
        let (read_time, respond_time) = (time(&read), time(&respond));
        fs::write(target.join("left-over"), "").unwrap();
        assert!(copy(&root, &ours[1..], &target).unwrap().is_empty());
        assert_eq!(text(&target, &read), text(&root, &read), "it is without the patch again");
        assert_ne!(text(&target, &respond), text(&root, &respond));
        assert!(time(&read) != read_time && time(&respond) == respond_time);
        assert!(!target.join("left-over").exists() && !target.with_extension("new").exists());
    }

    #[test]
    fn a_patch_that_does_not_apply_is_an_error() {
        let (root, dir) = (root(), TestDir::new("ladder-misfit"));
        fs::create_dir_all(&*dir).unwrap();
        let patch = Patch::of("clock-reads").unwrap();
        let why = patch.apply(&root, Path::new("hyper-2"), &dir, &["--check"]).unwrap_err();
        assert!(why.contains("patches/clock-reads.patch does not apply to hyper-2: error:"), "{why}");
        assert!(why.contains("date.rs"), "{why}");
    }
}
