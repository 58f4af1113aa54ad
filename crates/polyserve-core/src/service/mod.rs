//! The [`Service`] trait, its requests and replies, and the services that every server is tested with.

mod client_certificate;
mod echo;
mod entity_reply;
mod entity_service;
mod get_only;
mod invalid_header;
mod kept_fields;
mod known_forms;
mod media_type;
mod page;
mod patch;
mod path;
mod preconditions;
mod problem;
mod ready;
mod reply;
mod request;
mod request_notes;
mod routes;

use std::sync::Arc;

pub use client_certificate::ClientCertificate;
pub use echo::Echo;
pub use entity_service::EntityService;
pub use get_only::get_only;
pub use invalid_header::InvalidHeader;
pub use kept_fields::KeptFields;
pub use problem::{Problem, Unavailable, reason_phrase};
pub use reply::{Body, Reply};
pub use request::{Head, Header, Headers, Request, is_token, known_method};
pub use request_notes::{RequestNotes, TraceId};
pub use routes::{InvalidRoute, Routes};

use crate::answer::Answer;

/// An application: it answers requests.
///
/// # Contract
///
/// * `call` does not block. If it has to wait, it returns [`Answer::Later`]. A server cannot interrupt it.
/// * `call` may append the body of its answer to `body`, which is empty, and return [`Body::InPlace`]. That saves an
///   allocation. A `Later` answer owns its body.
/// * `head` agrees with `call`: if it refuses a head, `call` gives the same answer to the request. A server calls `head`
///   only if the body has not arrived.
/// * A panic in `call`, in `head` or in the future is answered with 500. It affects no other request.
///
/// # Examples
///
/// A closure is a service. It returns a [`Reply`], or an [`Answer`] of one. The type of its parameter must be written, else
/// the compiler says "implementation of `FnOnce` is not general enough" or "type annotations needed":
///
/// ```
/// use polyserve_core::{Reply, Request, Service};
/// use polyserve_core::http::{Method, StatusCode};
///
/// let hello = |request: Request<'_>| match (request.head.method, request.head.path()) {
///     (&Method::GET, "/hello") => Reply::text("Hello!"),
///     _ => Reply::problem(StatusCode::NOT_FOUND, "Only /hello is here."),
/// };
/// # fn is_a_service(_: impl Service) {}
/// # is_a_service(hello);
/// ```
///
/// A type of its own can refuse requests by their heads, and write into the server's buffer:
///
/// ```
/// use polyserve_core::{Answer, Body, Head, Reply, Request, Service};
/// use polyserve_core::http::StatusCode;
///
/// /// Answers with the length of the body.
/// struct Length;
///
/// impl Service for Length {
///     fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
///         body.extend_from_slice(request.body.len().to_string().as_bytes());
///         Answer::Now(Reply::new(StatusCode::OK, "text/plain", Body::InPlace))
///     }
///
///     fn head(&self, head: &Head<'_>) -> Option<Reply> {
///         (head.path() != "/length").then(|| Reply::problem(StatusCode::NOT_FOUND, "Only /length is here."))
///     }
/// }
/// # fn is_a_service(_: impl Service) {}
/// # is_a_service(Length);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Service`",
    note = "a closure is a service if the type of its parameter is written, and if it returns a `Reply` or an `Answer<Reply>`: \
            `|request: Request<'_>| Reply::text(\"hello\")`. It must be `Send`, `Sync` and `'static`",
    note = "a repo becomes a service by `EntityService::new(repo)`; several services by `Routes`",
    note = "an axum `Router` becomes a service by `FromTower::new(router)`; `TokioHyper::serve_tower` serves it with streamed bodies"
)]
pub trait Service: Send + Sync + 'static {
    /// Answers one request.
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply>;

    /// Decides by the head alone. Returns an early answer, or `None` if the body is needed.
    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        let _ = head;
        None
    }

    /// Whether the service may look at [`Request::peer`]. If it does not, a server may leave the address out, which saves some servers a
    /// system call for each connection.
    fn sees_peers(&self) -> bool {
        true
    }

    /// Moves the service into an `Arc`, as servers keep it. An `Arc` returns itself. There is no need to implement this.
    fn into_shared(self) -> Arc<dyn Service>
    where
        Self: Sized,
    {
        Arc::new(self)
    }
}

macro_rules! forward {
    ($([$($generics:tt)*] $pointer:ty),*) => {$(
        #[deny(clippy::missing_trait_methods)]
        impl $($generics)* Service for $pointer {
            fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
                (**self).call(request, body)
            }
            fn head(&self, head: &Head<'_>) -> Option<Reply> {
                (**self).head(head)
            }
            fn sees_peers(&self) -> bool {
                (**self).sees_peers()
            }
            fn into_shared(self) -> Arc<dyn Service> {
                self
            }
        }
    )*};
}

forward!([<S: Service>] Arc<S>, [] Arc<dyn Service>);

/// A closure that answers requests. The type of its parameter must be written: `|request: Request<'_>| ...`.
impl<F, A> Service for F
where
    F: Fn(Request<'_>) -> A + Send + Sync + 'static,
    A: Into<Answer<Reply>>,
{
    fn call(&self, request: Request<'_>, _body: &mut Vec<u8>) -> Answer<Reply> {
        self(request).into()
    }
}
