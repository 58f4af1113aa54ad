//! HTTP/1.1 without I/O: bytes in, events out; no socket, no clock.
//!
//! # Layout
//!
//! * [`decode`]: a request's head, strictly by RFC 9112; `httparse` finds the parts, this module decides, with
//!   `connection_fields` (framing, persistence, expectations) and `authority` (hosts).
//! * [`chunked`]: a chunked body, byte by byte.
//! * [`encode`]: an answer's bytes.
//! * [`date`]: the `Date` header's value, formatted once a second.
//! * [`scratch`]: what connections share.
//! * [`session`]: one connection. It joins the above, calls the service, and says what it wants next.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic))]

mod authority;
pub mod chunked;
mod connection_fields;
pub mod date;
pub mod decode;
pub mod encode;
mod refusal;
pub mod scratch;
pub mod session;
mod syntax;

pub use scratch::{Env, Scratch};
pub use session::{Phase, Session, Want};
