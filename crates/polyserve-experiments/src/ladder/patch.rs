//! Rungs that edit a dependency. Their package is built with an edited copy of the dependency.
//!
//! The copy is made at build time, from cargo's source of the locked version. Invariant: an edit that does not fit that
//! source is an error, so that no rung is measured without its edit. Cost: `cargo metadata`, and a copy of two
//! directories.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// An edit of a file of a dependency.
#[derive(Debug)]
pub struct Patch {
    /// The name of the rung.
    pub name: &'static str,
    /// The dependency.
    pub dependency: &'static str,
    file: &'static str,
    edits: &'static [Edit],
    /// A dependency that the edit needs, in TOML.
    needs: &'static str,
}

/// An edit. The first text is in the file exactly once.
#[derive(Debug)]
enum Edit {
    /// Replaces the first text by the second.
    Replace(&'static str, &'static str),
    /// Appends a text at the end.
    Append(&'static str),
    /// Replaces the whole file, which has each of these texts, by the last text.
    Whole(&'static [&'static str], &'static str),
}

/// tokio's list of wakers as it was before the published change: all its elements are written first.
const INITIALISED_WAKERS: &str = "\
use std::task::Waker;

const NUM_WAKERS: usize = 32;

pub(crate) struct WakeList {
    inner: [Option<Waker>; NUM_WAKERS],
    curr: usize,
}

impl WakeList {
    pub(crate) fn new() -> Self {
        Self { inner: [const { None }; NUM_WAKERS], curr: 0 }
    }

    #[inline]
    pub(crate) fn can_push(&self) -> bool {
        self.curr < NUM_WAKERS
    }

    pub(crate) fn push(&mut self, val: Waker) {
        self.inner[self.curr] = Some(val);
        self.curr += 1;
    }

    pub(crate) fn wake_all(&mut self) {
        let count = std::mem::take(&mut self.curr);
        for waker in &mut self.inner[..count] {
            if let Some(waker) = waker.take() {
                waker.wake();
            }
        }
    }
}
";

/// One reading of the clock in 256.
const FEWER_READINGS: &str = "
thread_local!(static CHECKS: std::cell::Cell<u8> = const { std::cell::Cell::new(0) });

fn clock_is_due() -> bool {
    CHECKS.with(|checks| {
        let count = checks.get().wrapping_add(1);
        checks.set(count);
        count == 0
    })
}
";

/// All patches.
pub(super) static PATCHES: [Patch; 3] = [
    Patch {
        name: "waker-array",
        dependency: "tokio",
        file: "src/util/wake_list.rs",
        edits: &[Edit::Whole(
            &[
                "pub(crate) struct WakeList",
                "pub(crate) fn new() -> Self",
                "pub(crate) fn can_push(&self) -> bool",
                "pub(crate) fn push(&mut self, val: Waker)",
                "pub(crate) fn wake_all(&mut self)",
            ],
            INITIALISED_WAKERS,
        )],
        needs: "",
    },
    Patch {
        name: "header-hash",
        dependency: "http",
        file: "src/header/map.rs",
        edits: &[Edit::Replace("let mut h = FnvHasher::new();", "let mut h = ahash::AHasher::default();")],
        needs: "\n[dependencies.ahash]\nversion = \"0.8\"\ndefault-features = false\n",
    },
    Patch {
        name: "clock-reads",
        dependency: "hyper",
        file: "src/common/date.rs",
        edits: &[
            Edit::Replace(
                "        let now = SystemTime::now();\n        if now > self.next_update {",
                "        if !clock_is_due() {\n            return;\n        }\n        let now = SystemTime::now();\n        if now > self.next_update {",
            ),
            Edit::Append(FEWER_READINGS),
        ],
        needs: "",
    },
];

impl Patch {
    /// The patch of this rung; `None` if the rung has none.
    pub fn of(rung: &str) -> Option<&'static Self> {
        PATCHES.iter().find(|patch| patch.name == rung)
    }

    /// Copies the package in `package` into `target`, with the edited dependency. The copy has its own lock file.
    ///
    /// # Errors
    ///
    /// Returns an error if the dependency is missing, the edit does not fit its source, or the copy cannot be written.
    pub fn copy(&self, package: &Path, target: &Path) -> Result<(), String> {
        let write_error = |error: io::Error| format!("{} cannot be written: {error}", target.display());
        let source = source_of(package, self.dependency)?;
        let edited = self.edited(&source)?;
        let dependency = target.join(self.dependency);
        match fs::remove_dir_all(target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(write_error(error)),
            _ => {}
        }
        copy_dir(&source, &dependency)
            .and_then(|()| copy_dir(package, &target.join("package")))
            .map_err(write_error)?;
        fs::write(dependency.join(self.file), edited).map_err(write_error)?;
        append(&dependency.join("Cargo.toml"), self.needs).map_err(write_error)?;
        let manifest = target.join("package/Cargo.toml");
        let parent = package.parent().and_then(Path::parent).unwrap_or(package);
        let text = fs::read_to_string(&manifest).map_err(write_error)?;
        let text = text.replace("path = \"../../", &format!("path = \"{}/", parent.display()));
        let patched = format!("\n[patch.crates-io]\n{0} = {{ path = \"../{0}\" }}\n", self.dependency);
        fs::write(&manifest, text + &patched).map_err(write_error)
    }

    /// The edited file of the dependency in `source`.
    fn edited(&self, source: &Path) -> Result<String, String> {
        let file = source.join(self.file);
        let unexpected = |why: &str| format!("{} {why}, so the rung {} does not fit it", file.display(), self.name);
        let mut text = fs::read_to_string(&file).map_err(|error| unexpected(&format!("cannot be read ({error})")))?;
        for edit in self.edits {
            let required: &[&str] = match edit {
                Edit::Replace(from, _) => &[*from],
                Edit::Whole(texts, _) => texts,
                Edit::Append(_) => &[],
            };
            if let Some(missing) = required.iter().find(|part| text.matches(**part).count() != 1) {
                return Err(unexpected(&format!("does not have {missing:?} once")));
            }
            text = match edit {
                Edit::Replace(from, to) => text.replace(from, to),
                Edit::Append(more) => text + more,
                Edit::Whole(_, whole) => (*whole).to_owned(),
            };
        }
        Ok(text)
    }
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

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, copy) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() { copy_dir(&source, &copy)? } else { fs::copy(&source, &copy).map(drop)? }
    }
    Ok(())
}

fn append(file: &Path, text: &str) -> io::Result<()> {
    let whole = fs::read_to_string(file)?;
    fs::write(file, whole + text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyserve_lab::fixtures::TestDir;

    /// The workspace has the same versions as the package of the rungs.
    #[test]
    fn each_patch_fits_the_locked_version() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
        for patch in &PATCHES {
            let source = source_of(workspace, patch.dependency).unwrap();
            let edited = patch.edited(&source).unwrap();
            assert_ne!(edited, fs::read_to_string(source.join(patch.file)).unwrap(), "{}", patch.name);
        }
    }

    #[test]
    fn a_source_that_an_edit_does_not_fit_is_an_error() {
        let dir = TestDir::new("ladder-patch");
        let patch = Patch::of("header-hash").unwrap();
        let file = dir.join(patch.file);
        assert!(patch.edited(&dir).unwrap_err().contains("cannot be read"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let line = "let mut h = FnvHasher::new();\n";
        fs::write(&file, line.repeat(2)).unwrap();
        let why = patch.edited(&dir).unwrap_err();
        assert!(why.contains("does not have") && why.contains("header-hash"), "{why}");
        fs::write(&file, line).unwrap();
        assert_eq!(patch.edited(&dir).unwrap(), "let mut h = ahash::AHasher::default();\n");
    }
}
