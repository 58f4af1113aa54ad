//! The Rust frameworks of other projects, which take part on request. They form a package of their own, which is built
//! if one of them is needed.
//!
//! Invariant: a peer that cannot be built is listed with the reason. It does not prevent the others from taking part.
//! Cost: minutes for the first build, later a check of the files. No build is measured, because all end before the
//! first turn.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use polyserve::Shutdown;

use super::{AddressFrom, Launch, build};
use crate::allocator;

/// The peers. The package has a binary of each name.
pub const NAMES: [&str; 7] = ["hyper", "axum", "actix-web", "ntex", "warp", "may_minihttp", BARE_POOL];

/// The thread pool without timeouts. A connection occupies its thread until the client closes it.
pub const BARE_POOL: &str = "bare_pool";

/// The prefix of the names in tables: `peer/hyper`.
pub const PREFIX: &str = "peer/";

/// The package of the peers, and the directory for its binaries.
#[derive(Clone, Debug)]
pub struct Package {
    dir: PathBuf,
    target: PathBuf,
    feature: Option<&'static str>,
}

/// A peer that was requested, after its build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The name: one of [`NAMES`].
    pub name: &'static str,
    /// The program, or the reason why it cannot be built.
    pub program: Result<PathBuf, String>,
}

impl Peer {
    /// The name in tables.
    pub fn title(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }
}

impl Package {
    /// The package in `dir`, or else the package in this repository. `allocator` is used if peers support it.
    pub fn new(dir: Option<&Path>, allocator: &str) -> Self {
        let feature = [allocator::JEMALLOC, allocator::MIMALLOC].into_iter().find(|feature| *feature == allocator);
        let (dir, target) = build::package_dirs(dir, "benches/peers/rust", "target/peers");
        Self { dir, target, feature }
    }

    /// The package of the twins in this repository.
    pub fn twins(allocator: &str) -> Self {
        let (dir, target) = build::package_dirs(None, "benches/twins", "target/twins");
        Self { dir, target, ..Self::new(None, allocator) }
    }

    /// Builds the peers of these names, and prints that on standard error.
    pub fn build(&self, names: &[&'static str], stop: &Shutdown) -> Vec<Peer> {
        let program = |name| self.target.join("release").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        let built = build::all_or_each(names, stop, |names| match self.dir.join("Cargo.toml").is_file() {
            false => Err(format!("{} holds no package", self.dir.display())),
            true => self.cargo(names, stop),
        });
        built.into_iter().map(|(name, built)| Peer { name, program: built.map(|()| program(name)) }).collect()
    }

    fn cargo(&self, names: &[&str], stop: &Shutdown) -> Result<(), String> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // In the package's directory, so that its own toolchain file applies.
        command.current_dir(&self.dir).args(["build", "--release", "--locked", "--keep-going", "--color=never"]);
        command.arg("--target-dir").arg(&self.target);
        command.args(names.iter().flat_map(|name| ["--bin", name]));
        command.args(self.feature.into_iter().flat_map(|feature| ["--features", feature]));
        let notice = format!("building {} into {}", names.join(", "), self.target.display());
        build::run(command, &notice, stop)
    }
}

/// Returns the command that starts `program`. The default number of workers is one for each core.
pub fn launch(program: &Path, workers: Option<usize>) -> Launch {
    let mut args: Vec<OsString> = ["--until-stdin-ends", "--listen=127.0.0.1:0"].map(OsString::from).into();
    args.extend(workers.map(|workers| format!("--workers={workers}").into()));
    let address = AddressFrom::Line("listening on ".into());
    Launch { program: program.to_owned(), args, env: Vec::new(), address }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MANIFEST: &str =
        "[package]\nname = \"few\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n[features]\njemalloc = []\n";
    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"few\"\nversion = \"0.1.0\"\n";

    /// A package with one good binary and one that does not compile.
    #[test]
    fn a_broken_program_does_not_prevent_the_others() {
        let dir = std::env::temp_dir().join(format!("polyserve-peers-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("src/bin")).unwrap();
        for (file, text) in [
            ("Cargo.toml", MANIFEST),
            ("Cargo.lock", LOCK),
            ("src/bin/hyper.rs", "fn main() { assert!(cfg!(feature = \"jemalloc\")); }"),
            ("src/bin/warp.rs", "fn main() { does not compile }"),
        ] {
            fs::write(dir.join(file), text).unwrap();
        }
        let peers = Package::new(Some(&dir), allocator::JEMALLOC).build(&["hyper", "axum", "warp"], &Shutdown::new());
        let [hyper, axum, warp] = peers.as_slice() else { panic!("{peers:?}") };
        let program = hyper.program.as_ref().unwrap();
        assert!(Command::new(program).status().unwrap().success(), "it has the feature of the allocator");
        let why = |peer: &Peer| peer.program.clone().unwrap_err();
        assert!(why(axum).contains("axum"), "{}", why(axum));
        assert!(why(warp).starts_with("error"), "{}", why(warp));
        assert_eq!(warp.title(), "peer/warp");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn without_a_package_nothing_is_built() {
        let nowhere = Path::new("/nonexistent/peers");
        let peers = Package::new(Some(nowhere), allocator::SYSTEM).build(&["hyper", "warp"], &Shutdown::new());
        assert_eq!(peers.len(), 2);
        assert!(peers.iter().all(|peer| peer.program.clone().is_err_and(|why| why.contains("holds no package"))));
        assert!(
            Package::new(None, allocator::SYSTEM).dir.join("Cargo.toml").is_file(),
            "the package of this repository is found"
        );
    }

    #[test]
    fn every_name_is_a_binary_of_the_package() {
        for name in NAMES {
            let source = Package::new(None, allocator::SYSTEM).dir.join(format!("src/bin/{name}.rs"));
            assert!(source.is_file(), "{}", source.display());
        }
    }
}
