//! The kit of the entity service, without sockets. A session of the codec reads each request and writes the answer.
//!
//! What does not depend on a server is tested here once. The [server kit](crate::server) tests what a server has to pass to the
//! service, and what a client sees.

mod cheap;
mod conditions;
mod values;

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use polyserve_core::{ServerConfig, Service, park_until};
use polyserve_serving::http1::{HttpState, Session, SessionBuffers, SessionStep};

pub use self::cheap::{Counted, cheap_requests_do_no_expensive_work_over};
use crate::client::Response;
use crate::server::status_table::ONE;
use crate::server::wire::{check_problem, put};
use crate::wire::{CaseScope, cases_of, properties_of};

/// A service without a server.
struct Unconnected {
    http: HttpState,
}

/// The longest wait for a deferred answer.
const MAX_WAIT: Duration = Duration::from_secs(60);

impl Unconnected {
    fn new(service: impl Service) -> Self {
        Self::of(Arc::new(service))
    }

    fn of(service: Arc<dyn Service>) -> Self {
        Self { http: HttpState::new(Arc::new(service), &ServerConfig::default()) }
    }

    /// Returns the answer to a request, on a connection of its own.
    #[track_caller]
    fn exchange(&self, request: &[u8]) -> Response {
        let (mut session, mut buffers, mut output) = (Session::new(), SessionBuffers::new(), Vec::new());
        buffers.refresh(SystemTime::now(), false);
        let mut step = session.receive(request, &mut self.http.turn(&mut buffers));
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
            step = session.resume(&mut self.http.turn(&mut buffers));
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

/// Sends the cases of the property in their order, to a store that answers now and to one that answers later.
fn check_cases(property: &str) {
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
}

/// A named property of the entity service.
#[derive(Clone, Copy, Debug)]
pub struct ServiceProperty {
    /// The name of its test.
    pub name: &'static str,
    /// Tests it. `None` if its cases are in the wire corpus.
    run: Option<fn()>,
}

impl ServiceProperty {
    /// Tests the property.
    ///
    /// # Panics
    ///
    /// Panics if it does not hold.
    pub fn check(&self) {
        self.run.map_or_else(|| check_cases(self.name), |run| run());
    }
}

macro_rules! properties {
    ($($module:ident: $($name:ident),+;)+) => {
        [$($(ServiceProperty { name: stringify!($name), run: Some($module::$name) },)+)+]
    };
}

/// Every property: functions of this module, and those of the [wire corpus](crate::wire) that are in angle brackets.
pub static PROPERTIES: LazyLock<Vec<ServiceProperty>> = LazyLock::new(|| {
    let functions = properties! {
        conditions: a_tag_names_the_bytes_of_a_get, conditions_are_evaluated, a_later_repo_evaluates_conditions,
            a_malformed_condition_is_a_bad_request, conditions_on_named_entities_are_evaluated,
            a_condition_holds_for_every_spelling_of_an_id;
        cheap: cheap_requests_do_no_expensive_work;
        values: a_value_comes_back_bit_for_bit, a_description_comes_back_whole, errors_do_not_echo_the_request;
    };
    let of_corpus = properties_of(CaseScope::Entities).into_iter().map(|(name, _)| ServiceProperty { name, run: None });
    functions.into_iter().chain(of_corpus).collect()
});
