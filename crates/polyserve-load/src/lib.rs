//! A load generator for HTTP/1.1 servers that verifies every answer.
//!
//! [`run`](run()) sends a [`Load`] to a server and returns a [`Report`]. A load is a closed loop or has a fixed rate. It
//! uses kept connections, pipelined connections, or a connection for every request.
//!
//! The load generator shares the machine with the server that it measures, so its own cost is low. A batch of requests
//! costs one write, one read, a share of one `epoll_wait`, one clock reading, and comparisons of bytes.
//!
//! # Layout
//!
//! All items are at the root, except the rows in [`data`].
//!
//! * `load`, `traffic`, `mix`, `dist`, [`data`]: the requests of a load, and when they are sent.
//! * `arrivals`: the spacing of an open loop's requests.
//! * `rows`: the JSON rows of the entities. `request_stream`: the order of the requests.
//! * `encoded_requests`: requests as bytes, and the expected answers. `discover`: an answer that is not known yet.
//! * `answer`: compares an answer with the expected one while it arrives, at any split.
//! * `client`: one thread's loop over its connections. `tls`: the session between a socket and the bytes of HTTP.
//! * `retry`: clients that send a request again.
//! * `run`, `prefill`: the threads of a load, and its preparation.
//! * `report`, `error`: the results.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod answer;
mod arrivals;
mod client;
mod clock;
pub mod data;
mod discover;
mod dist;
mod encoded_requests;
mod error;
mod load;
mod mix;
mod prefill;
mod report;
mod request_stream;
mod retry;
mod rows;
mod run;
mod tls;
mod traffic;

pub use arrivals::Arrivals;
pub use clock::ProcessCpuTime;
pub use discover::{Discovered, discover};
pub use dist::{Dist, Picker};
pub use error::LoadError;
pub use load::{CpuSource, Load, Pace, RunLength, Usage};
pub use mix::Mix;
pub use prefill::{prefill, prefill_for};
pub use report::{ChangingAnswer, Failures, LoadProgress, Report, RequestPhases};
pub use retry::{Retry, RetryReport};
pub use run::run;
pub use tls::ClientTls;
pub use traffic::{AnswerCheck, Exchange, Traffic};
