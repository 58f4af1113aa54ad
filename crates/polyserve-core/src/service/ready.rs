//! The answer to a health check: whether the server takes requests, and its store writes.
//!
//! Invariants: at most one check of the store is in progress. Requests that come meanwhile wait for the same check. A result is
//! used only if its check took at most [`MAX_STATUS_WAIT`]: then it is no older than that. A later result is dropped, and the store
//! is asked again.
//!
//! Cost of a request: one call of [`EntityRepo::status`], or none if a check is in progress.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};

use super::entity_reply::read_only;
use super::{Head, Reply, Request, Service, get_only};
use crate::answer::{Answer, BoxFuture};
use crate::entity::Identifiable;
use crate::repo::{EntityRepo, MAX_STATUS_WAIT, RepoAnswer, RepoError};
use crate::sync::{Mutex, lock, now};
use crate::timer;

/// Answers at one path with 200, or with 503 in a drain and if the store takes no writes.
pub(super) struct Ready {
    path: String,
    check: Arc<StatusCheck>,
}

/// The check that is in progress, if there is one.
struct StatusCheck {
    status: Box<dyn Fn() -> RepoAnswer<()> + Send + Sync>,
    state: Mutex<StatusCheckState>,
    /// The requests that wait for the check, by ticket.
    waiting: Mutex<BTreeMap<u64, Waker>>,
}

#[derive(Default)]
struct StatusCheckState {
    /// The result of a check that is in progress, and when the check began.
    pending: Option<(BoxFuture<Result<(), RepoError>>, Instant)>,
    /// The number of checks that have ended in time.
    ended: u64,
    /// The number of requests that have waited.
    tickets: u64,
    /// What the last check that has ended in time found to be wrong.
    problem: Option<String>,
}

impl StatusCheckState {
    fn end(&mut self, status: Result<(), RepoError>) {
        self.ended += 1;
        self.problem = status.err().map(|error| detail(&error));
    }
}

/// Wakes all requests that wait: each of them may be the next to poll.
impl Wake for StatusCheck {
    fn wake(self: Arc<Self>) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        waiting.into_values().for_each(Waker::wake);
    }
}

/// A request that waits for a check.
struct Waiter {
    check: Arc<StatusCheck>,
    /// The number of checks that had ended before.
    ended: u64,
    ticket: u64,
    timeout: BoxFuture<()>,
}

impl Future for Waiter {
    type Output = Option<String>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<String>> {
        let Self { check, ended, ticket, timeout } = self.get_mut();
        lock(&check.waiting).insert(*ticket, cx.waker().clone());
        let mut state = lock(&check.state);
        while state.ended == *ended {
            let (mut pending, begun) = match state.pending.take() {
                Some(pending) => pending,
                None => match (check.status)() {
                    Answer::Now(status) => {
                        state.end(status);
                        break;
                    }
                    Answer::Later(pending) => (pending, now()),
                },
            };
            match pending.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(check)))) {
                Poll::Pending => {
                    state.pending = Some((pending, begun));
                    drop(state);
                    return timeout.as_mut().poll(cx).map(|()| Some(String::from("The store does not answer.")));
                }
                Poll::Ready(status) if begun.elapsed() <= MAX_STATUS_WAIT => state.end(status),
                Poll::Ready(_) => {} // it is too old
            }
        }
        let problem = state.problem.clone();
        drop(state);
        Arc::clone(check).wake();
        Poll::Ready(problem)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        lock(&self.check.waiting).remove(&self.ticket);
    }
}

impl Ready {
    pub(super) fn new<E: Identifiable>(path: String, store: impl EntityRepo<E>) -> Self {
        let status = Box::new(move || store.status());
        Self { path, check: Arc::new(StatusCheck { status, state: Mutex::default(), waiting: Mutex::default() }) }
    }

    /// Asks the store, unless a check is in progress. Returns what is wrong, if anything is.
    fn problem(&self) -> Answer<Option<String>> {
        let check = Arc::clone(&self.check);
        let mut state = lock(&check.state);
        if state.pending.is_none() {
            match (check.status)() {
                Answer::Now(status) => return Answer::Now(status.err().map(|error| detail(&error))),
                Answer::Later(pending) => state.pending = Some((pending, now())),
            }
        }
        state.tickets += 1;
        let (ended, ticket) = (state.ended, state.tickets);
        drop(state);
        let timeout = Box::pin(timer::after(MAX_STATUS_WAIT).into_future());
        Answer::later(Waiter { check, ended, ticket, timeout })
    }
}

impl Service for Ready {
    fn call(&self, request: Request<'_>, _body: &mut Vec<u8>) -> Answer<Reply> {
        if let Some(refusal) = self.head(&request.head) {
            return Answer::Now(refusal);
        }
        if request.draining {
            return Answer::Now(not_ready("The server is shutting down."));
        }
        self.problem().map(|problem| match problem {
            None => uncached(Reply::text("ready")),
            Some(problem) => not_ready(&problem),
        })
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        get_only(head, &self.path)
    }

    fn sees_peers(&self) -> bool {
        false
    }
}

/// What is wrong with a store that takes no writes, in one sentence.
fn detail(error: &RepoError) -> String {
    match error {
        RepoError::ReadOnly(reason) => read_only(reason),
        error => format!("The store takes no writes: {error}."),
    }
}

fn not_ready(detail: &str) -> Reply {
    uncached(Reply::problem(StatusCode::SERVICE_UNAVAILABLE, detail))
}

fn uncached(reply: Reply) -> Reply {
    reply.with_field(CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

#[cfg(test)]
mod tests {
    use super::super::{EntityService, Headers, Routes};
    use super::*;
    use crate::answer::{Completer, promise};
    use crate::condition::{Condition, Conditional};
    use crate::entity::Entity;
    use crate::repo::{Lookup, Put, Removed, Visit};
    use http::{Method, Version};

    type StoreStatus = Result<(), RepoError>;

    /// A store of which the test answers the checks.
    #[derive(Debug, Default)]
    struct Asked {
        now: Mutex<Option<StoreStatus>>,
        checks: Mutex<Vec<Completer<StoreStatus>>>,
    }

    impl EntityRepo for Asked {
        fn get(&self, _: &i64, _: Visit<'_>) -> RepoAnswer<Lookup> {
            Answer::Now(Ok(Lookup::Absent))
        }
        fn put_if(&self, _: Entity, _: &Condition) -> RepoAnswer<Conditional<Put>> {
            Answer::Now(Ok(Conditional::Refused))
        }
        fn remove_if(&self, _: &i64, _: &Condition) -> RepoAnswer<Conditional<Removed>> {
            Answer::Now(Ok(Conditional::Refused))
        }
        fn len(&self) -> RepoAnswer<u64> {
            Answer::Now(Ok(0))
        }
        fn status(&self) -> Answer<StoreStatus> {
            if let Some(status) = lock(&self.now).take() {
                return Answer::Now(status);
            }
            let (completer, answer) = promise(Err(RepoError::Closed));
            lock(&self.checks).push(completer);
            answer
        }
    }

    fn ask(routes: &Routes, method: &Method, path: &str, draining: bool) -> Answer<Reply> {
        let head =
            Head { method, target: path, version: Version::HTTP_11, headers: Headers::new(&[]), certificate: None };
        routes.call(Request::new(head, b"").with_draining(draining), &mut Vec::new())
    }

    fn served() -> (Arc<Asked>, Routes) {
        let store = Arc::new(Asked::default());
        let routes = Routes::new().ready("/readyz", Arc::clone(&store)).unwrap();
        let routes = routes.otherwise(EntityService::new(Arc::clone(&store)));
        (store, routes)
    }

    #[test]
    fn it_is_ready_unless_it_drains_or_the_store_takes_no_writes() {
        let (store, routes) = served();
        let status = |method, path: &str, draining| ask(&routes, method, path, draining).wait().status().as_u16();
        for (now, expected) in [
            (Ok(()), 200),
            (Err(RepoError::Closed), 503),
            (Err(RepoError::ReadOnly("a disk".into())), 503),
            (Err(RepoError::Other("secret".into())), 503),
        ] {
            *lock(&store.now) = Some(now);
            assert_eq!(status(&Method::GET, "/readyz?verbose", false), expected);
        }
        *lock(&store.now) = Some(Ok(()));
        assert_eq!(status(&Method::HEAD, "/readyz", false), 200);
        *lock(&store.now) = Some(Ok(()));
        assert_eq!(status(&Method::GET, "/readyz", true), 503);
        for method in [&Method::PUT, &Method::POST, &Method::DELETE, &Method::PATCH] {
            let reply = ask(&routes, method, "/readyz", false).wait();
            assert_eq!(reply.status(), StatusCode::METHOD_NOT_ALLOWED);
            assert!(reply.headers().any(|(name, value)| name == "allow" && value == "GET, HEAD, OPTIONS"));
        }
        assert_eq!(status(&Method::OPTIONS, "/readyz", false), 204);
        assert_eq!(status(&Method::GET, "/readyz/x", false), 404);
        assert_eq!(status(&Method::GET, "/1", false), 404);
    }

    #[test]
    fn checks_that_come_together_ask_the_store_once() {
        let (store, routes) = served();
        let ask_together = |result: fn() -> Result<(), RepoError>| {
            let start = Instant::now();
            let threads = std::thread::scope(|scope| {
                let waiting: Vec<_> = (0..4)
                    .map(|_| ask(&routes, &Method::GET, "/readyz", false))
                    .map(|answer| scope.spawn(|| answer.wait()))
                    .collect();
                let check = lock(&store.checks).pop().expect("it was asked");
                assert!(lock(&store.checks).is_empty(), "it was asked once");
                check.complete(result()).unwrap();
                waiting.into_iter().map(|thread| thread.join().unwrap().status().as_u16()).collect::<Vec<_>>()
            });
            // On a busy machine the answer of the store may come too late.
            (start.elapsed() <= MAX_STATUS_WAIT).then_some(threads)
        };
        for (result, expected) in [((|| Ok(())) as fn() -> _, 200), (|| Err(RepoError::Closed), 503)] {
            let mut attempts = (0..20).filter_map(|_| ask_together(result));
            assert_eq!(attempts.next().expect("an attempt is quick"), [expected; 4]);
        }
    }

    /// A store that does not answer is not asked again, and each health check ends.
    ///
    /// Regression test: if all requests had given up, the next one got the answer to their check, whatever its age.
    #[test]
    fn a_store_that_hangs_is_asked_once_and_its_late_answer_is_not_used() {
        let (store, routes) = served();
        for answers_before_the_request in [false, true] {
            for _ in 0..2 {
                assert_eq!(ask(&routes, &Method::GET, "/readyz", false).wait().status().as_u16(), 503);
                assert_eq!(lock(&store.checks).len(), 1);
            }
            let mut late = lock(&store.checks).pop();
            let mut answer_late = || late.take().expect("it was asked").complete(Ok(())).unwrap();
            if answers_before_the_request {
                answer_late();
            }
            let answer = ask(&routes, &Method::GET, "/readyz", false);
            if !answers_before_the_request {
                answer_late();
            }
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| answer.wait());
                while lock(&store.checks).is_empty() {
                    assert!(!waiting.is_finished(), "the store is not asked again");
                    std::thread::yield_now();
                }
                let check = lock(&store.checks).pop().expect("it was asked again");
                check.complete(Err(RepoError::Closed)).unwrap();
                assert_eq!(waiting.join().unwrap().status().as_u16(), 503);
            });
            assert!(lock(&store.checks).is_empty());
        }
    }
}
