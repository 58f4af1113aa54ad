//! The entity service over the wire: every row of the contract's table, except the bodies of PUT.

use std::sync::Arc;

use polyserve_core::{EntityRepo, EntityService};

use super::live::Live;
use super::subject::ServerSubject;
use super::wire::{check_problem, get, put, request, send_parts, with_body};
use crate::client::Response;
use crate::property::Outcome;
use crate::repo::{LaterReference, Reference};

/// Entity 1, as it is stored and returned.
pub(crate) const ONE: &str = r#"{"id":1,"description":"aZ09","value":60.750847}"#;

/// The methods on an entity.
const ENTITY_METHODS: &[&str] = &["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// A server of an empty store.
#[track_caller]
pub(super) fn entities(subject: &ServerSubject) -> Live {
    over(subject, Reference::default())
}

#[track_caller]
pub(super) fn over(subject: &ServerSubject, repo: impl EntityRepo) -> Live {
    subject.live(Arc::new(EntityService::new(repo)), |_| ())
}

/// A server of a store with entity 1.
#[track_caller]
fn with_one(subject: &ServerSubject) -> Live {
    let live = entities(subject);
    live.ask(&put("/", ONE), 201);
    live
}

#[track_caller]
fn check_allow(response: &Response, methods: &[&str]) {
    let all = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"];
    let allowed: Vec<&str> = all.into_iter().filter(|method| response.lists("Allow", method)).collect();
    let expected: Vec<&str> = all.into_iter().filter(|method| methods.contains(method)).collect();
    assert_eq!(allowed, expected, "Allow is {:?}", response.header("Allow"));
}

#[track_caller]
fn check_empty(response: &Response) {
    assert_eq!(response.header("Content-Length"), Some("0"), "of a {}", response.status);
}

/// `GET /{id}` of an entity is answered with 200, `application/json`, in the published form.
pub(super) fn get_shows_the_entity(subject: &ServerSubject) -> Outcome {
    let response = with_one(subject).ask(&get("/1"), 200);
    assert_eq!((response.header("Content-Type"), response.text().as_str()), (Some("application/json"), ONE));
    Outcome::Held
}

/// HEAD has the head of GET, `Content-Length` included, and no body. The connection goes on after it.
pub(super) fn head_is_get_without_the_body(subject: &ServerSubject) -> Outcome {
    let live = with_one(subject);
    for (path, status) in [("/1", 200), ("/2", 404), ("/x", 400), ("/1/2", 404), ("/", 405)] {
        let got = live.ask(&get(path), status);
        let mut client = live.client();
        client.send(&request("HEAD", path, "")).expect("the server takes the request");
        let head = client.receive_head().unwrap_or_else(|failure| panic!("HEAD {path}: {failure}"));
        assert_eq!(head.status, status, "HEAD {path}");
        for name in ["Content-Type", "Allow"] {
            assert_eq!(head.header(name), got.header(name), "{name} of HEAD {path}");
        }
        // A problem may name the method, so the lengths are equal only for a 200.
        let same = status != 200 || head.header("Content-Length") == got.header("Content-Length");
        assert!(same, "HEAD {path} says {:?}, GET {:?}", head.headers, got.headers);
        if head.closes() {
            client.expect_end();
        } else {
            assert_eq!(client.ask(&get("/1"), 200).text(), ONE, "what follows a HEAD of {path} is the next answer");
        }
    }
    Outcome::Held
}

/// PUT is answered with 201 and `Location` if the entity is new, and with 200 if it replaced one. Both have
/// `Content-Length: 0`.
pub(super) fn put_creates_and_replaces(subject: &ServerSubject) -> Outcome {
    let live = entities(subject);
    for (target, id) in [("/", 1), ("/2", 2), ("/-3?x", -3), ("/%34", 4), ("http://a/", 5)] {
        let first = live.ask(&put(target, &format!(r#"{{"id":{id},"description":"first","value":1.5}}"#)), 201);
        assert_eq!(first.header("Location"), Some(format!("/{id}").as_str()), "PUT {target}");
        check_empty(&first);
        let second = format!(r#"{{"id":{id},"description":"second","value":2.5}}"#);
        let replaced = live.ask(&put(target, &second), 200);
        assert_eq!(replaced.header("Location"), None, "PUT {target}");
        check_empty(&replaced);
        assert_eq!(live.ask(&get(&format!("/{id}")), 200).text(), second);
    }
    Outcome::Held
}

/// DELETE is answered with 204 the first time, without a body, and 404 after it.
pub(super) fn delete_removes_once(subject: &ServerSubject) -> Outcome {
    let live = with_one(subject);
    assert_eq!(live.ask(&request("DELETE", "/1", ""), 204).text(), "");
    check_problem(&live.ask(&request("DELETE", "/1", ""), 404));
    live.ask(&get("/1"), 404);
    Outcome::Held
}

/// OPTIONS is answered with 204 and `Allow`, on an entity, on the root and on `*`.
pub(super) fn options_say_what_is_allowed(subject: &ServerSubject) -> Outcome {
    let live = with_one(subject);
    for path in ["/1", "/2", "*"] {
        check_allow(&live.ask(&request("OPTIONS", path, ""), 204), ENTITY_METHODS);
    }
    check_allow(&live.ask(&request("OPTIONS", "/", ""), 204), &["PUT", "OPTIONS"]);
    Outcome::Held
}

/// Another method on these paths is answered with 405, `Allow` and a problem body.
pub(super) fn other_methods_are_not_allowed(subject: &ServerSubject) -> Outcome {
    let live = with_one(subject);
    let response = live.ask(&with_body("POST", "/1", "", ONE.as_bytes()), 405);
    check_problem(&response);
    check_allow(&response, ENTITY_METHODS);
    for method in ["GET", "POST", "PATCH", "DELETE"] {
        let response = live.ask(&request(method, "/", ""), 405);
        check_problem(&response);
        check_allow(&response, &["PUT", "OPTIONS"]);
    }
    Outcome::Held
}

/// The requests of JMeter 5.6 are served, byte for byte: a PUT with white space and line breaks in its raw body and
/// `Content-Type: text/plain; charset=UTF-8`, and the GET after it, on one connection.
pub(super) fn the_published_test_plan_is_served(subject: &ServerSubject) -> Outcome {
    let live = entities(subject);
    let end = "Host: 127.0.0.1:8001\r\nUser-Agent: Apache-HttpClient/4.5.14 (Java/17.0.9)\r\n\r\n";
    let mut client = live.client();
    for line_end in ["\n", "\r\n"] {
        for (id, status) in [(1, [201, 200]), (2, [201, 200])] {
            let lines = ["{", &format!("  \"id\": {id},"), "  \"description\": \"one\",", "  \"value\": 1.5", "}", ""];
            let body = lines.join(line_end);
            let length = body.len();
            let put = format!(
                "PUT / HTTP/1.1\r\nConnection: keep-alive\r\nContent-Length: {length}\r\n\
                 Content-Type: text/plain; charset=UTF-8\r\n{end}{body}"
            );
            let status = status[usize::from(line_end == "\r\n")];
            check_empty(&client.ask(put.as_bytes(), status));
            let get = format!("GET /{id} HTTP/1.1\r\nConnection: keep-alive\r\n{end}");
            let text = client.ask(get.as_bytes(), 200).text();
            assert_eq!(text, format!("{{\"id\":{id},\"description\":\"one\",\"value\":1.5}}"));
        }
    }
    Outcome::Held
}

/// The body of a request that is refused by its head is never served as a request: it is skipped, or the connection
/// ends.
pub(super) fn a_refused_body_is_no_request(subject: &ServerSubject) -> Outcome {
    let live = with_one(subject);
    let body = request("DELETE", "/1", "");
    for (method, path, fields, status) in [
        ("POST", "/1", "", 405),
        ("PUT", "/1", "Content-Encoding: gzip\r\n", 415),
        ("PATCH", "/1", "Content-Type: application/json-patch+json\r\n", 415),
        ("PATCH", "/1", "", 400),
        ("PUT", "/1/2", "", 404),
        ("PUT", "/x", "", 400),
        ("PUT", "/1", "", 400),
    ] {
        let mut bytes = request(method, path, &format!("{fields}Transfer-Encoding: chunked\r\n"));
        bytes.extend(format!("{:x}\r\n", body.len()).into_bytes());
        bytes.extend([&body[..], b"\r\n0\r\n\r\n"].concat());
        for bytes in [with_body(method, path, fields, &body), bytes] {
            let mut client = live.client();
            // The head is sent first, so that it is refused before its body arrives. The body looks like a request.
            let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
            send_parts(&mut client, &[&bytes[..head]]);
            let _ = client.send(&[&bytes[head..], &get("/1")].concat());
            let response = client.expect(status);
            if response.closes() {
                client.expect_end();
            } else {
                assert_eq!(client.expect(200).text(), ONE, "{}", client.show());
            }
            assert_eq!(
                live.ask(&get("/1"), 200).text(),
                ONE,
                "{method} {path}: its body was served\n{}",
                client.show()
            );
        }
    }
    Outcome::Held
}

/// The published client is served: `ab`, which sends HTTP/1.0, with and without `-k`, GET and PUT.
pub(super) fn the_published_client_is_served(subject: &ServerSubject) -> Outcome {
    let live = entities(subject);
    let ab = |first: &str, fields: &str, body: &str| {
        let common = "Host: 127.0.0.1:8001\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n";
        format!("{first} HTTP/1.0\r\n{fields}{common}\r\n{body}").into_bytes()
    };
    let sized = format!("Content-length: {}\r\nContent-type: application/json\r\n", ONE.len());
    for status in [201, 200] {
        let mut client = live.client();
        check_empty(&client.ask(&ab("PUT /", &sized, ONE), status));
        client.expect_end();
    }
    let mut client = live.client();
    assert_eq!(client.ask(&ab("GET /1", "", ""), 200).text(), ONE);
    client.expect_end();
    let mut client = live.client();
    let kept = "Connection: Keep-Alive\r\n";
    for _ in 0..3 {
        for (bytes, text) in [(ab("GET /1", kept, ""), ONE), (ab("PUT /", &format!("{kept}{sized}"), ONE), "")] {
            let response = client.ask(&bytes, 200);
            assert!(response.lists("Connection", "keep-alive"), "{}", client.show());
            assert_eq!(response.text(), text);
        }
    }
    Outcome::Held
}

/// A repo that answers later, from a thread of its own, has the same statuses and bodies.
pub(super) fn a_later_repo_answers_the_same(subject: &ServerSubject) -> Outcome {
    let live = over(subject, LaterReference::default());
    let mut client = live.client();
    assert_eq!(client.ask(&put("/", ONE), 201).header("Location"), Some("/1"));
    check_empty(&client.ask(&put("/1", ONE), 200));
    let got = client.ask(&get("/1"), 200);
    assert_eq!((got.header("Content-Type"), got.text().as_str()), (Some("application/json"), ONE));
    check_problem(&client.ask(&get("/2"), 404));
    client.ask(&request("DELETE", "/1", ""), 204);
    check_problem(&client.ask(&request("DELETE", "/1", ""), 404));
    Outcome::Held
}

/// `OPTIONS *` and absolute-form targets reach the service, as the client sent them.
pub(super) fn other_forms_of_target_are_taken(subject: &ServerSubject) -> Outcome {
    let _ = super::corpus::check(subject, "other_forms_of_target_are_taken");
    // OPTIONS of a URL without a path names the server, as `*` does (RFC 9112, 3.2.4).
    let live = entities(subject);
    let allowed = |target: &str| live.ask(&request("OPTIONS", target, ""), 204).header("Allow").map(str::to_owned);
    assert!(allowed("/") != allowed("*"), "the properties of the server are not those of a path");
    let server = if subject.deviations.urls_without_a_path_get_a_slash { "/" } else { "*" };
    for target in ["http://a", "http://a:80", "HTTP://[::1]"] {
        assert_eq!(allowed(target), allowed(server), "{target}");
    }
    for target in ["http://a/", "http://a?q", "/?q"] {
        assert_eq!(allowed(target), allowed("/"), "{target}");
    }
    Outcome::Held
}
