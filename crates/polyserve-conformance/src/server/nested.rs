//! Entities that contain themselves: no body overflows a stack, and one limit of nesting holds for all types. Entities that do not
//! are served on the stacks that a server's threads have.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::AtomicUsize;

use polyserve_core::{Identifiable, identifiable};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::prelude::*;

/// The maximum number of levels in a body.
const MAX_DEPTH: usize = 128;

/// An entity with many fields. In a debug build, code that serde derives for it takes nearly the 64 KiB of stack for a level that a
/// type may take.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Nested {
    /// The id.
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    child: Option<Box<Nested>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<Nested>,
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    c: Option<Vec<u8>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    d: Option<[[u64; 32]; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<[[u64; 32]; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    f: Option<[[u64; 32]; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    g: Option<[[u64; 32]; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    h: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    i: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    j: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    k: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    l: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    m: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    o: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    q: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r: Option<u64>,
}

identifiable!(Nested, name: String);

/// An entity with any JSON in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Free {
    name: String,
    value: Value,
}

identifiable!(Free, name: String);

/// Returns the JSON of an entity of `depth` levels, each in the field `child` of the one around it.
fn in_boxes(depth: usize) -> String {
    let inner = depth - 1;
    format!("{}{}{}", r#"{"name":"a","child":"#.repeat(inner), r#"{"name":"a"}"#, "}".repeat(inner))
}

/// Returns the same, each entity in the list `children` of the one around it, which is a level too.
fn in_lists(depth: usize) -> String {
    let inner = (depth - 1) / 2;
    format!("{}{}{}", r#"{"name":"a","children":["#.repeat(inner), r#"{"name":"a"}"#, "]}".repeat(inner))
}

/// Bodies of up to 128 levels are stored, shown, replaced and removed, whatever the stacks of the server's threads are. A body
/// with one more level is a 400, for every type.
pub(super) fn a_nested_body_overflows_no_stack(subject: &ServerSubject) -> Outcome {
    in_child(None, || {
        keep_nested(&live(subject, Reference::<Nested>::default()));
        keep_nested(&live(subject, LaterReference::<Nested>::default()));
        let free = live(subject, Reference::<Free>::default());
        for (depth, status) in [(127, 201), (128, 200), (129, 400), (100_000, 400)] {
            let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
            let body = format!(r#"{{"name":"a","value":{open}{close}}}"#);
            let response = free.ask(&put("/", &body), status);
            if status == 400 {
                check_problem(&response);
            } else {
                assert_eq!(free.ask(&get("/a"), 200).text(), body, "{depth} levels");
            }
        }
    })
}

/// An entity of three levels.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Account {
    name: String,
    owner: Owner,
}

identifiable!(Account, name: String);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Owner {
    address: Address,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Address {
    #[serde(serialize_with = "write_and_compare")]
    city: String,
}

thread_local! {
    /// Where the stack of this thread was when the service was called.
    static CALLED: Cell<usize> = const { Cell::new(0) };
}

/// The number of times that an [`Address`] was written, and of those on another stack than the service was called on.
static WRITTEN: AtomicUsize = AtomicUsize::new(0);
static ELSEWHERE: AtomicUsize = AtomicUsize::new(0);

/// Returns an address in the present stack.
#[inline(never)]
fn here() -> usize {
    let local = 0_u8;
    black_box(&raw const local) as usize
}

fn write_and_compare<S: Serializer>(city: &str, serializer: S) -> Result<S::Ok, S::Error> {
    // A call takes some KiB. A new stack begins below all that remains of the thread's own.
    let is_elsewhere = CALLED.get().abs_diff(here()) > 128 * 1024;
    WRITTEN.fetch_add(1, Ordering::SeqCst);
    ELSEWHERE.fetch_add(usize::from(is_elsewhere), Ordering::SeqCst);
    serializer.serialize_str(city)
}

/// A service that notes the stack of each call.
struct Noting<S>(S);

impl<S: Service> Service for Noting<S> {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        CALLED.set(here());
        self.0.call(request, body)
    }
}

/// An entity of three levels is served without a new stack, which a request would map and unmap. It stays so after a body that
/// nests deeply in a field that the entity's type ignores.
pub(super) fn an_ordinary_entity_needs_no_new_stack(subject: &ServerSubject) -> Outcome {
    in_child(None, || {
        let service = EntityService::<_, Account>::new(Reference::default());
        let live = subject.live(Noting(service), defaults());
        let body = r#"{"name":"a","owner":{"address":{"city":"b"}}}"#;
        let ignored = format!(r#"{{"x":{}{},{}"#, "[".repeat(127), "]".repeat(127), &body[1..]);
        for (put_body, status) in [(body, 201), (&ignored, 200)] {
            live.ask(&put("/", put_body), status);
            for _ in 0..10 {
                assert_eq!(live.ask(&get("/a"), 200).text(), body);
            }
        }
        assert!(WRITTEN.load(Ordering::SeqCst) >= 20, "each GET writes the entity");
        assert_eq!(ELSEWHERE.load(Ordering::SeqCst), 0, "answers that took a new stack");
    })
}

/// Does the same for the [`Nested`] entities of a repo, which is empty: for repos with threads or forms of their own. `E` may be a
/// type around `Nested`.
///
/// # Panics
///
/// Panics if an answer is wrong. An overflow of a stack ends the process.
pub fn nested_entities_are_kept_over<E: Identifiable>(subject: &ServerSubject, repo: impl EntityRepo<E>) -> Outcome {
    keep_nested(&live(subject, repo));
    Outcome::Held
}

fn live<E: Identifiable>(subject: &ServerSubject, repo: impl EntityRepo<E>) -> Live {
    subject.live(EntityService::<_, E>::new(repo).etags(true), defaults())
}

#[track_caller]
fn keep_nested(live: &Live) {
    for body in [in_boxes(2), in_boxes(40), in_boxes(MAX_DEPTH), in_lists(MAX_DEPTH - 1), in_boxes(MAX_DEPTH)] {
        live.ask(&put("/", &body), if body == in_boxes(2) { 201 } else { 200 });
        let response = live.ask(&get("/a"), 200);
        assert_eq!(response.text(), body);
        let tag = response.header("ETag").expect("an entity has a tag").to_owned();
        live.ask(&request("GET", "/a", &format!("If-None-Match: {tag}\r\n")), 304);
        let patched = live.ask(&with_body("PATCH", "/a", "", body.as_bytes()), 200);
        assert_eq!(patched.text(), body, "the patch is the entity");
    }
    for body in [in_boxes(MAX_DEPTH + 1), in_lists(MAX_DEPTH + 1), in_boxes(40_000)] {
        check_problem(&live.ask(&put("/", &body), 400));
    }
    // What is wrong at the deepest level is named: the text begins with the end of the path.
    let wrong = in_boxes(MAX_DEPTH - 1).replace(r#"{"name":"a"}"#, r#"{"name":7}"#);
    let response = live.ask(&put("/", &wrong), 422);
    check_problem(&response);
    let text = response.text();
    assert!(text.contains("child.name: ") && text.contains("expected a string"), "{text}");
    live.ask(&request("DELETE", "/a", ""), 204);
    live.ask(&get("/a"), 404);
}
