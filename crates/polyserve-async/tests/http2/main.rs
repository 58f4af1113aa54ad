//! HTTP/2 with prior knowledge, through hyper's own client.
#![cfg(feature = "http2")]

mod answers;
mod drain;
mod hostile;
mod limits;
mod support;
mod timeouts;
mod tls;
mod turns;
