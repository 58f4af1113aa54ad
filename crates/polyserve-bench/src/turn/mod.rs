//! One turn: start, verify, warm up, load, drain, figures. Every measurement of servers is made of turns.
//!
//! The processes of a round run at once and are measured in turn, in slices of about 50 ms. So a longer disturbance by the machine
//! affects all contestants alike. A process that is not being measured is idle, without connections.
//!
//! Invariant: a contestant with one wrong answer has no figures. Cost: about half a second for each contestant; the memory of all
//! contestants at once.
//!
//! # Layout
//!
//! * `contestant`: contestants and their roles. `contract`: the rules that foreign contestants keep.
//! * `measure`: the contestants of a round. `rate`: the rate of the latencies. `sample`: sums
//!   and quantiles.
//! * `tls`: the certificate of a run over TLS. `rehearsal`: the answers of a service, before all contestants.

mod contestant;
mod contract;
mod measure;
mod rate;
mod rehearsal;
mod sample;
mod tls;

pub(crate) use contestant::bound_in_words;
pub use contestant::{Contestant, Role, bound, bound_of};
pub use contract::Contract;
pub(crate) use contract::{CONTRACT, check_contracts};
pub use measure::{ContestantSession, Instrument};
pub(crate) use measure::{measure_round, run, run_watched};
pub use rate::Rate;
pub(crate) use rate::half_of_slowest;
pub use rehearsal::{ConnectionBound, Rehearsal};
pub(crate) use sample::MAX_BEHIND;
pub use sample::microseconds;
pub use tls::RunTls;
