//! Runs models, and prints how many executions it ran.
//!
//! `POLYSERVE_MODELS=deep` selects the deep bound of a model instead of its short one. If a model fails, the output shows how
//! to repeat the schedule: loom panics in it, shuttle prints it.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// The bounds of a model's search.
///
/// For loom: the max number of preemptions in an execution. All executions within it are run; `None` runs every execution.
/// For shuttle: the number of schedules. A third of them is random, two thirds are PCT with three changes of priority.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The bound in CI, for every change.
    pub short: Option<usize>,
    /// The bound in `ci/deep.sh`.
    pub deep: Option<usize>,
}

impl Bounds {
    /// These bounds.
    pub const fn new(short: usize, deep: usize) -> Self {
        Self { short: Some(short), deep: Some(deep) }
    }

    /// Every execution in the deep run. For loom.
    pub const fn up_to_all(short: usize) -> Self {
        Self { short: Some(short), deep: None }
    }

    fn selected(self) -> Option<usize> {
        if std::env::var_os("POLYSERVE_MODELS").is_some_and(|word| word == "deep") { self.deep } else { self.short }
    }
}

/// A fault of a primitive. A model must fail with it, which shows that the model can find the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimitiveFault {
    /// A notice to a condition variable is lost.
    Notice,
    /// An `unpark` is lost on a thread that is not parked yet.
    Token,
    /// A wait does not time out.
    Timeout,
}

/// The environment variable that sets a fault of all primitives of a process.
const FAULT: &str = "POLYSERVE_MODEL_FAULT";

impl PrimitiveFault {
    fn name(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Token => "token",
            Self::Timeout => "timeout",
        }
    }

    pub(super) fn is_on(self) -> bool {
        static ON: OnceLock<Option<String>> = OnceLock::new();
        ON.get_or_init(|| std::env::var(FAULT).ok()).as_deref() == Some(self.name())
    }
}

/// Runs `body` in every execution that the checker draws within `bounds`, and prints how many there were.
///
/// # Panics
///
/// Panics if an execution panics, or reaches a point at which all threads wait.
pub fn check(name: &str, bounds: Bounds, body: impl Fn() + Send + Sync + 'static) {
    let (start, executions) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let bound = bounds.selected();
    let counted = Arc::clone(&executions);
    run(bound, move || {
        counted.fetch_add(1, Ordering::Relaxed);
        body();
    });
    let (executions, seconds) = (executions.load(Ordering::Relaxed), start.elapsed().as_secs_f64());
    let bound = bound.map_or_else(|| String::from("none"), |bound| bound.to_string());
    println!("model {CHECKER} {name}: bound {bound}, {executions} executions, {seconds:.1} s");
}

/// The text of a checker if all threads wait.
pub const DEADLOCK: &str = "deadlock";

/// Checks that this test's model fails with the text `why` if the primitives have `fault`. The test is run once more, in a
/// process of its own, because an execution that cannot go on may end the process.
///
/// # Panics
///
/// Panics if the model does not fail so.
pub fn finds(fault: PrimitiveFault, why: &str) {
    if std::env::var_os(FAULT).is_some() {
        return; // this is the other run, and it has passed
    }
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").expect("a test on a thread that has its name");
    let mut command = Command::new(std::env::current_exe().expect("the test's own binary"));
    command.args(["--exact", test, "--nocapture"]).env(FAULT, fault.name()).env("RUST_BACKTRACE", "0");
    let output = command.output().expect("the test's own binary runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "the model cannot fail: it passes although it has this fault: {fault:?}");
    assert!(text.contains(why), "it fails for another reason than {fault:?}: {text}");
}

#[cfg(polyserve_loom)]
const CHECKER: &str = "loom";
#[cfg(polyserve_shuttle)]
const CHECKER: &str = "shuttle";

#[cfg(polyserve_loom)]
fn run(bound: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.max_branches = 20_000;
    builder.check(body);
}

#[cfg(polyserve_shuttle)]
fn run(bound: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{Config, Runner};

    /// The same schedules in every run, so that a failure repeats.
    const SEED: u64 = 0x706f_6c79;
    /// Enough for three switches at the wrong time.
    const CHANGES: usize = 3;

    let schedules = bound.expect("shuttle needs a number of schedules");
    let mut config = Config::default();
    config.stack_size = 0x4_0000;
    config.silence_warnings = true;
    let body = Arc::new(body);
    let random_body = Arc::clone(&body);
    Runner::new(RandomScheduler::new_from_seed(SEED, schedules.div_ceil(3)), config.clone()).run(move || random_body());
    Runner::new(PctScheduler::new_from_seed(SEED, CHANGES, schedules - schedules.div_ceil(3)), config)
        .run(move || body());
}
