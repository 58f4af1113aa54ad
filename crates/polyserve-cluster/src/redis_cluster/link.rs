//! [`Link`]: a connection to one node. It sends nothing once it has ended, so a request that it fails was not sent.
//!
//! The client library finds that a connection has ended when the next request fails, and that error is the one of a request
//! that was sent and not answered. A write may then have been done. So the end is noticed here, by the notice that the library
//! sends over RESP3.
//!
//! The library also answers with one error if it has no connection left, for a request that was sent and for one that was not. So
//! the requests that are sent are counted: see [`sent`].
//!
//! If the library cannot read the cluster's layout, it answers all requests in flight with that error. A request that was sent
//! must not be taken for one that was refused. So the errors of the library's own commands are made those of a connection that
//! failed.

use std::cell::Cell;
use std::future::ready;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::Connect;
use redis::{
    Arg, AsyncConnectionConfig, Cmd, IntoConnectionInfo, Pipeline, PushInfo, PushKind, RedisError, RedisFuture, Value,
};

use super::reply::classify;
use crate::error::EngineFailure;

thread_local! {
    /// The number of requests of stores that were sent by connections of this thread.
    static SENT: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of requests that the connections of this thread have sent. All connections of a store are on one thread. If
/// the number did not change while a request was answered, the request was not sent.
pub(super) fn sent() -> u64 {
    SENT.get()
}

/// A connection to a node. Clones share it.
#[derive(Clone)]
pub(super) struct Link {
    connection: MultiplexedConnection,
    has_ended: Arc<AtomicBool>,
}

impl Link {
    /// Counts a request that is sent. Returns an error if the connection has ended: that of a refused connection. [`classify`] takes it
    /// for a request that was not sent, and the library connects again.
    fn check(&self) -> Result<(), RedisError> {
        if self.has_ended.load(Relaxed) {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the connection had ended").into());
        }
        SENT.set(SENT.get().wrapping_add(1));
        Ok(())
    }
}

/// An error of what the library asks by itself. See the module's documentation.
fn internal(error: RedisError) -> RedisError {
    match classify(error) {
        EngineFailure::NotDone(source) | EngineFailure::Unknown(source) => {
            io::Error::new(io::ErrorKind::BrokenPipe, source.to_string()).into()
        }
        EngineFailure::Rejected(source) => match source.downcast::<RedisError>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source).into(),
        },
    }
}

/// Whether the library sends a command by itself. The store sends none of these.
fn is_internal(command: &Cmd) -> bool {
    matches!(command.args_iter().next(), Some(Arg::Simple(b"CLUSTER" | b"PING")))
}

impl Connect for Link {
    fn connect_with_config<'a, T: IntoConnectionInfo + Send + 'a>(
        info: T,
        config: AsyncConnectionConfig,
    ) -> RedisFuture<'a, Self> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let noticed = Arc::clone(&has_ended);
        let config = config.set_push_sender(move |push: PushInfo| {
            noticed.fetch_or(push.kind == PushKind::Disconnection, Relaxed);
            Ok::<_, redis::aio::SendError>(())
        });
        Box::pin(async move {
            let connected = <MultiplexedConnection as Connect>::connect_with_config(info, config).await;
            Ok(Self { connection: connected.map_err(internal)?, has_ended })
        })
    }
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        if is_internal(command) {
            return Box::pin(async move {
                let answer = self.connection.req_packed_command(command).await;
                answer.and_then(Value::extract_error).map_err(internal)
            });
        }
        match self.check() {
            Ok(()) => self.connection.req_packed_command(command),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self.check() {
            Ok(()) => self.connection.req_packed_commands(pipeline, offset, count),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}
