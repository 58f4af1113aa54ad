//! The published stress scenario: PUTs of new ids, GETs and racing updates. Every answer is verified, and then the final state of
//! the store. [`bench::mode::scenario`](crate::bench::mode::scenario) is the mode that runs it.
//!
//! Invariant: a round in which something was wrong has an outcome and a number of errors. Cost: a thread for each client.
//!
//! # Layout
//!
//! * [`requests`]: the requests. [`verify`]: whether an answer is right. [`client`]: the clients, which are those of the kit.
//! * [`round`]: one run against a new server, and its outcome.

pub(crate) mod client;
pub(crate) mod requests;
pub(crate) mod round;
pub(crate) mod verify;

pub(crate) use requests::Scenario;
