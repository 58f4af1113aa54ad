//! What stands in front of the service of a server with an [`OverloadPolicy`].
//!
//! Invariant: the number of requests in work counts each admitted request once, from its admission until its answer is there or is
//! given up. A policy decides with the number at the moment of the admission, so a limit on it is exact.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;

use super::{AnsweredRequest, Arrival, Overload, OverloadPolicy, OverloadReason};
use crate::answer::Answer;
use crate::service::{Head, Reply, Request, Service, Unavailable};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The admission of requests to one run of a server. For the author of a server.
pub struct RequestAdmission {
    policy: Arc<dyn OverloadPolicy>,
    open_path: Option<Arc<str>>,
    /// The values of `Retry-After`, from a second on.
    retry_after: Box<[HeaderValue]>,
    in_work: AtomicUsize,
    /// By [`OverloadReason`].
    refused: [AtomicU64; OverloadReason::ALL.len()],
}

impl RequestAdmission {
    /// The admission of a new run.
    pub fn new(overload: &Overload) -> Arc<Self> {
        Arc::new(Self {
            policy: overload.policy(),
            open_path: overload.open_path.clone(),
            retry_after: (1..=overload.max_retry_after.max(1)).map(HeaderValue::from).collect(),
            in_work: AtomicUsize::new(0),
            refused: std::array::from_fn(|_| AtomicU64::new(0)),
        })
    }

    /// Returns a service that admits each request before it calls `service`.
    pub fn over(self: &Arc<Self>, service: Arc<dyn Service>) -> Arc<dyn Service> {
        Arc::new(Admitted { service, admission: Arc::clone(self) })
    }

    /// Admits a request that the server could have begun with at `arrived`. The permit is to be dropped when the answer is there.
    ///
    /// # Errors
    ///
    /// Returns the answer if the request is refused.
    pub fn admit(self: &Arc<Self>, head: &Head<'_>, arrived: Option<Instant>) -> Result<AdmittedRequest, Reply> {
        let now = Instant::now();
        let waited = arrived.map_or(Duration::ZERO, |arrived| now.saturating_duration_since(arrived));
        let is_open = self.open_path.as_deref().is_some_and(|path| path == head.path());
        let arrival = Arrival { waited, is_write: !head.method.is_safe(), ..Arrival::new(now) };
        match self.enter(arrival, is_open) {
            Ok(()) => Ok(AdmittedRequest { admission: Arc::clone(self), admitted: now, waited }),
            Err(reason) => Err(self.refuse(reason)),
        }
    }

    /// Counts a request that the policy admits.
    fn enter(&self, mut arrival: Arrival, is_open: bool) -> Result<(), OverloadReason> {
        // The counter alone is shared, and says nothing about other memory.
        let mut in_work = self.in_work.load(Ordering::Relaxed);
        loop {
            arrival.in_work = in_work.saturating_add(1);
            if !is_open {
                self.policy.admit(&arrival)?;
            }
            let next = arrival.in_work;
            match self.in_work.compare_exchange(in_work, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(present) => in_work = present,
            }
        }
    }

    /// Counts a refusal, and returns its answer. Nothing is formatted: an overloaded server makes many of them.
    fn refuse(&self, reason: OverloadReason) -> Reply {
        let before = self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
        // A multiplier that visits all values in an irregular order, and each equally often.
        let place = before.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_shr(32) % self.retry_after.len() as u64;
        let retry_after = self.retry_after[place as usize].clone();
        Reply::unavailable(&PROBLEMS[reason as usize], retry_after)
    }

    /// Returns the number of refused requests by reason.
    pub fn refused(&self) -> [u64; OverloadReason::ALL.len()] {
        OverloadReason::ALL.map(|reason| self.refused[reason as usize].load(Ordering::Relaxed))
    }

    /// Returns the number of requests in work.
    pub fn in_work(&self) -> usize {
        self.in_work.load(Ordering::Relaxed)
    }
}

/// The bodies of refusals, by [`OverloadReason`].
static PROBLEMS: [Unavailable; OverloadReason::ALL.len()] = [
    Unavailable::new("The server is overloaded: too many requests are in work."),
    Unavailable::new("The server is overloaded: the request has waited for too long."),
];

impl fmt::Debug for RequestAdmission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (policy, in_work) = (&self.policy, self.in_work());
        f.debug_struct("RequestAdmission").field("policy", policy).field("in_work", &in_work).finish_non_exhaustive()
    }
}

/// A request in work. Dropping it notes that its answer is there.
#[derive(Debug)]
pub struct AdmittedRequest {
    admission: Arc<RequestAdmission>,
    admitted: Instant,
    waited: Duration,
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        self.admission.in_work.fetch_sub(1, Ordering::Relaxed);
        let now = Instant::now();
        let worked = now.saturating_duration_since(self.admitted);
        self.admission.policy.answered(&AnsweredRequest::new(now, self.waited, worked));
    }
}

/// A service behind an admission.
struct Admitted {
    service: Arc<dyn Service>,
    admission: Arc<RequestAdmission>,
}

impl Service for Admitted {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let permit = match self.admission.admit(&request.head, request.arrived()) {
            Ok(permit) => permit,
            Err(reply) => return Answer::Now(reply),
        };
        match self.service.call(request, body) {
            Answer::Now(reply) => Answer::Now(reply),
            Answer::Later(future) => Answer::Later(Box::pin(async move {
                let _permit = permit;
                future.await
            })),
        }
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        self.service.head(head)
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    use http::header::RETRY_AFTER;
    use http::{Method, StatusCode, Version};

    use super::*;
    use crate::service::Headers;
    use crate::{Completer, promise};

    fn head<'a>(method: &'a Method, target: &'a str) -> Head<'a> {
        Head { method, target, version: Version::HTTP_11, headers: Headers::new(&[]), certificate: None }
    }

    /// Sends the completer of each answer. Panics for `/panic`.
    struct Promises(Mutex<Sender<Completer<Reply>>>);

    impl Service for Promises {
        fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
            assert_ne!(request.head.target, "/panic");
            let (completer, answer) = promise(Reply::empty(StatusCode::INTERNAL_SERVER_ERROR));
            self.0.lock().unwrap().send(completer).unwrap();
            answer
        }
    }

    #[test]
    fn a_request_is_in_work_until_its_answer_is_there_or_given_up() {
        let (sender, completers) = channel();
        let admission = RequestAdmission::new(&Overload::static_limit(1).open_path("/readyz"));
        let service = admission.over(Arc::new(Promises(Mutex::new(sender))));
        let ask = |target: &str| service.call(Request::new(head(&Method::GET, target), b""), &mut Vec::new());
        let first = ask("/1");
        let refused = ask("/2").wait();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().any(|(name, value)| name == RETRY_AFTER && value.as_bytes().len() == 1));
        assert_eq!((admission.in_work(), admission.refused()), (1, [1, 0]));
        drop(ask("/readyz"));
        completers.recv().unwrap().complete(Reply::empty(StatusCode::OK)).unwrap();
        assert_eq!((first.wait().status(), admission.in_work()), (StatusCode::OK, 0));
        drop(ask("/3"));
        assert_eq!((admission.in_work(), admission.refused()), (0, [1, 0]));
        assert!(catch_unwind(AssertUnwindSafe(|| ask("/panic"))).is_err());
        assert_eq!(admission.in_work(), 0);
    }

    /// Notes what it sees.
    #[derive(Debug, Default)]
    struct Noting(Mutex<Vec<(Duration, bool)>>);

    impl OverloadPolicy for Arc<Noting> {
        fn admit(&self, arrival: &Arrival) -> Result<(), OverloadReason> {
            self.0.lock().unwrap().push((arrival.waited, arrival.is_write));
            Ok(())
        }
    }

    #[test]
    fn a_policy_sees_the_method_and_the_wait() {
        let noting = Arc::new(Noting::default());
        let clone = Arc::clone(&noting);
        let admission = RequestAdmission::new(&Overload::own(move || Arc::clone(&clone)));
        let long_ago = Instant::now().checked_sub(Duration::from_secs(3));
        for (method, arrived) in [(Method::HEAD, None), (Method::PUT, long_ago)] {
            drop(admission.admit(&head(&method, "/1"), arrived).unwrap());
        }
        let seen = noting.0.lock().unwrap();
        assert_eq!(seen[0], (Duration::ZERO, false));
        assert!(seen[1].0 >= Duration::from_secs(3) && seen[1].1);
    }

    #[test]
    fn a_refusal_has_the_body_of_any_problem() {
        for (reason, detail) in [
            (OverloadReason::InWork, "The server is overloaded: too many requests are in work."),
            (OverloadReason::Waited, "The server is overloaded: the request has waited for too long."),
        ] {
            let refused = RequestAdmission::new(&Overload::static_limit(1)).refuse(reason);
            let expected = Reply::problem(StatusCode::SERVICE_UNAVAILABLE, detail);
            assert_eq!((refused.status(), refused.content_type()), (expected.status(), expected.content_type()));
            assert_eq!(refused.body_bytes(b""), expected.body_bytes(b""));
        }
    }

    #[test]
    fn clients_come_back_at_different_times() {
        let admission = RequestAdmission::new(&Overload::static_limit(1));
        let mut counts = [0; 4];
        for _ in 0..300 {
            let reply = admission.refuse(OverloadReason::InWork);
            let (_, value) = reply.headers().find(|(name, _)| **name == RETRY_AFTER).unwrap();
            counts[value.to_str().unwrap().parse::<usize>().unwrap()] += 1;
        }
        assert_eq!(counts[0], 0);
        assert!(counts[1..].iter().all(|count| (80..=120).contains(count)), "{counts:?}");
    }
}
