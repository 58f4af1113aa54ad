//! Properties: what a kit tests, and how a list of properties runs.

use std::cell::RefCell;
use std::convert::Infallible;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use polyserve_core::panics::{isolate, panic_text};

/// The result of a property that does not fail. A property that fails panics with what it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The property holds.
    Held,
    /// The property cannot run here, and why: the engine or the kernel lacks a feature.
    NotRun(String),
}

impl From<()> for Outcome {
    /// A property that returns has held, unless it says that it was not run.
    fn from((): ()) -> Self {
        Self::Held
    }
}

impl From<Result<(), String>> for Outcome {
    /// The error is why a property was not run, so that a property may end by `?`.
    fn from(result: Result<(), String>) -> Self {
        result.map_or_else(Self::NotRun, |()| Self::Held)
    }
}

impl From<Outcome> for Result<(), String> {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Held => Ok(()),
            Outcome::NotRun(why) => Err(why),
        }
    }
}

/// Returns `why` a property is not run, as an error, unless `is_met`.
pub(crate) fn needs(is_met: bool, why: &str) -> Result<(), String> {
    if is_met { Ok(()) } else { Err(why.into()) }
}

/// Tries up to `count` times until an attempt returns `Ok`. A property that depends on how busy the machine is gets several attempts.
///
/// # Panics
///
/// Panics with the error of the last attempt.
#[track_caller]
pub(crate) fn attempts<T>(count: usize, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let mut seen = String::new();
    for _ in 0..count {
        match attempt() {
            Ok(value) => return value,
            Err(why) => seen = why,
        }
    }
    panic!("in each of {count} attempts: {seen}");
}

/// A part of the message of each panic that a property provokes, so that a test's panic hook can leave it out.
pub const DELIBERATE_PANIC: &str = "as the test asked";

/// A named property of subjects `S`.
#[derive(Debug)]
pub struct Property<S> {
    /// The name of its test.
    pub name: &'static str,
    /// The module of the kit that tests it. `corpus` if it is a property of the [wire corpus](crate::wire).
    pub module: &'static str,
    /// Tests the property. Panics if it does not hold.
    pub run: fn(&S) -> Outcome,
}

impl<S> Property<S> {
    /// Tests the property, and returns the verdict. A property that needs a child process is tested by [`check`].
    pub fn verdict(&self, subject: &S) -> PropertyVerdict {
        match catch_unwind(AssertUnwindSafe(|| (self.run)(subject))) {
            Ok(Outcome::Held) => PropertyVerdict::Held,
            Ok(Outcome::NotRun(why)) => PropertyVerdict::NotRun(why),
            Err(panic) => PropertyVerdict::Broken(panic_text(panic.as_ref())),
        }
    }
}

/// The verdict on one property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyVerdict {
    /// The property holds.
    Held,
    /// The property could not run here, and why.
    NotRun(String),
    /// The property does not hold, and what was seen.
    Broken(String),
}

/// The verdicts on every property of a list.
#[derive(Clone, Debug)]
pub struct ConformanceReport {
    /// The subject's name.
    pub subject: String,
    /// The verdict on each property by name, in the order in which they ran.
    pub verdicts: Vec<(&'static str, PropertyVerdict)>,
}

impl ConformanceReport {
    /// Returns whether no property is broken.
    pub fn conforms(&self) -> bool {
        self.broken().next().is_none()
    }

    /// The broken properties by name, each with the observed fault.
    pub fn broken(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.verdicts.iter().filter_map(|(name, verdict)| match verdict {
            PropertyVerdict::Broken(why) => Some((*name, why.as_str())),
            PropertyVerdict::Held | PropertyVerdict::NotRun(_) => None,
        })
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, verdict) in &self.verdicts {
            match verdict {
                PropertyVerdict::Held => writeln!(f, "held     {}::{name}", self.subject)?,
                PropertyVerdict::NotRun(why) => writeln!(f, "not run  {}::{name}: {why}", self.subject)?,
                PropertyVerdict::Broken(why) => writeln!(f, "BROKEN   {}::{name}: {why}", self.subject)?,
            }
        }
        Ok(())
    }
}

/// Runs `properties` on `subject`, one after the other, and returns a report.
///
/// A property that needs a child process starts this program again with its own arguments. In the child this function
/// runs that one property and exits. Call it early in `main`, and for the same subjects every time.
pub fn check<S>(name: &str, subject: &S, properties: &[Property<S>]) -> ConformanceReport {
    let mut report = ConformanceReport { subject: name.to_owned(), verdicts: Vec::new() };
    for property in properties {
        let path = format!("{name}::{}", property.name);
        let child = child_path();
        if child.as_ref().is_some_and(|child| *child != path) {
            continue;
        }
        let context = PropertyContext { path, is_test: false };
        let verdict = with_context(context, || property.verdict(subject));
        if child.is_some() {
            if let PropertyVerdict::Broken(why) = &verdict {
                let _ = writeln!(std::io::stderr(), "{why}");
            }
            std::process::exit(i32::from(matches!(verdict, PropertyVerdict::Broken(_))));
        }
        report.verdicts.push((property.name, verdict));
    }
    report
}

/// Runs one property as a test, and returns its outcome. A property that cannot run prints the reason to the real standard
/// error, which the harness does not capture.
///
/// # Panics
///
/// Panics if the property does not hold.
pub fn test<S>(module: &str, name: &str, subject: &S, run: fn(&S) -> Outcome) -> Outcome {
    // The test harness names tests without their crate, so the crate's name is removed.
    let module = module.split_once("::").map_or("", |(_, rest)| rest);
    let path = if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") };
    let label = path.clone();
    let outcome = with_context(PropertyContext { path, is_test: true }, || run(subject));
    if let Outcome::NotRun(why) = &outcome {
        let _ = writeln!(std::io::stderr(), "not run: {label}: {why}");
    }
    outcome
}

/// Runs the property of this name as a test.
#[doc(hidden)]
pub fn test_named<S>(module: &str, name: &str, subject: &S, properties: &'static [Property<S>]) {
    let _ = test(module, name, subject, named(properties, name).run);
}

#[derive(Clone)]
struct PropertyContext {
    path: String,
    /// Whether a test harness runs the property, and not [`check`].
    is_test: bool,
}

thread_local! {
    static CONTEXT: RefCell<Option<PropertyContext>> = const { RefCell::new(None) };
}

fn with_context<T>(context: PropertyContext, run: impl FnOnce() -> T) -> T {
    CONTEXT.set(Some(context));
    run()
}

const CHILD_VARIABLE: &str = "POLYSERVE_CONFORMANCE_CHILD";

fn child_path() -> Option<String> {
    std::env::var(CHILD_VARIABLE).ok()
}

/// Whether this process is the child of a property, which runs that property alone.
pub fn is_in_child() -> bool {
    child_path().is_some()
}

/// Runs `body` in a child process. There it can count threads, descriptors and memory. `descriptors` is the child's descriptor limit, if
/// it needs one of its own.
///
/// Call it at most once in a property, from the property's own thread, and do nothing else there. Returns [`Outcome::NotRun`] if this
/// system has no POSIX shell to set the limit, or if its hard limit is lower.
///
/// # Panics
///
/// Panics with the child's message if `body` panics, and if the child process cannot be started.
pub fn in_child(descriptors: impl Into<Option<usize>>, body: impl FnOnce()) -> Outcome {
    with_child(descriptors.into(), |_| body(), NO_PARENT)
}

/// The parent of a child that serves nothing.
const NO_PARENT: Option<fn(&mut ServingChild) -> Outcome> = None;

fn can_limit_descriptors(limit: usize) -> bool {
    let shell = Command::new("/bin/sh").args(["-c", &format!("ulimit -n {limit}")]).output();
    shell.is_ok_and(|output| output.status.success())
}

/// The command that starts this program again and runs only the current property.
fn child_command(context: &PropertyContext, descriptors: Option<usize>) -> Command {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = match descriptors {
        None => Command::new(program),
        Some(limit) => {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &limit.to_string()]).arg(program);
            shell
        }
    };
    match context.is_test {
        true => command.args(["--exact", &context.path, "--nocapture", "--test-threads=1"]),
        false => command.args(std::env::args_os().skip(1)),
    };
    command.env(CHILD_VARIABLE, &context.path);
    // By default glibc keeps freed blocks of many MiB in each of its arenas, so that memory could not be measured.
    command.env("MALLOC_MMAP_THRESHOLD_", "131072");
    command
}

/// Marks the line on which a serving child prints its address.
const ADDRESS_MARK: &str = "polyserve-conformance-address=";

/// The child's side of [`with_serving_child`].
#[derive(Debug)]
pub struct ChildSide(());

impl ChildSide {
    /// Tells the parent that a server listens at `addr`. Needs no descriptor.
    ///
    /// # Panics
    ///
    /// Panics if the parent is gone.
    pub fn announce(&self, addr: SocketAddr) {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{ADDRESS_MARK}{addr}").and_then(|()| out.flush()).expect("the parent reads the address");
    }

    /// Waits until the parent calls [`ServingChild::signal_child`], or is gone.
    pub fn wait_for_parent(&self) {
        let _ = std::io::stdin().lock().read(&mut [0]);
    }
}

/// The parent's side of [`with_serving_child`]: a child process in which a server runs.
#[derive(Debug)]
pub struct ServingChild {
    child: Child,
    /// The address that the child announced.
    pub addr: SocketAddr,
}

/// Runs `serve` in a child process. Once the child has announced its address, runs `body` in this process.
///
/// The property holds if neither closure panics. `descriptors` is the child's descriptor limit, if it needs one of its
/// own. Call this function at most once in a property, from the property's own thread, and do nothing else there.
///
/// # Panics
///
/// Panics if the child cannot be started, ends before it announces an address, or fails.
pub fn with_serving_child(
    descriptors: Option<usize>,
    serve: impl FnOnce(&ChildSide),
    body: impl FnOnce(&mut ServingChild) -> Outcome,
) -> Outcome {
    with_child(descriptors, serve, Some(body))
}

/// Runs `body` in a child process. If there is a `parent`, runs it in this process, once the child has announced its address.
fn with_child(
    descriptors: Option<usize>,
    body: impl FnOnce(&ChildSide),
    parent: Option<impl FnOnce(&mut ServingChild) -> Outcome>,
) -> Outcome {
    let context = CONTEXT.with_borrow(Clone::clone).expect("a property is running on this thread");
    if child_path().as_ref() == Some(&context.path) {
        body(&ChildSide(()));
        return Outcome::Held;
    }
    if let Some(limit) = descriptors.filter(|limit| !can_limit_descriptors(*limit)) {
        return Outcome::NotRun(format!("a child process cannot be given a limit of {limit} descriptors here"));
    }
    let mut command = child_command(&context, descriptors);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the program can be started again");
    let mut out = BufReader::new(child.stdout.take().expect("the output is piped"));
    let mut err = child.stderr.take().expect("the errors are piped");
    let mut serving = ServingChild { child, addr: SocketAddr::from(([127, 0, 0, 1], 0)) };
    let messages = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = err.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    // Without an address, this is all that the child prints.
    let mut has_passed = !context.is_test;
    let addr = out.by_ref().lines().map_while(Result::ok).find_map(|line| {
        has_passed |= line.contains("1 passed");
        let (_, addr) = line.split_once(ADDRESS_MARK)?;
        addr.trim().parse().ok()
    });
    let has_run = if parent.is_some() { addr.is_some() } else { has_passed };
    serving.addr = addr.unwrap_or(serving.addr);
    // The rest of the output is read as well, so that the child never waits for a reader.
    let drainer = std::thread::spawn(move || drop(std::io::copy(&mut out, &mut std::io::sink())));
    let outcome = catch_unwind(AssertUnwindSafe(|| match parent {
        Some(parent) if has_run => parent(&mut serving),
        _ => Outcome::Held,
    }));
    drop(serving.child.stdin.take());
    if outcome.is_err() {
        let _ = serving.child.kill();
    }
    let status = serving.child.wait().expect("the child process can be waited for");
    let stderr = messages.join().unwrap_or_default();
    let _ = drainer.join();
    let outcome = outcome.unwrap_or_else(|panic| resume_unwind(panic));
    assert!(status.success(), "in a child process: {status}\n{stderr}");
    assert!(has_run, "the child process ran no test called {}, or has announced no address", context.path);
    outcome
}

impl ServingChild {
    /// Stops the process with SIGSTOP. Returns once each of its threads has stopped, or `false` if this system cannot stop
    /// it.
    pub fn stop(&self) -> bool {
        self.signal("STOP") && {
            let deadline = Instant::now() + Duration::from_secs(10);
            while !self.has_stopped() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.has_stopped()
        }
    }

    /// Whether each thread has stopped. On a busy machine some stop later than the main thread does.
    fn has_stopped(&self) -> bool {
        let state_is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with('T'))
        };
        std::fs::read_dir(format!("/proc/{}/task", self.child.id()))
            .is_ok_and(|mut tasks| tasks.all(|task| task.is_ok_and(state_is_stopped)))
    }

    /// Ends the child's [`ChildSide::wait_for_parent`].
    pub fn signal_child(&mut self) {
        if let Some(input) = &mut self.child.stdin {
            let _ = input.write_all(b"\n").and_then(|()| input.flush());
        }
    }

    /// Resumes the process with SIGCONT.
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

/// Runs `work` on a thread of its own, which is left behind if it has not ended after `limit`. `what` names it in failures.
///
/// # Panics
///
/// Panics if `work` panics or does not end in time.
pub(crate) fn within<T: Send + 'static>(limit: Duration, what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (ended, end) = mpsc::channel::<Infallible>();
    let thread = std::thread::Builder::new().name("property".into()).spawn(move || {
        let _ended = ended;
        isolate(work) // the payload of a panic may panic when it is dropped
    });
    let thread = thread.expect("a thread can be started");
    if let Err(RecvTimeoutError::Timeout) = end.recv_timeout(limit) {
        panic!("{what} has not ended within {limit:?}: it hangs");
    }
    let result = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    result.unwrap_or_else(|text| panic!("{text}"))
}

/// A function of a subject, which `Debug` does not show.
pub(crate) struct Opaque<F: ?Sized>(pub(crate) Box<F>);

impl<F: ?Sized> fmt::Debug for Opaque<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// Returns the property of this name.
///
/// # Panics
///
/// Panics if there is none.
pub fn named<S>(properties: &'static [Property<S>], name: &str) -> &'static Property<S> {
    properties.iter().find(|property| property.name == name).unwrap_or_else(|| panic!("the kit has no property {name}"))
}

/// Lists the properties of a kit, by the module that tests them. A property of `corpus` is one of the wire corpus. Makes the
/// constant `PROPERTIES`, and a macro that makes each property a test.
macro_rules! kit {
    (
        $d:tt $kit:ident :: $macro:ident for $subject:ty, from $make:literal
        { $($module:ident { $($property:ident,)* })* }
        $(corpus { $($case:ident,)* })?
    ) => {
        /// Every property of this kit.
        pub const PROPERTIES: &[$crate::property::Property<$subject>] = &[
            $($($crate::property::Property {
                name: stringify!($property),
                module: stringify!($module),
                run: |subject| $module::$property(subject).into(),
            },)*)*
            $($($crate::property::Property {
                name: stringify!($case),
                module: "corpus",
                run: |subject| corpus::check(subject, stringify!($case)).into(),
            },)*)?
        ];

        #[doc = concat!("Makes a module of tests, one for each property. The second argument is an expression of ", $make, ".")]
        #[macro_export]
        macro_rules! $macro {
            ($d module:ident, $d subject:expr) => {
                mod $d module {
                    #[allow(unused_imports)]
                    use super::*;
                    $($(
                        #[test]
                        fn $property() {
                            $d crate::property::test_named(module_path!(), stringify!($property), &$d subject, $d crate::$kit::PROPERTIES);
                        }
                    )*)*
                    $($(
                        #[test]
                        fn $case() {
                            $d crate::property::test_named(module_path!(), stringify!($case), &$d subject, $d crate::$kit::PROPERTIES);
                        }
                    )*)?
                }
            };
        }
    };
}
pub(crate) use kit;
