//! The repo kit, tested with right repos and with repos that have one flaw each.

use std::collections::BTreeSet;
use std::time::Duration;

use polyserve_conformance::broken::repos::*;
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
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        Answer::later(self.0.put(entity).into_future())
    }
    fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
        Answer::later(self.0.remove(&id).into_future())
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

/// The number of races that may hold before a property counts as failing to catch a flaw.
const ROUNDS: usize = 20;

/// Runs the named property on a broken repo until it fails, and returns its message.
fn caught(name: &str, subject: &RepoSubject) -> Option<String> {
    (0..ROUNDS).find_map(|_| {
        let report = check("broken", subject, std::slice::from_ref(named(PROPERTIES, name)));
        match report.verdicts.as_slice() {
            [(ran, PropertyVerdict::Broken(why))] if *ran == name => Some(why.clone()),
            _ => None,
        }
    })
}

macro_rules! catches {
    ($($test:ident: $property:ident, $subject:expr;)*) => {
        /// The properties that catch a flaw here.
        const CATCHING: &[&str] = &[$(stringify!($property)),*];

        $(
            #[test]
            fn $test() {
                let why = caught(stringify!($property), &$subject);
                let why = why.unwrap_or_else(|| panic!("{} let {} pass", stringify!($property), stringify!($test)));
                println!("{why}");
            }
        )*
    };
}

/// A patience that a busy machine does not reach.
fn now<R: EntityRepo + Default>() -> RepoSubject {
    RepoSubject::new(R::default)
}

fn later<R: EntityRepo + Default>() -> RepoSubject {
    now::<R>().answers_later()
}

/// A patience for repos that never answer.
const SHORT: Duration = Duration::from_millis(100);

catches! {
    invented_entity: absent_is_absent, now::<InventedEntity>();
    delayed_put: get_after_put_shows_it, now::<DelayedPut>();
    always_replaced: first_put_is_created, now::<AlwaysReplaced>();
    replaced_says_created: second_put_is_replaced, now::<ReplacedSaysCreated>();
    first_put_stays: replaced_entity_is_the_new_one, now::<FirstPutStays>();
    always_removed: remove_returns_what_it_did, now::<AlwaysRemoved>();
    remove_keeps_entity: removed_is_absent, now::<RemoveKeepsEntity>();
    tombstones: put_after_remove_is_created, now::<Tombstones>();
    miscounted_len: len_counts, now::<MiscountedLen>();
    narrow_id: extreme_ids_are_ids, now::<NarrowId>();
    cut_at_nul: odd_descriptions_are_kept, now::<CutAtNul>();
    lossy_value: values_keep_their_bits, now::<LossyValue>();
    text_value: values_keep_their_bits, now::<TextValue>();
    text_value_as_json: values_keep_their_bits, now::<TextValue>().stores_json();
    removes_two_ids: agrees_with_a_map, now::<RemovesTwoIds>();
    visits_and_answers_absent: visit_is_called_exactly_once, now::<VisitsAndAnswersAbsent>();
    visits_and_answers_later: visit_is_called_exactly_once, now::<VisitsAndAnswersLater>().answers_now_or_later();
    visits_another: visit_is_called_exactly_once, now::<VisitsAnother>();
    later_declared_now: now_means_now, now::<LaterReference>();
    now_declared_later: now_means_now, later::<Reference>();
    poisoned_lock: a_panicking_visit_costs_one_answer, now::<PoisonedLock>();
    dropped_completer: many_answers_at_once, later::<DroppedCompleter>();
    never_answers: many_answers_at_once, later::<NeverAnswers>().patience(SHORT);
    first_waker_only: answers_can_be_awaited_from_any_thread, later::<FirstWakerOnly>().patience(SHORT);
    busy_until_answered: later_answers_survive_being_dropped, later::<BusyUntilAnswered>();
    abandons_waiting: a_dropped_repo_still_answers, later::<AbandonsWaiting>().patience(SHORT);
    lost_update: racing_first_puts_create_exactly_one, now::<LostUpdate>();
    late_version: a_version_names_what_is_stored, now::<LateVersion>();
    diverged_replicas: racing_puts_leave_one_of_them, now::<DivergedReplicas>();
    lost_copy: no_lost_update, now::<LostCopy>();
    ignores_conditions: a_condition_decides_a_write, now::<IgnoresConditions>();
    refuses_and_removes: a_refused_write_changes_nothing, now::<RefusesAndRemoves>();
    checks_then_writes: no_increment_is_lost, now::<ChecksThenWrites>();
    checks_then_creates: racing_creations_create_once, now::<ChecksThenWrites>();
    checks_then_writes_out_of_order: conditional_writes_are_linearizable, now::<ChecksThenWrites>();
    checks_then_removes: a_conditional_remove_takes_what_was_seen, now::<ChecksThenWrites>();
    dropped_put: no_lost_update, now::<DroppedPut>();
    stale_read: no_stale_read, now::<StaleRead>();
    lagging_replica: reads_never_go_backwards, now::<LaggingReplica>();
    torn_read: no_torn_read, now::<TornRead>();
    double_remove: removes_and_puts_balance, now::<DoubleRemove>();
    lost_to_remove: put_is_not_lost_to_a_racing_remove, now::<LostToRemove>();
    empty_while_growing: a_growing_store_loses_nothing, now::<EmptyWhileGrowing>();
    evicting: many_keys, now::<Evicting>();
    early_ack: linearizable, now::<EarlyAck>();
    withdrawn_put: linearizable, now::<WithdrawnPut>();
    stale_cache: linearizable, now::<StaleCache>();
    dirty_read: linearizable, now::<DirtyRead>();
}

/// `linearizable` also catches each repo without an order that another property is named for.
#[test]
fn what_has_no_order_is_caught_by_its_history() {
    let mut missed = Vec::new();
    for (name, subject) in [
        ("invented_entity", now::<InventedEntity>()),
        ("delayed_put", now::<DelayedPut>()),
        ("always_replaced", now::<AlwaysReplaced>()),
        ("replaced_says_created", now::<ReplacedSaysCreated>()),
        ("first_put_stays", now::<FirstPutStays>()),
        ("always_removed", now::<AlwaysRemoved>()),
        ("remove_keeps_entity", now::<RemoveKeepsEntity>()),
        ("tombstones", now::<Tombstones>()),
        ("lost_update", now::<LostUpdate>()),
        ("diverged_replicas", now::<DivergedReplicas>()),
        ("lost_copy", now::<LostCopy>()),
        ("dropped_put", now::<DroppedPut>()),
        ("stale_read", now::<StaleRead>()),
        ("lagging_replica", now::<LaggingReplica>()),
        ("torn_read", now::<TornRead>()),
        ("double_remove", now::<DoubleRemove>()),
        ("lost_to_remove", now::<LostToRemove>()),
        ("empty_while_growing", now::<EmptyWhileGrowing>()),
    ] {
        match caught("linearizable", &subject) {
            Some(why) => println!("{name}: {why}"),
            None => missed.push(name),
        }
    }
    assert!(missed.is_empty(), "their histories pass: {missed:?}");
}

#[test]
fn every_property_catches_something() {
    let catching: BTreeSet<_> = CATCHING.iter().copied().collect();
    let listed: BTreeSet<_> = PROPERTIES.iter().map(|property| property.name).collect();
    assert_eq!(catching, listed);
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
        fn put(&self, entity: Entity) -> RepoAnswer<Put> {
            self.0.put(entity)
        }
        fn remove(&self, &id: &i64) -> RepoAnswer<Removed> {
            self.0.remove(&id)
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
    let why = caught("get_after_put_shows_it", &now::<Hangs>().patience(SHORT)).expect("it never ends");
    assert!(why.contains("hangs"), "{why}");
}

/// The property that is named for a flaw catches it, and the others still hold: a report in which everything is broken
/// helps no reader.
#[test]
fn a_report_names_what_is_wrong() {
    let report = check("miscounted", &now::<ReplacedSaysCreated>(), &PROPERTIES[..5]);
    assert_eq!(report.broken().map(|(name, _)| name).collect::<Vec<_>>(), ["second_put_is_replaced"]);
    assert!(!report.conforms());
    assert!(report.to_string().contains("BROKEN   miscounted::second_put_is_replaced"), "{report}");
    assert!(report.to_string().contains("held     miscounted::first_put_is_created"), "{report}");
}
