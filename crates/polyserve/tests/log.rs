//! What a service logs while its repo fails. The subscriber is the one of this process, so there is one test.
#![forbid(unsafe_code)]

use std::panic::resume_unwind;
use std::sync::mpsc::Receiver;

use polyserve_conformance::log::messages;
use polyserve_core::http::{Method, Version};
use polyserve_core::log::{LogThrottles, MAX_TEXT};
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, EntityService, Head, Headers, Lookup, Put, Removed, RepoAnswer,
    RepoError, Request, Service, Visit, isolated,
};
use polyserve_serving::http1::panicked;
use tracing::Level;

type Failure = fn() -> RepoError;

/// A repo that fails as its function says.
#[derive(Debug)]
struct FailingRepo(Failure);

impl EntityRepo for FailingRepo {
    fn get(&self, _: &i64, _: Visit<'_>) -> RepoAnswer<Lookup> {
        Answer::Now(Err(self.0()))
    }

    fn put_if(&self, _: Entity, _: &Condition) -> RepoAnswer<Conditional<Put>> {
        Answer::Now(Err(self.0()))
    }

    fn remove_if(&self, _: &i64, _: &Condition) -> RepoAnswer<Conditional<Removed>> {
        Answer::later(std::future::ready(Err(self.0())))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Err(self.0()))
    }
}

const REQUESTS: usize = 1_000;

/// Regression test: while an engine was away, each request was a warning. Its text had the lines of PostgreSQL's `DETAIL`,
/// with the row that was rejected.
#[test]
fn failures_of_one_kind_are_one_warning() {
    const REJECTED: &str = "db error: ERROR: a check failed\nDETAIL: Failing row contains (1, secret).";
    let messages = messages();
    let kinds: [(Failure, &str); 4] = [
        (|| RepoError::TooLarge(REJECTED.into()), "an entity is too large for the repo"),
        (|| RepoError::Unavailable(REJECTED.into()), "the repo is unavailable"),
        (|| RepoError::Full(REJECTED.into()), "the repo has no room"),
        (|| RepoError::Other(REJECTED.into()), "the repo failed"),
    ];
    // Regression test: two stores of a process shared the state of a message, so the failures of one hid those of the other.
    for (kind, message) in kinds.into_iter().flat_map(|kind| [kind; 2]) {
        let service: EntityService<_> = EntityService::new(FailingRepo(kind));
        for number in 0..REQUESTS {
            let (method, body) = match number % 3 {
                0 => (&Method::GET, ""),
                1 => (&Method::PUT, r#"{"id":1,"description":"secret","value":0.5}"#),
                _ => (&Method::DELETE, ""),
            };
            let head =
                Head { method, target: "/1", version: Version::HTTP_11, headers: Headers::new(&[]), certificate: None };
            let reply = service.call(Request::new(head, body.as_bytes()), &mut Vec::new()).wait();
            assert!(reply.status().as_u16() >= 500 || reply.status() == 413, "{message}");
        }
        check(&messages, message);
    }
    // Regression test: two servers of a process shared it too.
    let servers = [LogThrottles::default(), LogThrottles::default()];
    let panics: [(&dyn Fn(), &str); 3] = [
        (&|| drop(panicked(&servers[0], Box::new("secret"))), "a service panicked"),
        (&|| drop(panicked(&servers[1], Box::new("secret"))), "a service panicked"),
        (&|| assert!(!isolated(|| resume_unwind(Box::new("secret")))), "a job panicked"),
    ];
    for (panic, message) in panics {
        (0..REQUESTS).for_each(|_| panic());
        check(&messages, message);
    }
}

/// Checks the messages of [`REQUESTS`] failures. The text of a panic is the program's own.
#[track_caller]
fn check(messages: &Receiver<(Level, String)>, expected: &str) {
    let logged: Vec<(Level, String)> = messages.try_iter().filter(|(level, _)| *level <= Level::WARN).collect();
    // More than one comes if this process was paused.
    assert!(logged.len() <= REQUESTS / 100, "{} messages for {REQUESTS} failures", logged.len());
    assert!(logged.iter().any(|(_, text)| text.contains(expected)), "{logged:?}");
    for (_, text) in logged {
        let shows_data = text.contains("secret") && !expected.ends_with("panicked");
        assert!(!text.contains('\n') && !shows_data && text.len() < MAX_TEXT + 100, "{text}");
    }
}
