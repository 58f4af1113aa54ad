//! Conversion of a request to one of the `http` crate.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Uri};
use http_body_util::Full;
use polyserve_core::Request;

use crate::tower::DrainBegun;

/// Converts `request`. Its peer and the [`DrainBegun`] are among the extensions.
///
/// Cost: copies the target, the header fields and the body.
///
/// # Errors
///
/// Returns an error if the `http` crate refuses the target or a header field.
pub(crate) fn convert(request: &Request<'_>) -> Result<http::Request<Full<Bytes>>, http::Error> {
    let head = &request.head;
    let mut converted = http::Request::new(Full::new(Bytes::copy_from_slice(request.body)));
    *converted.method_mut() = head.method.clone();
    *converted.uri_mut() = head.target.parse::<Uri>()?;
    *converted.version_mut() = head.version;
    for (name, value) in head.headers.iter() {
        let name = HeaderName::from_bytes(name.as_bytes())?;
        converted.headers_mut().try_append(name, HeaderValue::from_bytes(value)?)?;
    }
    if let Some(peer) = request.peer {
        converted.extensions_mut().insert(peer);
    }
    if let Some(certificate) = head.certificate {
        converted.extensions_mut().insert(certificate.clone());
    }
    if request.draining {
        converted.extensions_mut().insert(DrainBegun);
    }
    Ok(converted)
}
