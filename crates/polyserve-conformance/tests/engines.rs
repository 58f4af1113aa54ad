//! The kit for stores over an engine, tested: the plain engine has every property, and each flaw breaks the named one.

use std::time::Duration;

use polyserve_conformance::broken::engines::{EngineFlaw, PlainEngine};
use polyserve_conformance::engine::{EngineSubject, PROPERTIES};
use polyserve_conformance::engine_conformance;
use polyserve_conformance::property::{PropertyVerdict, check, named};

engine_conformance!(plain_engine, PlainEngine::subject(None));

/// Runs the named property. Returns its message if it fails.
fn caught(property: &str, subject: &EngineSubject) -> Option<String> {
    let property = named(PROPERTIES, property);
    match check("broken", subject, std::slice::from_ref(property)).verdicts.pop() {
        Some((_, PropertyVerdict::Broken(why))) => Some(why),
        _ => None,
    }
}

macro_rules! caught {
    ($($test:ident: $flaw:ident, $patience:expr;)*) => {
        $(
            #[test]
            fn $test() {
                let flaw = EngineFlaw::$flaw;
                let why = caught(flaw.caught_by(), &PlainEngine::subject(Some(flaw)).patience($patience));
                println!("{}", why.unwrap_or_else(|| panic!("{} does not catch {flaw:?}", flaw.caught_by())));
            }
        )*

        #[test]
        fn every_flaw_is_tried() {
            assert_eq!(EngineFlaw::ALL, [$(EngineFlaw::$flaw,)*]);
        }
    };
}

/// A patience for flaws of which an answer never comes.
const SHORT: Duration = Duration::from_millis(500);
/// A patience for flaws of which an answer never comes, if the kit's own timeouts are waited for.
const MEDIUM: Duration = Duration::from_secs(3);
/// A patience that a busy machine does not reach.
const LONG: Duration = Duration::from_secs(60);

caught! {
    holds_everything: HoldsEverything, SHORT;
    rejects_once_the_engine_answers: RejectsOnceTheEngineAnswers, SHORT;
    loses_room: LosesRoom, SHORT;
    blocks_and_defers: BlocksAndDefers, SHORT;
    holds_any_bytes: HoldsAnyBytes, SHORT;
    loses_bytes: LosesBytes, SHORT;
    blocks_the_caller: BlocksTheCaller, LONG;
    gives_up_early: GivesUpEarly, LONG;
    waits_for_ever: WaitsForEver, MEDIUM;
    connects_to_silence: ConnectsToSilence, LONG;
    closes_after_a_timeout: ClosesAfterATimeout, MEDIUM;
    acknowledges_any_write: AcknowledgesAnyWrite, LONG;
    connects_once: ConnectsOnce, SHORT;
    connects_at_once: ConnectsAtOnce, LONG;
    reports_another_error: ReportsAnotherError, LONG;
    forgets_at_the_end: ForgetsAtTheEnd, LONG;
    ignores_refusals: IgnoresRefusals, LONG;
    refuses_for_good: RefusesForGood, LONG;
    always_healthy: AlwaysHealthy, LONG;
    uses_dead_connections: UsesDeadConnections, LONG;
    uses_a_dead_connection_once: UsesADeadConnectionOnce, LONG;
    acknowledges_on_dead_connections: AcknowledgesOnDeadConnections, LONG;
    connects_to_nothing: ConnectsToNothing, LONG;
    connects_for_ever: ConnectsForEver, SHORT;
    names_no_engine: NamesNoEngine, LONG;
}

#[test]
fn every_property_catches_something() {
    for property in PROPERTIES {
        assert!(EngineFlaw::ALL.iter().any(|flaw| flaw.caught_by() == property.name), "{}", property.name);
    }
}

/// A declaration that is wrong is caught, too.
#[test]
fn a_false_declaration_is_caught() {
    let property = "a_stopped_engine_comes_back";
    for (why, subject) in [
        ("reads depend on the engine", PlainEngine::subject(None).reads_from_memory()),
        ("the engine keeps its entities", PlainEngine::subject(None).forgets()),
    ] {
        assert!(caught(property, &subject).is_some(), "{why}");
    }
}

/// A store that declares it may leave one write unknown, and not two.
#[test]
fn one_unknown_write_can_be_declared() {
    let caught_of = |flaw: EngineFlaw| {
        caught(flaw.caught_by(), &PlainEngine::subject(Some(flaw)).may_leave_a_write_unknown()).is_some()
    };
    assert!(!caught_of(EngineFlaw::UsesADeadConnectionOnce));
    assert!(caught_of(EngineFlaw::UsesDeadConnections));
}

/// An engine that is not installed is reported with its name, and is no failure.
#[test]
fn a_missing_engine_is_not_run() {
    let start = || -> Result<PlainEngine, String> { Err("the plain engine is not installed".into()) };
    let absent = || panic!("this test connects to no absent engine");
    let subject = EngineSubject::new(start, "", absent);
    let report = check("missing", &subject, &PROPERTIES[..4]);
    for (name, verdict) in &report.verdicts {
        assert_eq!(*verdict, PropertyVerdict::NotRun("the plain engine is not installed".into()), "{name}");
    }
    assert_eq!(report.verdicts.len(), 4);
}
