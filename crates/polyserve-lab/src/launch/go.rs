//! The Go programs: the twin of the first published server, the same entities on net/http and on fasthttp, and the twin
//! of the tasks. They form one Go module, which is built if one of its programs is needed.
//!
//! Invariant: a program that cannot be built is listed with the reason, for example that Go is not installed. It does
//! not prevent the others from taking part.
//!
//! Cost: half a minute for the first build; later, the time in which `go build` checks its cache.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use polyserve::{Shutdown, cores};

use super::{AddressFrom, Launch, build};
use crate::experiment::distinct;

/// The prefix of the names in tables: `go/nethttp`.
pub const PREFIX: &str = "go/";

/// The program of the tasks. It is no server.
pub const TASKS: &str = "tasks";

/// The time that a silent new connection may occupy a goroutine of a twin.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The program of the twins.
const TWIN: &str = "twin";

/// A server in Go: a program, with the arguments that select the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoServer {
    /// The name in tables and flags: `go/twin-rwmutex`.
    pub name: &'static str,
    /// The program in the module: `twin` is `cmd/twin`. `twin+nogreenteagc` is the same program, built with this `GOEXPERIMENT`.
    pub program: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

impl GoServer {
    const fn new(name: &'static str, program: &'static str, args: &'static [&'static str]) -> Self {
        Self { name, program, args, env: &[] }
    }
}

/// The servers: the twin of the published server with each of its stores, and two servers that use libraries.
pub const SERVERS: [GoServer; 4] = [
    GoServer::new("go/twin-rwmutex", TWIN, &["-store=rwmutex"]),
    GoServer::new("go/twin-syncmap", TWIN, &["-store=syncmap"]),
    GoServer::new("go/nethttp", "nethttp", &[]),
    GoServer::new("go/fasthttp", "fasthttp", &[]),
];

/// The published twin with the published line for each request. The lines are discarded.
pub static PRINTING: GoServer =
    GoServer::new("go/twin-rwmutex-printing", TWIN, &["-store=rwmutex", "-print=/dev/null"]);

/// The published twin without its garbage collector: what the collector costs.
pub static GC_OFF: GoServer =
    GoServer { env: &[("GOGC", "off")], ..GoServer::new("go/twin-rwmutex-gc-off", TWIN, &["-store=rwmutex"]) };

/// The published twin with the garbage collector that Go had before version 1.26.
pub static OLD_GC: GoServer = GoServer::new("go/twin-rwmutex-old-gc", "twin+nogreenteagc", &["-store=rwmutex"]);

/// The variants of the published twin, for the matrix and the stress scenario. Only the matrix has one by default: the first.
pub static VARIANTS: [&GoServer; 3] = [&PRINTING, &GC_OFF, &OLD_GC];

impl GoServer {
    /// All servers, and then the variants.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        SERVERS.iter().chain(VARIANTS)
    }

    /// Returns the server of this name, or `None` if there is none.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|server| server.name == name)
    }

    /// Whether the server is a twin of the published server, with one goroutine for each connection that it serves.
    pub fn is_twin(&self) -> bool {
        self.program.split('+').next() == Some(TWIN)
    }

    /// The maximum number of connections that the server serves concurrently; `None` if unlimited. `workers` overrides
    /// the default.
    pub fn max_concurrent(&self, workers: Option<usize>) -> Option<usize> {
        self.is_twin().then(|| workers.unwrap_or_else(|| cores() * 4))
    }

    /// Returns the command that starts `program`. For a twin, `workers` is the number of goroutines, by default four
    /// for each core. For the other servers, it is the number of cores that Go may use.
    pub fn launch(&self, program: &Path, workers: Option<usize>) -> Launch {
        let env = self.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Launch { env, ..launch(program, self.args, workers) }
    }
}

/// The Go module, and the directory for its programs.
#[derive(Clone, Debug)]
pub struct Module {
    dir: PathBuf,
    target: PathBuf,
}

impl Module {
    /// The module in `dir`, or else the module in this repository.
    pub fn new(dir: Option<&Path>) -> Self {
        let (dir, target) = build::package_dirs(dir, "benches/peers/go", "target/peers/go");
        Self { dir, target }
    }

    /// The module of the twins in this repository.
    pub fn twins() -> Self {
        let (dir, target) = build::package_dirs(None, "benches/twins/go", "target/twins/go");
        Self { dir, target }
    }

    /// Builds each of these programs once, and prints that on standard error. Returns for each program, in the given
    /// order, its file or the reason why it does not run.
    pub fn build(&self, programs: &[&'static str], stop: &Shutdown) -> Vec<(&'static str, Result<PathBuf, String>)> {
        let built = build::all_or_each(&distinct(programs.iter().copied()), stop, |programs| {
            if !self.dir.join("go.mod").is_file() {
                return Err(format!("{} holds no module", self.dir.display()));
            }
            is_installed().and_then(|()| self.go(programs, stop))
        });
        built.into_iter().map(|(program, built)| (program, built.map(|()| self.file(program)))).collect()
    }

    fn go(&self, programs: &[&str], stop: &Shutdown) -> Result<(), String> {
        std::fs::create_dir_all(&self.target)
            .map_err(|error| format!("{} cannot be created: {error}", self.target.display()))?;
        let (usual, others): (Vec<&str>, Vec<&str>) = programs.iter().partition(|program| !program.contains('+'));
        if !usual.is_empty() {
            let mut command = self.command(&self.target.join("")); // a directory, also for one program
            command.args(usual.iter().map(|program| format!("./cmd/{program}")));
            build::run(command, &format!("building {} in Go into {}", usual.join(", "), self.target.display()), stop)?;
        }
        for program in others {
            let Some((source, experiment)) = program.split_once('+') else { continue };
            let mut command = self.command(&self.file(program));
            command.env("GOEXPERIMENT", experiment).arg(format!("./cmd/{source}"));
            build::run(command, &format!("building {source} in Go with GOEXPERIMENT={experiment}"), stop)?;
        }
        Ok(())
    }

    /// The start of a build command with this output.
    fn command(&self, output: &Path) -> Command {
        let mut command = Command::new(GO);
        // The programs call no C. Without cgo the build needs no C compiler.
        command.current_dir(&self.dir).env("CGO_ENABLED", "0").args(["build", "-trimpath", "-o"]).arg(output);
        command
    }

    fn file(&self, program: &str) -> PathBuf {
        self.target.join(format!("{program}{}", std::env::consts::EXE_SUFFIX))
    }
}

const GO: &str = "go";

/// Checks that Go is installed.
///
/// # Errors
///
/// Returns the reason, as tables print it, if Go is not installed or does not run.
pub fn is_installed() -> Result<(), String> {
    build::is_installed(GO, "version")
}

/// Returns the command that starts a server of the module. The server listens on a free port and prints the address as
/// JSON. It ends when its standard input ends, and prints the number of its answers.
pub fn launch(program: &Path, args: &[&str], workers: Option<usize>) -> Launch {
    let fixed = ["-json", "-until-stdin-ends", "-listen=127.0.0.1:0"];
    let workers = workers.map(|workers| format!("-workers={workers}").into());
    let args = fixed.iter().chain(args).map(OsString::from).chain(workers).collect();
    Launch { program: program.to_owned(), args, env: Vec::new(), address: AddressFrom::Json }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{self, Write as _};

    #[test]
    fn without_a_module_nothing_is_built() {
        let built =
            Module::new(Some(Path::new("/nonexistent/go"))).build(&["twin", "fasthttp", "twin"], &Shutdown::new());
        assert_eq!(built.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["twin", "fasthttp"], "each once");
        for (_, file) in built {
            let why = file.unwrap_err();
            assert!(why.contains("holds no module"), "{why}");
        }
        assert!(Module::new(None).build(&[], &Shutdown::new()).is_empty());
    }

    /// A module with one good program and one that does not compile.
    #[test]
    fn a_broken_program_does_not_prevent_the_others() {
        if let Err(why) = is_installed() {
            let _ = writeln!(io::stderr(), "not run: a_broken_program_does_not_prevent_the_others: {why}");
            return; // written directly, because the test harness captures `eprintln`
        }
        let dir = std::env::temp_dir().join(format!("polyserve-go-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        for (file, text) in [
            ("go.mod", "module few\n\ngo 1.24\n"),
            ("cmd/twin/main.go", "package main\n\nfunc main() {}\n"),
            ("cmd/tasks/main.go", "package main\n\nfunc main() { missing() }\n"),
        ] {
            let file = dir.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let built = Module::new(Some(&dir)).build(&["twin", "nethttp", TASKS, "twin+fieldtrack"], &Shutdown::new());
        let [(_, twin), (_, nethttp), (_, tasks), (_, experiment)] = built.as_slice() else { panic!("{built:?}") };
        let settings = |file: &PathBuf| Command::new(GO).args(["version", "-m"]).arg(file).output().unwrap().stdout;
        let has_experiment =
            |file: &PathBuf| String::from_utf8_lossy(&settings(file)).contains("GOEXPERIMENT=fieldtrack");
        assert!(has_experiment(experiment.as_ref().unwrap()) && !has_experiment(twin.as_ref().unwrap()));
        assert!(Command::new(twin.as_ref().unwrap()).status().unwrap().success());
        let why = nethttp.clone().unwrap_err();
        assert!(why.contains("nethttp"), "{why}");
        let why = tasks.clone().unwrap_err();
        assert!(why.contains("missing"), "{why}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn servers_by_their_names() {
        for server in GoServer::all() {
            assert!(server.name.starts_with(PREFIX), "{server:?}");
            assert_eq!(GoServer::named(server.name), Some(server));
        }
        assert_eq!((GoServer::named("twin"), GoServer::named("go/twin")), (None, None));
        let launch = GoServer::named("go/twin-syncmap").unwrap().launch(Path::new("/twin"), Some(8));
        let args = ["-json", "-until-stdin-ends", "-listen=127.0.0.1:0", "-store=syncmap", "-workers=8"];
        assert_eq!((launch.args, launch.address), (args.map(OsString::from).to_vec(), AddressFrom::Json));
    }

    #[test]
    fn the_variants_of_the_twin_are_twins() {
        let env = |server: &GoServer| server.launch(Path::new("/twin"), None).env;
        assert_eq!(env(&GC_OFF), [(OsString::from("GOGC"), OsString::from("off"))]);
        assert!(env(&OLD_GC).is_empty() && env(&PRINTING).is_empty());
        assert!(VARIANTS.iter().all(|server| server.is_twin() && server.max_concurrent(Some(3)) == Some(3)));
        assert!(!GoServer::named("go/nethttp").unwrap().is_twin());
    }
}
