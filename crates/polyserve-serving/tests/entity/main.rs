//! The entity service over `Session`: the whole table of the contract.
#![forbid(unsafe_code)]

mod patch;
mod repos;
#[path = "../common/wire.rs"]
mod wire;

use std::error::Error;
use std::{fmt, io};

use polyserve_core::{
    Entity, EntityRepo, EntityRepoExt, EntityService, Identifiable, MalformedEntity, RepoError, ServerConfig,
};
use polyserve_memory::StdMutex;
use polyserve_serving::http1::{HttpState, SessionStep};
use repos::{FailingRepo, later};
use wire::{DATE, Wire};

/// Entity 1 in JSON.
const ONE: &str = r#"{"id":1,"description":"aZ09","value":60.750847}"#;

fn serve(repo: impl EntityRepo) -> HttpState {
    HttpState::new(std::sync::Arc::new(EntityService::new(repo)), &ServerConfig::default())
}

/// Serves `repo`. If `strict`, the media type of a PUT is checked.
fn serve_with(repo: impl EntityRepo, strict: bool) -> HttpState {
    let service = EntityService::new(repo).strict_media_type(strict);
    HttpState::new(std::sync::Arc::new(service), &ServerConfig::default())
}

/// Serves a store with entity 1.
fn with_one() -> HttpState {
    let repo = StdMutex::new();
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
fn ask(server: &HttpState, bytes: &[u8]) -> Response {
    let mut wire = Wire::new(server);
    let step = wire.send(bytes);
    assert!(matches!(step, SessionStep::Read(_) | SessionStep::Close { .. }), "it answers now");
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

fn get(server: &HttpState, target: &str) -> Response {
    ask(server, &request("GET", target, "", b""))
}

fn put(server: &HttpState, target: &str, body: &str) -> Response {
    ask(server, &request("PUT", target, "", body.as_bytes()))
}

/// The bytes of answers. What these and other requests mean is in the conformance kit, of which `status_table` and `json` serve the same
/// service.
#[test]
fn answers_byte_for_byte() {
    let server = with_one();
    let entity = |connection: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 47\r\n{connection}Date: {DATE}\r\n\r\n"
        )
    };
    let ab = "Host: a\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n";
    for (bytes, expected) in [
        (request("GET", "/1", "", b""), entity("") + ONE),
        (request("HEAD", "/1", "", b""), entity("")),
        (
            request("PUT", "/", "Content-Type: text/plain; charset=UTF-8\r\n", ONE.as_bytes()),
            format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nDate: {DATE}\r\n\r\n"),
        ),
        (
            format!("GET /1 HTTP/1.0\r\nConnection: Keep-Alive\r\n{ab}").into_bytes(),
            entity("Connection: keep-alive\r\n") + ONE,
        ),
        (format!("GET /1 HTTP/1.0\r\n{ab}").into_bytes(), entity("Connection: close\r\n") + ONE),
    ] {
        let mut wire = Wire::new(&server);
        let _ = wire.send(&bytes);
        assert_eq!(wire.take_output(), expected);
    }
}

/// A repo that cannot scan has no pages, and the root then has no GET.
#[test]
fn a_repo_that_cannot_scan_lists_nothing() {
    let server = with_one();
    for target in ["/", "/?limit=1", "/?limit=0"] {
        get(&server, target).check_problem(501);
    }
    let options = ask(&server, &request("OPTIONS", "/", "", b""));
    assert_eq!((options.status, options.field("Allow")), (204, Some("PUT, OPTIONS")));
    assert_eq!(put(&server, "/", ONE).status, 200, "the connection and the service go on");
}

/// Regression test: `%35` is the digit 5 in any part of a URL (RFC 3986, 6.2.2.2), and was no limit.
#[test]
fn a_limit_may_be_encoded() {
    let server = serve(polyserve_memory::Ordered::new(StdMutex::new()));
    for (limit, status) in
        [("%35", 200), ("1%30", 200), ("%2B5", 400), ("%", 400), ("%3", 400), ("%FF", 400), ("%205", 400)]
    {
        assert_eq!(get(&server, &format!("/?limit={limit}")).status, status, "{limit}");
    }
}

/// A page has at most 1 MiB, unless its first entity alone has more, and the next page goes on after it.
#[test]
fn a_page_has_at_most_a_mebibyte() {
    let repo = polyserve_memory::Ordered::new(StdMutex::new());
    let large = [1, 2, 3, 4, 5, 6].map(|id| Entity::new(id, "x".repeat(400_000 + usize::from(id == 4) * 900_000), 1.0));
    for entity in large {
        assert!(repo.put(entity).is_now());
    }
    let server = serve(repo);
    let mut pages = Vec::new();
    let mut target = "/".to_owned();
    loop {
        let page = get(&server, &target);
        assert_eq!(page.status, 200);
        let json: serde_json::Value = serde_json::from_str(&page.body).unwrap();
        let ids: Vec<i64> = json["items"].as_array().unwrap().iter().map(|item| item["id"].as_i64().unwrap()).collect();
        assert!(page.body.len() <= 1 << 20 || ids.len() == 1, "{ids:?} have {} bytes", page.body.len());
        pages.push(ids);
        let Some(next) = json["next"].as_str() else { break };
        target = format!("/?after={next}");
    }
    assert_eq!(pages, [vec![1, 2], vec![3], vec![4], vec![5, 6]]);
}

/// A note. One that is secret has no JSON.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Note {
    name: String,
    is_secret: bool,
}

impl Identifiable for Note {
    type Id = String;

    fn id(&self) -> &String {
        &self.name
    }

    fn write_json(&self, out: &mut Vec<u8>) -> Result<(), Box<dyn Error + Send + Sync>> {
        out.extend_from_slice(format!(r#"{{"name":"{}""#, self.name).as_bytes());
        if self.is_secret {
            return Err("it is secret".into());
        }
        out.push(b'}');
        Ok(())
    }
}

/// Regression test: one entity without a JSON form made every page with it an error, so no list came past it.
#[test]
fn a_list_comes_past_an_entity_without_json() {
    let repo = polyserve_memory::Ordered::new(StdMutex::of::<Note>());
    for name in ["a", "b!", "c", "d!", "e!", "f"] {
        assert!(repo.put(Note { name: name.into(), is_secret: name.ends_with('!') }).is_now());
    }
    let server = HttpState::new(std::sync::Arc::new(EntityService::<_, Note>::new(repo)), &ServerConfig::default());
    let (mut seen, mut target) = (Vec::new(), "/?limit=2".to_owned());
    loop {
        let page = get(&server, &target);
        let json: serde_json::Value = serde_json::from_str(&page.body).unwrap();
        if page.status == 500 {
            page.check_problem(500);
            assert!(page.body.contains(&format!("The entity {} has no JSON form.", json["next"].as_str().unwrap())));
        }
        let names = json["items"].as_array().into_iter().flatten().map(|item| item["name"].as_str().unwrap());
        seen.push((page.status, names.collect::<String>()));
        let Some(next) = json["next"].as_str() else { break };
        target = format!("/?limit=2&after={next}");
    }
    let failed = || (500, String::new());
    assert_eq!(seen, [(200, "a".into()), failed(), (200, "c".into()), failed(), failed(), (200, "f".into())]);
    get(&server, "/b!").check_problem(500);
}

/// The service does not decode content codings, so it refuses them in either mode.
#[test]
fn content_codings() {
    for strict in [false, true] {
        let server = serve_with(StdMutex::new(), strict);
        for coding in ["gzip", "br", "deflate", "identity, gzip", "gzip, identity", "x", "identity;q=1", "\"identity\""]
        {
            let fields = format!("Content-Encoding: {coding}\r\n");
            let response = ask(&server, &request("PUT", "/", &fields, ONE.as_bytes()));
            response.check_problem(415);
            assert_eq!(response.field("Accept-Encoding"), Some("identity"), "{coding:?}");
        }
        let both = "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n";
        ask(&server, &request("PUT", "/", both, ONE.as_bytes())).check_problem(415);
        get(&server, "/1").check_problem(404);
        let mut status = 201;
        for coding in ["identity", "IDENTITY", "", "identity, identity", ",identity ,"] {
            let fields = format!("content-encoding:{coding}\r\n");
            assert_eq!(ask(&server, &request("PUT", "/", &fields, ONE.as_bytes())).status, status, "{coding:?}");
            status = 200;
        }
    }
}

const MEDIA_TYPES: [&str; 12] = [
    "text/plain",
    "application/x-www-form-urlencoded",
    "application/xml",
    "application/jsonx",
    "json",
    "+json",
    "application/json5",
    "x",
    "a/b+jso",
    // Regression test: what is no media type was taken if it began with one of JSON or ended in `+json`.
    "a/b c+json",
    "text/xml, application/x+json",
    "application/json; charset=utf-8, text/xml",
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

/// By default the body decides. If it is not JSON, the answer is 400.
#[test]
fn media_types() {
    for strict in [false, true] {
        let server = serve_with(StdMutex::new(), strict);
        let put = |media_type: &str, body: &[u8]| {
            ask(&server, &request("PUT", "/", &format!("content-type:{media_type}\r\n"), body))
        };
        let both = "application/json\r\nContent-Type: text/plain";
        for media_type in MEDIA_TYPES.into_iter().chain([both]) {
            if strict {
                put(media_type, ONE.as_bytes()).check_problem(415);
            } else {
                assert!([200, 201].contains(&put(media_type, ONE.as_bytes()).status), "{media_type:?}");
                put(media_type, b"id=1&value=2").check_problem(400);
                put(media_type, b"[]").check_problem(422);
            }
        }
        assert_eq!(get(&server, "/1").status, if strict { 404 } else { 200 });
        for media_type in JSON_TYPES {
            assert!([200, 201].contains(&put(media_type, ONE.as_bytes()).status), "{media_type:?}");
        }
        // Only the type of a body is checked.
        assert_eq!(ask(&server, &request("GET", "/1", "Content-Type: text/plain\r\n", b"")).status, 200);
    }
}

/// A request that its head decides is answered before its body arrives, and the connection stays open.
#[test]
fn refused_by_the_head_alone() {
    let repo = StdMutex::new();
    assert!(repo.put(Entity::new(1, "aZ09", 60.750847)).is_now());
    let server = serve_with(repo, true);
    for (method, target, fields, status) in [
        ("PUT", "/x", "", 400),
        ("PUT", "/1/2", "", 404),
        ("DELETE", "http://b//", "", 404),
        ("OPTIONS", "/%31/%31", "", 404),
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
        let mut wire = Wire::new(&server);
        let head = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: 9\r\n\r\n");
        assert!(matches!(wire.send(head.as_bytes()), SessionStep::Read(_)));
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
    /// The reason why a repo takes no more writes.
    #[derive(Debug)]
    struct DiskIsFull(io::Error);
    impl fmt::Display for DiskIsFull {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the disk is full")
        }
    }
    impl Error for DiskIsFull {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }
    for (failing, status, retries, detail) in [
        ((|| RepoError::Closed) as fn() -> _, 503, true, unknown),
        (|| RepoError::Overloaded, 503, true, not_done),
        (|| RepoError::NotDone("a secret of the engine".into()), 503, true, not_done),
        (|| RepoError::Unavailable("a secret of the engine".into()), 503, true, unknown),
        (
            || RepoError::ReadOnly(Box::new(DiskIsFull(io::Error::other("a secret of the disk")))),
            500,
            false,
            "The store takes no more writes: the disk is full.",
        ),
        (
            || RepoError::Malformed(MalformedEntity { id: "1".into(), why: "a secret of the store".into() }.into()),
            500,
            false,
            "what is stored under the id 1 is no entity.",
        ),
        (|| RepoError::Other("a secret of the store".into()), 500, false, "The store failed."),
    ] {
        let server = serve(FailingRepo(failing));
        let patched = ask(&server, &request("PATCH", "/1", "", b"{}"));
        for response in
            [get(&server, "/1"), put(&server, "/", ONE), patched, ask(&server, &request("DELETE", "/1", "", b""))]
        {
            response.check_problem(status);
            assert_eq!(retry_after(&response).as_deref(), retries.then_some("1"));
            assert!(!response.body.contains("secret"), "what is inside stays inside: {response:?}");
            assert!(response.body.contains(detail), "{response:?}");
        }
    }
}

#[test]
fn the_program_and_the_server_share_the_repo() {
    let repo = std::sync::Arc::new(StdMutex::new());
    let server = serve(std::sync::Arc::clone(&repo));
    assert_eq!(put(&server, "/", ONE).status, 201);
    assert_eq!(repo.fetch(&1).wait().unwrap(), Some(Entity::new(1, "aZ09", 60.750847)));
    assert_eq!((repo.fetch(&2).wait().unwrap(), repo.len().wait().unwrap()), (None, 1));
}

/// A repo that answers later gives the same bytes.
#[test]
fn later_is_the_same() {
    let (now, later) = (serve(StdMutex::new()), serve(later()));
    for (method, target, body) in [
        ("GET", "/1", ""),
        ("PUT", "/", ONE),
        ("PUT", "/1", ONE),
        ("GET", "/1", ""),
        ("HEAD", "/1", ""),
        ("DELETE", "/1", ""),
        ("DELETE", "/1", ""),
        ("PUT", "/", "x"),
    ] {
        let bytes = request(method, target, "", body.as_bytes());
        let (first, second) = (ask(&now, &bytes), ask(&later, &bytes));
        assert_eq!(format!("{first:?}"), format!("{second:?}"), "{method} {target}");
    }
}
