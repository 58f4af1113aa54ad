//! The [`Service`] trait, its requests and replies, and the services that every server is tested with.

mod echo;
mod entity_service;
mod page;
mod path;
mod preconditions;
mod reply;
mod request;
mod welcome;

use std::sync::Arc;

pub use echo::Echo;
pub use entity_service::EntityService;
pub use page::Page;
pub use reply::{Body, InvalidHeader, Problem, Reply, Status};
pub use request::{Head, Header, Headers, Method, Request, Version};
pub use welcome::Welcome;

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
pub trait Service: Send + Sync + 'static {
    /// Answers one request.
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply>;

    /// Decides by the head alone. Returns an early answer, or `None` if the body is needed.
    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        let _ = head;
        None
    }
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        #[deny(clippy::missing_trait_methods)]
        impl<S: Service + ?Sized> Service for $pointer {
            fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
                (**self).call(request, body)
            }
            fn head(&self, head: &Head<'_>) -> Option<Reply> {
                (**self).head(head)
            }
        }
    )*};
}

forward!(Arc<S>, Box<S>);
