//! The entity service over `Session`: the whole table of the contract.
#![forbid(unsafe_code)]

mod patch;
mod repos;
mod values;
#[path = "../common/wire.rs"]
mod wire;

use polyserve_core::{Entity, EntityRepo, EntityRepoExt, EntityService, ServerConfig};
use polyserve_serving::http1::{Env, Phase, Want};
use repos::{FailingRepo, MapRepo};
use wire::{DATE, Wire};

/// Entity 1 in JSON.
const ONE: &str = r#"{"id":1,"description":"aZ09","value":60.750847}"#;

fn serve(repo: impl EntityRepo) -> Env {
    Env::new(std::sync::Arc::new(EntityService::new(repo)), &ServerConfig::default())
}

/// Serves `repo`. If `strict`, the media type of a PUT is checked.
fn serve_with(repo: impl EntityRepo, strict: bool) -> Env {
    let service = EntityService::new(repo).strict_media_type(strict);
    Env::new(std::sync::Arc::new(service), &ServerConfig::default())
}

/// Serves a store with entity 1.
fn with_one() -> Env {
    let repo = MapRepo::default();
    assert!(repo.put(Entity::new(1, "aZ09", 60.750847)).is_now());
    serve(repo)
}

/// The answer to one request.
#[derive(Debug)]
struct Response {
    status: u16,
    fields: Vec<(String, String)>,
    body: String,
}

impl Response {
    fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert_eq!(values.next(), None, "there is one {name}");
        value
    }

    /// Checks that the body is a problem with the status and with one sentence that states what was wrong.
    #[track_caller]
    fn check_problem(&self, status: u16) {
        assert_eq!((self.status, self.field("Content-Type")), (status, Some("application/problem+json")), "{self:?}");
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!((body["status"].as_u64(), body["type"].as_str()), (Some(status.into()), Some("about:blank")));
        let detail = body["detail"].as_str().unwrap();
        assert!(detail.ends_with('.') && !detail.contains('\n') && detail.len() < 300, "{detail}");
    }
}

/// Sends one request in one piece.
fn ask(env: &Env, bytes: &[u8]) -> Response {
    let mut wire = Wire::new(env);
    let want = wire.send(bytes);
    assert!(matches!(want, Want::Read(_) | Want::Close { .. }), "it answers now");
    let _ = wire.end();
    let text = wire.take_output();
    let (head, body) = text.split_once("\r\n\r\n").expect("there is an answer");
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap()["HTTP/1.1 ".len()..][..3].parse().unwrap();
    let fields = lines.map(|line| line.split_once(": ").unwrap()).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    Response { status, fields, body: body.to_owned() }
}

fn request(method: &str, target: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}{length}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn get(env: &Env, target: &str) -> Response {
    ask(env, &request("GET", target, "", b""))
}

fn put(env: &Env, target: &str, body: &str) -> Response {
    ask(env, &request("PUT", target, "", body.as_bytes()))
}

#[test]
fn get_byte_for_byte() {
    let env = with_one();
    let mut wire = Wire::new(&env);
    let _ = wire.send(&request("GET", "/1", "", b""));
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 47\r\nDate: {DATE}\r\n\r\n");
    assert_eq!(wire.take_output(), format!("{head}{ONE}"));
    let _ = wire.send(&request("HEAD", "/1", "", b""));
    assert_eq!(wire.take_output(), head);
}

#[test]
fn the_client_of_the_experiments_is_answered_as_it_wants_it() {
    let env = with_one();
    let ab = |fields: &str, line: &str| {
        let mut wire = Wire::new(&env);
        let _ = wire.send(
            format!("{line} HTTP/1.0\r\n{fields}Host: a\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n")
                .as_bytes(),
        );
        wire.take_output()
    };
    for (fields, connection) in [("Connection: Keep-Alive\r\n", "keep-alive"), ("", "close")] {
        let expected = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 47\r\nConnection: {connection}\r\n\
             Date: {DATE}\r\n\r\n{ONE}"
        );
        assert_eq!(ab(fields, "GET /1"), expected);
    }
}

/// Regression test: JMeter sends a raw body as `text/plain`, which was answered with 415.
#[test]
fn the_requests_of_jmeter_are_served() {
    let env = with_one();
    let user_agent = "User-Agent: Apache-HttpClient/4.5.14 (Java/17.0.15)\r\n\r\n";
    let body = "{\r\n  \"id\": 1,\r\n  \"description\": \"from JMeter\",\n\t\"value\": 2.5\r\n}\r\n";
    let put = format!(
        "PUT / HTTP/1.1\r\nConnection: keep-alive\r\nContent-Length: {}\r\n\
         Content-Type: text/plain; charset=UTF-8\r\nHost: 127.0.0.1:8001\r\n{user_agent}{body}",
        body.len()
    );
    let get = format!("GET /1 HTTP/1.1\r\nConnection: keep-alive\r\nHost: 127.0.0.1:8001\r\n{user_agent}");
    let mut wire = Wire::new(&env);
    for _ in 0..2 {
        assert_eq!(wire.send(put.as_bytes()), Want::Read(Phase::Idle));
        assert_eq!(wire.take_output(), format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nDate: {DATE}\r\n\r\n"));
        assert_eq!(wire.send(get.as_bytes()), Want::Read(Phase::Idle));
        assert!(wire.take_output().ends_with("\r\n\r\n{\"id\":1,\"description\":\"from JMeter\",\"value\":2.5}"));
    }
    let curl = format!(
        "PUT / HTTP/1.1\r\nHost: 127.0.0.1:8001\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n{ONE}",
        ONE.len()
    );
    assert_eq!(ask(&env, curl.as_bytes()).status, 200);
    assert_eq!(ask(&env, get.as_bytes()).body, ONE);
}

#[test]
fn absent_is_404() {
    let env = with_one();
    for target in ["/2", "/0", "/-1", "/9223372036854775807", "/-9223372036854775808", "/-0"] {
        get(&env, target).check_problem(404);
        ask(&env, &request("DELETE", target, "", b"")).check_problem(404);
    }
}

#[test]
fn what_is_no_id_is_400() {
    let env = with_one();
    for segment in [
        "x",
        "1x",
        "x1",
        "+1",
        "-",
        "--1",
        "1-",
        "1.0",
        "1e0",
        "0x1",
        "1_0",
        "1,0",
        "%",
        "%3",
        "%3x",
        "%41",
        "%2B1",
        "%201",
        "1%00",
        "%D9%A1",
        "9223372036854775808",
        "-9223372036854775809",
        "99999999999999999999999999",
        "%39223372036854775808",
    ] {
        get(&env, &format!("/{segment}")).check_problem(400);
        put(&env, &format!("/{segment}"), ONE).check_problem(400);
        ask(&env, &request("DELETE", &format!("/{segment}?1"), "", b"")).check_problem(400);
    }
}

#[test]
fn an_id_has_many_spellings() {
    let env = with_one();
    for target in [
        "/1",
        "/01",
        "/000000000000000000000000000001",
        "/%31",
        "/%30%31",
        "/1?",
        "/1?x=/2&y",
        "http://b/1",
        "http://b:8/1?x",
    ] {
        let response = get(&env, target);
        assert_eq!((response.status, response.body.as_str()), (200, ONE), "{target}");
    }
    let repo = MapRepo::default();
    for id in [i64::MIN, i64::MAX, 0, -7] {
        assert!(repo.put(Entity::new(id, "", 0.5)).is_now());
    }
    let env = serve(repo);
    for target in ["/-9223372036854775808", "/9223372036854775807", "/0", "/-0", "/-7", "/%2D7", "/-007"] {
        assert_eq!(get(&env, target).status, 200, "{target}");
    }
}

#[test]
fn deeper_paths_are_404() {
    let env = with_one();
    for target in ["/1/", "/1/1", "//1", "//", "/a/b", "/1/?x", "http://b//", "/%31/%31"] {
        for method in ["GET", "PUT", "DELETE", "POST", "OPTIONS"] {
            ask(&env, &request(method, target, "", b"")).check_problem(404);
        }
    }
}

#[test]
fn put_creates_and_replaces() {
    let env = serve(MapRepo::default());
    for (target, id) in
        [("/", 1), ("/2", 2), ("/-3?x", -3), ("/%34", 4), ("http://b", 5), ("http://b?x", 6), ("/?/7", 7)]
    {
        let first = put(&env, target, &format!(r#"{{"id":{id},"description":"first","value":1.5}}"#));
        assert_eq!(
            (first.status, first.field("Content-Length"), first.body.as_str()),
            (201, Some("0"), ""),
            "{target}"
        );
        assert_eq!((first.field("Location"), first.field("Content-Type")), (Some(format!("/{id}").as_str()), None));
        let second = format!(r#"{{"id":{id},"description":"second","value":2.5}}"#);
        let replaced = put(&env, target, &second);
        assert_eq!(
            (replaced.status, replaced.field("Content-Length"), replaced.field("Location")),
            (200, Some("0"), None)
        );
        assert_eq!(get(&env, &format!("/{id}")).body, second);
    }
}

#[test]
fn put_under_another_id_is_400_and_stores_nothing() {
    let env = serve(MapRepo::default());
    put(&env, "/2", ONE).check_problem(400);
    for target in ["/1", "/2"] {
        get(&env, target).check_problem(404);
    }
}

#[test]
fn delete_removes_once() {
    let env = with_one();
    let removed = ask(&env, &request("DELETE", "/1", "", b""));
    assert_eq!((removed.status, removed.field("Content-Length"), removed.body.as_str()), (204, None, ""));
    ask(&env, &request("DELETE", "/1", "", b"")).check_problem(404);
    get(&env, "/1").check_problem(404);
}

#[test]
fn options_and_what_is_not_allowed() {
    let env = with_one();
    let (root, entity) = ("PUT, OPTIONS", "GET, HEAD, PUT, PATCH, DELETE, OPTIONS");
    for (target, allow) in [
        ("/", root),
        ("/?x", root),
        ("http://b", entity),
        ("http://b?x", root),
        ("/1", entity),
        ("/2", entity),
        ("*", entity),
    ] {
        let response = ask(&env, &request("OPTIONS", target, "", b""));
        assert_eq!(
            (response.status, response.field("Allow"), response.body.as_str()),
            (204, Some(allow), ""),
            "{target}"
        );
    }
    for (methods, target, allow) in
        [(&["POST"][..], "/1", entity), (&["GET", "POST", "PATCH", "DELETE"][..], "/", root)]
    {
        for method in methods {
            let response = ask(&env, &request(method, target, "", ONE.as_bytes()));
            response.check_problem(405);
            assert_eq!(response.field("Allow"), Some(allow), "{method} {target}");
        }
    }
    let head = ask(&env, &request("HEAD", "/", "", b""));
    assert_eq!((head.status, head.field("Allow"), head.body.as_str()), (405, Some(root), ""));
}

/// By default the body decides: if it is not JSON, the answer is 400.
#[test]
fn the_media_type_is_not_judged_by_default() {
    let env = serve(MapRepo::default());
    let mut status = 201;
    for media_type in MEDIA_TYPES.iter().chain(&JSON_TYPES) {
        let fields = format!("Content-Type: {media_type}\r\n");
        assert_eq!(ask(&env, &request("PUT", "/", &fields, ONE.as_bytes())).status, status, "{media_type:?}");
        status = 200;
        ask(&env, &request("PUT", "/", &fields, b"id=1&value=2")).check_problem(400);
        ask(&env, &request("PUT", "/", &fields, b"[]")).check_problem(422);
    }
}

/// The service does not decode content codings, so it refuses them in either mode.
#[test]
fn content_codings() {
    for strict in [false, true] {
        let env = serve_with(MapRepo::default(), strict);
        for coding in ["gzip", "br", "deflate", "identity, gzip", "gzip, identity", "x", "identity;q=1", "\"identity\""]
        {
            let fields = format!("Content-Encoding: {coding}\r\n");
            let response = ask(&env, &request("PUT", "/", &fields, ONE.as_bytes()));
            response.check_problem(415);
            assert_eq!(response.field("Accept-Encoding"), Some("identity"), "{coding:?}");
        }
        let both = "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n";
        ask(&env, &request("PUT", "/", both, ONE.as_bytes())).check_problem(415);
        get(&env, "/1").check_problem(404);
        let mut status = 201;
        for coding in ["identity", "IDENTITY", "", "identity, identity", ",identity ,"] {
            let fields = format!("content-encoding:{coding}\r\n");
            assert_eq!(ask(&env, &request("PUT", "/", &fields, ONE.as_bytes())).status, status, "{coding:?}");
            status = 200;
        }
    }
}

const MEDIA_TYPES: [&str; 9] = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "application/xml",
    "application/jsonx",
    "json",
    "+json",
    "application/json5",
    "x",
    "a/b+jso",
];

const JSON_TYPES: [&str; 7] = [
    "application/json",
    "APPLICATION/JSON",
    "application/json; charset=utf-8",
    "application/json ;x",
    "text/json",
    "a/b+JSON",
    "",
];

#[test]
fn media_types() {
    let env = serve_with(MapRepo::default(), true);
    for media_type in MEDIA_TYPES {
        let fields = format!("Content-Type: {media_type}\r\n");
        ask(&env, &request("PUT", "/", &fields, ONE.as_bytes())).check_problem(415);
    }
    let both = "Content-Type: application/json\r\nContent-Type: text/plain\r\n";
    ask(&env, &request("PUT", "/", both, ONE.as_bytes())).check_problem(415);
    get(&env, "/1").check_problem(404);
    let mut status = 201;
    for media_type in JSON_TYPES {
        let fields = format!("content-type:{media_type}\r\n");
        assert_eq!(ask(&env, &request("PUT", "/", &fields, ONE.as_bytes())).status, status, "{media_type:?}");
        status = 200;
    }
    // Only the type of a body is checked.
    assert_eq!(ask(&env, &request("GET", "/1", "Content-Type: text/plain\r\n", b"")).status, 200);
}

/// A request that its head decides is answered before its body arrives, and the connection stays open.
#[test]
fn refused_by_the_head_alone() {
    let repo = MapRepo::default();
    assert!(repo.put(Entity::new(1, "aZ09", 60.750847)).is_now());
    let env = serve_with(repo, true);
    for (method, target, fields, status) in [
        ("PUT", "/x", "", 400),
        ("PUT", "/1/2", "", 404),
        ("POST", "/", "", 405),
        ("PUT", "/", "Content-Type: text/plain\r\n", 415),
        ("PUT", "/", "Content-Encoding: gzip\r\n", 415),
        ("PATCH", "/", "", 405),
        ("PATCH", "/1", "Content-Type: application/json\r\n", 415),
        ("PATCH", "/1", "Content-Encoding: gzip\r\n", 415),
        ("PATCH", "/1", "Content-Range: bytes 0-8/9\r\n", 400),
        ("PATCH", "/1", "If-Match: x\r\n", 400),
        ("OPTIONS", "/", "", 204),
    ] {
        let mut wire = Wire::new(&env);
        let head = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: 9\r\n\r\n");
        assert!(matches!(wire.send(head.as_bytes()), Want::Read(_)));
        assert!(wire.take_output().starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        let _ = wire.send(b"no entity");
        let _ = wire.send(&request("GET", "/1", "", b""));
        assert!(wire.take_output().ends_with(ONE), "after {head}");
    }
}

#[test]
fn a_failing_repo_is_503_or_500() {
    let retry_after = |response: &Response| response.field("Retry-After").map(str::to_owned);
    let (not_done, unknown) = ("the operation was not done.", "a write may have been done.");
    for (failing, status, retries, detail) in [
        (FailingRepo::Closed, 503, true, unknown),
        (FailingRepo::Overloaded, 503, true, not_done),
        (FailingRepo::NotDone, 503, true, not_done),
        (FailingRepo::Unavailable, 503, true, unknown),
        (FailingRepo::ReadOnly, 500, false, "The store takes no more writes: the disk is full."),
        (FailingRepo::Failing, 500, false, "The store failed."),
    ] {
        let env = serve(failing);
        let patched = ask(&env, &request("PATCH", "/1", "", b"{}"));
        for response in [get(&env, "/1"), put(&env, "/", ONE), patched, ask(&env, &request("DELETE", "/1", "", b""))] {
            response.check_problem(status);
            assert_eq!(retry_after(&response).as_deref(), retries.then_some("1"));
            assert!(!response.body.contains("secret"), "what is inside stays inside: {response:?}");
            assert!(response.body.contains(detail), "{response:?}");
        }
    }
}

#[test]
fn the_program_and_the_server_share_the_repo() {
    let repo = std::sync::Arc::new(MapRepo::default());
    let env = serve(std::sync::Arc::clone(&repo));
    assert_eq!(put(&env, "/", ONE).status, 201);
    assert_eq!(repo.fetch(&1).wait().unwrap(), Some(Entity::new(1, "aZ09", 60.750847)));
    assert_eq!((repo.fetch(&2).wait().unwrap(), repo.len().wait().unwrap()), (None, 1));
}
