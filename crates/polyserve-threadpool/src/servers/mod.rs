//! Servers on threads that block, or on jobs on a pool.
//!
//! | server | connections | a request costs |
//! |---|---|---|
//! | [`sequential`] | one at a time | a read and a write |
//! | [`thread_per_connection`] | a new thread for each | a read and a write |
//! | [`leader_followers`] | a thread for each, which also accepts | a read and a write |
//! | [`pool_classic`] | one job each on any [`Executor`](polyserve_core::Executor) | a poll, a read and a write |
//! | [`pool_server`] | multiplexed over any [`Executor`](polyserve_core::Executor) | a read, a write, its share of a poll |
//!
//! All drive the same sans-io [`Session`](polyserve_serving::http1::Session). The loop of all but [`pool_server`] is
//! [`serving::blocking`](polyserve_serving::blocking).
//!
//! Each server has a *main thread*, which its `serve` starts and which ends the drain. It accepts, or, if other threads do,
//! it watches them: then it is called the *supervisor*. It never calls the service, so it can end a run in which every other
//! thread is stuck.

mod executor_source;
pub mod leader_followers;
pub mod pool_classic;
pub mod pool_server;
pub mod sequential;
mod silent_connections;
pub mod thread_per_connection;

pub use leader_followers::LeaderFollowers;
pub use pool_classic::PoolClassic;
pub use pool_server::PoolServer;
pub use sequential::Sequential;
pub use thread_per_connection::ThreadPerConnection;
