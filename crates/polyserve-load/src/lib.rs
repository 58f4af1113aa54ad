//! A load generator for HTTP/1.1 servers that verifies every answer.
//!
//! [`run`](run()) puts a [`Load`] on a server and answers with a [`Report`]: closed loop or at a fixed rate, over kept
//! connections, pipelined, or with a connection for every request. It is the instrument by which strategies are
//! compared, so it costs as little as it can: a batch of requests is one write, one read, its share of one
//! `epoll_wait`, one reading of the clock, and comparisons of bytes.
//!
//! # Layout
//!
//! * [`load`], [`traffic`], [`dist`], [`data`]: what is asked, and how.
//! * `draws`, `script`: which request comes next; requests as bytes, and the answers that they may get.
//! * `answer`: an answer as it arrives, at any split, against what is expected.
//! * `client`: one thread's loop over its connections.
//! * [`run`](mod@run), [`prefill`](mod@prefill): threads, and what surrounds them.
//! * [`report`], [`error`]: what comes out.
#![forbid(unsafe_code)]

mod answer;
mod client;
mod clock;
pub mod data;
pub mod dist;
mod draws;
pub mod error;
mod learn;
pub mod load;
pub mod prefill;
pub mod report;
pub mod run;
mod script;
pub mod traffic;

pub use dist::{Dist, Picker};
pub use error::LoadError;
pub use load::{CpuOf, Load, Pace, Span, Usage};
pub use prefill::{prefill, prefill_for};
pub use report::{Failures, Parts, Progress, Report};
pub use run::run;
pub use traffic::{Exchange, Mix, Traffic};
