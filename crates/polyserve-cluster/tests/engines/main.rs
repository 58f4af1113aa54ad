//! The stores over real engines: etcd with three members, Redis Cluster with three masters and three replicas, and
//! PostgreSQL. The tests start them on loopback.
//!
//! If an engine is not installed, or a feature is off, the tests are reported as not run, with their names and the reason.
//! They fail if `TEST_ENGINES` is `required`.

mod basics;
mod credentials;
mod faults;
mod foreign;
mod http;
mod increments;
mod kind;
mod outages;
mod partitions;
mod refusals;
mod starts;
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
mod tls;
mod unanswered;

use std::env;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use libtest_mimic::{Arguments, Trial};
use polyserve_conformance::property::{self, Property};
use polyserve_conformance::repo::{self, RepoSubject};
use polyserve_engines::process::{MAX_WAIT, Missing};

use crate::kind::{Connect as _, Kind, RunningEngine, long_limits, name_space};

/// A test of a store.
pub(crate) struct Test {
    name: String,
    run: Run,
}

/// What a test needs.
enum Run {
    /// The engine that all tests share, by its URLs.
    Shared(Box<dyn FnOnce(&str) + Send>),
    /// Engines of its own.
    Own(Box<dyn FnOnce() -> Result<(), Missing> + Send>),
}

impl Test {
    pub(crate) fn shared(kind: Kind, name: &str, run: impl FnOnce(&str) + Send + 'static) -> Self {
        Self { name: format!("{}::{name}", kind.name()), run: Run::Shared(Box::new(run)) }
    }

    pub(crate) fn own(kind: Kind, name: &str, run: impl FnOnce() -> Result<(), Missing> + Send + 'static) -> Self {
        Self { name: format!("{}::{name}", kind.name()), run: Run::Own(Box::new(run)) }
    }
}

fn main() {
    if http::serve_if_child() {
        return;
    }
    let mut args = Arguments::from_args();
    // As in the standard test harness. A test of these has up to six processes of an engine, so fewer run at a time.
    let threads = env::var("RUST_TEST_THREADS").ok().and_then(|threads| threads.parse().ok());
    let max = 2 * thread::available_parallelism().map_or(1, NonZeroUsize::get);
    args.test_threads = args.test_threads.or(threads.map(|threads: usize| threads.min(max)));
    let required = env::var_os("TEST_ENGINES").is_some_and(|value| value == "required");
    let mut engines: Vec<RunningEngine> = Vec::new();
    let mut trials = Vec::new();
    for kind in Kind::ALL {
        let tests = tests(kind);
        let is_wanted = |test: &Test| !args.list && is_selected(&args, &test.name);
        let shared = tests.iter().any(|test| is_wanted(test) && matches!(test.run, Run::Shared(_)));
        // This thread lives as long as the engines: they end with the thread that starts them.
        let started = match kind.built() {
            Ok(()) if shared => kind.start().map(Some),
            built => built.map(|()| None),
        };
        let urls: Result<Arc<str>, Missing> = match started {
            Ok(Some(engine)) => {
                let urls = engine.urls().into();
                engines.push(engine);
                Ok(urls)
            }
            Ok(None) => Ok("".into()),
            Err(missing) => Err(missing),
        };
        if let (Err(Missing(why)), false) = (&urls, args.list || required) {
            let count = tests.iter().filter(|test| is_wanted(test)).count();
            println!("not run: {}: {count} tests: {why}", kind.name());
        }
        trials.extend(tests.into_iter().map(|test| trial(test, urls.clone(), required)));
    }
    let conclusion = libtest_mimic::run(&args, trials);
    drop(engines);
    conclusion.exit();
}

fn is_selected(args: &Arguments, name: &str) -> bool {
    let matches = |filter: &String| if args.exact { name == filter } else { name.contains(filter.as_str()) };
    args.filter.as_ref().is_none_or(matches) && !args.skip.iter().any(matches)
}

/// A test as a trial of the harness.
fn trial(test: Test, urls: Result<Arc<str>, Missing>, required: bool) -> Trial {
    let (name, label) = (test.name.clone(), test.name.clone());
    let not_run = move |Missing(why): Missing| {
        if required {
            return Err(format!("{why}, and TEST_ENGINES is `required`").into());
        }
        // Past the harness, which captures nothing, but prints a test that returns as passed.
        let _ = writeln!(std::io::stderr(), "not run: {label}: {why}");
        Ok(())
    };
    match (urls, test.run) {
        (Err(missing), _) if required => Trial::test(name, move || not_run(missing)),
        (Err(_), _) => Trial::test(name, || Ok(())).with_ignored_flag(true),
        (Ok(urls), Run::Shared(run)) => Trial::test(name, move || {
            run(&urls);
            Ok(())
        }),
        (Ok(_), Run::Own(run)) => Trial::test(name, move || run().or_else(not_run)),
    }
}

/// The tests of a store.
fn tests(kind: Kind) -> Vec<Test> {
    let mut tests = Vec::new();
    for property in repo::PROPERTIES {
        tests.push(of_kit(kind, "kit", property, move |urls| {
            let urls = urls.to_owned();
            RepoSubject::new(move || kind.connect(&urls, &name_space(), long_limits()).expect("it connects"))
        }));
        tests.push(of_kit(kind, "named_kit", property, move |urls| {
            let urls = urls.to_owned();
            RepoSubject::named(move || kind.connect(&urls, &name_space(), long_limits()).expect("it connects"))
        }));
    }
    tests.extend(outages::tests(kind));
    tests.extend(basics::tests(kind));
    tests.extend(credentials::tests(kind));
    tests.extend(http::tests(kind));
    tests.extend(increments::tests(kind));
    tests.extend(faults::tests(kind));
    tests.extend(foreign::tests(kind));
    tests.extend(partitions::tests(kind));
    tests.extend(refusals::tests(kind));
    tests.extend(starts::tests(kind));
    tests.extend(unanswered::tests(kind));
    #[cfg(any(feature = "etcd", feature = "redis", feature = "postgres"))]
    tests.extend(tls::tests(kind));
    tests
}

/// A property of the kit.
fn of_kit(
    kind: Kind,
    module: &str,
    property: &'static Property<RepoSubject>,
    subject: impl FnOnce(&str) -> RepoSubject + Send + 'static,
) -> Test {
    let path = format!("engines::{}::{module}", kind.name());
    Test::shared(kind, &format!("{module}::{}", property.name), move |urls| {
        let subject = subject(urls).answers_later().stores_json().max_wait(MAX_WAIT).many_keys(2_000);
        let _ = property::test(&path, property.name, &subject, property.run);
    })
}
