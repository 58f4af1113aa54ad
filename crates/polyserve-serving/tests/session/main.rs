//! `Session` byte for byte, without sockets: the contract's HTTP/1.1 section with small services in memory.
#![forbid(unsafe_code)]

mod answers;
mod corpus;
mod early;
mod ends;
mod limits;
mod output;
mod panics;
mod persistence;
mod pipelining;
mod refusals;
mod splits;
mod support;
mod turns;
#[path = "../common/wire.rs"]
mod wire;
