//! Servers on threads that block, or on jobs on a pool.
//!
//! The crate's documentation lists them.
//!
//! All drive the same [`Connection`](polyserve_serving::Connection), which has no socket. The loop of all but `pool_server` is
//! [`serving::blocking`](polyserve_serving::blocking).
//!
//! Each server has a *main thread*, which its `serve` starts and which ends the drain. It accepts, or, if other threads do,
//! it watches them: then it is called the *supervisor*. It never calls the service, so it can end a run in which every other
//! thread is stuck.

mod executor_server;
mod leader_followers;
mod pool_classic;
mod pool_server;
mod sequential;
mod silent_connections;
mod thread_per_connection;

pub use leader_followers::LeaderFollowers;
pub use pool_classic::PoolClassic;
pub use pool_server::PoolServer;
pub use sequential::Sequential;
pub use thread_per_connection::ThreadPerConnection;

/// The stack of a connection's thread. It is enough for the loop, the parser's header fields and an ordinary service, also with
/// entities of five levels. For entities that nest deeper the stack grows (`polyserve_core::stack`). Only address space is
/// reserved: pages that are never touched take no memory.
const CONNECTION_STACK: usize = 512 * 1024;
