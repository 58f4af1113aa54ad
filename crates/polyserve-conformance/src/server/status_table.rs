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
    subject.live(EntityService::new(repo), defaults())
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
