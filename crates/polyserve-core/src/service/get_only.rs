//! The requests that a service with one page refuses.

use super::{Head, Method, Reply, Status};

/// Returns the answer of a service with one page to a request other than `GET` or `HEAD` of that page: 404, 405, or 204 to
/// `OPTIONS`. Returns `None` if the request is for the page.
///
/// ```
/// use polyserve_core::{Head, Headers, Method, Status, Version, get_only};
///
/// let head = |method| Head { method, target: "/clock", version: Version::Http11, headers: Headers::new(&[]) };
/// assert!(get_only(&head(Method::Get), "/clock").is_none());
/// assert_eq!(get_only(&head(Method::Put), "/clock").map(|reply| reply.status()), Some(Status::METHOD_NOT_ALLOWED));
/// ```
pub fn get_only(head: &Head<'_>, path: &str) -> Option<Reply> {
    const ALLOW: &str = "GET, HEAD, OPTIONS";
    let allow = |reply: Reply| reply.with_header("Allow", ALLOW).expect("Allow is a valid header field");
    match (head.method, head.path()) {
        (Method::Options, "*") => Some(allow(Reply::empty(Status::NO_CONTENT))),
        (_, other) if other != path => Some(Reply::problem(Status::NOT_FOUND, "There is nothing at this path.")),
        (Method::Get | Method::Head, _) => None,
        (Method::Options, _) => Some(allow(Reply::empty(Status::NO_CONTENT))),
        _ => Some(allow(Reply::problem(Status::METHOD_NOT_ALLOWED, "This path answers GET and HEAD."))),
    }
}
