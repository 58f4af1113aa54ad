//! The twins of the published servers of a page that sometimes waits: the published listings in Rust, and servers on smol, in Go, Node,
//! Deno and Java, which the published series announced.
//!
//! A twin uses no seam of this project. It reads its file for each request. One request in a fixed number waits, counted over
//! the whole server. The last line of output is the number of answers as JSON.
//!
//! Invariant: a twin that cannot run is listed with the reason. It does not prevent the others from taking part.
//!
//! Cost: the builds of [`peers`] and [`go`]. Node, Deno and Java start from the source; Deno is a package
//! of npm, which is downloaded once.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use polyserve::Shutdown;

use super::{AddressFrom, Launch, build, go, peers};

/// A twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageTwin {
    /// The name in tables and flags.
    pub name: &'static str,
    /// Its name in the published figures, if the twin is a published listing.
    pub published_as: Option<&'static str>,
    /// The number of its workers if it has a pool.
    pub workers: Option<usize>,
    program: Program,
}

/// The program of a twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// A binary of the package of the twins.
    Rust(&'static str),
    /// A program of the Go module.
    Go(&'static str),
    /// A source that this interpreter starts.
    Source { interpreter: &'static str, directory: &'static str, file: &'static str },
    /// A source that a program of an npm package starts. The directory has the source and the lock of the package.
    Npm { program: &'static str, args: &'static [&'static str], directory: &'static str, file: &'static str },
}

/// The number of workers of the published pools.
const PUBLISHED_POOL: usize = 100;

/// The first published listing. The other twins are compared with it.
pub const THREAD_POOL: &str = "twin/thread_pool";
/// The listing on the thread pool of the futures crate.
pub const FUTURES: &str = "twin/futures";
/// The listing on async-std, which is discontinued.
pub const ASYNC_STD: &str = "twin/async_std";
/// The same on smol, the named successor of async-std. It is no published listing.
pub const SMOL: &str = "twin/smol";
/// The listing on tokio.
pub const TOKIO: &str = "twin/tokio";

/// The twins.
pub const TWINS: [PageTwin; 9] = [
    PageTwin {
        name: THREAD_POOL,
        published_as: Some("thread-pool-100"),
        workers: Some(PUBLISHED_POOL),
        program: Program::Rust("page-thread-pool"),
    },
    PageTwin {
        name: ASYNC_STD,
        published_as: Some("async-std"),
        workers: None,
        program: Program::Rust("page-async-std"),
    },
    PageTwin { name: SMOL, published_as: None, workers: None, program: Program::Rust("page-smol") },
    PageTwin {
        name: FUTURES,
        published_as: Some("futures-thread-pool-100"),
        workers: Some(PUBLISHED_POOL),
        program: Program::Rust("page-futures"),
    },
    PageTwin { name: TOKIO, published_as: Some("tokio"), workers: None, program: Program::Rust("page-tokio") },
    PageTwin { name: "twin/go", published_as: None, workers: None, program: Program::Go("page") },
    PageTwin {
        name: "twin/node",
        published_as: None,
        workers: None,
        program: Program::Source { interpreter: "node", directory: "benches/peers/node", file: "page.mjs" },
    },
    PageTwin {
        name: "twin/deno",
        published_as: None,
        workers: None,
        program: Program::Npm {
            program: "deno",
            args: &["run", "--quiet", "--no-config", "--allow-net", "--allow-read"],
            directory: "benches/peers/deno",
            file: "page.mjs",
        },
    },
    PageTwin {
        name: "twin/java",
        published_as: None,
        workers: Some(PUBLISHED_POOL),
        program: Program::Source { interpreter: "java", directory: "benches/peers/java", file: "Page.java" },
    },
];

/// The page that a twin answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TwinPage {
    /// The file, which must exist.
    pub file: PathBuf,
    /// The number of requests of which one waits.
    pub every: u64,
    /// The length of a wait. It is rounded up to whole milliseconds.
    pub wait: Duration,
}

/// A twin after its build.
#[derive(Clone, Debug)]
pub struct BuiltTwin {
    /// The twin.
    pub twin: PageTwin,
    /// The binary or the source, or the reason why the twin does not run.
    pub program: Result<PathBuf, String>,
    /// Whether it does not run because a language is not installed.
    pub is_absent: bool,
}

impl PageTwin {
    /// Returns the twin of this name, or `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        TWINS.into_iter().find(|twin| twin.name == name)
    }

    /// Returns the command that starts the twin. `program` is the binary or the source. `workers` is for a twin with a pool.
    pub fn launch(&self, program: &Path, page: &TwinPage, workers: Option<usize>) -> Launch {
        let wait = page.wait.as_nanos().div_ceil(1_000_000);
        let mut flags: Vec<OsString> = vec![format!("--page-every={}", page.every).into()];
        flags.push(format!("--page-wait={wait}ms").into());
        let mut file = OsString::from("--page-file=");
        file.push(&page.file);
        flags.push(file);
        match self.program {
            Program::Go(_) => {
                let mut launch = go::launch(program, &[], workers);
                launch.args.extend(flags);
                launch
            }
            Program::Rust(_) => {
                let mut launch = peers::launch(program, workers);
                launch.args.extend(flags);
                launch
            }
            Program::Source { interpreter, .. } => from_source(interpreter.into(), &[], program, workers, flags),
            Program::Npm { program: name, args, .. } => {
                let directory = program.parent().unwrap_or(Path::new(""));
                from_source(installed(directory, name), args, program, workers, flags)
            }
        }
    }
}

/// Returns the command that starts `source` by `interpreter`, called with `leading_args`.
fn from_source(
    interpreter: PathBuf,
    leading_args: &[&str],
    source: &Path,
    workers: Option<usize>,
    flags: Vec<OsString>,
) -> Launch {
    let mut args: Vec<OsString> = leading_args.iter().map(OsString::from).collect();
    args.push(source.into());
    args.extend(["--until-stdin-ends", "--listen=127.0.0.1:0"].map(OsString::from));
    args.extend(workers.map(|workers| format!("--workers={workers}").into()));
    args.extend(flags);
    Launch { program: interpreter, args, env: Vec::new(), address: AddressFrom::Line(String::from("listening on ")) }
}

/// The program of an npm package that is installed in this directory.
fn installed(directory: &Path, program: &str) -> PathBuf {
    directory.join("node_modules/.bin").join(program)
}

/// Copies the npm package in `source` and its `file` to `directory`, and installs the package there unless its program runs
/// already. A measurement writes nothing into the sources.
fn install(source: &Path, directory: &Path, file: &str, program: &str, stop: &Shutdown) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|error| format!("{} cannot be created: {error}", directory.display()))?;
    for name in ["package.json", "package-lock.json", file] {
        let copied = fs::copy(source.join(name), directory.join(name));
        copied.map_err(|error| format!("{} cannot be copied: {error}", source.join(name).display()))?;
    }
    let program = installed(directory, program);
    let runs = || build::is_installed(&program.to_string_lossy(), "--version");
    if runs().is_ok() {
        return Ok(());
    }
    build::is_installed("npm", "--version")?;
    let mut command = Command::new("npm");
    command.args(["ci", "--no-audit", "--no-fund"]).current_dir(directory);
    build::run(command, &format!("installing {} with npm", program.display()), stop)?;
    runs()
}

/// Builds these twins, and prints each build on standard error. Returns them in the order of [`TWINS`].
pub fn build(asked: &[PageTwin], allocator: &str, stop: &Shutdown) -> Vec<BuiltTwin> {
    let twins = || TWINS.into_iter().filter(|twin| asked.contains(twin));
    let binaries: Vec<_> =
        twins().filter_map(|twin| if let Program::Rust(name) = twin.program { Some(name) } else { None }).collect();
    let programs: Vec<_> =
        twins().filter_map(|twin| if let Program::Go(name) = twin.program { Some(name) } else { None }).collect();
    let in_rust = peers::Package::twins(allocator).build(&binaries, stop);
    let in_go = go::Module::new(None).build(&programs, stop);
    let no_go = !programs.is_empty() && go::is_installed().is_err();
    let not_built = || Err(String::from("it was not built"));
    let built = |twin: PageTwin| {
        let (program, is_absent) = match twin.program {
            Program::Rust(name) => {
                let peer = in_rust.iter().find(|peer| peer.name == name);
                (peer.map_or_else(not_built, |peer| peer.program.clone()), false)
            }
            Program::Go(name) => {
                let file = in_go.iter().find(|(built, _)| *built == name);
                (file.map_or_else(not_built, |(_, file)| file.clone()), no_go)
            }
            Program::Source { interpreter, directory, file } => {
                let source = build::package_dirs(None, directory, directory).0.join(file);
                match build::is_installed(interpreter, "--version") {
                    Err(why) => (Err(why), true),
                    Ok(()) if source.is_file() => (Ok(source), false),
                    Ok(()) => (Err(format!("there is no {}", source.display())), false),
                }
            }
            Program::Npm { program, directory, file, .. } => {
                let (source, directory) = build::package_dirs(None, directory, &format!("target/{program}"));
                let installed = install(&source, &directory, file, program, stop);
                (installed.as_ref().map(|()| directory.join(file)).map_err(String::clone), installed.is_err())
            }
        };
        BuiltTwin { twin, program, is_absent }
    };
    twins().map(built).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_a_source() {
        for twin in TWINS {
            assert_eq!(PageTwin::named(twin.name), Some(twin));
            let (directory, file) = match twin.program {
                Program::Rust(name) => ("benches/twins/src/bin", format!("{name}.rs")),
                Program::Go(name) => ("benches/peers/go/cmd", format!("{name}/main.go")),
                Program::Source { directory, file, .. } | Program::Npm { directory, file, .. } => {
                    (directory, file.to_owned())
                }
            };
            let source = build::package_dirs(None, directory, directory).0.join(file);
            assert!(source.is_file(), "{}", source.display());
        }
        assert_eq!(PageTwin::named("twin"), None);
    }

    #[test]
    fn command_lines() {
        let page = TwinPage { file: "/page.html".into(), every: 10, wait: Duration::from_micros(1500) };
        let flags = ["--page-every=10", "--page-wait=2ms", "--page-file=/page.html"];
        for (name, program, before) in [
            (THREAD_POOL, "/program", &["--until-stdin-ends", "--listen=127.0.0.1:0", "--workers=100"][..]),
            ("twin/go", "/program", &["-json", "-until-stdin-ends", "-listen=127.0.0.1:0"]),
            (
                "twin/deno",
                "/node_modules/.bin/deno",
                &[
                    "run",
                    "--quiet",
                    "--no-config",
                    "--allow-net",
                    "--allow-read",
                    "/program",
                    "--until-stdin-ends",
                    "--listen=127.0.0.1:0",
                ],
            ),
            ("twin/java", "java", &["/program", "--until-stdin-ends", "--listen=127.0.0.1:0", "--workers=100"]),
        ] {
            let twin = PageTwin::named(name).unwrap();
            let launch = twin.launch(Path::new("/program"), &page, twin.workers);
            let args: Vec<&str> = before.iter().copied().chain(flags).collect();
            assert_eq!(
                (launch.program, launch.args),
                (PathBuf::from(program), args.into_iter().map(Into::into).collect())
            );
        }
    }

    #[test]
    fn a_language_that_is_not_installed_is_the_reason() {
        let why = build::is_installed("no-such-language", "--version").unwrap_err();
        assert_eq!(why, "no-such-language is not installed");
        assert!(build(&[], "system", &Shutdown::new()).is_empty());
    }
}
