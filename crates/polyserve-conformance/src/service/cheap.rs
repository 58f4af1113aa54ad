//! Requests of a few bytes that ask for a large entity: its JSON is written, and so hashed, once for each version.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use polyserve_core::{EntityRepo, EntityService, Identifiable, Visit};
use serde::{Deserialize, Serialize};

use super::Unconnected;
use super::conditions::tag_of;
use crate::repo::Reference;
use crate::server::wire::{get, put, request, with_body};

/// An entity of which a counter notes how often its JSON is written. The counter is found by its id, so that it outlives each
/// version, in whatever form a repo keeps the entity.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counted {
    /// The number of a counter.
    pub counter: usize,
    /// Any text.
    pub text: String,
}

/// The counters: one for each service under test.
static WRITINGS: [AtomicUsize; 4096] = [const { AtomicUsize::new(0) }; 4096];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The number of writings of each counter by a thread that commits the writes of a repo.
static BY_COMMITTERS: [AtomicUsize; 4096] = [const { AtomicUsize::new(0) }; 4096];

impl Identifiable for Counted {
    type Id = u64;

    fn id(&self) -> &u64 {
        const { &1 }
    }
    fn write_json(&self, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>> {
        WRITINGS[self.counter].fetch_add(1, Ordering::SeqCst);
        if thread::current().name() == Some("log") {
            BY_COMMITTERS[self.counter].fetch_add(1, Ordering::SeqCst);
        }
        Ok(serde_json::to_writer(out, self)?)
    }
}

/// The number of requests of each kind.
const REQUESTS: usize = 10;

/// HEAD, a GET that is answered with 304, and a write that is answered with 412 write the JSON of a large entity at most once for
/// each version.
pub(super) fn cheap_requests_do_no_expensive_work() {
    ask_cheaply(Reference::default(), true);
    ask_cheaply(Reference::default(), false);
}

/// Does the same over this repo, which is empty and gives versions. If it commits its writes on a thread that is named `log`, that
/// thread writes no JSON for a condition that does not hold. If the repo answers gets later, it does so once for each version.
///
/// # Panics
///
/// Panics if a cheap request does expensive work, or is answered wrongly.
pub fn cheap_requests_do_no_expensive_work_over(repo: impl EntityRepo<Counted>) {
    let max = if repo.get(&1, Visit::new(&mut |_| ())).is_now() { 0 } else { VERSIONS.len() };
    let counter = ask_cheaply(repo, true);
    let by_committers = BY_COMMITTERS[counter].load(Ordering::SeqCst);
    assert!(by_committers <= max, "a thread that commits has written JSON {by_committers} times, at most {max}");
}

/// The texts of the versions, of which each is repeated.
const VERSIONS: [&str; 2] = ["a", "b"];

/// Returns the counter.
#[track_caller]
fn ask_cheaply(repo: impl EntityRepo<Counted>, etags: bool) -> usize {
    let counter = NEXT.fetch_add(1, Ordering::SeqCst);
    let live = Unconnected::new(EntityService::<_, Counted>::new(repo).etags(etags));
    let writings = || WRITINGS[counter].load(Ordering::SeqCst);
    for version in VERSIONS {
        let body = format!(r#"{{"counter":{counter},"text":"{}"}}"#, version.repeat(100_000));
        live.ask(&put("/1", &body), if version == "a" { 201 } else { 200 });
        let before = writings();
        // No GET has shown this version.
        for _ in 0..REQUESTS {
            live.ask(&request("DELETE", "/1", OTHER_TAG), 412);
        }
        for _ in 0..REQUESTS {
            ask_for_little(&live, &body, etags);
        }
        let writings = writings() - before;
        assert!(writings <= 2, "{REQUESTS} of each cheap request write the JSON {writings} times, with tags: {etags}");
        assert_eq!(live.ask(&get("/1"), 200).text(), body);
    }
    counter
}

/// A condition that does not hold.
const OTHER_TAG: &str = "If-Match: \"00000000000000000000000000000000\"\r\n";

#[track_caller]
fn ask_for_little(live: &Unconnected, body: &str, etags: bool) {
    let head = |fields: &str, status: u16| live.ask(&request("HEAD", "/1", fields), status);
    let write = |fields: &str| {
        live.ask(&with_body("PUT", "/1", fields, br#"{"counter":4095,"text":""}"#), 412);
        live.ask(&with_body("PATCH", "/1", fields, b"{}"), 412);
        live.ask(&request("DELETE", "/1", fields), 412);
    };
    let response = head("", 200);
    assert_eq!(response.header("Content-Length"), Some(body.len().to_string().as_str()));
    assert_eq!(response.header("Content-Type"), Some("application/json"));
    if etags {
        let tag = tag_of(&response);
        let fields = format!("If-None-Match: {tag}\r\n");
        assert_eq!(tag_of(&live.ask(&request("GET", "/1", &fields), 304)), tag);
        assert_eq!(tag_of(&head(&fields, 304)), tag);
        write(&fields);
    }
    live.ask(&request("GET", "/1", OTHER_TAG), 412);
    write(OTHER_TAG);
    live.ask(&request("GET", "/1", "If-None-Match: *\r\n"), 304);
    write("If-None-Match: *\r\n");
}
