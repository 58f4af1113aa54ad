//! The programs in Go: the twin of the first experiment, the same entities on net/http and on fasthttp, and the twin of the
//! tasks. A module of its own, built when one of them is needed.
//!
//! Invariant: a program that cannot be built, for want of Go or otherwise, is named with the reason and keeps nobody else
//! out. Cost: half a minute the first time, and what `go build` takes to look at its cache later.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use polyserve::Shutdown;

use super::{AddressFrom, Launch, build};

/// What their names begin with in tables: `go/nethttp`.
pub const PREFIX: &str = "go/";

/// The program of the tasks, which is no server.
pub const TASKS: &str = "tasks";

/// How long a new connection may keep a goroutine of a twin to itself before it says a word.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The program of the twins.
const TWIN: &str = "twin";

/// A server in Go: a program, and how it is told to be this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name in tables and flags: `go/twin-rwmutex`.
    pub name: &'static str,
    /// The program in the module: `twin` is `cmd/twin`.
    pub program: &'static str,
    args: &'static [&'static str],
}

/// The servers: the twin of the published one with either store, and two that stand on libraries.
pub const SERVERS: [Server; 4] = [
    Server { name: "go/twin-rwmutex", program: TWIN, args: &["-store=rwmutex"] },
    Server { name: "go/twin-syncmap", program: TWIN, args: &["-store=syncmap"] },
    Server { name: "go/nethttp", program: "nethttp", args: &[] },
    Server { name: "go/fasthttp", program: "fasthttp", args: &[] },
];

impl Server {
    /// The server of this name; `None` where there is none.
    pub fn named(name: &str) -> Option<&'static Self> {
        SERVERS.iter().find(|server| server.name == name)
    }

    /// Whether it is a twin of the published server: a goroutine for each connection that is served at a time.
    pub fn is_twin(&self) -> bool {
        self.program == TWIN
    }

    /// How many connections it serves at a time, if that is bounded: with so many workers, if that was said.
    pub fn at_once(&self, workers: Option<usize>) -> Option<usize> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.is_twin().then(|| workers.unwrap_or_else(|| cores() * 4))
    }

    /// How it is started from its built `program`, with so many workers, if that was said: goroutines of a twin, four
    /// for each core otherwise; what Go may use of the cores for the others.
    pub fn launch(&self, program: &Path, workers: Option<usize>) -> Launch {
        launch(program, self.args, workers)
    }
}

/// The module, and how its programs are built.
#[derive(Clone, Debug)]
pub struct Module {
    dir: PathBuf,
    target: PathBuf,
}

impl Module {
    /// The module in `dir`, or the one beside this crate's sources.
    pub fn new(dir: Option<&Path>) -> Self {
        match dir {
            Some(dir) => {
                let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned()); // go is started there
                let target = dir.join("target/peers/go");
                Self { dir, target }
            }
            None => {
                let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
                let root = root.canonicalize().unwrap_or(root);
                Self { dir: root.join("benches/peers/go"), target: root.join("target/peers/go") }
            }
        }
    }

    /// Builds these programs, each once, and says on standard error that it does. In their order: each with its file, or
    /// why it is not run.
    pub fn build(&self, programs: &[&'static str], stop: &Shutdown) -> Vec<(&'static str, Result<PathBuf, String>)> {
        let mut once: Vec<&'static str> = Vec::new();
        programs.iter().for_each(|program| {
            if !once.contains(program) {
                once.push(program);
            }
        });
        let built = match once.as_slice() {
            [] => return Vec::new(),
            _ if !self.dir.join("go.mod").is_file() => Err(format!("{} holds no module", self.dir.display())),
            all => is_installed().and_then(|()| self.go(all, stop)),
        };
        let alone = |program| match &built {
            Ok(()) => Ok(()),
            // One that is broken must not keep the others out.
            Err(_) if once.len() > 1 && self.dir.is_dir() && is_installed().is_ok() && !stop.is_begun() => {
                self.go(&[program], stop)
            }
            Err(why) => Err(why.clone()),
        };
        let file = |program| self.target.join(format!("{program}{}", std::env::consts::EXE_SUFFIX));
        let named =
            |program| (program, alone(program).map(|()| file(program)).map_err(|why| format!("not run: {why}")));
        once.iter().copied().map(named).collect()
    }

    fn go(&self, programs: &[&str], stop: &Shutdown) -> Result<(), String> {
        std::fs::create_dir_all(&self.target)
            .map_err(|error| format!("{} cannot be made: {error}", self.target.display()))?;
        let mut command = Command::new(GO);
        // Nothing of it calls C; without it there is no C compiler to be missing.
        command.current_dir(&self.dir).env("CGO_ENABLED", "0").args(["build", "-trimpath", "-o"]);
        command.arg(self.target.join("")); // a directory, whoever is built
        command.args(programs.iter().map(|program| format!("./cmd/{program}")));
        let notice = format!("building {} in Go into {}", programs.join(", "), self.target.display());
        build::run(command, &notice, stop)
    }
}

const GO: &str = "go";

/// Whether there is Go.
///
/// # Errors
///
/// Why not, in the words of a table.
pub fn is_installed() -> Result<(), String> {
    let asked =
        Command::new(GO).arg("version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match asked {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("go cannot say its version: {status}")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(String::from("go is not installed")),
        Err(error) => Err(format!("go cannot be started: {error}")),
    }
}

/// How a server of the module is started: on a port of its own choice; it says as JSON where it listens, and in the end
/// what it has answered, and ends where we do.
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
    use std::io::Write as _;

    #[test]
    fn where_there_is_no_module_nobody_is_built() {
        let built =
            Module::new(Some(Path::new("/nonexistent/go"))).build(&["twin", "fasthttp", "twin"], &Shutdown::new());
        assert_eq!(built.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["twin", "fasthttp"], "each once");
        for (_, file) in built {
            let why = file.unwrap_err();
            assert!(why.starts_with("not run: ") && why.contains("holds no module"), "{why}");
        }
        assert!(Module::new(None).build(&[], &Shutdown::new()).is_empty());
    }

    /// A module that has one of the programs and one that does not compile.
    #[test]
    fn one_that_cannot_be_built_is_named_and_keeps_nobody_out() {
        if let Err(why) = is_installed() {
            let _ = writeln!(io::stderr(), "not run: one_that_cannot_be_built_is_named_and_keeps_nobody_out: {why}");
            return; // said past the harness's capture
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
        let built = Module::new(Some(&dir)).build(&["twin", "nethttp", TASKS], &Shutdown::new());
        let [(_, twin), (_, nethttp), (_, tasks)] = built.as_slice() else { panic!("{built:?}") };
        assert!(Command::new(twin.as_ref().unwrap()).status().unwrap().success());
        let why = nethttp.clone().unwrap_err();
        assert!(why.starts_with("not run: ") && why.contains("nethttp"), "{why}");
        let why = tasks.clone().unwrap_err();
        assert!(why.starts_with("not run: ") && why.contains("missing"), "{why}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn servers_by_their_names() {
        for server in &SERVERS {
            assert!(server.name.starts_with(PREFIX), "{server:?}");
            assert_eq!(Server::named(server.name), Some(server));
        }
        assert_eq!((Server::named("twin"), Server::named("go/twin")), (None, None));
        let launch = Server::named("go/twin-syncmap").unwrap().launch(Path::new("/twin"), Some(8));
        let args = ["-json", "-until-stdin-ends", "-listen=127.0.0.1:0", "-store=syncmap", "-workers=8"];
        assert_eq!((launch.args, launch.address), (args.map(OsString::from).to_vec(), AddressFrom::Json));
    }
}
