//! The toolkit for authors of polyserve servers: what servers on the codec share, whatever their strategy.
//!
//! This crate is unstable: its items may change in any release.
//!
//! | task | item |
//! |---|---|
//! | open a listener | [`bind`]: the listener, its address and a [`ServerState`]; [`ServerState::wake_pipe`] |
//! | accept on a thread of its own | [`Incoming`]; [`Incoming::accept_or`] if it waits for a descriptor too; [`Incoming::wait`] if it serves too |
//! | accept in another way | [`AcceptRules`]: what follows each attempt |
//! | lend a thread its buffers | [`with_buffers`] |
//! | reject a connection with a 503 | [`LingeringSet::reject`]; or [`reject`] and [`ConnectionTable::admit_rejected`] |
//! | let a closed connection linger | [`LingeringSet::add`]; [`linger`] on a thread that may block |
//! | decide what a connection does next, and how long it waits | [`Connection`]: its driver takes each [`Step`] |
//! | serve many connections on a thread | [`ConnectionTable::serve`] over a [`TurnSocket`]; [`EventSocket`], [`WokenList`] and [`EventListener`] for an event loop |
//! | serve a connection on a thread that may block | [`blocking::serve`]; [`blocking::PoolConnections`]; or [`blocking::drive`] over a transport |
//! | count open connections, evict idle ones at the limit, wake those that are late, drain | [`ConnectionTable`] |
//! | count the bytes that waiting connections keep | [`memory`] |
//! | choose the idle connection to close, without the table | [`IdleQueue`], [`IdleSince`] |
//! | wait for sockets with `poll(2)` | [`net::wait`]; with [`EventListener::as_fd`], and a [`TurnSocket`] that notes what was pending last |
//! | keep deadlines as numbers, and a lower bound of them | [`DeadlineClock`] |
//! | run jobs in a bounded, closable executor | [`executor`]: [`Pool`](executor::Pool) over a [`Backend`](executor::Backend) |
//! | isolate a panic of foreign code | [`polyserve_core::panics`] |
//! | join threads within a time limit | [`ServerState::join`] at the end of a run; [`join_until`] |
//! | lock without poisoning | [`polyserve_core::sync`] |
//! | send operations to one thread, bounded | [`polyserve_core::mailbox`] |
//! | decode and encode HTTP/1.1 without sockets | [`http1`] |
//! | drain, in an event loop | [`EventListener::accept`] until it is closed, [`ConnectionTable::accept_loop_ended`]; [`ConnectionTable::supervise`] on the main thread |
//! | drain, on an accepting thread | [`Incoming::accept`], [`Incoming::accept_waiting`], [`Incoming::finish`], [`ConnectionTable::accept_loop_ended`]; [`ConnectionTable::finish`] or `supervise` |
//!
//! Two examples are servers of these parts, to start from: `custom_server` has a thread for each connection, and
//! `custom_event_loop` is multiplexed. A turn of the latter is all that it does with a connection:
//!
//! ```
//! use polyserve_serving::{Connection, ConnectionTable, EventSocket, TableEntry, TurnEnd, with_buffers};
//! use std::task::Context;
//!
//! /// Serves a turn. Returns whether the loop is to serve the connection again without an event; `None` if it has ended.
//! fn serve(table: &ConnectionTable<EventSocket>, entry: &TableEntry<EventSocket>, connection: &mut Connection) -> Option<bool> {
//!     let mut cx = Context::from_waker(&entry.waker);
//!     match with_buffers(|buffers| table.serve(entry, connection, &mut entry.handle(), &mut cx, buffers)) {
//!         TurnEnd::Wait => Some(false),
//!         TurnEnd::Yield => Some(true),
//!         TurnEnd::Close => {
//!             table.close(entry, connection);
//!             None
//!         }
//!     }
//! }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod answer_count;
pub mod blocking;
mod connection;
mod connections;
mod event_listener;
pub mod executor;
pub mod http1;
mod incoming;
mod lingering;
pub mod memory;
pub mod net;
mod peer_limit;
mod server_state;
mod thread_buffers;
pub mod tls;
mod woken_list;

use std::time::Duration;

use net::wait;

pub use connection::{Connection, HasSent, QueuedSince, Step, Turn, WaitFor, WaitTimes};
pub use connections::{
    ConnectionHandle, ConnectionTable, DeadlineClock, EventSocket, FoundConnections, IdleQueue, IdleSince,
    ReservedPlace, TableEntry, TurnEnd, TurnSocket, WriteKind, into_stream, millis, nanos,
};
pub use event_listener::{ACCEPT_BACKOFF, AcceptRules, AfterAccept, EventListener};
pub use incoming::{Accepted, Incoming};
pub use lingering::{Discarded, LingerWait, LingeringSet, MAX_LINGERING, discard, linger, reject};
pub use peer_limit::{PeerLimit, PeerPlace};
pub use server_state::{Bound, SHUTDOWN_SLACK, ServerState, WaitOutcome, bind, join_until, wait_for_answer};
pub use thread_buffers::{ThreadBuffers, with_buffers};
pub use woken_list::WokenList;

/// How long answers say `Connection: close` after there were more active connections than threads or than the limit. The next
/// connection is often on its way when an answer is written.
pub const CROWDED_AFTER: Duration = Duration::from_millis(100);

/// A connection that is evicted goes on waiting until it has been idle for this long. A client that sends its next request at
/// once gets an answer that says `Connection: close`, and not an end without an announcement.
///
/// A drain gives the same time, from its begin or from the connection's accept, to a connection that has not sent a byte: the first
/// request of a client that has just connected is answered.
pub const EVICTION_GRACE: Duration = Duration::from_millis(50);

/// The pause between two reads of a socket if its reading side was closed while a request was arriving.
pub(crate) const READ_RETRY: Duration = Duration::from_millis(2);
