//! Other people's frameworks, which take part where they are asked for: a package of its own, built when it is needed.
//!
//! Invariant: a peer that cannot be built is named with the reason and keeps nobody else out. Cost: minutes the first time,
//! and a look at the files later; none of it is measured, for it is over before the first turn.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;
use polyserve::Shutdown;

use super::launch::{AddressFrom, Launch};
use crate::allocator;

/// The peers: the package has a binary of each name.
pub const NAMES: [&str; 6] = ["hyper", "axum", "actix-web", "ntex", "warp", "may_minihttp"];

/// What their names begin with in tables: `peer/hyper`.
pub const PREFIX: &str = "peer/";

/// The package of the peers, and how it is built.
#[derive(Clone, Debug)]
pub struct Package {
    dir: PathBuf,
    target: PathBuf,
    feature: Option<&'static str>,
}

/// A peer that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name: one of [`NAMES`].
    pub name: &'static str,
    /// Its program, or why it cannot be built.
    pub program: Result<PathBuf, String>,
}

impl Peer {
    /// Its name in tables.
    pub fn title(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }
}

impl Package {
    /// The package in `dir`, or the one beside this crate's sources; with the allocator of that name, where it is one that
    /// peers can have.
    pub fn new(dir: Option<&Path>, allocator: &str) -> Self {
        let feature = [allocator::JEMALLOC, allocator::MIMALLOC].into_iter().find(|feature| *feature == allocator);
        let (dir, target) = match dir {
            Some(dir) => {
                let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned()); // cargo is started there
                let target = dir.join("target/peers");
                (dir, target)
            }
            None => {
                let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
                let root = root.canonicalize().unwrap_or(root);
                (root.join("benches/peers/rust"), root.join("target/peers"))
            }
        };
        Self { dir, target, feature }
    }

    /// Builds the peers of these names, and says on standard error that it does.
    pub fn build(&self, names: &[&'static str], stop: &Shutdown) -> Vec<Peer> {
        let built = match (self.dir.join("Cargo.toml").is_file(), names) {
            (_, []) => return Vec::new(),
            (false, _) => Err(format!("{} holds no package", self.dir.display())),
            (true, _) => self.cargo(names, stop),
        };
        let alone = |name| match &built {
            Ok(()) => Ok(()),
            // One that is broken must not keep the others out.
            Err(_) if names.len() > 1 && self.dir.is_dir() && !stop.is_begun() => self.cargo(&[name], stop),
            Err(why) => Err(why.clone()),
        };
        let program = |name| self.target.join("release").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        let peer = |name| {
            let program = alone(name).map(|()| program(name)).map_err(|why| format!("not run: {why}"));
            Peer { name, program }
        };
        names.iter().copied().map(peer).collect()
    }

    fn cargo(&self, names: &[&str], stop: &Shutdown) -> Result<(), String> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // There, so that the toolchain is the one that the package asks for.
        command.current_dir(&self.dir).args(["build", "--release", "--locked", "--keep-going", "--color=never"]);
        command.arg("--target-dir").arg(&self.target);
        command.args(names.iter().flat_map(|name| ["--bin", name]));
        command.args(self.feature.into_iter().flat_map(|feature| ["--features", feature]));
        let notice = format!("building {} into {}", names.join(", "), self.target.display());
        run(command, &notice, stop)
    }
}

/// How `program` is started: with so many workers, if that was said; otherwise it has one for each core.
pub fn launch(program: &Path, workers: Option<usize>) -> Launch {
    let mut args: Vec<OsString> = ["--until-stdin-ends", "--listen=127.0.0.1:0"].map(OsString::from).into();
    args.extend(workers.map(|workers| format!("--workers={workers}").into()));
    let address = AddressFrom::Line("listening on ".into());
    Launch { program: program.to_owned(), args, env: Vec::new(), address }
}

/// How often it is looked whether the run is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of its output that are kept.
const LINES: usize = 50;

/// Runs `command` to its end: what it said last where that is no good one.
fn run(mut command: Command, notice: &str, stop: &Shutdown) -> Result<(), String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cargo cannot be started: {error}"))?;
    let spinner = ProgressBar::new_spinner(); // draws nothing where standard error is no terminal
    spinner.set_message(notice.to_owned());
    if !std::io::stderr().is_terminal() {
        let _ = writeln!(std::io::stderr(), "{notice}"); // nobody may read it
    }
    let lines = child.stderr.take().map(lines);
    let said = lines.map(|lines| hear(&lines, &mut child, &spinner, notice, stop)).unwrap_or_default();
    let status = child.wait().map_err(|error| format!("cargo cannot be waited for: {error}"))?;
    spinner.finish_and_clear();
    match status.success() {
        true => Ok(()),
        false if stop.is_begun() => Err(String::from("it was interrupted while it was built")),
        false => Err(reason(&said)),
    }
}

/// What `child` says, until it says no more; it is ended where the run is to end.
fn hear(
    lines: &Receiver<String>,
    child: &mut Child,
    spinner: &ProgressBar,
    notice: &str,
    stop: &Shutdown,
) -> VecDeque<String> {
    let mut said = VecDeque::new();
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                spinner.set_message(format!("{notice}: {}", line.trim()));
                if said.len() == LINES {
                    said.pop_front();
                }
                said.push_back(line);
            }
            Err(RecvTimeoutError::Disconnected) => return said,
            Err(RecvTimeoutError::Timeout) if stop.is_begun() => {
                let _ = child.kill(); // nothing where it has ended
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        spinner.tick();
    }
}

fn lines(out: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    let read = move || {
        // What is no text ends it; the pipe is closed then, and cargo writes to nobody.
        BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    };
    // Without a thread nothing is heard: the channel is closed at once.
    let _ = thread::Builder::new().name("cargo".into()).spawn(read);
    receiver
}

/// The first error that cargo names, and what it gives as its last cause.
fn reason(said: &VecDeque<String>) -> String {
    let full = || said.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
    let error = full().find(|line| line.starts_with("error")).or_else(|| full().next_back());
    let cause = full().skip_while(|line| *line != "Caused by:").last();
    match (error, cause) {
        (Some(error), Some(cause)) if cause != error => format!("{error}: {cause}"),
        (Some(error), _) => error.to_owned(),
        (None, _) => String::from("cargo failed and did not say why"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MANIFEST: &str =
        "[package]\nname = \"few\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n[features]\njemalloc = []\n";
    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"few\"\nversion = \"0.1.0\"\n";

    /// A package that has one of the binaries and one that does not compile.
    #[test]
    fn one_that_cannot_be_built_is_named_and_keeps_nobody_out() {
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
        assert!(why(axum).contains("not run: ") && why(axum).contains("axum"), "{}", why(axum));
        assert!(why(warp).contains("not run: error"), "{}", why(warp));
        assert_eq!(warp.title(), "peer/warp");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn where_there_is_no_package_nobody_is_built() {
        let nowhere = Path::new("/nonexistent/peers");
        let peers = Package::new(Some(nowhere), allocator::SYSTEM).build(&["hyper", "warp"], &Shutdown::new());
        assert_eq!(peers.len(), 2);
        assert!(peers.iter().all(|peer| peer.program.clone().is_err_and(|why| why.contains("holds no package"))));
        assert!(
            Package::new(None, allocator::SYSTEM).dir.join("Cargo.toml").is_file(),
            "ours is where it was looked for"
        );
    }

    #[test]
    fn every_name_is_a_binary_of_the_package() {
        for name in NAMES {
            let source = Package::new(None, allocator::SYSTEM).dir.join(format!("src/bin/{name}.rs"));
            assert!(source.is_file(), "{}", source.display());
        }
    }

    #[test]
    fn reasons() {
        let said = |text: &str| text.lines().map(str::to_owned).collect::<VecDeque<_>>();
        let net = "   Updating index\nerror: failed to get `x`\n\nCaused by:\n  a\n\nCaused by:\n  no network\n";
        assert_eq!(reason(&said(net)), "error: failed to get `x`: no network");
        assert_eq!(reason(&said("")), "cargo failed and did not say why");
    }
}
