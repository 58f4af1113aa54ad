//! Servers whose connections are served by threads that block, or by jobs on a pool.
//!
//! | server | connections | a request costs |
//! |---|---|---|
//! | [`sequential`] | one at a time | a read and a write |
//! | [`leader_followers`] | one a thread | a read and a write, in a thread of its own |
//! | [`pool_server`] | multiplexed over any [`Executor`](polyserve_core::Executor) | a read, a write, a dispatch |
//!
//! All drive the same sans-io [`Session`](polyserve_core::http1::Session); the loop of the first two is
//! [`serving::blocking`](polyserve_core::serving::blocking).

mod executor_source;
pub mod leader_followers;
pub mod pool_classic;
pub mod pool_server;
pub mod sequential;
pub mod thread_per_connection;

pub use leader_followers::LeaderFollowers;
pub use pool_classic::PoolClassic;
pub use pool_server::PoolServer;
pub use sequential::Sequential;
pub use thread_per_connection::ThreadPerConnection;
