//! Services and repos that make a server wait, fail or write much.

use std::future::{pending, poll_fn};
use std::panic::panic_any;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::http::StatusCode;
use polyserve_core::sync::lock;
use polyserve_core::{
    Answer, Body, Completer, Echo, Entity, EntityRepo, Head, Reply, Request, ServerConfig, Service, Visit, promise,
    timer,
};

use super::live::Live;
use super::subject::ServerSubject;
use super::wire::{get, pattern};
use crate::client::Client;
use crate::event_count::EventCount;
use crate::repo::Reference;

fn text(body: impl Into<Vec<u8>>) -> Reply {
    Reply::new(StatusCode::OK, "text/plain", Body::Owned(body.into()))
}

/// Holds back the answers to `/hold...` until they are released. Echoes every other body.
#[derive(Default)]
pub(super) struct HeldAnswers {
    held: Mutex<Vec<(String, Completer<Reply>)>>,
    changed: Condvar,
}

impl HeldAnswers {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Waits until `count` answers are held back.
    #[track_caller]
    pub(super) fn wait_for(&self, count: usize, max_wait: Duration) {
        let held = lock(&self.held);
        let waited = self.changed.wait_timeout_while(held, max_wait, |held| held.len() < count);
        let seen = waited.unwrap_or_else(PoisonError::into_inner).0.len();
        assert!(seen >= count, "only {seen} of {count} requests reached the service");
    }

    /// Releases the answers that are held back. Each answer is the path of its request. Returns the number of answers that
    /// the server still waited for.
    pub(super) fn release_all(&self) -> usize {
        let held = std::mem::take(&mut *lock(&self.held));
        held.into_iter().filter_map(|(path, completer)| completer.complete(text(path)).ok()).count()
    }

    /// Whether the server has dropped every answer that is held back.
    pub(super) fn all_abandoned(&self) -> bool {
        lock(&self.held).iter().all(|(_, completer)| completer.is_abandoned())
    }

    /// Drops every completer, as a repo does if its thread ends.
    pub(super) fn drop_all(&self) {
        drop(std::mem::take(&mut *lock(&self.held)));
    }
}

impl Service for HeldAnswers {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        if !request.head.path().starts_with("/hold") {
            return Echo.call(request, body);
        }
        let (completer, answer) =
            promise(Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "The held answers are gone."));
        lock(&self.held).push((request.head.path().to_owned(), completer));
        self.changed.notify_all();
        answer
    }
}

/// Starts a server and a client. The service holds back the client's answer.
#[track_caller]
pub(super) fn hold_one(subject: &ServerSubject, config: ServerConfig) -> (Live, Arc<HeldAnswers>, Client) {
    let held_answers = HeldAnswers::new();
    let live = subject.live(held_answers.clone(), config);
    let client = live.sending(&get("/hold"));
    held_answers.wait_for(1, subject.max_wait);
    (live, held_answers, client)
}

/// Blocks the caller's thread on `/block`. No real service should do that. Echoes every other body.
pub(super) struct Blocking {
    /// The requests that block, or did.
    pub(super) inside: EventCount,
    /// The first event ends the blocking.
    pub(super) open: EventCount,
    /// If set, the length of each answer, except that to `/mine`.
    length: Option<usize>,
}

/// The longest time that a thread stays blocked.
const MAX_BLOCKED: Duration = Duration::from_secs(120);

impl Blocking {
    pub(super) fn new(subject: &ServerSubject, length: Option<usize>) -> Arc<Self> {
        let (inside, open) = (EventCount::new(subject.max_wait), EventCount::new(MAX_BLOCKED));
        Arc::new(Self { inside, open, length })
    }
}

impl Service for Blocking {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        if request.head.path() == "/block" {
            self.inside.add();
            self.open.reaches(1);
        }
        match self.length.filter(|_| request.head.path() != "/mine") {
            Some(length) => {
                body.resize(length, b'x');
                Answer::Now(Reply::new(StatusCode::OK, "text/plain", Body::InPlace))
            }
            None => Echo.call(request, body),
        }
    }
}

/// Returns the number n of the path `/n`, or 0.
pub(super) fn number(request: &Request<'_>) -> usize {
    request.head.path().trim_start_matches('/').parse().unwrap_or(0)
}

/// Answers `/n` after n milliseconds with its path.
pub(super) fn delayed(request: Request<'_>) -> Answer<Reply> {
    let path = request.head.path().to_owned();
    timer::after(Duration::from_millis(number(&request) as u64)).map(move |()| text(path))
}

/// Answers `/n` once it has been polled n more times. Each poll wakes its waker before it returns, as a future may.
pub(super) fn self_waking(request: Request<'_>) -> Answer<Reply> {
    let (path, mut remaining) = (request.head.path().to_owned(), number(&request));
    Answer::later(poll_fn(move |cx| match remaining.checked_sub(1) {
        None => Poll::Ready(text(path.clone())),
        Some(fewer) => {
            remaining = fewer;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }))
}

/// Answers `/n` with n bytes of the pattern.
pub(super) fn large(request: Request<'_>) -> Reply {
    text(pattern(number(&request)))
}

/// Panics at the point that the path names. Echoes the body for every other path.
pub(crate) struct PanickingService {
    repo: Reference<Entity>,
}

impl PanickingService {
    pub(crate) fn shared() -> Arc<dyn Service> {
        let repo = Reference::default();
        let _ = repo.put(Entity::new(1, "one", 1.0)).wait();
        Arc::new(Self { repo })
    }
}

/// Panics when it is dropped.
struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        assert!(thread::panicking(), "as the test asked");
    }
}

/// A panic payload that panics when it is dropped.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("as the test asked, from a payload");
    }
}

impl Service for PanickingService {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        match request.head.path() {
            "/call" => panic!("as the test asked"),
            "/partly" => {
                body.extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\nhalf an answer");
                panic!("as the test asked");
            }
            "/later" => Answer::later(async { panic!("as the test asked") }),
            "/woken" => timer::after(Duration::from_millis(1)).map(|()| panic!("as the test asked")),
            "/given-up" => {
                let panic_on_drop = PanicOnDrop;
                Answer::later(async move {
                    pending::<()>().await;
                    drop(panic_on_drop);
                    text("this answer never comes")
                })
            }
            "/payload" => panic_any(Payload),
            "/payload-later" => Answer::later(async { panic_any(Payload) }),
            "/omitted" => Answer::Now(text("").with_body(Body::Omitted(Some(5)))),
            "/omitted-later" => {
                timer::after(Duration::from_millis(1)).map(|()| text("").with_body(Body::Omitted(None)))
            }
            "/visit" => {
                let _ = self.repo.get(&1, Visit::new(&mut |_| panic!("as the test asked")));
                Answer::Now(text("the visit did not panic"))
            }
            _ => Echo.call(request, body),
        }
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        assert_ne!(head.path(), "/head", "as the test asked");
        None
    }
}

/// Waits for `duration`. Only for events that nothing reports.
pub(super) fn let_pass(duration: Duration) {
    timer::at(Instant::now() + duration).wait();
}
