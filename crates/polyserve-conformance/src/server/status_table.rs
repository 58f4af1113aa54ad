//! The entity service over the wire. Most rows of the table of its statuses are cases of the wire corpus.

use super::prelude::*;

/// Entity 1, as it is stored and returned.
pub(crate) const ONE: &str = r#"{"id":1,"description":"aZ09","value":60.750847}"#;

/// A server of an empty store.
#[track_caller]
pub(super) fn entities(subject: &ServerSubject) -> Live {
    over(subject, Reference::default())
}

#[track_caller]
pub(super) fn over(subject: &ServerSubject, repo: impl EntityRepo) -> Live {
    subject.live(EntityService::new(repo), |_| ())
}

/// A server of a store with entity 1.
#[track_caller]
fn with_one(subject: &ServerSubject) -> Live {
    let live = entities(subject);
    live.ask(&put("/", ONE), 201);
    live
}

/// The body of a request that is refused by its head is never served as a request: it is skipped, or the connection
/// ends.
pub(super) fn a_refused_body_is_no_request(subject: &ServerSubject) {
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
}

/// `OPTIONS *` and absolute-form targets reach the service, as the client sent them.
pub(super) fn other_forms_of_target_are_taken(subject: &ServerSubject) {
    super::corpus::check(subject, "other_forms_of_target_are_taken");
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
}
