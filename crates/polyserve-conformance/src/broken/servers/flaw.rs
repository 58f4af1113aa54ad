//! The flaws of the plain server, and the properties that catch them.

use std::time::Duration;

use polyserve_core::http::StatusCode;
use polyserve_core::overload::{Arrival, Overload, OverloadPolicy, OverloadReason, StaticLimit};
use polyserve_core::{AnswerHook, ServerConfig};

use super::PlainServer;
use crate::broken::flaws;
use crate::server::ServerSubject;

flaws! {
    /// A deviation from the contract, caught by a property.
    Flaw;

    /// Answers every request with a status that no case of the wire corpus has, except that it creates entities. Each property of the
    /// wire corpus catches it.
    AnswersAnotherStatus, caught by get_shows_the_entity;
    /// Answers requests that arrived together in reverse order.
    ReorderedPipeline, caught by pipelined_requests_are_answered_in_order;
    /// Writes each answer separately, although the requests arrived together.
    AnswersOneByOne, caught by what_arrives_together_leaves_together;
    /// Buffers an answer for each request, even if the client does not read.
    BuffersWithoutLimit, caught by a_pipeline_that_is_not_read_is_not_buffered;
    /// Closes after every answer without announcing it.
    ClosesAfterEveryAnswer, caught by a_connection_is_kept_by_default, an_answer_says_close_if_others_wait;
    /// Keeps a connection that was asked to be closed.
    IgnoresConnectionClose, caught by a_client_may_ask_to_close;
    /// Keeps a connection of HTTP/1.0 and does not say so.
    OmitsKeepAliveOnHttp10, caught by a_connection_of_1_0_is_kept_on_request;
    /// Answers HEAD with a body.
    AnswersHeadWithABody, caught by head_is_get_without_the_body;
    /// Answers a HEAD that it refuses with a body.
    RefusesHeadWithABody, caught by a_refused_head_gets_no_body;
    /// Expects the whole body in the same read as its head.
    NeedsHeadAndBodyInOneRead, caught by a_request_may_be_split_anywhere;
    /// Writes once, and forgets what the kernel did not take.
    LosesBytesOnAShortWrite, caught by a_slow_reader_gets_a_large_answer_whole;
    /// Takes an LF alone for the end of a line, and reads on after that request.
    GoesOnAfterABareLf, caught by a_bare_lf_ends_no_line;
    /// Reads on after a request that it refused.
    GoesOnAfterARefusal, caught by nothing_follows_a_doubtful_message;
    /// Never sends a 100.
    NeverSends100, caught by an_expected_continue_comes_before_the_body;
    /// Sends a 100 before it asks whether the head is refused.
    Sends100BeforeTheHeadIsChecked, caught by a_refusal_comes_instead_of_continue;
    /// Has no timeouts for clients.
    HasNoTimeouts, caught by a_slow_head_times_out;
    /// Starts its timeouts again with every byte.
    ResetsTimeoutOnEachByte, caught by a_dripping_head_times_out;
    /// Closes without an answer if a client takes too long.
    ClosesSilentlyOnTimeouts, caught by a_slow_head_times_out;
    /// Sends no body with an error before the service is called.
    SendsEmptyErrors, caught by garbage_is_refused;
    /// Answers 408 on an idle connection.
    AnswersIdleTimeouts, caught by an_idle_connection_is_closed_silently;
    /// Waits for a deferred answer without a limit.
    HasNoAnswerTimeout, caught by a_slow_answer_times_out;
    /// Answers every second GET of a target with the previous answer.
    RepeatsThePreviousAnswer, caught by linearizable_over_http,
        named_entities_are_linearizable,
        conditional_writes_are_linearizable_over_http;
    /// Ignores the wakes of deferred answers.
    IgnoresWakes, caught by a_later_repo_answers_the_same,
        a_later_repo_of_named_entities_answers_the_same;
    /// Waits without a limit for a client to read.
    HasNoWriteTimeout, caught by a_client_that_never_reads_is_cut;
    /// Grants the whole time again if a client has read some bytes.
    ExtendsWritesOnProgress, caught by a_client_that_reads_slowly_is_cut;
    /// Waits for a first byte as long as for a later one.
    HasNoFirstByteTimeout, caught by a_silent_connection_is_closed_silently;
    /// Takes a body at any rate.
    TakesBodiesAtAnyRate, caught by a_body_below_the_minimum_rate_times_out;
    /// Closes the connection when its client half-closes.
    ClosesOnHalfClose, caught by a_half_closed_client_gets_its_answers;
    /// Stops accepting after a connection without a byte.
    StopsAcceptingAfterAnEmptyConnection, caught by connections_without_a_request_do_not_affect_others;
    /// Closes after a refusal without reading the client's bytes, so that the kernel resets the connection.
    DoesNotLinger, caught by a_refusal_survives_unread_input, a_slow_upload_is_read_after_its_refusal;
    /// Lingers for the linger timeout and no longer, also if its client goes on sending.
    LingersForAFixedTime, caught by a_slow_upload_is_read_after_its_refusal;
    /// Lets a panic end the connection.
    DoesNotCatchPanics, caught by a_panic_in_call_is_a_500, a_panic_payload_that_panics_is_a_500;
    /// Lets a panic in the drop of an abandoned answer end the connection.
    DoesNotCatchPanicsInDrop, caught by a_panic_in_a_given_up_answer_is_a_503;
    /// Sends what a panicking service had written before the 500.
    SendsPartOfAPanickedAnswer, caught by a_panic_in_call_is_a_500;
    /// Refuses clients without `Retry-After`.
    RejectsWithoutRetryAfter, caught by connections_past_the_limit_are_rejected;
    /// Closes connections past the limit without an answer.
    RejectsWithoutAnAnswer, caught by connections_past_the_limit_are_rejected;
    /// Closes connections past the limit after their answer without reading the client's bytes.
    ResetsRejectedConnections, caught by a_rejection_survives_unread_input;
    /// Does not close an idle connection if another one waits.
    KeepsIdleConnections, caught by idle_connections_do_not_delay_others;
    /// Ignores the limit on connections.
    HasNoConnectionLimit, caught by silent_connections_keep_to_the_limit;
    /// Takes the address of a proxy for that of its client.
    TrustsNoProxy, caught by a_trusted_proxy_names_the_client;
    /// Ignores the limit on the connections of a client.
    HasNoPeerLimit, caught by connections_past_the_limit_of_a_client_are_rejected;
    /// Counts rejected connections that have not closed towards the limit.
    CountsRejectedConnections, caught by rejected_connections_leave_room;
    /// Answers one request more than it may.
    MiscountsRequests, caught by requests_per_connection_are_counted;
    /// Sends the date of its start.
    StaleDate, caught by the_date_is_the_time;
    /// Sends a `Server` field that is not configured.
    SendsServerField, caught by a_server_field_is_sent_if_configured;
    /// Ends only at the shutdown's deadline.
    EndsOnlyAtTheDeadline, caught by a_shutdown_closes_idle_connections;
    /// Cuts everything as soon as a shutdown begins.
    DoesNotDrain, caught by a_request_in_mid_body_outlives_the_shutdown,
        requests_behind_busy_workers_are_served_by_the_drain;
    /// Sends half of an answer once a shutdown has begun.
    SendsHalfAnswersInTheDrain, caught by a_waiting_answer_outlives_the_shutdown;
    /// Closes after the first answer of a drain, even if more requests have arrived.
    DrainsOneAnswer, caught by pipelined_requests_are_served_by_the_drain;
    /// Reads a refused body to its end, also in a drain.
    DrainsRefusedBodies, caught by a_refused_body_does_not_hold_the_drain;
    /// Closes a connection that has not sent a byte as soon as a drain begins.
    DrainsWithoutAGrace, caught by a_request_that_follows_the_shutdown_is_served;
    /// Does not say `Connection: close` in a drain.
    DrainsWithoutConnectionClose, caught by a_request_in_mid_body_outlives_the_shutdown;
    /// Counts one answer too few.
    MiscountsAnswers, caught by every_answer_is_counted;
    /// Does not count what it cuts.
    DoesNotCountCuts, caught by the_deadline_cuts_what_has_not_ended;
    /// Waits for a thread that is stuck in the service.
    WaitsForStuckThreads, caught by a_stuck_thread_is_left_behind,
        a_thread_that_never_ends_does_not_hold_the_shutdown;
    /// Keeps its listener.
    KeepsItsListener, caught by the_port_is_free_after_the_end;
    /// Counts the answers of all runs together.
    CountsAllRunsTogether, caught by one_server_serves_several_times;
    /// Leaves a thread behind for every connection.
    LeaksThreads, caught by nothing_is_left_after_the_end;
    /// Leaves a descriptor behind for every connection.
    LeaksDescriptors, caught by ended_connections_leave_nothing;
    /// Stops accepting if the process has no descriptor left.
    StopsAcceptingWithoutDescriptors, caught by running_out_of_descriptors_ends_nothing;
    /// Accepts again without a pause if the process has no descriptor left.
    SpinsWithoutDescriptors, caught by running_out_of_descriptors_ends_nothing;
    /// Polls a deferred answer without a pause.
    SpinsWhileItWaits, caught by waiting_costs_no_time;
    /// Keeps its listener while a thread is stuck.
    KeepsItsListenerWhileStuck, caught by a_stuck_thread_is_left_behind;
    /// Closes its listener when the shutdown begins, with clients in its queue.
    DropsTheBacklog, caught by a_request_in_the_queue_is_served_by_the_drain;
    /// Serves one connection after the other.
    ServesOneAtATime, caught by a_pipelining_client_leaves_room_at_a_full_queue,
        a_client_with_half_a_head_leaves_room,
        silent_connections_do_not_stop_the_rest,
        time_in_the_queue_counts_towards_the_head_timeout;
    /// Serves no other connection while one connection has a request in progress.
    BlocksOthersDuringARequest, caught by pipelined_deferred_answers_leave_room;
    /// Serves no other connection while one connection has requests that have arrived.
    ServesWholePipelines, caught by pipelining_clients_do_not_starve_others;
    /// Serves one connection. Closes it for another one once all requests that have arrived are answered, whatever their number.
    AnswersAllBeforeItMakesRoom, caught by a_pipelining_client_gives_its_thread_up;
    /// Serves one connection after the other, and starts its timeouts again with every byte.
    ServesOneAndResetsTimeoutOnEachByte, caught by a_dripping_head_leaves_room;
    /// Checks a timeout before it reads what has arrived.
    ChecksTimeoutsBeforeReading, caught by a_stopped_process_loses_no_request;
    /// Times all bodies of a connection from the start of the first one.
    TimesAllBodiesTogether, caught by a_body_timeout_begins_with_its_body;
    /// Answers at most 256 refused connections.
    AnswersFewRefusals, caught by every_refused_connection_reads_a_503;
    /// Closes its listener if it has no descriptor for a connection when the shutdown begins.
    DropsTheBacklogWithoutDescriptors, caught by the_drain_serves_what_waited_for_descriptors;
    /// Closes the connection after a chunked body.
    ClosesAfterChunks, caught by chunks_may_carry_more_than_data;
    /// Adds a slash to a URL without a path.
    AddsASlashToUrls, caught by other_forms_of_target_are_taken;
    /// Takes any configuration.
    TakesAnyConfig, caught by a_wrong_limit_is_refused_by_name;
    /// Accepts a connection only after the one before it has ended.
    AcceptsOneAtATime, caught by stalled_heads_end_together;
    /// Serves one connection. Closes it for another one without lingering.
    ResetsEvictedConnections, caught by an_evicted_connection_is_not_reset;
    /// Serves one connection. Does not say `Connection: close` if it closes that connection for another one.
    EvictsWithoutConnectionClose, caught by closes_under_load_are_announced;
    /// Sends an interim answer before each answer.
    SendsEarlyHints, caught by a_connection_is_kept_by_default;
    /// Answers in chunks.
    AnswersInChunks, caught by bodies_of_every_size_come_through;
    /// Ends the body of an answer with the connection.
    EndsBodiesWithTheConnection, caught by bodies_of_every_size_come_through;
    /// Answers in HTTP/1.0, and closes after every answer.
    AnswersInHttp10, caught by a_connection_is_kept_by_default;
    /// Answers in HTTP/1.0, and ends the body with the connection.
    EndsBodiesOfHttp10WithTheConnection, caught by a_connection_is_kept_by_default;
    /// Restores what an entity was before every fourth PATCH.
    LosesPatches, caught by a_merge_patch_loses_no_update;
    /// Does not tell its service the limit of bodies.
    HidesTheLimitOfBodies, caught by patches_keep_to_the_limit_of_bodies;
    /// Refuses a body with more than 64 levels.
    LimitsNesting, caught by a_nested_body_overflows_no_stack;
    /// Passes its own address to the service in place of the client's.
    ShowsItsOwnAddress, caught by a_request_has_its_clients_address;
    /// Does not count open connections.
    CountsNoOpenConnections, caught by the_counters_are_live;
    /// Does not count panics.
    CountsNoPanics, caught by the_counters_are_live;
    /// Does not tell the service of the drain.
    HidesTheDrain, caught by a_request_in_the_drain_says_so;
    /// Reports no answer that the server gives in place of the service.
    ReportsNoRefusals, caught by the_hook_sees_every_answer;
    /// Reports the length of the body as that of the answer.
    ReportsBytesOfTheBody, caught by the_hook_sees_every_answer;
    /// Reports an error twice.
    ReportsErrorsTwice, caught by the_hook_sees_every_answer;
    /// Reports answers without the request lines.
    ReportsNoRequestLine, caught by the_hook_sees_every_answer;
    /// At the limit on connections, closes the oldest for a new one, whatever it does.
    EvictsTheOldest, caught by idle_connections_make_room_at_the_limit,
        silent_connections_are_closed_first,
        a_young_connection_is_not_closed_for_another,
        closes_under_load_are_announced;
    /// Closes a connection for another one without reading what has arrived.
    EvictsBeforeReading, caught by a_request_that_has_arrived_is_not_evicted;
    /// Takes every request, whatever the overload policy admits.
    HasNoOverloadPolicy, caught by a_request_past_the_overload_limit_is_refused, reads_are_answered_while_writes_are_refused;
    /// Has one limit for reads and writes.
    TakesReadsForWrites, caught by reads_are_answered_while_writes_are_refused;
    /// Keeps incomplete bodies and unsent answers beyond the memory budget.
    HasNoMemoryBudget, caught by incomplete_bodies_keep_to_the_memory_budget,
        unread_answers_keep_to_the_memory_budget,
        unread_answers_of_writes_keep_to_the_memory_budget;
}

impl Flaw {
    /// Whether a server with this flaw serves one connection at a time.
    pub(super) fn serves_one(self) -> bool {
        matches!(
            self,
            Self::ResetsEvictedConnections | Self::EvictsWithoutConnectionClose | Self::AnswersAllBeforeItMakesRoom
        )
    }

    /// Whether a server with this flaw serves all its connections with one worker.
    pub(super) fn has_one_worker(self) -> bool {
        self == Self::ServesWholePipelines
    }

    /// Exchanges limits for others, if that is the flaw.
    pub(super) fn configure(self, config: &mut ServerConfig) {
        match self {
            Self::HasNoTimeouts => (config.head_timeout, config.body_timeout) = (NEVER, NEVER),
            Self::HasNoFirstByteTimeout => config.first_byte_timeout = NEVER,
            Self::HasNoAnswerTimeout => config.answer_timeout = NEVER,
            Self::HasNoWriteTimeout => config.write_timeout = NEVER,
            Self::TakesBodiesAtAnyRate => config.min_body_rate = 0,
            Self::HasNoMemoryBudget => config.memory = Some(usize::MAX / 2),
            Self::HasNoOverloadPolicy => config.overload = None,
            Self::TakesReadsForWrites => {
                config.overload = config.overload.as_ref().map(|_| Overload::own(|| OneLimit(StaticLimit::new(10))));
            }
            Self::HasNoConnectionLimit => config.max_connections *= 100,
            Self::TrustsNoProxy => config.trusted_proxies = polyserve_core::TrustedProxies::default(),
            Self::HasNoPeerLimit => config.max_connections_per_peer = None,
            Self::MiscountsRequests => {
                config.requests_per_connection = config.requests_per_connection.map(|max| max + 1);
            }
            Self::SendsServerField => config.server_header = Some("plain".into()),
            Self::ReportsNoRefusals
            | Self::ReportsBytesOfTheBody
            | Self::ReportsErrorsTwice
            | Self::ReportsNoRequestLine => {
                config.on_answer = config.on_answer.take().map(|hook| self.reporting(hook));
            }
            _ if self.serves_one() => config.max_connections = 1,
            _ => {}
        }
    }

    /// A hook that misreports answers.
    fn reporting(self, hook: AnswerHook) -> AnswerHook {
        AnswerHook::new(move |report| {
            let mut report = *report;
            match self {
                Self::ReportsNoRefusals if report.status == StatusCode::NOT_IMPLEMENTED => return,
                Self::ReportsBytesOfTheBody => report.bytes /= 2,
                Self::ReportsNoRequestLine => report.request = None,
                Self::ReportsErrorsTwice if report.status.as_u16() >= 400 => hook.call(&report),
                _ => {}
            }
            hook.call(&report);
        })
    }

    /// Servers with this flaw.
    pub fn subject(self) -> ServerSubject {
        ServerSubject::new(move |config| PlainServer::flawed(config, self))
    }
}

/// A limit that takes every request for a write.
#[derive(Debug)]
struct OneLimit(StaticLimit);

impl OverloadPolicy for OneLimit {
    fn admit(&self, arrival: &Arrival) -> Result<(), OverloadReason> {
        let mut write = *arrival;
        write.is_write = true;
        self.0.admit(&write)
    }
}

/// Longer than any property takes.
const NEVER: Duration = Duration::from_secs(3600);
