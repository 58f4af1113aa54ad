//! Conversion of a request's head from the `http` crate's types to this project's.
//!
//! Cost: an array of the fields on the stack. The target is copied only if it is not a path.

use std::borrow::Cow;

use http::request::Parts;
use http::{StatusCode, Uri};
use polyserve_core::{Header, Headers, Reply, ServerConfig};
use polyserve_serving::http1::decode::{Fields, RequestLine};

/// Calls `inspect` with the converted head.
///
/// # Errors
///
/// Returns the answer if there are more than [`ServerConfig::MAX_HEADERS`] fields.
pub(crate) fn convert<T>(parts: &Parts, inspect: impl FnOnce(RequestLine<'_>, Headers<'_>) -> T) -> Result<T, Reply> {
    if parts.headers.len() > ServerConfig::MAX_HEADERS {
        return Err(too_many_fields());
    }
    let target = target(&parts.uri);
    let line = RequestLine { method: parts.method.as_str(), target: &target, version: parts.version };
    let mut fields = Fields::new();
    fields.extend(parts.headers.iter().map(|(name, value)| Header { name: name.as_str(), value: value.as_bytes() }));
    Ok(inspect(line, Headers::new(&fields)))
}

/// The answer to a request with too many header fields.
pub(crate) fn too_many_fields() -> Reply {
    let detail = "There are more header fields than this server takes.";
    Reply::problem(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail)
}

fn target(uri: &Uri) -> Cow<'_, str> {
    match (uri.scheme(), uri.authority()) {
        // Over HTTP/2, `*` comes with a scheme and an authority, which would run into it.
        (Some(_), _) if uri.path() == "*" => Cow::Borrowed("*"),
        (None, None) => Cow::Borrowed(uri.path_and_query().map_or("", |path| path.as_str())),
        (None, Some(authority)) => Cow::Borrowed(authority.as_str()),
        (Some(_), _) => Cow::Owned(uri.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_shown_as_it_was_sent() {
        for sent in ["/", "/1?a=b", "*", "http://a/", "http://a:80/x?y", "a:80"] {
            assert_eq!(target(&sent.parse().unwrap()), sent);
        }
        let asterisk = Uri::builder().scheme("http").authority("a").path_and_query("*").build().unwrap();
        assert_eq!(target(&asterisk), "*");
    }
}
