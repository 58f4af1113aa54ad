//! The repo kit, tested with right repos. The test `flaws` has the flaws.

use std::collections::BTreeSet;
use std::time::Duration;

use polyserve_conformance::broken::repos::RepoFlaw;
use polyserve_conformance::property::{PropertyVerdict, check, named};
use polyserve_conformance::repo::{LaterReference, PROPERTIES, Reference, RepoSubject};
use polyserve_conformance::repo_conformance;
use polyserve_core::{Answer, Condition, Conditional, Entity, EntityRepo, Lookup, Put, Removed, RepoAnswer, Visit};

repo_conformance!(reference, RepoSubject::new(Reference::default));
repo_conformance!(later_reference, RepoSubject::new(LaterReference::default).answers_later().many_keys(2_000));
repo_conformance!(boxed, RepoSubject::new(|| -> Box<dyn EntityRepo> { Box::<Reference>::default() }).in_memory());
repo_conformance!(now_and_later, RepoSubject::new(NowAndLater::default).answers_now_or_later().many_keys(2_000));

/// Reads now and changes later, like a log under a map in memory.
#[derive(Debug, Default)]
struct NowAndLater(Reference);

impl EntityRepo for NowAndLater {
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        self.0.get(&id, visit)
    }
    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        Answer::later(self.0.put_if(entity, condition).into_future())
    }
    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        Answer::later(self.0.remove_if(&id, condition).into_future())
    }
    fn len(&self) -> RepoAnswer<u64> {
        self.0.len()
    }
}

/// Returns the message of the named property, which is broken.
#[track_caller]
fn caught(name: &str, subject: &RepoSubject) -> String {
    match named(PROPERTIES, name).verdict(subject) {
        PropertyVerdict::Broken(why) => why,
        verdict => panic!("{name}: {verdict:?}"),
    }
}

/// Declarations that are wrong are caught, too.
#[test]
fn a_false_declaration_is_caught() {
    let json = RepoFlaw::TextValue.subject().stores_json();
    caught("values_keep_their_bits", &json);
    caught("now_means_now", &RepoSubject::new(LaterReference::default));
    caught("now_means_now", &RepoSubject::new(Reference::default).answers_later());
}

#[test]
fn every_property_catches_something() {
    let catching: BTreeSet<_> = RepoFlaw::ALL.iter().flat_map(|flaw| flaw.caught_by()).copied().collect();
    let listed: BTreeSet<_> = PROPERTIES.iter().map(|property| property.name).collect();
    // The test above catches a false declaration of when a repo answers.
    assert_eq!(listed.difference(&catching).copied().collect::<Vec<_>>(), ["now_means_now"]);
}

/// A repo with a lock that stays held after a panic. A lock of std would be released while unwinding.
#[test]
fn a_hanging_operation_is_given_up() {
    #[derive(Debug, Default)]
    struct Hangs(Reference);
    impl EntityRepo for Hangs {
        fn get(&self, &_id: &i64, _visit: Visit<'_>) -> RepoAnswer<Lookup> {
            loop {
                std::thread::park();
            }
        }
        fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
            self.0.put_if(entity, condition)
        }
        fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
            self.0.remove_if(&id, condition)
        }
        fn len(&self) -> RepoAnswer<u64> {
            self.0.len()
        }
    }
    let subject = RepoSubject::new(Hangs::default).max_wait(Duration::from_millis(100));
    let why = caught("get_after_put_shows_it", &subject);
    assert!(why.contains("hangs"), "{why}");
}

/// The property that is named for a flaw catches it, and the others still hold: a report in which everything is broken
/// helps no reader.
#[test]
fn a_report_names_what_is_wrong() {
    let report = check("miscounted", &RepoFlaw::ReplacedSaysCreated.subject(), &PROPERTIES[..7]);
    assert_eq!(report.broken().map(|(name, _)| name).collect::<Vec<_>>(), ["agrees_with_a_map"]);
    assert!(!report.conforms());
    assert!(report.to_string().contains("BROKEN   miscounted::agrees_with_a_map"), "{report}");
    assert!(report.to_string().contains("held     miscounted::absent_is_absent"), "{report}");
}
