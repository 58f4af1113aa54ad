//! The HTTP/1.1 codec. It does no I/O: bytes go in, answers come out; there is no socket, and a clock only for the budget of a turn.
//!
//! # Layout
//!
//! * [`Session`]: one connection. It uses the modules below, calls the service, and returns what it needs next.
//! * [`decode`]: the head of a request, strictly by RFC 9112. `httparse` finds the parts, and this module validates them, with
//!   `connection_fields` (framing, persistence, expectations) and `syntax` (hosts, targets, classes of bytes). [`refusal`] is the result
//!   of a failed check.
//! * [`LastHeads`]: the heads that a thread has decoded last. Clients repeat their heads, so most are only compared with one.
//! * [`chunked`]: a chunked body, byte by byte.
//! * [`encode`]: the bytes of an answer.
//! * [`date`]: the value of the `Date` header, formatted once a second.
//! * [`HttpState`]: what all connections of a server share.
//! * [`SessionBuffers`]: what the connections of a thread share, one at a time.
//! * [`TimeLimit`]: how long each wait of a connection may last.
//! * [`AgentFields`]: the fields of a request that only the report of its answer needs.
//! * [`turn`]: the limit on the work for one connection before others are served.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic))]

mod agent_fields;
pub mod chunked;
mod connection_fields;
pub mod date;
pub mod decode;
pub mod encode;
mod http_state;
pub mod refusal;
mod repeated;
mod session;
mod session_buffers;
mod syntax;
mod time_limit;
pub mod turn;

pub use agent_fields::AgentFields;
pub use http_state::{HttpState, SessionTurn};
pub use repeated::LastHeads;
pub use session::{OUTPUT_BOUND, Phase, Session, SessionStep, panicked};
pub use session_buffers::SessionBuffers;
pub use time_limit::{BODY_GRACE, TimeLimit};
