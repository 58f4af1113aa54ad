//! What is answered: the [`Service`] trait, its vocabulary, and the services that every server is tested with.

mod echo;
mod entity_json;
mod entity_service;
mod page;
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

/// Answers requests.
///
/// # Contract
///
/// * `call` does not block: what has to wait answers [`Answer::Later`]. A server cannot stop a thread inside it.
/// * `call` may append the answer's body to `body`, which is empty, and say so by [`Body::InPlace`]; that saves an
///   allocation. A `Later` answer owns its body.
/// * `head` agrees with `call`: where it refuses a head, `call` would have given the same answer. A server asks it only
///   where the body is not there yet.
/// * A panic, in either or in the future, is a 500 for that request and nothing else.
pub trait Service: Send + Sync + 'static {
    /// Answers one request.
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply>;

    /// Asked before the body is read: an early refusal, or `None` to read on.
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
