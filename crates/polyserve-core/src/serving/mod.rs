//! What servers on the codec share, whatever their strategy: the state of a run, a thread's buffers, and the loop of a
//! thread that blocks.
//!
//! # Layout
//!
//! * `house`: what all threads of one run share, and what a run has answered and cut.
//! * `desk`: what a thread has at hand while it serves.
//! * [`blocking`]: a connection from its first byte to its close, on a thread that may wait.
//! * `accepting`: what every accept loop needs to go on for ever, and to end.
//! * `departures`: closed connections that are still read from; `waiting`: `poll(2)`.

mod accepting;
pub mod blocking;
mod departures;
mod desk;
mod house;
mod waiting;

pub use accepting::{ACCEPT_REST, Complaint, last_guests};
pub use departures::{Departures, discard};
pub use desk::Desk;
pub use house::{House, LAST_GRACE, Waited, wait_for_answer};
pub use waiting::wait;
