//! Conversions between the types of the `http` crate, which hyper and tower use, and this project's.

#[cfg(feature = "tower")]
pub(crate) mod body;
pub(crate) mod head;
pub(crate) mod reply;
#[cfg(all(feature = "tower", feature = "tokio"))]
pub(crate) mod request;
#[cfg(all(feature = "tower", feature = "tokio"))]
pub(crate) mod response;

/// The error of a `tower::Service` or of a body.
#[cfg(all(feature = "tower", feature = "tokio"))]
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
