//! What a property is, and how a list of them runs.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a property found out about its subject. One that does not hold panics, and says what it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// It holds.
    Held,
    /// It could not run here, and why: a feature of the engine or of the kernel is missing.
    NotRun(String),
}

/// A named property of subjects `S`.
#[derive(Debug)]
pub struct Property<S> {
    /// The name of its test.
    pub name: &'static str,
    /// Looks whether it holds; panics where it does not.
    pub run: fn(&S) -> Outcome,
}

/// What became of one property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Held,
    /// It could not run here, and why.
    NotRun(String),
    /// It does not hold, and what was seen.
    Broken(String),
}

/// What became of every property of a list.
#[derive(Clone, Debug)]
pub struct Report {
    /// The subject's name.
    pub subject: String,
    /// Each property by name, in the order they ran.
    pub verdicts: Vec<(&'static str, Verdict)>,
}

impl Report {
    /// Whether no property was found broken.
    pub fn conforms(&self) -> bool {
        self.broken().next().is_none()
    }

    /// The properties that do not hold, and what was seen.
    pub fn broken(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.verdicts.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::Broken(why) => Some((*name, why.as_str())),
            Verdict::Held | Verdict::NotRun(_) => None,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, verdict) in &self.verdicts {
            match verdict {
                Verdict::Held => writeln!(f, "held     {}::{name}", self.subject)?,
                Verdict::NotRun(why) => writeln!(f, "not run  {}::{name}: {why}", self.subject)?,
                Verdict::Broken(why) => writeln!(f, "BROKEN   {}::{name}: {why}", self.subject)?,
            }
        }
        Ok(())
    }
}

/// Runs `properties` on `subject`, one after the other, and reports.
///
/// A property that needs a process of its own starts this program again with its own arguments; in that process this
/// function runs that one property and exits. So call it early in `main`, for the same subjects every time.
pub fn check<S>(name: &str, subject: &S, properties: &[Property<S>]) -> Report {
    let mut report = Report { subject: name.to_owned(), verdicts: Vec::new() };
    for property in properties {
        let path = format!("{name}::{}", property.name);
        let child = wanted_child();
        if child.as_ref().is_some_and(|wanted| *wanted != path) {
            continue;
        }
        let here = Here { path, harness: Harness::Main };
        let verdict = match catch_unwind(AssertUnwindSafe(|| within(here, || (property.run)(subject)))) {
            Ok(Outcome::Held) => Verdict::Held,
            Ok(Outcome::NotRun(why)) => Verdict::NotRun(why),
            Err(panic) => Verdict::Broken(text(panic.as_ref())),
        };
        if child.is_some() {
            if let Verdict::Broken(why) = &verdict {
                let _ = writeln!(std::io::stderr(), "{why}");
            }
            std::process::exit(i32::from(matches!(verdict, Verdict::Broken(_))));
        }
        report.verdicts.push((property.name, verdict));
    }
    report
}

/// Runs one property as a test. What could not run says so on the real standard error, past the harness's capture.
#[doc(hidden)]
pub fn test<S>(module: &str, name: &str, subject: &S, run: fn(&S) -> Outcome) {
    // The harness names tests without their crate.
    let module = module.split_once("::").map_or("", |(_, rest)| rest);
    let path = if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") };
    let shown = path.clone();
    if let Outcome::NotRun(why) = within(Here { path, harness: Harness::Test }, || run(subject)) {
        let _ = writeln!(std::io::stderr(), "not run: {shown}: {why}");
    }
}

#[derive(Clone)]
struct Here {
    path: String,
    harness: Harness,
}

#[derive(Clone, Copy)]
enum Harness {
    Test,
    Main,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

fn within<T>(here: Here, run: impl FnOnce() -> T) -> T {
    HERE.set(Some(here));
    run()
}

const CHILD: &str = "POLYSERVE_CONFORMANCE_CHILD";

fn wanted_child() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// Runs `body` in a child process, where it can count threads, descriptors and memory. Call it from a property's own
/// thread, at most once, and do nothing else there.
///
/// # Panics
///
/// Panics with the child's message if the body panics there, and if the child process cannot be started.
pub fn in_child(body: impl FnOnce()) -> Outcome {
    run_in_child(None, body)
}

/// Runs `body` in a child process that may open `descriptors` descriptors, neither more nor fewer.
///
/// The outcome is [`Outcome::NotRun`] if this system has no POSIX shell to set the limit, or if its hard limit is lower.
///
/// # Panics
///
/// As [`in_child`].
pub fn in_child_with_descriptors(descriptors: usize, body: impl FnOnce()) -> Outcome {
    if is_child(&here()) {
        return run_in_child(None, body);
    }
    match Command::new("/bin/sh").args(["-c", &format!("ulimit -n {descriptors}")]).output() {
        Ok(output) if output.status.success() => run_in_child(Some(descriptors), body),
        _ => Outcome::NotRun(format!("a child process cannot be given a limit of {descriptors} descriptors here")),
    }
}

fn here() -> Here {
    HERE.with_borrow(Clone::clone).expect("a property is running on this thread")
}

fn is_child(here: &Here) -> bool {
    wanted_child().as_deref() == Some(here.path.as_str())
}

/// The command that starts this program again and runs the present property only.
fn child_command(here: &Here, descriptors: Option<usize>) -> Command {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = match descriptors {
        None => Command::new(program),
        Some(limit) => {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &limit.to_string()]).arg(program);
            shell
        }
    };
    match here.harness {
        Harness::Test => command.args(["--exact", &here.path, "--nocapture", "--test-threads=1"]),
        Harness::Main => command.args(std::env::args_os().skip(1)),
    };
    command.env(CHILD, &here.path);
    command
}

fn run_in_child(descriptors: Option<usize>, body: impl FnOnce()) -> Outcome {
    let here = here();
    if is_child(&here) {
        body();
        return Outcome::Held;
    }
    let mut command = child_command(&here, descriptors);
    let output = command.stdin(Stdio::null()).output().expect("the program can be started again");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "in a child process: {}\n{said}", output.status);
    if matches!(here.harness, Harness::Test) {
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(ran, "the child process ran no test called {}", here.path);
    }
    Outcome::Held
}

/// A child process that serves until its standard input closes.
#[derive(Debug)]
pub struct ServingChild {
    child: Child,
    /// The address that it serves at.
    pub addr: SocketAddr,
}

/// Marks the line on which a serving child prints its address.
const ADDRESS: &str = "polyserve-conformance-address=";

/// Starts a child process in which `serve` starts a server, and passes the child to `body` in this process.
///
/// `serve` returns the server's address and the server. The child drops the server when its standard input closes. Call
/// this function from a property's own thread, at most once, and do nothing else there.
///
/// # Panics
///
/// Panics if the child cannot be started or ends before it serves.
pub fn beside_child<T>(serve: impl FnOnce() -> (SocketAddr, T), body: impl FnOnce(&ServingChild)) -> Outcome {
    let here = here();
    if is_child(&here) {
        let (addr, server) = serve();
        let mut out = std::io::stdout().lock();
        writeln!(out, "{ADDRESS}{addr}").and_then(|()| out.flush()).expect("the parent reads the address");
        drop(out);
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(server);
        return Outcome::Held;
    }
    let mut command = child_command(&here, None);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.expect("the program can be started again");
    let out = BufReader::new(child.stdout.take().expect("the output is piped"));
    let addr = out.lines().map_while(Result::ok).find_map(|line| {
        let (_, addr) = line.split_once(ADDRESS)?;
        addr.trim().parse().ok()
    });
    let mut serving = ServingChild { child, addr: SocketAddr::from(([127, 0, 0, 1], 0)) };
    serving.addr = addr.expect("the child process serves and prints its address");
    body(&serving);
    Outcome::Held
}

impl ServingChild {
    /// Stops the process (SIGSTOP), and returns once it stands still. Returns whether this system can do that.
    pub fn stop(&self) -> bool {
        let pid = self.child.id();
        self.signal("STOP") && {
            let deadline = Instant::now() + Duration::from_secs(10);
            let stopped = || {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                stat.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with('T'))
            };
            while !stopped() && Instant::now() < deadline {
                std::thread::yield_now();
            }
            stopped()
        }
    }

    /// Lets the process go on (SIGCONT).
    pub fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) -> bool {
        let kill = format!("kill -{name} {}", self.child.id());
        Command::new("/bin/sh").args(["-c", &kill]).output().is_ok_and(|output| output.status.success())
    }
}

impl Drop for ServingChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    polyserve_core::server::panic_text(panic)
}

/// Lists a kit's properties once: as the constant `PROPERTIES`, and as a macro that makes each a test.
macro_rules! kit {
    ($d:tt $kit:ident :: $macro:ident for $subject:ty, from $make:literal { $($property:ident,)* }) => {
        /// Every property of this kit.
        pub const PROPERTIES: &[$crate::property::Property<$subject>] =
            &[$($crate::property::Property { name: stringify!($property), run: $property },)*];

        #[doc = concat!("Makes a module of tests, one for each property. The second argument is an expression of ", $make, ".")]
        #[macro_export]
        macro_rules! $macro {
            ($d module:ident, $d subject:expr) => {
                mod $d module {
                    #[allow(unused_imports)]
                    use super::*;
                    $(
                        #[test]
                        fn $property() {
                            let subject = $d subject;
                            $d crate::property::test(module_path!(), stringify!($property), &subject, $d crate::$kit::$property);
                        }
                    )*
                }
            };
        }
    };
}
pub(crate) use kit;
