//! The kit for stores over an engine, tested: the plain engine has every property. The test `flaws` has its flaws.

use polyserve_conformance::broken::engines::{EngineFlaw, PlainEngine};
use polyserve_conformance::engine::{EngineSubject, PROPERTIES};
use polyserve_conformance::engine_conformance;
use polyserve_conformance::property::{PropertyVerdict, check, named};

engine_conformance!(plain_engine, PlainEngine::subject(None));

/// Whether the named property is broken.
fn is_caught(property: &str, subject: &EngineSubject) -> bool {
    matches!(named(PROPERTIES, property).verdict(subject), PropertyVerdict::Broken(_))
}

#[test]
fn every_property_catches_something() {
    for property in PROPERTIES {
        assert!(EngineFlaw::ALL.iter().any(|flaw| flaw.caught_by().contains(&property.name)), "{}", property.name);
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
        assert!(is_caught(property, &subject), "{why}");
    }
}

/// A store that declares it may leave one write unknown, and not two.
#[test]
fn one_unknown_write_can_be_declared() {
    let subject = |flaw: EngineFlaw| PlainEngine::subject(Some(flaw)).may_leave_a_write_unknown();
    for (flaw, expected) in [(EngineFlaw::UsesADeadConnectionOnce, false), (EngineFlaw::UsesDeadConnections, true)] {
        assert_eq!(is_caught(flaw.caught_by()[0], &subject(flaw)), expected);
    }
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
