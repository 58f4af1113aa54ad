//! A hook that sees every answer of a server: [`AnswerHook`] and [`AnswerReport`].
//!
//! Cost: without a hook, one check for each answer. With a hook, a clock read for each answer and a virtual call; a hook that sees clients
//! also costs a copy of the target, and one that sees agents a copy of two fields.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::panics::isolate;
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

/// A function that sees every answer of a server, once: those of the service, and those that the server gives itself, such
/// as 400, 408, 413, and 503 at a limit. An interim answer (100) is none. [`ServerConfig::on_answer`] installs a hook.
///
/// It is called when the answer is made, before the client has it; `tokio_hyper` calls it when the answer's last byte is
/// made. The thread that serves the connection calls it, so it must be short and must not block. If it panics, the panic
/// is logged, and nothing else happens.
///
/// [`ServerConfig::on_answer`]: crate::ServerConfig::on_answer
#[derive(Clone)]
pub struct AnswerHook {
    hook: Arc<dyn Fn(&AnswerReport<'_>) + Send + Sync>,
    sees: ReportParts,
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
        Self { hook: Arc::new(hook), sees: ReportParts::Clients }
    }

    /// Creates a hook that reads the status, the times, and the method of a request. The other parts of its reports may be missing: the
    /// target is empty, and the address, the user and the trace may be `None`. It costs less: a server need not copy and note them.
    pub fn of_times(hook: impl Fn(&AnswerReport<'_>) + Send + Sync + 'static) -> Self {
        Self { hook: Arc::new(hook), sees: ReportParts::Times }
    }

    /// Makes the hook see [`AnswerReport::referer`] and [`AnswerReport::user_agent`] too. It costs more: a server looks both fields up, and
    /// copies them.
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
        let sees = self.sees.max(next.sees);
        let both = move |report: &AnswerReport<'_>| {
            self.call(report);
            next.call(report);
        };
        Self { hook: Arc::new(both), sees }
    }

    /// Calls the hook. For the author of a server.
    pub fn call(&self, report: &AnswerReport<'_>) {
        if let Err(text) = isolate(|| (self.hook)(report)) {
            let _ = isolate(|| crate::throttled!(warn, text, "a hook of answers panicked"));
        }
    }
}

impl fmt::Debug for AnswerHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerHook")
    }
}

/// Two hooks are equal if one is a clone of the other.
impl PartialEq for AnswerHook {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.hook, &other.hook)
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
        let report = AnswerReport::new(StatusCode::OK, 7, None, None);
        hook("alone").then(None).call(&report);
        hook("first").then(Some(hook("second"))).call(&report);
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["alone", "first", "second"]);
    }

    #[test]
    fn two_hooks_see_what_either_needs() {
        let [times, clients] = [AnswerHook::of_times(|_| ()), AnswerHook::new(|_| ())];
        let agents = AnswerHook::of_times(|_| ()).with_agents();
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
