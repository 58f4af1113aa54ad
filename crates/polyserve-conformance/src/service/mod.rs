//! The kit of the entity service, without sockets. A session of the codec reads each request and writes the answer.
//!
//! What does not depend on a server is tested here once. The [server kit](crate::server) tests what a server has to pass to the
//! service, and what a client sees.

mod cheap;
mod conditions;
mod values;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use polyserve_core::{Echo, ServerConfig, Service, park_until};
use polyserve_serving::http1::{Session, SessionBuffers, SessionStep, SharedState};

pub use self::cheap::{Counted, cheap_requests_do_no_expensive_work_over};
use crate::client::Response;
use crate::property::{Outcome, kit};
use crate::server::status_table::ONE;
use crate::server::wire::{check_problem, put};
use crate::wire::cases_of;

/// A service without a server.
#[derive(Debug)]
pub struct Unconnected {
    shared: SharedState,
}

/// The longest wait for a deferred answer.
const MAX_WAIT: Duration = Duration::from_secs(60);

impl Default for Unconnected {
    /// An echo. The properties of this kit make their services.
    fn default() -> Self {
        Self::new(Echo)
    }
}

impl Unconnected {
    fn new(service: impl Service) -> Self {
        Self::of(Arc::new(service))
    }

    fn of(service: Arc<dyn Service>) -> Self {
        Self { shared: SharedState::new(Arc::new(service), &ServerConfig::default()) }
    }

    /// Returns the answer to a request, on a connection of its own.
    #[track_caller]
    fn exchange(&self, request: &[u8]) -> Response {
        let (mut session, mut buffers, mut output) = (Session::new(), SessionBuffers::new(), Vec::new());
        buffers.refresh(SystemTime::now(), false);
        let mut step = session.receive(request, &mut self.shared.turn(&mut buffers));
        loop {
            output.extend_from_slice(buffers.out());
            session.written(buffers.out().len(), &mut buffers);
            match step {
                SessionStep::Read(_) | SessionStep::Close { .. } => break,
                SessionStep::Answer => {
                    let answered = park_until(Some(Instant::now() + MAX_WAIT), |cx| session.poll_answer(cx));
                    answered.expect("the store answers");
                }
                SessionStep::Write | SessionStep::Yield => {}
            }
            step = session.resume(&mut self.shared.turn(&mut buffers));
        }
        Response::read(&output, request.starts_with(b"HEAD ")).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Returns the answer to a request, which has this status. An error has a problem body.
    #[track_caller]
    fn ask(&self, request: &[u8], status: u16) -> Response {
        let response = self.exchange(request);
        assert_eq!(response.status, status, "to {}: {}", request.escape_ascii(), response.text());
        response
    }
}

mod corpus {
    use super::*;

    /// Sends the cases of the property in their order, to a store that answers now and to one that answers later.
    pub(super) fn check(_: &Unconnected, property: &str) -> Outcome {
        let cases = cases_of(property);
        for later in [false, true] {
            let service = Unconnected::of(cases[0].service(later));
            if cases[0].needs_entity() {
                service.ask(&put("/", ONE), 201);
            }
            for case in &cases {
                let response = service.exchange(&case.bytes);
                assert_eq!(case.expected.fault(case, &response), None, "answers later: {later}");
                if response.status >= 400 && !case.is_head() {
                    check_problem(&response);
                }
            }
        }
        Outcome::Held
    }
}

kit! {
    $ service::service_conformance for Unconnected, from "[`Unconnected`](crate::service::Unconnected)" {
        conditions {
            a_tag_names_the_bytes_of_a_get,
            conditions_are_evaluated,
            a_later_repo_evaluates_conditions,
            a_malformed_condition_is_a_bad_request,
            conditions_on_named_entities_are_evaluated,
            a_condition_holds_for_every_spelling_of_an_id,
        }
        cheap {
            cheap_requests_do_no_expensive_work,
        }
        values {
            a_value_comes_back_bit_for_bit,
            a_description_comes_back_whole,
            errors_do_not_echo_the_request,
        }
    }
    corpus {
        get_shows_the_entity,
        put_creates_and_replaces,
        delete_removes_once,
        options_say_what_is_allowed,
        other_methods_are_not_allowed,
        entities_are_listed_in_pages,
        ids_of_texts_are_listed,
        the_published_client_is_served,
        the_published_test_plan_is_served,
        a_later_repo_answers_the_same,
        patch_changes_the_named_members,
        patch_merges_nested_members,
        a_later_repo_of_named_entities_answers_the_same,
        conditions_without_tags_are_evaluated,
        a_million_brackets_are_a_bad_request,
        absent_entities_are_not_found,
        a_path_that_is_no_id_is_a_bad_request,
        an_id_may_be_spelled_differently,
        deeper_paths_are_not_found,
        put_of_another_id_is_a_bad_request,
        put_of_a_part_is_a_bad_request,
        put_takes_any_content_type,
        a_body_that_is_not_json_is_a_bad_request,
        json_that_is_no_entity_is_unprocessable,
        every_json_form_of_an_entity_is_stored,
        an_id_is_percent_decoded,
        an_id_that_no_path_names_is_refused,
        a_long_id_is_refused,
        a_location_is_encoded,
        a_prefix_is_a_whole_segment,
        a_wrong_field_is_named,
        a_patch_without_a_valid_result_changes_nothing,
        patch_takes_merge_patches_only,
    }
}
