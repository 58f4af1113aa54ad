//! The server kit: bytes on the wire, several connections at once, and the end of a server.
//!
//! The properties are the contract of a server: RFC 9110 and RFC 9112, and what these leave open, section by section. Each
//! property starts a server on a free port of the loopback address and sends raw bytes. A property that fails panics with the bytes
//! that were exchanged.
//!
//! As tests, one for each property:
//!
//! ```
//! # use polyserve_conformance::broken::servers::PlainServer as MyServer;
//! use polyserve_conformance::server::ServerSubject;
//!
//! polyserve_conformance::server_conformance!(my_server, ServerSubject::new(MyServer::new));
//! # fn main() {}
//! ```
//!
//! At run time, here for a few properties:
//!
//! ```
//! use polyserve_conformance::broken::servers::PlainServer;
//! use polyserve_conformance::property;
//! use polyserve_conformance::server::{PROPERTIES, ServerSubject};
//!
//! let subject = ServerSubject::new(|config| PlainServer::new(config));
//! let report = property::check("plain_server", &subject, &PROPERTIES[..5]);
//! assert!(report.conforms(), "{report}");
//! ```
//!
//! A server over another HTTP implementation declares its deviations. The kit expects exactly those:
//!
//! ```
//! # use polyserve_conformance::broken::servers::PlainServer as HyperServer;
//! # use polyserve_conformance::server::ServerSubject;
//! let subject = ServerSubject::new(|config| HyperServer::new(config)).deviating(|d| d.urls_without_a_path_get_a_slash = true);
//! ```
//!
//! # Layout
//!
//! * Answers: `status_table`; of a second entity type: `ids`, `nested`; to concurrent clients: `linearizable`, `patch`.
//! * Requests: `corpus`, which sends the [wire corpus](crate::wire) with its dialogues, `splits`.
//! * One connection: `keep_alive`, `pipeline`, `tcp`, `timeouts`, `panics`, `freeze`.
//! * Many connections: `limits`, `eviction`, `overload`, `shape`, `fairness`, `turns`, `queued`.
//! * Start and end: `construction`, `counters`, `drain`, `ending`, `resources`, `memory`.
//! * With the feature `tls`: `tls`, a list of its own.
//! * Shared parts, which `prelude` imports: `subject`; `live`, a running server that always ends; `wire`, requests as bytes; `services`, which
//!   wait, fail or write much; `loops`, clients that ask in a loop.

mod construction;
mod corpus;
mod counters;
mod drain;
mod ending;
mod eviction;
mod fairness;
mod freeze;
pub(crate) mod ids;
mod keep_alive;
mod limits;
mod linearizable;
mod live;
mod loops;
mod memory;
mod nested;
mod overload;
mod panics;
mod patch;
mod pipeline;
mod prelude;
mod queued;
mod resources;
mod services;
mod shape;
mod splits;
pub(crate) mod status_table;
mod subject;
mod tcp;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod turns;
pub(crate) mod wire;

use crate::property::kit;

pub(crate) use ids::named_service;
pub use linearizable::conditional_writes_are_linearizable_over;
pub use nested::{Nested, nested_entities_are_kept_over};
pub use patch::{a_merge_patch_loses_no_update_of_named_entities_over, a_merge_patch_loses_no_update_over};
pub(crate) use services::PanickingService;
pub use subject::{Deviations, ServerSubject};
#[cfg(feature = "tls")]
pub use tls::TLS_PROPERTIES;

kit! {
    $ server::server_conformance for ServerSubject, from "[`ServerSubject`](crate::server::ServerSubject)" {
        status_table {
            other_forms_of_target_are_taken,
        }
        patch {
            a_merge_patch_loses_no_update,
            patches_keep_to_the_limit_of_bodies,
        }
        linearizable {
            linearizable_over_http,
            named_entities_are_linearizable,
            conditional_writes_are_linearizable_over_http,
        }
        nested {
            a_nested_body_overflows_no_stack,
            an_ordinary_entity_needs_no_new_stack,
        }
        keep_alive {
            a_connection_is_kept_by_default,
            the_date_is_the_time,
            a_server_field_is_sent_if_configured,
        }
        pipeline {
            pipelined_requests_are_answered_in_order,
            hundreds_of_pipelined_requests_are_answered,
            what_arrives_together_leaves_together,
            later_answers_leave_in_order,
            a_later_answer_may_need_many_polls,
            mixed_answers_keep_their_places,
            large_pipelined_answers_arrive_whole,
            statuses_without_a_body_have_none,
        }
        splits {
            a_request_may_be_split_anywhere,
            a_request_may_arrive_byte_by_byte,
            a_piece_may_end_inside_the_next_request,
            bodies_of_every_size_come_through,
        }
        tcp {
            a_half_closed_client_gets_its_answers,
            half_a_request_ends_the_connection,
            connections_without_a_request_do_not_affect_others,
            resets_do_not_affect_others,
            a_slow_reader_gets_a_large_answer_whole,
            a_refusal_survives_unread_input,
            a_slow_upload_is_read_after_its_refusal,
        }
        timeouts {
            a_dripping_head_times_out,
            a_dripping_body_times_out,
            a_body_below_the_minimum_rate_times_out,
            a_silent_connection_is_closed_silently,
            an_idle_connection_is_closed_silently,
            a_slow_answer_times_out,
            a_slow_answer_is_no_slow_client,
            a_client_that_never_reads_is_cut,
            a_client_that_reads_slowly_is_cut,
        }
        queued {
            a_body_timeout_begins_with_its_body,
            time_in_the_queue_counts_towards_the_head_timeout,
            stalled_heads_end_together,
            an_answer_says_close_if_others_wait,
            closes_under_load_are_announced,
            an_evicted_connection_is_not_reset,
            requests_behind_busy_workers_are_served_by_the_drain,
        }
        freeze {
            a_stopped_process_loses_no_request,
        }
        panics {
            a_dropped_completer_answers,
            more_panics_than_workers_leave_a_serving_server,
        }
        limits {
            connections_past_the_limit_are_rejected,
            every_refused_connection_reads_a_503,
            a_rejection_survives_unread_input,
            silent_connections_keep_to_the_limit,
            rejected_connections_leave_room,
            connections_past_the_limit_of_a_client_are_rejected,
            a_burst_is_served_or_rejected,
            room_comes_back,
            deferred_accept_serves_the_same,
            a_waiting_request_is_not_idle,
            two_servers_share_nothing,
        }
        eviction {
            idle_connections_make_room_at_the_limit,
            silent_connections_are_closed_first,
            a_young_connection_is_not_closed_for_another,
            a_request_that_has_arrived_is_not_evicted,
        }
        memory {
            incomplete_bodies_keep_to_the_memory_budget,
            unread_answers_keep_to_the_memory_budget,
            unread_answers_of_writes_keep_to_the_memory_budget,
        }
        overload {
            a_request_past_the_overload_limit_is_refused,
            reads_are_answered_while_writes_are_refused,
        }
        shape {
            idle_connections_do_not_delay_others,
            busy_connections_leave_room_for_others,
            answers_do_not_get_mixed_up,
            stalled_clients_do_not_stop_the_rest,
            silent_connections_do_not_stop_the_rest,
            later_answers_hold_no_worker,
            a_client_may_leave_before_its_answer,
        }
        fairness {
            a_pipelining_client_leaves_room_at_a_full_queue,
            pipelined_deferred_answers_leave_room,
            a_client_with_half_a_head_leaves_room,
            a_dripping_head_leaves_room,
        }
        turns {
            pipelining_clients_do_not_starve_others,
            a_pipelining_client_gives_its_thread_up,
        }
        drain {
            a_shutdown_under_load_loses_nothing,
            every_answer_is_counted,
            a_shutdown_closes_idle_connections,
            a_request_in_the_queue_is_served_by_the_drain,
            a_request_that_follows_the_shutdown_is_served,
            a_request_in_mid_body_outlives_the_shutdown,
            half_a_head_outlives_the_shutdown,
            a_request_in_the_drain_says_so,
            a_waiting_answer_outlives_the_shutdown,
            the_listener_closes_while_a_request_is_in_work,
            pipelined_requests_are_served_by_the_drain,
            a_refused_body_does_not_hold_the_drain,
            a_large_answer_outlives_the_shutdown,
        }
        counters {
            the_counters_are_live,
            the_hook_sees_every_answer,
            a_request_has_its_clients_address,
            a_trusted_proxy_names_the_client,
        }
        ending {
            the_deadline_cuts_what_has_not_ended,
            a_stuck_thread_is_left_behind,
            what_waits_for_a_stuck_thread_ends_too,
            a_thread_that_never_ends_does_not_hold_the_shutdown,
            the_port_is_free_after_the_end,
            one_server_serves_several_times,
            dropping_it_ends_it,
            an_unused_server_ends,
            connecting_during_the_end_ends_too,
        }
        resources {
            nothing_is_left_after_the_end,
            ended_connections_leave_nothing,
            running_out_of_descriptors_ends_nothing,
            the_drain_serves_what_waited_for_descriptors,
            waiting_costs_no_time,
            a_pipeline_that_is_not_read_is_not_buffered,
            many_connections_come_and_go,
        }
        construction {
            a_wrong_limit_is_refused_by_name,
            a_worker_count_is_honoured_or_refused,
            a_taken_address_is_an_error,
            a_bound_listener_is_served,
            it_serves_when_serve_returns,
        }
    }
    corpus {
        get_shows_the_entity,
        put_creates_and_replaces,
        delete_removes_once,
        options_say_what_is_allowed,
        other_methods_are_not_allowed,
        entities_are_listed_in_pages,
        the_published_client_is_served,
        the_published_test_plan_is_served,
        a_later_repo_answers_the_same,
        patch_changes_the_named_members,
        a_later_repo_of_named_entities_answers_the_same,
        conditions_without_tags_are_evaluated,
        a_million_brackets_are_a_bad_request,
        put_of_a_part_is_a_bad_request,
        put_takes_any_content_type,
        a_patch_without_a_valid_result_changes_nothing,
        patch_takes_merge_patches_only,
        a_client_may_ask_to_close,
        only_the_word_close_closes,
        a_connection_of_1_0_closes_by_default,
        a_connection_of_1_0_is_kept_on_request,
        an_empty_line_before_a_request_is_skipped,
        every_known_method_reaches_the_service,
        max_body_is_exact,
        a_length_is_digits,
        a_repeated_length_must_agree,
        length_with_chunked_is_refused,
        chunked_is_the_only_coding,
        chunked_is_unknown_to_1_0,
        chunks_may_carry_more_than_data,
        broken_chunks_are_refused,
        what_chunks_carry_is_bounded,
        nothing_follows_a_doubtful_message,
        chunk_extensions_follow_the_grammar,
        the_end_of_a_chunked_body_is_strict,
        one_valid_host_is_taken,
        any_other_host_is_refused,
        a_request_of_1_0_needs_no_host,
        any_valid_field_is_taken,
        broken_fields_are_refused,
        a_bare_lf_ends_no_line,
        broken_request_lines_are_refused,
        nonsense_versions_are_refused,
        later_versions_are_not_supported,
        a_refused_head_gets_no_body,
        garbage_is_refused,
        unknown_methods_are_not_implemented,
        a_target_holds_only_uri_bytes,
        a_query_holds_what_browsers_send,
        a_long_method_is_not_implemented,
        a_head_past_its_limit_is_too_large,
        the_default_head_is_16_kib,
        more_fields_than_the_limit_are_too_many,
        other_expectations_fail,
        a_client_of_1_0_gets_no_continue,
        an_expected_continue_comes_before_the_body,
        a_client_need_not_wait_for_continue,
        a_refusal_comes_instead_of_continue,
        a_refusal_by_the_head_needs_no_body,
        too_large_a_body_is_not_asked_for,
        requests_per_connection_are_counted,
        a_slow_head_times_out,
        a_slow_body_times_out,
        a_panic_in_call_is_a_500,
        a_panic_in_head_is_a_500,
        a_panic_in_a_later_answer_is_a_500,
        a_panic_in_a_given_up_answer_is_a_503,
        a_panic_in_a_visit_is_a_500,
        a_panic_payload_that_panics_is_a_500,
        an_omitted_body_is_a_500,
        a_refused_body_is_no_request,
        a_panic_in_the_repos_thread_is_a_503,
        head_is_get_without_the_body,
    }
}
