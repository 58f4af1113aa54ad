//! The server kit, tested: the plain server has every property, and each flaw breaks the named one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use polyserve_conformance::broken::servers::{Flaw, PlainServer};
use polyserve_conformance::property::{self, Outcome, Property, Verdict};
use polyserve_conformance::server::{Deviations, PROPERTIES, ServerSubject};

polyserve_conformance::server_conformance!(plain_server, ServerSubject::new(PlainServer::new));

/// Long enough for a busy machine. Short enough, because a flaw makes the kit wait for the whole patience.
const PATIENCE: Duration = Duration::from_secs(4);

fn named(name: &str) -> &'static Property<ServerSubject> {
    PROPERTIES.iter().find(|property| property.name == name).expect("the property is in the kit")
}

/// Runs the property that must catch `flaw`, in the test `name`.
fn catch(flaw: Flaw, property: &str, name: &str) {
    let property = named(property);
    let subject = flaw.subject().with_patience(PATIENCE);
    let run = || property::test(module_path!(), name, &subject, property.run);
    if std::env::var_os("POLYSERVE_CONFORMANCE_CHILD").is_some() {
        return run(); // in the child process of a property
    }
    let caught = catch_unwind(AssertUnwindSafe(run));
    assert!(caught.is_err(), "{} does not catch {flaw:?}", property.name);
}

macro_rules! caught {
    ($($test:ident: $flaw:ident,)*) => {
        $(
            #[test]
            fn $test() {
                catch(Flaw::$flaw, Flaw::$flaw.caught_by(), stringify!($test));
            }
        )*

        #[test]
        fn every_flaw_is_tried() {
            assert_eq!(Flaw::ALL, [$(Flaw::$flaw,)*]);
        }
    };
}

caught! {
    reordered_pipeline: ReorderedPipeline,
    answers_one_by_one: AnswersOneByOne,
    buffers_without_limit: BuffersWithoutLimit,
    forgets_keep_alive: ForgetsKeepAlive,
    ignores_connection_close: IgnoresConnectionClose,
    keeps_old_connections_silently: KeepsOldConnectionsSilently,
    answers_head_with_a_body: AnswersHeadWithABody,
    refuses_head_with_a_body: RefusesHeadWithABody,
    needs_a_whole_read: NeedsAWholeRead,
    loses_bytes_on_a_short_write: LosesBytesOnAShortWrite,
    takes_two_hosts: TakesTwoHosts,
    takes_length_with_chunked: TakesLengthWithChunked,
    takes_bare_lf: TakesBareLf,
    takes_space_before_colon: TakesSpaceBeforeColon,
    takes_any_chunked_length: TakesAnyChunkedLength,
    goes_on_after_a_refusal: GoesOnAfterARefusal,
    never_continues: NeverContinues,
    always_continues: AlwaysContinues,
    has_no_timeouts: HasNoTimeouts,
    drips_keep_it_awake: DripsKeepItAwake,
    closes_on_late_clients: ClosesOnLateClients,
    leaves_errors_empty: LeavesErrorsEmpty,
    calls_everything_bad: CallsEverythingBad,
    answers_idle_timeouts: AnswersIdleTimeouts,
    waits_for_ever: WaitsForEver,
    answers_from_memory: AnswersFromMemory,
    loses_wakes: LosesWakes,
    never_cuts_readers: NeverCutsReaders,
    takes_half_close_for_close: TakesHalfCloseForClose,
    dies_of_an_empty_connection: DiesOfAnEmptyConnection,
    does_not_linger: DoesNotLinger,
    lets_panics_through: LetsPanicsThrough,
    lets_drops_panic: LetsDropsPanic,
    keeps_half_an_answer: KeepsHalfAnAnswer,
    rejects_without_retry_after: RejectsWithoutRetryAfter,
    rejects_without_an_answer: RejectsWithoutAnAnswer,
    keeps_idle_connections: KeepsIdleConnections,
    counts_no_silent_connections: CountsNoSilentConnections,
    counts_rejected_connections: CountsRejectedConnections,
    miscounts_requests: MiscountsRequests,
    stale_date: StaleDate,
    sends_server_field: SendsServerField,
    sleeps_until_the_deadline: SleepsUntilTheDeadline,
    does_not_drain: DoesNotDrain,
    tears_answers: TearsAnswers,
    drains_one_answer: DrainsOneAnswer,
    drains_refused_bodies: DrainsRefusedBodies,
    drains_without_saying_so: DrainsWithoutSayingSo,
    counts_no_head_answers: CountsNoHeadAnswers,
    hides_cuts: HidesCuts,
    waits_for_the_stuck: WaitsForTheStuck,
    keeps_the_port: KeepsThePort,
    shares_counts: SharesCounts,
    leaks_threads: LeaksThreads,
    leaks_descriptors: LeaksDescriptors,
    dies_of_full_tables: DiesOfFullTables,
    spins_on_full_tables: SpinsOnFullTables,
    spins_while_it_waits: SpinsWhileItWaits,
    keeps_the_port_while_stuck: KeepsThePortWhileStuck,
    forgets_the_queue: ForgetsTheQueue,
    serves_one_at_a_time: ServesOneAtATime,
    finishes_its_input_first: FinishesItsInputFirst,
    drips_hold_the_server: DripsHoldTheServer,
    judges_timeouts_first: JudgesTimeoutsFirst,
    times_all_bodies_together: TimesAllBodiesTogether,
    lets_payloads_panic: LetsPayloadsPanic,
    answers_few_refusals: AnswersFewRefusals,
    drops_the_queue_without_descriptors: DropsTheQueueWithoutDescriptors,
    takes_any_chunk_extension: TakesAnyChunkExtension,
    takes_bare_lf_after_chunks: TakesBareLfAfterChunks,
    takes_any_target: TakesAnyTarget,
    takes_long_methods_for_targets: TakesLongMethodsForTargets,
    takes_any_config: TakesAnyConfig,
    accepts_one_at_a_time: AcceptsOneAtATime,
    resets_evicted_connections: ResetsEvictedConnections,
    evicts_without_saying_so: EvictsWithoutSayingSo,
    takes_only_json: TakesOnlyJson,
    takes_only_one_line: TakesOnlyOneLine,
}

macro_rules! caught_too {
    ($($test:ident: $flaw:ident, by $property:ident;)*) => {
        $(
            #[test]
            fn $test() {
                catch(Flaw::$flaw, stringify!($property), stringify!($test));
            }
        )*
    };
}

// Flaws that are named for one property and also caught by another.
caught_too! {
    one_at_a_time_starves_behind_half_a_head: ServesOneAtATime, by a_client_with_half_a_head_leaves_room;
    one_at_a_time_starves_behind_silence: ServesOneAtATime, by silent_connections_do_not_stop_the_rest;
    one_at_a_time_forgets_time_in_the_queue: ServesOneAtATime, by time_in_the_queue_counts_towards_the_head_timeout;
    forgotten_keep_alive_is_a_silent_close: ForgetsKeepAlive, by an_answer_says_close_if_others_wait;
    no_drain_loses_what_waits: DoesNotDrain, by requests_behind_busy_workers_are_served_by_the_drain;
}

/// The kit expects what a server declares: a declared flaw passes, and a server that does not deviate fails.
#[test]
fn what_is_declared_is_expected() {
    type Declare = fn(&mut Deviations);
    let declared: [(Flaw, Declare, &str); 7] = [
        (Flaw::TakesBareLf, |d| d.bare_lf_ends_a_line = true, "a_bare_lf_ends_no_line"),
        (Flaw::TakesLengthWithChunked, |d| d.chunked_overrides_length = true, "length_with_chunked_is_refused"),
        (Flaw::CallsEverythingBad, |d| d.unknown_coding_is_400 = true, "chunked_is_the_only_coding"),
        (Flaw::CallsEverythingBad, |d| d.unknown_method_is_400 = true, "unknown_methods_are_not_implemented"),
        (Flaw::CallsEverythingBad, |d| d.later_version_is_400 = true, "later_versions_are_not_supported"),
        (Flaw::ClosesOnLateClients, |d| d.timeouts_close_silently = true, "a_slow_body_times_out"),
        (Flaw::LeavesErrorsEmpty, |d| d.early_errors_are_empty = true, "garbage_is_refused"),
    ];
    for (flaw, declare, name) in declared {
        let property = named(name);
        let sound = || ServerSubject::new(PlainServer::new).with_patience(PATIENCE);
        let verdict = |subject: ServerSubject| {
            let run = [Property { name: property.name, run: property.run }];
            property::check("declared", &subject, &run).verdicts.pop().map(|(_, verdict)| verdict)
        };
        let flawed = || flaw.subject().with_patience(PATIENCE);
        assert_eq!(verdict(flawed().deviating(declare)), Some(Verdict::Held), "{flaw:?}, declared");
        assert_eq!(verdict(sound()), Some(Verdict::Held), "{name} of a sound server");
        for subject in [flawed(), sound().deviating(declare)] {
            let broken = verdict(subject);
            assert!(matches!(broken, Some(Verdict::Broken(_))), "{flaw:?}, {name}: {broken:?}");
        }
    }
}

/// Each of the two flaws of evictions breaks its own property, and not that of the other flaw.
#[test]
fn a_flaw_of_evictions_breaks_one_property() {
    use Flaw::{EvictsWithoutSayingSo, ResetsEvictedConnections};
    for (flaw, other) in
        [(EvictsWithoutSayingSo, ResetsEvictedConnections), (ResetsEvictedConnections, EvictsWithoutSayingSo)]
    {
        let property = named(other.caught_by());
        let subject = flaw.subject().with_patience(PATIENCE);
        assert_eq!((property.run)(&subject), Outcome::Held, "{flaw:?}, {}", property.name);
    }
}

/// A server that is declared to have a pool, and refuses a worker count, fails.
#[test]
fn a_declared_pool_has_a_size() {
    let property = named("a_worker_count_is_honoured_or_refused");
    let sound = || ServerSubject::new(PlainServer::new).with_patience(PATIENCE);
    for (subject, holds) in [(sound(), true), (sound().pooled(), false)] {
        let run = [Property { name: property.name, run: property.run }];
        let verdict = property::check("pooled", &subject, &run).verdicts.pop().map(|(_, verdict)| verdict);
        assert_eq!(verdict == Some(Verdict::Held), holds, "{verdict:?}");
    }
}
