//! Conversions between the types of the `http` crate, which hyper and tower use, and this project's.

#[cfg(feature = "tower")]
pub(crate) mod body;
pub(crate) mod head;
#[cfg(all(feature = "tower", feature = "tokio"))]
pub(crate) mod request;
#[cfg(all(feature = "tower", feature = "tokio"))]
pub(crate) mod response;

/// The error of a `tower::Service` or of a body.
#[cfg(any(feature = "hyper", all(feature = "tower", feature = "tokio")))]
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The answer in place of an upgrade to another protocol.
#[cfg(any(feature = "hyper", all(feature = "tower", feature = "tokio")))]
pub(crate) fn upgrade_refused() -> polyserve_core::Reply {
    polyserve_core::Reply::problem(http::StatusCode::NOT_IMPLEMENTED, "This server changes no protocols.")
}

/// The answer in place of the error of a `tower::Service`, which is logged.
#[cfg(any(feature = "hyper", all(feature = "tower", feature = "tokio")))]
pub(crate) fn service_failed(
    failures: &polyserve_core::log::LogThrottles,
    error: &(dyn std::error::Error + 'static),
) -> polyserve_core::Reply {
    use polyserve_core::log::in_one_line;
    polyserve_core::throttled!(of failures, warn, error = in_one_line(error), "a service failed");
    polyserve_core::Reply::problem(http::StatusCode::INTERNAL_SERVER_ERROR, "The service failed.")
}
