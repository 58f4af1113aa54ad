//! PATCH of an entity by JSON Merge Patch (RFC 7396): its statuses, its media type, and patches of concurrent clients. Its
//! conditions are in the properties of conditions.

use std::collections::BTreeMap;

use polyserve_core::identifiable;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{named_over, of_name};
use super::prelude::*;
use super::status_table::over;

/// The patches of each client if there are many pairs.
const ROUNDS: u64 = 4;

const MERGE_PATCH: &str = "Content-Type: application/merge-patch+json\r\n";

/// The bytes of a PATCH of `path`.
fn patch(path: &str, body: &str) -> Vec<u8> {
    with_body("PATCH", path, MERGE_PATCH, body.as_bytes())
}

/// An entity with a counter for each of several clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ClientCounters {
    name: String,
    counters: BTreeMap<String, u64>,
}

identifiable!(ClientCounters, name: String);

/// Eight clients patch one entity, each a member of its own. No client sees its member go back, and at the end each member has the
/// last value of its client. A repo that answers now and one that answers later lose nothing.
pub(super) fn a_merge_patch_loses_no_update(subject: &ServerSubject) {
    const ROUNDS: u64 = 12;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let counters = || ClientCounters { name: "one".into(), counters: names.map(|name| (name.into(), 0)).into() };
    let stored = serde_json::to_string(&counters()).expect("it has a JSON form");
    let now = EntityService::<_, ClientCounters>::new(Reference::default());
    let later = EntityService::<_, ClientCounters>::new(LaterReference::default());
    for live in [subject.live(now, defaults()), subject.live(later, defaults())] {
        live.ask(&put("/one", &stored), 201);
        let members = names.map(|name| Patched {
            pointer: format!("/counters/{name}"),
            patch: Box::new(move |value| format!(r#"{{"counters":{{"{name}":{value}}}}}"#)),
        });
        patch_together(&live, "/one", &members, ROUNDS);
    }
}

/// Patches that each fit do not make an entity that no PUT can send: the first one that would is answered with 413 and changes nothing.
/// An entity of the largest size can be read and stored again.
pub(super) fn patches_keep_to_the_limit_of_bodies(subject: &ServerSubject) {
    const LIMIT: usize = 1000;
    let now = EntityService::<_, ClientCounters>::new(Reference::default());
    let later = EntityService::<_, ClientCounters>::new(LaterReference::default());
    let config = defaults().max_body(LIMIT);
    for live in [subject.live(now, config.clone()), subject.live(later, config)] {
        live.ask(&put("/one", r#"{"name":"one","counters":{}}"#), 201);
        let (mut client, mut grown) = (live.client(), String::new());
        for number in 0.. {
            assert!(number < LIMIT, "an entity grew without a limit: {} bytes", grown.len());
            let sent = patch("/one", &format!(r#"{{"counters":{{"{number}":1}}}}"#));
            let answer = client.exchange(&sent).unwrap_or_else(|failure| panic!("{failure}"));
            if answer.status == 413 {
                break;
            }
            assert_eq!(answer.status, 200, "{}", answer.text());
            grown = answer.text();
        }
        drop(client);
        assert!((LIMIT - 10..=LIMIT).contains(&grown.len()), "{} bytes", grown.len());
        assert_eq!(live.ask(&get("/one"), 200).text(), grown, "a refused patch changes nothing");
        live.ask(&put("/one", &grown), 200);
        live.ask(&patch("/one", r#"{"counters":{"0":2}}"#), 200); // of the same length
    }
}

/// Two clients patch an entity in this repo, which is empty: one the description and one the value. No update is lost. It is for
/// pairs of a server and a repo.
///
/// # Panics
///
/// Panics if an update is lost, or a request fails.
pub fn a_merge_patch_loses_no_update_over(subject: &ServerSubject, repo: impl EntityRepo) -> Outcome {
    let live = over(subject, repo);
    live.ask(&put("/1", ONE), 201);
    patch_together(&live, "/1", &description_and_value("", |members| members), ROUNDS);
    Outcome::Held
}

/// Does the same with nested members.
///
/// # Panics
///
/// Panics if an update is lost, or a request fails.
pub fn a_merge_patch_loses_no_update_of_named_entities_over(
    subject: &ServerSubject,
    repo: impl EntityRepo<NamedEntity>,
) -> Outcome {
    let live = named_over(subject, repo);
    live.ask(&put("/named", &of_name("a b")), 201);
    let members = description_and_value("/content", |members| format!(r#"{{"content":{members}}}"#));
    patch_together(&live, "/named/a%20b", &members, ROUNDS);
    Outcome::Held
}

fn description_and_value(parent: &str, nest: fn(String) -> String) -> [Patched; 2] {
    [
        Patched {
            pointer: format!("{parent}/description"),
            patch: Box::new(move |value| nest(format!(r#"{{"description":"{value}"}}"#))),
        },
        Patched {
            pointer: format!("{parent}/value"),
            patch: Box::new(move |value| nest(format!(r#"{{"value":{value}}}"#))),
        },
    ]
}

/// A member that one client patches.
struct Patched {
    /// The path of the member in the entity (RFC 6901).
    pointer: String,
    /// Makes the patch that sets it to a number.
    patch: Box<dyn Fn(u64) -> String + Sync>,
}

impl Patched {
    /// Returns the number in an entity.
    fn shown(&self, json: &str) -> Option<u64> {
        let entity: Value = serde_json::from_str(json).expect("the entity is JSON");
        let member = entity.pointer(&self.pointer)?;
        member.as_f64().map(|number| number as u64).or_else(|| member.as_str()?.parse().ok())
    }
}

/// One client for each member sets it to the numbers from 1 to `rounds`. The entity at `path` is stored.
fn patch_together(live: &Live, path: &str, members: &[Patched], rounds: u64) {
    thread::scope(|scope| {
        for member in members {
            scope.spawn(move || {
                for value in 1..=rounds {
                    let body = (member.patch)(value);
                    let (_, response) = live.connect_until_answered(&patch(path, &body));
                    let text = response.text();
                    assert_eq!(response.status, 200, "{body}: {text}");
                    assert_eq!(member.shown(&text), Some(value), "the answer to {body}: {text}");
                    let read = live.ask_until_served(&get(path)).text();
                    assert_eq!(member.shown(&read), Some(value), "a GET after the answer to {body}: {read}");
                }
            });
        }
    });
    let last = live.ask_until_served(&get(path)).text();
    for member in members {
        assert_eq!(member.shown(&last), Some(rounds), "{} after all patches: {last}", member.pointer);
    }
}
