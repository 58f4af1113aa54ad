//! The kits of servers and engines, tested: each flaw of the plain server and of the plain engine breaks the named property.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use polyserve_conformance::broken::engines::{EngineFlaw, PlainEngine};
use polyserve_conformance::broken::servers::Flaw;
use polyserve_conformance::property::{self, Property};
use polyserve_conformance::{engine, server};

/// Long enough for a busy machine. Short enough, because a flaw makes the kit wait for the whole patience.
const PATIENCE: Duration = Duration::from_secs(4);

/// Flaws that are named for one property and also caught by another.
const CAUGHT_TOO: &[(Flaw, &str)] = &[
    (Flaw::ServesOneAtATime, "a_client_with_half_a_head_leaves_room"),
    (Flaw::ServesOneAtATime, "silent_connections_do_not_stop_the_rest"),
    (Flaw::ServesOneAtATime, "time_in_the_queue_counts_towards_the_head_timeout"),
    (Flaw::ClosesAfterEveryAnswer, "an_answer_says_close_if_others_wait"),
    (Flaw::RepeatsThePreviousAnswer, "named_entities_are_linearizable"),
    (Flaw::RepeatsThePreviousAnswer, "conditional_writes_are_linearizable_over_http"),
    (Flaw::IgnoresWakes, "a_later_repo_of_named_entities_answers_the_same"),
    (Flaw::IgnoresWakes, "no_increment_is_lost_of_a_named_entity"),
    (Flaw::DoesNotDrain, "requests_behind_busy_workers_are_served_by_the_drain"),
];

fn main() {
    if !property::is_in_child() {
        // Each flaw makes its property panic. The messages would hide those of a flaw that is not caught.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let named = Flaw::ALL.iter().map(|flaw| (*flaw, flaw.caught_by()));
    let of_servers = named.chain(CAUGHT_TOO.iter().copied()).map(|(flaw, property)| {
        let subject = flaw.subject().with_patience(PATIENCE);
        trial(format!("server::{flaw:?}::{property}"), subject, property::named(server::PROPERTIES, property))
    });
    let of_engines = EngineFlaw::ALL.iter().map(|flaw| {
        let subject = PlainEngine::subject(Some(*flaw)).patience(engine_patience(*flaw));
        trial(format!("engine::{flaw:?}"), subject, property::named(engine::PROPERTIES, flaw.caught_by()))
    });
    libtest_mimic::run(&Arguments::from_args(), of_servers.chain(of_engines).collect()).exit();
}

/// A short patience for flaws of which an answer never comes, or else one that a busy machine does not reach.
fn engine_patience(flaw: EngineFlaw) -> Duration {
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

/// Runs the property that must catch the flaw of `subject`. In the child process of a property, only runs it.
fn trial<S: Send + 'static>(name: String, subject: S, property: &'static Property<S>) -> Trial {
    Trial::test(name.clone(), move || {
        let run = || property::test("", &name, &subject, property.run);
        match catch_unwind(AssertUnwindSafe(run)) {
            Err(panic) if property::is_in_child() => resume_unwind(panic),
            Ok(_) if !property::is_in_child() => Err(format!("{} does not catch it", property.name).into()),
            Ok(_) | Err(_) => Ok(()),
        }
    })
}
