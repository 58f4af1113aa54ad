//! The requests that a service with one page refuses.

use http::{Method, StatusCode};

use super::entity_service::options;
use super::{Head, Reply};

/// Returns the answer of a service with one page to a request other than `GET` or `HEAD` of that page: 404, 405, or 204 to
/// `OPTIONS`. Returns `None` if the request is for the page.
///
/// ```
/// use polyserve_core::{Head, Headers, get_only};
/// use polyserve_core::http::{Method, StatusCode, Version};
///
/// let head = |method| Head { method, target: "/clock", version: Version::HTTP_11, headers: Headers::new(&[]), certificate: None };
/// assert!(get_only(&head(&Method::GET), "/clock").is_none());
/// assert_eq!(get_only(&head(&Method::PUT), "/clock").map(|reply| reply.status()), Some(StatusCode::METHOD_NOT_ALLOWED));
/// ```
pub fn get_only(head: &Head<'_>, path: &str) -> Option<Reply> {
    match (head.method, head.path()) {
        (method, other) if other != path && (other, method) != ("*", &Method::OPTIONS) => {
            Some(Reply::problem(StatusCode::NOT_FOUND, "There is nothing at this path."))
        }
        (&Method::GET | &Method::HEAD, _) => None,
        (method, _) => Some(options(method, "GET, HEAD, OPTIONS")),
    }
}
