//! What the benches share: a client that checks every answer while it is measured.
#![forbid(unsafe_code)]

pub mod client;
