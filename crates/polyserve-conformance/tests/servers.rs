//! The server kit, tested: the plain server has every property, and each flaw breaks the named one.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use polyserve_conformance::broken::repos::ChecksThenWrites;
use polyserve_conformance::broken::servers::{Flaw, PlainServer};
use polyserve_conformance::property::{self, Outcome, Property, PropertyVerdict};
use polyserve_conformance::server::{
    Deviations, PROPERTIES, ServerSubject, a_merge_patch_loses_no_update_over, no_increment_is_lost_over,
};

use polyserve_core::{ListenOn, Running, Server, Service, Shape};

polyserve_conformance::server_conformance!(plain_server, ServerSubject::new(PlainServer::new));

/// Long enough for a busy machine. Short enough, because a flaw makes the kit wait for the whole patience.
const PATIENCE: Duration = Duration::from_secs(4);

fn named(name: &str) -> &'static Property<ServerSubject> {
    property::named(PROPERTIES, name)
}

/// Whether this is the child process of a property.
fn is_child() -> bool {
    std::env::var_os("POLYSERVE_CONFORMANCE_CHILD").is_some()
}

/// Runs the property that must catch `flaw`, in the test `name`.
fn catch(flaw: Flaw, property: &str, name: &str) {
    let property = named(property);
    let subject = flaw.subject().with_patience(PATIENCE);
    let run = || property::test(module_path!(), name, &subject, property.run);
    if is_child() {
        let _ = run();
        return;
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
    closes_after_every_answer: ClosesAfterEveryAnswer,
    ignores_connection_close: IgnoresConnectionClose,
    omits_keep_alive_on_http_10: OmitsKeepAliveOnHttp10,
    answers_head_with_a_body: AnswersHeadWithABody,
    refuses_head_with_a_body: RefusesHeadWithABody,
    needs_head_and_body_in_one_read: NeedsHeadAndBodyInOneRead,
    loses_bytes_on_a_short_write: LosesBytesOnAShortWrite,
    takes_two_hosts: TakesTwoHosts,
    takes_length_with_chunked: TakesLengthWithChunked,
    takes_bare_lf: TakesBareLf,
    takes_space_before_colon: TakesSpaceBeforeColon,
    takes_any_chunked_length: TakesAnyChunkedLength,
    goes_on_after_a_refusal: GoesOnAfterARefusal,
    never_sends_100: NeverSends100,
    sends_100_before_the_head_is_checked: Sends100BeforeTheHeadIsChecked,
    has_no_timeouts: HasNoTimeouts,
    resets_timeout_on_each_byte: ResetsTimeoutOnEachByte,
    closes_silently_on_timeouts: ClosesSilentlyOnTimeouts,
    sends_empty_errors: SendsEmptyErrors,
    answers_400_to_all_unsupported: Answers400ToAllUnsupported,
    answers_idle_timeouts: AnswersIdleTimeouts,
    has_no_answer_timeout: HasNoAnswerTimeout,
    repeats_the_previous_answer: RepeatsThePreviousAnswer,
    ignores_wakes: IgnoresWakes,
    has_no_write_timeout: HasNoWriteTimeout,
    extends_writes_on_progress: ExtendsWritesOnProgress,
    has_no_first_byte_timeout: HasNoFirstByteTimeout,
    takes_bodies_at_any_rate: TakesBodiesAtAnyRate,
    closes_on_half_close: ClosesOnHalfClose,
    stops_accepting_after_an_empty_connection: StopsAcceptingAfterAnEmptyConnection,
    does_not_linger: DoesNotLinger,
    does_not_catch_panics: DoesNotCatchPanics,
    does_not_catch_panics_in_drop: DoesNotCatchPanicsInDrop,
    sends_part_of_a_panicked_answer: SendsPartOfAPanickedAnswer,
    rejects_without_retry_after: RejectsWithoutRetryAfter,
    rejects_without_an_answer: RejectsWithoutAnAnswer,
    keeps_idle_connections: KeepsIdleConnections,
    counts_no_silent_connections: CountsNoSilentConnections,
    counts_rejected_connections: CountsRejectedConnections,
    miscounts_requests: MiscountsRequests,
    stale_date: StaleDate,
    sends_server_field: SendsServerField,
    ends_only_at_the_deadline: EndsOnlyAtTheDeadline,
    does_not_drain: DoesNotDrain,
    sends_half_answers_in_the_drain: SendsHalfAnswersInTheDrain,
    drains_one_answer: DrainsOneAnswer,
    drains_refused_bodies: DrainsRefusedBodies,
    drains_without_connection_close: DrainsWithoutConnectionClose,
    counts_no_head_answers: CountsNoHeadAnswers,
    does_not_count_cuts: DoesNotCountCuts,
    waits_for_stuck_threads: WaitsForStuckThreads,
    keeps_its_listener: KeepsItsListener,
    counts_all_runs_together: CountsAllRunsTogether,
    leaks_threads: LeaksThreads,
    leaks_descriptors: LeaksDescriptors,
    stops_accepting_without_descriptors: StopsAcceptingWithoutDescriptors,
    spins_without_descriptors: SpinsWithoutDescriptors,
    spins_while_it_waits: SpinsWhileItWaits,
    keeps_its_listener_while_stuck: KeepsItsListenerWhileStuck,
    drops_the_backlog: DropsTheBacklog,
    serves_one_at_a_time: ServesOneAtATime,
    blocks_others_during_a_request: BlocksOthersDuringARequest,
    serves_whole_pipelines: ServesWholePipelines,
    answers_all_before_it_makes_room: AnswersAllBeforeItMakesRoom,
    serves_one_and_resets_timeout_on_each_byte: ServesOneAndResetsTimeoutOnEachByte,
    checks_timeouts_before_reading: ChecksTimeoutsBeforeReading,
    times_all_bodies_together: TimesAllBodiesTogether,
    does_not_catch_panics_of_payloads: DoesNotCatchPanicsOfPayloads,
    answers_few_refusals: AnswersFewRefusals,
    drops_the_backlog_without_descriptors: DropsTheBacklogWithoutDescriptors,
    takes_any_chunk_extension: TakesAnyChunkExtension,
    takes_bare_lf_after_chunks: TakesBareLfAfterChunks,
    takes_any_target: TakesAnyTarget,
    cuts_fragments: CutsFragments,
    closes_after_chunks: ClosesAfterChunks,
    takes_only_uri_queries: TakesOnlyUriQueries,
    adds_a_slash_to_urls: AddsASlashToUrls,
    drops_conditions: DropsConditions,
    asks_for_get_in_place_of_head: AsksForGetInPlaceOfHead,
    drops_content_range: DropsContentRange,
    answers_414_to_long_methods: Answers414ToLongMethods,
    takes_any_config: TakesAnyConfig,
    accepts_one_at_a_time: AcceptsOneAtATime,
    resets_evicted_connections: ResetsEvictedConnections,
    evicts_without_connection_close: EvictsWithoutConnectionClose,
    evicts_silently_at_the_limit: EvictsSilentlyAtTheLimit,
    takes_only_json: TakesOnlyJson,
    puts_patches: PutsPatches,
    patches_what_is_absent: PatchesWhatIsAbsent,
    drops_content_type: DropsContentType,
    patches_without_a_condition: PatchesWithoutACondition,
    limits_nesting: LimitsNesting,
    takes_only_one_line: TakesOnlyOneLine,
    shows_its_own_address: ShowsItsOwnAddress,
    keeps_tags_by_target: KeepsTagsByTarget,
    counts_no_open_connections: CountsNoOpenConnections,
    counts_no_panics: CountsNoPanics,
    hides_the_drain: HidesTheDrain,
    reports_no_refusals: ReportsNoRefusals,
    reports_bytes_of_the_body: ReportsBytesOfTheBody,
    reports_errors_twice: ReportsErrorsTwice,
    evicts_busy_connections: EvictsBusyConnections,
    evicts_kept_connections_first: EvictsKeptConnectionsFirst,
    evicts_young_connections: EvictsYoungConnections,
    evicts_before_reading: EvictsBeforeReading,
    keeps_any_body: KeepsAnyBody,
    keeps_any_answer: KeepsAnyAnswer,
    keeps_any_answer_of_a_write: KeepsAnyAnswerOfAWrite,
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
    one_at_a_time_does_not_count_time_in_the_queue: ServesOneAtATime, by time_in_the_queue_counts_towards_the_head_timeout;
    a_close_after_every_answer_is_not_announced: ClosesAfterEveryAnswer, by an_answer_says_close_if_others_wait;
    a_repeated_answer_is_no_named_entity: RepeatsThePreviousAnswer, by named_entities_are_linearizable;
    a_repeated_answer_has_no_order: RepeatsThePreviousAnswer, by conditional_writes_are_linearizable_over_http;
    a_wake_that_is_ignored_leaves_a_named_entity: IgnoresWakes, by a_later_repo_of_named_entities_answers_the_same;
    a_wake_that_is_ignored_loses_increments: IgnoresWakes, by no_increment_is_lost_of_a_named_entity;
    no_drain_loses_what_waits: DoesNotDrain, by requests_behind_busy_workers_are_served_by_the_drain;
}

/// The increments of a server over a store show a store that checks a condition and then writes.
#[test]
fn a_store_that_checks_then_writes_loses_increments() {
    let subject = ServerSubject::new(PlainServer::new).with_patience(PATIENCE);
    let is_lost = || {
        let run = || no_increment_is_lost_over(&subject, ChecksThenWrites::default());
        catch_unwind(AssertUnwindSafe(run)).is_err()
    };
    assert!((0..20).any(|_| is_lost()), "20 races lost no increment");
}

/// Its patches are lost too.
#[test]
fn a_store_that_checks_then_writes_loses_patches() {
    let subject = ServerSubject::new(PlainServer::new).with_patience(PATIENCE);
    let is_lost = || {
        let run = || a_merge_patch_loses_no_update_over(&subject, ChecksThenWrites::default());
        catch_unwind(AssertUnwindSafe(run)).is_err()
    };
    assert!((0..50).any(|_| is_lost()), "50 races lost no patch");
}

/// The kit expects what a server declares: a declared flaw passes, and a server that does not deviate fails.
#[test]
fn what_is_declared_is_expected() {
    type Declare = fn(&mut Deviations);
    let declared: [(Flaw, Declare, &str); 10] = [
        (Flaw::TakesBareLf, |d| d.bare_lf_ends_a_line = true, "a_bare_lf_ends_no_line"),
        (Flaw::TakesLengthWithChunked, |d| d.chunked_overrides_length = true, "length_with_chunked_is_refused"),
        (Flaw::Answers400ToAllUnsupported, |d| d.unknown_coding_is_400 = true, "chunked_is_the_only_coding"),
        (Flaw::Answers400ToAllUnsupported, |d| d.unknown_method_is_400 = true, "unknown_methods_are_not_implemented"),
        (Flaw::Answers400ToAllUnsupported, |d| d.later_version_is_400 = true, "later_versions_are_not_supported"),
        (Flaw::AddsASlashToUrls, |d| d.urls_without_a_path_get_a_slash = true, "other_forms_of_target_are_taken"),
        (Flaw::CutsFragments, |d| d.fragments_are_dropped = true, "a_target_holds_only_uri_bytes"),
        (Flaw::ClosesAfterChunks, |d| d.chunked_bodies_are_last = true, "chunks_may_carry_more_than_data"),
        (Flaw::ClosesSilentlyOnTimeouts, |d| d.timeouts_close_silently = true, "a_slow_body_times_out"),
        (Flaw::SendsEmptyErrors, |d| d.early_errors_are_empty = true, "garbage_is_refused"),
    ];
    for (flaw, declare, name) in declared {
        let property = named(name);
        // With the default patience, which a busy machine does not reach.
        let sound = || ServerSubject::new(PlainServer::new);
        let verdict = |subject: ServerSubject| {
            let run = [Property { name: property.name, run: property.run }];
            property::check("declared", &subject, &run).verdicts.pop().map(|(_, verdict)| verdict)
        };
        let flawed = || flaw.subject();
        assert_eq!(verdict(flawed().deviating(declare)), Some(PropertyVerdict::Held), "{flaw:?}, declared");
        assert_eq!(verdict(sound()), Some(PropertyVerdict::Held), "{name} of a sound server");
        for subject in [flawed(), sound().deviating(declare)] {
            let broken = verdict(subject.with_patience(PATIENCE));
            assert!(matches!(broken, Some(PropertyVerdict::Broken(_))), "{flaw:?}, {name}: {broken:?}");
        }
    }
}

/// Each of the two flaws of evictions breaks its own property, and not that of the other flaw.
#[test]
fn a_flaw_of_evictions_breaks_one_property() {
    use Flaw::{EvictsWithoutConnectionClose, ResetsEvictedConnections};
    for (flaw, other) in [
        (EvictsWithoutConnectionClose, ResetsEvictedConnections),
        (ResetsEvictedConnections, EvictsWithoutConnectionClose),
    ] {
        let property = named(other.caught_by());
        assert_eq!((property.run)(&flaw.subject()), Outcome::Held, "{flaw:?}, {}", property.name);
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
        assert_eq!(verdict == Some(PropertyVerdict::Held), holds, "{verdict:?}");
    }
}

/// A server that takes any configuration and never listens.
#[derive(Debug)]
struct NeverListens(Shape);

impl Server for NeverListens {
    fn shape(&self) -> Shape {
        self.0
    }

    fn start(&self, _: ListenOn, _: Arc<dyn Service>) -> io::Result<Running> {
        Err(io::Error::other("it never listens"))
    }
}

/// A property holds only if the server was asked something: nothing holds of a server that never serves, whatever its shape.
#[test]
fn nothing_holds_of_a_server_that_never_listens() {
    let mut held = Vec::new();
    for (shape, pooled) in
        [(Shape::Multiplexed, false), (Shape::OnePerThread, false), (Shape::OnePerThread, true), (Shape::One, false)]
    {
        let mut subject = ServerSubject::new(move |_| Ok(NeverListens(shape)));
        subject.pooled = pooled;
        for property in PROPERTIES {
            let name = "nothing_holds_of_a_server_that_never_listens";
            let run = || property::test(module_path!(), name, &subject, property.run);
            if is_child() {
                let _ = run();
                return;
            }
            if matches!(catch_unwind(AssertUnwindSafe(run)), Ok(Outcome::Held)) {
                held.push((shape, property.name));
            }
        }
    }
    assert_eq!(held, []);
}
