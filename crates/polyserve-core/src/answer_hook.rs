//! A hook that sees every answer of a server: [`AnswerHook`], with [`AnswerReport`] and [`AnswerTimes`].
//!
//! Cost: without a hook, one check for each answer. With a hook of times, a clock read for each answer and a virtual call; a hook that sees
//! clients also costs a report and a copy of the target, and one that sees agents a copy of two fields.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::panics::{isolate, text_of};
use crate::service::{RequestNotes, TraceId};
use http::{Method, StatusCode, Version};

/// One answer of a server, as an [`AnswerHook`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnswerReport<'a> {
    /// When the answer was made.
    pub made: Instant,
    /// The status.
    pub status: StatusCode,
    /// The number of bytes of the head and the body. Over HTTP/2, the bytes of the body.
    pub bytes: u64,
    /// The time since the server read the first byte of the request. `None` if it has read none, as with the 503 of a full
    /// server.
    pub elapsed: Option<Duration>,
    /// The time for which the connection has waited for its thread before the request. `None` if it has not waited since the answer
    /// before, or if the server has no queue of its own.
    pub queued: Option<Duration>,
    /// The address of the connection's other end, if it is known.
    pub peer: Option<SocketAddr>,
    /// The user that the service has found for the request.
    pub user: Option<&'a str>,
    /// The trace that the service has found for the request.
    pub trace: Option<TraceId>,
    /// The request line. `None` if the server could not decode the head of the request, or has not read it.
    pub request: Option<ReportedRequest<'a>>,
    /// The value of the first field `Referer`, as the client sent it: it may have any byte but those that end a line. `None` without such
    /// a field, and unless a hook [sees agents](AnswerHook::with_agents).
    pub referer: Option<&'a [u8]>,
    /// The value of the first field `User-Agent`, as with [`referer`](Self::referer).
    pub user_agent: Option<&'a [u8]>,
}

/// The times of one answer, as a hook of [times](AnswerHook::of_times) sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnswerTimes<'a> {
    /// The status.
    pub status: StatusCode,
    /// The method of the request, as in [`ReportedRequest::method`].
    pub method: Option<&'a Method>,
    /// As [`AnswerReport::elapsed`].
    pub elapsed: Option<Duration>,
    /// As [`AnswerReport::queued`].
    pub queued: Option<Duration>,
}

/// The request line of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target as the client sent it, with the query.
    pub target: &'a str,
    /// The version.
    pub version: Version,
}

impl<'a> AnswerReport<'a> {
    /// Creates the report of an answer that is made now, for the author of a server. `begun` is the time at which the first
    /// byte of the request was read.
    #[inline]
    pub fn new(status: StatusCode, bytes: usize, begun: Option<Instant>, peer: Option<SocketAddr>) -> Self {
        let made = Instant::now();
        Self {
            made,
            status,
            bytes: bytes as u64,
            elapsed: begun.map(|begun| made.saturating_duration_since(begun)),
            queued: None,
            peer,
            user: None,
            trace: None,
            request: None,
            referer: None,
            user_agent: None,
        }
    }

    /// Returns the part that a hook of times sees.
    #[inline]
    pub fn times(&self) -> AnswerTimes<'a> {
        let method = self.request.map(|request| request.method);
        AnswerTimes { status: self.status, method, elapsed: self.elapsed, queued: self.queued }
    }

    /// Sets what the service has noted, for the author of a server.
    #[inline]
    #[must_use]
    pub fn noted(mut self, notes: &'a RequestNotes) -> Self {
        (self.user, self.trace) = (notes.user(), notes.trace());
        self
    }

    /// Sets the request line, for the author of a server.
    #[inline]
    #[must_use]
    pub fn to(mut self, request: Option<ReportedRequest<'a>>) -> Self {
        self.request = request;
        self
    }
}

impl<'a> AnswerTimes<'a> {
    /// Creates the times of an answer that is made now, for the author of a server. `begun` is the time at which the first byte of the
    /// request was read.
    #[inline]
    pub fn new(status: StatusCode, method: Option<&'a Method>, begun: Option<Instant>) -> Self {
        Self { status, method, elapsed: begun.map(|begun| begun.elapsed()), queued: None }
    }
}

/// A function that sees every answer of a server, once: those of the service, and those that the server gives itself, such
/// as 400, 408, 413, and 503 at a limit. An interim answer (100) is none. [`ServerConfig::on_answer`] installs a hook.
///
/// Over TLS, it also sees what the server refuses before there can be an answer, without a request and a time: a connection that is rejected
/// at a limit, as a 503, and a handshake, with the status of its [`HandshakeFailure`](crate::HandshakeFailure). The bytes are those of the alert.
///
/// It is called when the answer is made, before the client has it; `tokio_hyper` calls it when the answer's last byte is
/// made. The thread that serves the connection calls it, so it must be short and must not block. If it panics, the panic
/// is logged, and nothing else happens.
///
/// [`ServerConfig::on_answer`]: crate::ServerConfig::on_answer
#[derive(Clone)]
pub struct AnswerHook {
    /// They are called in this order.
    functions: Arc<[HookFunction]>,
    sees: ReportParts,
}

#[derive(Clone)]
enum HookFunction {
    Times(Arc<dyn Fn(&AnswerTimes<'_>) + Send + Sync>),
    Report(Arc<dyn Fn(&AnswerReport<'_>) + Send + Sync>),
}

/// The parts of a report that a hook reads. A later one includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ReportParts {
    Times,
    Clients,
    Agents,
}

impl AnswerHook {
    /// Creates a hook.
    pub fn new(hook: impl Fn(&AnswerReport<'_>) + Send + Sync + 'static) -> Self {
        Self { functions: [HookFunction::Report(Arc::new(hook))].into(), sees: ReportParts::Clients }
    }

    /// Creates a hook that sees the status, the times, and the method of a request. It costs less: a server need not copy and note the
    /// other parts of a report.
    pub fn of_times(hook: impl Fn(&AnswerTimes<'_>) + Send + Sync + 'static) -> Self {
        Self { functions: [HookFunction::Times(Arc::new(hook))].into(), sees: ReportParts::Times }
    }

    /// Makes the hook see [`AnswerReport::referer`] and [`AnswerReport::user_agent`] too. It costs more: a server looks both fields up, and
    /// copies them. A hook of times does not see them.
    #[must_use]
    pub fn with_agents(mut self) -> Self {
        self.sees = ReportParts::Agents;
        self
    }

    /// Whether the hook needs the client, the target and the notes of a request. For the author of a server.
    #[inline]
    pub fn sees_clients(&self) -> bool {
        self.sees >= ReportParts::Clients
    }

    /// Whether the hook needs the fields `Referer` and `User-Agent`. For the author of a server.
    #[inline]
    pub fn sees_agents(&self) -> bool {
        self.sees >= ReportParts::Agents
    }

    /// Returns a hook that calls this one, and then `next` if there is one. If one panics, the other is called all the same.
    #[must_use]
    pub fn then(self, next: Option<Self>) -> Self {
        let Some(next) = next else { return self };
        let functions = self.functions.iter().chain(&*next.functions).cloned().collect();
        Self { functions, sees: self.sees.max(next.sees) }
    }

    /// Calls the hook. For the author of a server.
    pub fn call(&self, report: &AnswerReport<'_>) {
        for function in &*self.functions {
            match function {
                HookFunction::Times(function) => call(|| function(&report.times())),
                HookFunction::Report(function) => call(|| function(report)),
            }
        }
    }

    /// Calls a hook that does not [see clients](Self::sees_clients), without a report. For the author of a server. A function that needs
    /// a report is not called.
    #[inline]
    pub fn call_with_times(&self, times: &AnswerTimes<'_>) {
        for function in &*self.functions {
            if let HookFunction::Times(function) = function {
                call(|| function(times));
            }
        }
    }
}

/// Calls a function of a hook. A panic is logged.
#[inline]
fn call(function: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(function)) {
        note_panic(panic);
    }
}

#[cold]
fn note_panic(panic: Box<dyn Any + Send>) {
    let text = text_of(panic);
    let _ = isolate(|| crate::throttled!(warn, text, "a hook of answers panicked"));
}

impl fmt::Debug for AnswerHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerHook")
    }
}

/// Two hooks are equal if one is a clone of the other.
impl PartialEq for AnswerHook {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.functions, &other.functions)
    }
}

impl Eq for AnswerHook {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A payload that panics when it is dropped.
    struct Payload;

    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("as the test asked");
        }
    }

    #[test]
    fn a_panic_stays_in_the_hook() {
        let report = AnswerReport::new(StatusCode::OK, 7, None, None);
        AnswerHook::new(|_| panic!("as the test asked")).call(&report);
        AnswerHook::new(|_| std::panic::panic_any(Payload)).call(&report);
        let times = AnswerHook::of_times(|_| panic!("as the test asked"));
        times.call(&report);
        times.call_with_times(&report.times());
    }

    #[test]
    fn hooks_are_called_one_after_the_other() {
        let (sender, seen) = std::sync::mpsc::channel();
        let hook = |name: &'static str| {
            let sender = sender.clone();
            AnswerHook::new(move |_| {
                sender.send(name).expect("the test receives it");
                panic!("as the test asked");
            })
        };
        let times_hook = |name: &'static str| {
            let sender = sender.clone();
            AnswerHook::of_times(move |_| {
                sender.send(name).expect("the test receives it");
                panic!("as the test asked");
            })
        };
        let report = AnswerReport::new(StatusCode::OK, 7, None, None);
        hook("alone").then(None).call(&report);
        let last = times_hook("third").then(Some(times_hook("fourth")));
        last.call_with_times(&report.times());
        hook("first").then(Some(hook("second"))).then(Some(last)).call(&report);
        let expected = ["alone", "third", "fourth", "first", "second", "third", "fourth"];
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_hook_of_times_sees_those_of_a_report() {
        let (sender, seen) = std::sync::mpsc::channel();
        let hook = AnswerHook::of_times(move |times| {
            let method = times.method.cloned();
            sender.send((times.status, method, times.elapsed, times.queued)).expect("the test receives it");
        });
        let begun = Instant::now();
        let line = ReportedRequest { method: &Method::PUT, target: "/", version: Version::HTTP_11 };
        let mut report = AnswerReport::new(StatusCode::CREATED, 7, Some(begun), None).to(Some(line));
        report.queued = Some(Duration::from_micros(3));
        hook.call(&report);
        let expected = (StatusCode::CREATED, Some(Method::PUT), report.elapsed, report.queued);
        assert_eq!(seen.try_recv(), Ok(expected));
        hook.call_with_times(&AnswerTimes::new(StatusCode::BAD_REQUEST, None, None));
        assert_eq!(seen.try_recv(), Ok((StatusCode::BAD_REQUEST, None, None, None)));
    }

    #[test]
    fn two_hooks_see_what_either_needs() {
        let [times, clients] = [AnswerHook::of_times(|_| ()), AnswerHook::new(|_| ())];
        let agents = AnswerHook::new(|_| ()).with_agents();
        let sees = |hook: AnswerHook| (hook.sees_clients(), hook.sees_agents());
        assert_eq!(sees(times.clone()), (false, false));
        assert_eq!(sees(times.clone().then(Some(clients.clone()))), (true, false));
        assert_eq!(sees(clients.then(Some(times.clone()))), (true, false));
        assert_eq!(sees(times.then(Some(agents))), (true, true));
    }

    #[test]
    fn a_hook_equals_its_clones() {
        let hook = AnswerHook::new(|_| ());
        assert_eq!(hook, hook.clone());
        assert_ne!(hook, AnswerHook::new(|_| ()));
    }
}
