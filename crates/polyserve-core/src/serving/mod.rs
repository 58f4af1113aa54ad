//! What servers on the codec share, whatever their strategy: the state of a run, a thread's buffers, and the loop of a
//! thread that blocks.
//!
//! # Layout
//!
//! * `server`: what all threads of one run share, and what a run has answered and cut.
//! * `buffers`: what a thread has at hand while it serves.
//! * [`blocking`]: a connection from its first byte to its close, on a thread that may wait.
//! * `accepting`: what every accept loop needs to go on for ever, and to end.
//! * `lingering`: closed connections that are still read from; `waiting`: `poll(2)`.

mod accepting;
pub mod blocking;
mod lingering;
mod server_state;
mod thread_buffers;
mod waiting;

pub use accepting::{ACCEPT_BACKOFF, LogThrottle, drain_backlog};
pub use lingering::{LingeringSet, discard};
pub use server_state::{SHUTDOWN_SLACK, ServerState, WaitOutcome, wait_for_answer};
pub use thread_buffers::ThreadBuffers;
pub use waiting::wait;
