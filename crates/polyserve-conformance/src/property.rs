//! What a property is, and how a list of them runs.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};

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

/// Runs `body` in a process of its own, where it can count threads, descriptors and memory. Call it from a property's
/// own thread, at most once, and do nothing else there.
///
/// # Panics
///
/// Where the body panics there, with what it said; or where the process cannot be started.
pub fn in_child(body: impl FnOnce()) -> Outcome {
    let here = HERE.with_borrow(Clone::clone).expect("a property is running on this thread");
    if wanted_child().as_deref() == Some(here.path.as_str()) {
        body();
        return Outcome::Held;
    }
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    match here.harness {
        Harness::Test => command.args(["--exact", &here.path, "--nocapture", "--test-threads=1"]),
        Harness::Main => command.args(std::env::args_os().skip(1)),
    };
    let output =
        command.env(CHILD, &here.path).stdin(Stdio::null()).output().expect("the program can be started again");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "in a process of its own: {}\n{said}", output.status);
    if matches!(here.harness, Harness::Test) {
        let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(ran, "the process of its own ran no test called {}", here.path);
    }
    Outcome::Held
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
