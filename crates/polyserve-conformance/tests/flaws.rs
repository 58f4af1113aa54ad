//! The kits of repos, servers, engines and executors, tested: each flaw of the plain ones breaks the properties that it names.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use polyserve_conformance::broken::engines::{EngineFlaw, PlainEngine};
use polyserve_conformance::broken::executors::{Fault, Faulty};
use polyserve_conformance::broken::repos::RepoFlaw;
use polyserve_conformance::broken::servers::Flaw;
use polyserve_conformance::executor::ExecutorSubject;
use polyserve_conformance::property::{self, Property};
use polyserve_conformance::{engine, executor, repo, server};
use polyserve_core::panics::text_of;

/// Long enough for a busy machine. Short enough, because a flaw makes the kit wait for the whole max wait.
const MAX_WAIT: Duration = Duration::from_secs(4);

/// The number of races that may hold before a property counts as failing to catch a flaw of a repo.
const RACES: usize = 20;

/// The number of times that a property of servers may hold before it counts as failing to catch a flaw. Whether a thread has ended when
/// a server looks is a race.
const ATTEMPTS: usize = 3;

/// What the failure has to say, for a flaw that may make its property fail in other ways.
const REASONS: [(&str, &str); 2] =
    [("executor::LeaksThreads::", "threads are left after"), ("server::AnswersAnotherStatus::", "299")];

fn main() {
    if !property::is_in_child() {
        // Each flaw makes its property panic. The messages would hide those of a flaw that is not caught.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let mut trials = Vec::new();
    for &flaw in RepoFlaw::ALL {
        trials.extend(trials_of("repo", flaw, flaw.caught_by(), repo::PROPERTIES, RACES, move || flaw.subject()));
    }
    for &flaw in Flaw::ALL {
        let subject = move || flaw.subject().with_max_wait(MAX_WAIT);
        let of_corpus = server::PROPERTIES.iter().filter(|property| property.module == "corpus");
        let caught_by = match flaw {
            Flaw::AnswersAnotherStatus => of_corpus.map(|property| property.name).collect(),
            _ => flaw.caught_by().to_vec(),
        };
        trials.extend(trials_of("server", flaw, &caught_by, server::PROPERTIES, ATTEMPTS, subject));
    }
    for &flaw in EngineFlaw::ALL {
        let subject = move || PlainEngine::subject(Some(flaw)).max_wait(engine_max_wait(flaw));
        trials.extend(trials_of("engine", flaw, flaw.caught_by(), engine::PROPERTIES, 1, subject));
    }
    for &fault in Fault::ALL {
        let subject = move || {
            ExecutorSubject::new(move |workers, queue| Box::new(Faulty::new(fault, workers, queue)))
                .in_order()
                .max_wait(executor_max_wait(fault))
        };
        trials.extend(trials_of("executor", fault, fault.caught_by(), executor::PROPERTIES, 1, subject));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A short max wait for flaws of which an answer never comes, or else one that a busy machine does not reach.
fn engine_max_wait(flaw: EngineFlaw) -> Duration {
    use EngineFlaw::*;
    match flaw {
        HoldsEverything
        | RejectsOnceTheEngineAnswers
        | LosesRoom
        | BlocksAndDefers
        | HoldsAnyBytes
        | LosesBytes
        | ConnectsOnce
        | ConnectsForEver => Duration::from_millis(500),
        // The kit's own timeouts are waited for.
        WaitsForEver | ClosesAfterATimeout => Duration::from_secs(3),
        _ => Duration::from_secs(60),
    }
}

/// A short max wait: the events that a property waits for do not happen. Only the start of threads may take longer.
fn executor_max_wait(fault: Fault) -> Duration {
    if fault == Fault::LeaksThreads { Duration::from_secs(5) } else { Duration::from_millis(500) }
}

/// Makes a test of each property that must catch a flaw. In the child process of a property, it only runs the property.
fn trials_of<S: 'static>(
    kit: &str,
    flaw: impl std::fmt::Debug,
    caught_by: &[&'static str],
    properties: &'static [Property<S>],
    attempts: usize,
    subject: impl Fn() -> S + Copy + Send + 'static,
) -> Vec<Trial> {
    let trial = |caught_by: &&'static str| {
        let (name, property) = (format!("{kit}::{flaw:?}::{caught_by}"), property::named(properties, caught_by));
        Trial::test(name.clone(), move || {
            let run = || property::test("", &name, &subject(), property.run);
            if property::is_in_child() {
                let _ = run();
                return Ok(());
            }
            let caught = (0..attempts).find_map(|_| catch_unwind(AssertUnwindSafe(run)).err());
            let Some(panic) = caught else { return Err(format!("{} does not catch it", property.name).into()) };
            let (text, reason) = (text_of(panic), REASONS.iter().find(|(start, _)| name.starts_with(start)));
            let is_right = reason.is_none_or(|(_, reason)| text.contains(reason));
            if is_right { Ok(()) } else { Err(format!("caught for another reason: {text}").into()) }
        })
    };
    caught_by.iter().map(trial).collect()
}
