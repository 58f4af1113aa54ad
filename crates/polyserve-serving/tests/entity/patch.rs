//! PATCH by JSON Merge Patch: its statuses, writes that come in between, and entities of own types.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use polyserve_core::{
    ETag, Entity, EntityRepo, EntityRepoExt, EntityService, Identifiable, ServerConfig, identifiable,
};
use polyserve_memory::StdMutex;
use polyserve_serving::http1::HttpState;
use serde::{Deserialize, Serialize};

use super::repos::{Contended, later};
use super::{MEDIA_TYPES, ONE, Response, ask, get, put, request, serve, serve_with};

fn patch(server: &HttpState, target: &str, body: &str) -> Response {
    ask(server, &request("PATCH", target, "Content-Type: application/merge-patch+json\r\n", body.as_bytes()))
}

/// The kit's `a_patch_without_a_valid_result_changes_nothing` has other patches.
#[test]
fn what_is_refused_changes_nothing() {
    for server in [serve(StdMutex::new()), serve(later())] {
        assert_eq!(put(&server, "/1", ONE).status, 201);
        let deep = format!(r#"{{"value":2,"x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        for body in ["x", r#"{"value":02}"#, &deep, &"[".repeat(1_000_000)] {
            patch(&server, "/1", body).check_problem(400);
            // The patch is judged first.
            patch(&server, "/2", body).check_problem(400);
        }
        ask(&server, &request("PATCH", "/1", "", b"{\"description\":\"\xff\"}")).check_problem(400);
        for body in [r#"{"id":"1"}"#, r#"{"value":{}}"#, r#"{"description":"\ud800"}"#, r#"{"\ud800":1}"#, "[]"] {
            patch(&server, "/1", body).check_problem(422);
            patch(&server, "/2", body).check_problem(404);
        }
        let why = patch(&server, "/1", r#"{"value":[]}"#).body;
        assert!(why.contains("The result of the patch is not an entity: value: "), "{why}");
        // The client has not sent the text that this would be a place in.
        let why = patch(&server, "/1", r#"{"description":null}"#).body;
        assert!(why.contains("missing field `description`.") && !why.contains("line"), "{why}");
        assert_eq!(get(&server, "/1").body, ONE);
    }
}

/// By default, plain JSON and the types that clients send by themselves are accepted. The type of another patch never is.
#[test]
fn the_media_type() {
    let repo = Arc::new(StdMutex::new());
    for strict in [false, true] {
        let server = serve_with(Arc::clone(&repo), strict);
        let _ = put(&server, "/1", ONE);
        let ask = |media_type: &str| {
            ask(&server, &request("PATCH", "/1", &format!("Content-Type: {media_type}\r\n"), br#"{"value":2}"#))
        };
        for media_type in ["application/merge-patch+json", "Application/MERGE-patch+JSON ; charset=utf-8", ""] {
            assert_eq!(ask(media_type).status, 200, "{media_type:?}");
        }
        let unspecific = ["application/json", "text/json;x", "text/plain", "application/x-www-form-urlencoded"];
        for media_type in unspecific.into_iter().chain(["application/octet-stream", "text/plain; charset=UTF-8"]) {
            assert_eq!(ask(media_type).status, if strict { 415 } else { 200 }, "{media_type:?}");
        }
        let other =
            ["application/json-patch+json", "application/merge-patch+cbor", "application/problem+json", "a/b+json"];
        for media_type in MEDIA_TYPES.into_iter().filter(|other| !unspecific.contains(other)).chain(other) {
            let response = ask(media_type);
            response.check_problem(415);
            assert_eq!(response.field("Accept-Patch"), Some("application/merge-patch+json"), "{media_type:?}");
        }
        let both = "application/merge-patch+json\r\nContent-Type: application/json-patch+json";
        ask(both).check_problem(415);
        assert_eq!(super::ask(&server, &request("PATCH", "/1", "", b"{}")).status, 200, "without a type");
        for (target, accept) in [("/1", Some("application/merge-patch+json")), ("/", None), ("*", None)] {
            let options = super::ask(&server, &request("OPTIONS", target, "", b""));
            assert_eq!(options.field("Accept-Patch"), accept, "{target}");
        }
    }
}

fn serve_tagged<E: Identifiable>(repo: &Arc<Contended<E>>) -> HttpState {
    let service = EntityService::<_, E>::new(Arc::clone(repo)).etags(true);
    HttpState::new(Arc::new(service), &ServerConfig::default())
}

/// A store with this entity.
fn contended<E: Identifiable>(entity: E, is_later: bool, before_put: fn(&StdMutex<E>, usize)) -> Arc<Contended<E>> {
    let repo = Contended::new(is_later, before_put);
    assert!(repo.store.put(entity).is_now());
    Arc::new(repo)
}

fn one() -> Entity {
    Entity::new(1, "aZ09", 60.750847)
}

/// Stores entity 1 with this description, as another client.
fn write(store: &StdMutex, description: impl Into<String>) {
    assert!(store.put(Entity::new(1, description, 0.5)).is_now());
}

fn stored<E: Identifiable>(repo: &Contended<E>, id: &E::Id) -> Option<E> {
    repo.store.fetch(id).wait().unwrap()
}

#[test]
fn a_write_in_between_is_kept() {
    for is_later in [false, true] {
        let repo = contended(one(), is_later, |store, puts| {
            if puts < 3 {
                write(store, format!("write {puts}"));
            }
        });
        let server = serve_tagged(&repo);
        let response = patch(&server, "/1", r#"{"value":2}"#);
        let expected = r#"{"id":1,"description":"write 2","value":2.0}"#;
        assert_eq!((response.status, response.body.as_str()), (200, expected));
        assert_eq!(response.field("ETag"), Some(ETag::of(expected.as_bytes()).to_string().as_str()));
        assert_eq!((get(&server, "/1").body.as_str(), repo.puts.load(Ordering::SeqCst)), (expected, 4));
    }
}

/// The condition of the request holds for the entity that the write replaces, not only for the first one that was read.
#[test]
fn a_condition_is_evaluated_again() {
    let tag = ETag::of(ONE.as_bytes());
    for is_later in [false, true] {
        for (field, without, with) in [
            (format!("If-Match: {tag}"), 200, 412),
            (String::from("If-Match: *"), 200, 200),
            (format!("If-None-Match: {tag}"), 412, 412),
            (String::from("If-None-Match: \"x\""), 200, 200),
            (String::from("If-None-Match: *"), 412, 412),
        ] {
            let bytes = request("PATCH", "/1", &format!("{field}\r\n"), br#"{"value":2}"#);
            let undisturbed = contended(one(), is_later, |_, _| ());
            assert_eq!(ask(&serve_tagged(&undisturbed), &bytes).status, without, "{field}");
            let disturbed = contended(one(), is_later, |store, puts| {
                if puts == 0 {
                    write(store, "another");
                }
            });
            assert_eq!(ask(&serve_tagged(&disturbed), &bytes).status, with, "{field}");
        }
        let removed = contended(one(), is_later, |store, _| assert!(store.remove(&1).is_now()));
        patch(&serve_tagged(&removed), "/1", r#"{"value":2}"#).check_problem(404);
        assert_eq!(stored(&removed, &1), None, "a patch creates nothing");
        for field in ["If-Match: *", "If-Match: \"x\"", "If-None-Match: *"] {
            let absent = request("PATCH", "/2", &format!("{field}\r\n"), b"{}");
            ask(&serve_tagged(&removed), &absent).check_problem(404);
        }
    }
}

#[test]
fn attempts_are_bounded() {
    for is_later in [false, true] {
        let repo = contended(one(), is_later, |store, puts| write(store, format!("write {puts}")));
        let response = patch(&serve_tagged(&repo), "/1", r#"{"value":2}"#);
        response.check_problem(503);
        assert_eq!(response.field("Retry-After"), Some("1"));
        assert!(response.body.contains("nothing was changed"), "{}", response.body);
        let last = repo.puts.load(Ordering::SeqCst).checked_sub(1).expect("it was tried");
        assert!((7..100).contains(&last), "attempts: {last}");
        assert_eq!(stored(&repo, &1), Some(Entity::new(1, format!("write {last}"), 0.5)));
    }
}

/// A type of a user: nested, with an optional and an ignored field, and with numbers that no f64 holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    name: String,
    big: u128,
    small: i64,
    ratio: f64,
    note: Option<String>,
    owner: Owner,
    tags: BTreeMap<String, serde_json::Value>,
}
identifiable!(Account, name: String);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Owner {
    age: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    nick: Option<String>,
}

#[test]
fn an_own_type_keeps_every_bit_of_the_other_members() {
    let account = Account {
        name: "a b/ä".into(),
        big: u128::MAX,
        small: (1 << 53) + 1,
        ratio: f64::from_bits(0x3fd5_5555_5555_5557),
        note: Some("\u{0} \" \\ \u{2028}".into()),
        owner: Owner { age: 7, nick: Some("n".into()) },
        tags: BTreeMap::from([
            ("null".into(), serde_json::Value::Null),
            ("list".into(), serde_json::json!([1, {"a": 2}])),
        ]),
    };
    let target = "/a%20b%2F%C3%A4";
    for is_later in [false, true] {
        let repo = contended(account.clone(), is_later, |_, _| ());
        let server = serve_tagged(&repo);
        let mut expected = account.clone();
        let mut check = |body: &str, change: fn(&mut Account)| {
            change(&mut expected);
            let response = patch(&server, target, body);
            let json = serde_json::to_string(&expected).unwrap();
            assert_eq!((response.status, response.body.as_str()), (200, json.as_str()), "{body}");
            assert_eq!(stored(&repo, &expected.name).as_ref(), Some(&expected), "{body}");
            assert_eq!(response.field("ETag"), get(&server, target).field("ETag"));
        };
        check(r#"{"owner":{"age":8}}"#, |account| account.owner.age = 8);
        check(r#"{"owner":{"nick":null}}"#, |account| account.owner.nick = None);
        check(r#"{"note":null,"small":-9007199254740993}"#, |account| {
            (account.note, account.small) = (None, -9_007_199_254_740_993);
        });
        check(r#"{"tags":{"list":[],"null":null,"new":{"a":null,"b":1}},"small":-0}"#, |account| {
            account.tags =
                BTreeMap::from([("list".into(), serde_json::json!([])), ("new".into(), serde_json::json!({"b": 1}))]);
            account.small = 0;
        });
        check(r#"{"name":"a b/ä","big":9007199254740993}"#, |account| account.big = 9_007_199_254_740_993);
        patch(&server, target, r#"{"name":"other"}"#).check_problem(400);
        patch(&server, target, r#"{"owner":null}"#).check_problem(422);
        let why = patch(&server, target, r#"{"owner":{"age":null}}"#);
        why.check_problem(422);
        assert!(why.body.contains("missing field `age`"), "{}", why.body);
        assert_eq!(stored(&repo, &expected.name), Some(expected));
    }
}

/// A patch and an entity may both have 128 levels.
#[test]
fn a_deep_entity_is_patched() {
    let nested = |inner: &str| {
        format!(
            r#"{{"name":"a","big":1,"small":1,"ratio":1,"note":null,"owner":{{"age":1}},"tags":{}{inner}{}}}"#,
            r#"{"a":"#.repeat(127),
            "}".repeat(127)
        )
    };
    let account = Account::read_json(nested("1").as_bytes()).unwrap();
    let repo = contended(account, false, |_, _| ());
    let server = serve_tagged(&repo);
    let deep = |inner: &str| format!(r#"{{"tags":{}{inner}{}}}"#, r#"{"a":"#.repeat(127), "}".repeat(127));
    assert_eq!(patch(&server, "/a", &deep(r#"2,"b":3"#)).status, 200);
    let expected = Account::read_json(nested(r#"2,"b":3"#).as_bytes()).unwrap();
    assert_eq!(stored(&repo, &expected.name).as_ref(), Some(&expected));
    patch(&server, "/a", &deep("[]")).check_problem(400);
    assert_eq!(stored(&repo, &expected.name).as_ref(), Some(&expected));
}
