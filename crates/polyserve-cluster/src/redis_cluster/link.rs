//! [`Link`]: a connection to one node. It sends nothing once it has ended, so a request that it fails was not sent.
//!
//! The client library finds that a connection has ended when the next request fails, and that error is the one of a request
//! that was sent and not answered. A write may then have been done. So the end is noticed here, by the notice that the library
//! sends over RESP3.
//!
//! The library also answers with one error if it has no connection left, for a request that was sent and for one that was not. So
//! the requests that are sent are counted: see [`sent`].
//!
//! The library connects to the nodes of the cluster's layout only. A node that is new in it has no slot before the first one has moved
//! there, and an `ASK` names it already: [`Link::to`] connects to it, with the settings of the library's connections.
//!
//! If the library cannot read the cluster's layout, it answers all requests in flight with that error. A request that was sent
//! must not be taken for one that was refused. So the errors of the library's own commands are made those of a connection that
//! failed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::ready;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::Connect;
use redis::{
    Arg, AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, PushInfo, PushKind,
    RedisError, RedisFuture, Value,
};
use tokio::time::Instant;

use super::reply::{classify, is_no_login};
use crate::error::EngineFailure;

thread_local! {
    /// The number of requests of stores that were sent by connections of this thread.
    static SENT: Cell<u64> = const { Cell::new(0) };

    /// The nodes that refused the last connection to them because of its user or its password: for each address, the error, and when it was.
    /// The library tells a request only that it has no connection.
    static NO_LOGIN: RefCell<BTreeMap<String, (String, Instant)>> = const { RefCell::new(BTreeMap::new()) };

    /// The settings of the last connection that was opened.
    static SETTINGS: RefCell<Option<(ConnectionInfo, AsyncConnectionConfig)>> = const { RefCell::new(None) };
}

/// A node that has refused a login for the last time this long ago may have left the cluster: each request that needs a node without a
/// connection makes the library connect again.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Returns the error of a node that does not accept the store's login, with the node's address.
pub(super) fn refused_login() -> Option<String> {
    NO_LOGIN.with_borrow_mut(|refused| {
        refused.retain(|_, (_, at)| at.elapsed() < REFUSED_FOR);
        refused.iter().next().map(|(address, (why, _))| format!("{address}: {why}"))
    })
}

/// Notes what came of a connection to a node.
fn note_login(address: String, error: Option<&RedisError>) {
    NO_LOGIN.with_borrow_mut(|refused| match error.map(ToString::to_string) {
        Some(why) if is_no_login(&why) => _ = refused.insert(address, (why.replace('"', ""), Instant::now())),
        _ => _ = refused.remove(&address),
    });
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
    /// Connects to a node. A host that is empty is that of the other nodes: they do not know it if `cluster-preferred-endpoint-type` is
    /// `unknown-endpoint`.
    pub(super) async fn to(host: &str, port: u16) -> Result<Self, RedisError> {
        let no_settings = || io::Error::new(io::ErrorKind::ConnectionRefused, "no node is connected");
        let (info, config) = SETTINGS.with_borrow(Clone::clone).ok_or_else(no_settings)?;
        let mut addr = info.addr().clone();
        if let ConnectionAddr::Tcp(to_host, to_port) | ConnectionAddr::TcpTls { host: to_host, port: to_port, .. } =
            &mut addr
        {
            *to_port = port;
            if !host.is_empty() {
                host.clone_into(to_host);
            }
        }
        <Self as Connect>::connect_with_config(info.set_addr(addr), config).await
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    /// Counts a request that is sent. Returns an error if the connection has ended: that of a refused connection. [`classify`] takes it
    /// for a request that was not sent, and the library connects again.
    fn check(&self) -> Result<(), RedisError> {
        if self.has_ended() {
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
        EngineFailure::Unauthenticated(source)
        | EngineFailure::TooLarge(source)
        | EngineFailure::NoValue(source)
        | EngineFailure::Rejected(source) => match source.downcast::<RedisError>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source).into(),
        },
    }
}

/// Whether the library sends a command by itself. The store sends one of these too: a list of a slot's keys, which is a read, so that it may
/// be repeated after any error.
fn is_internal(command: &Cmd) -> bool {
    matches!(command.args_iter().next(), Some(Arg::Simple(b"CLUSTER" | b"PING")))
}

impl Connect for Link {
    fn connect_with_config<'a, T: IntoConnectionInfo + Send + 'a>(
        info: T,
        config: AsyncConnectionConfig,
    ) -> RedisFuture<'a, Self> {
        let unnoticed = config.clone();
        let has_ended = Arc::new(AtomicBool::new(false));
        let noticed = Arc::clone(&has_ended);
        let config = config.set_push_sender(move |push: PushInfo| {
            noticed.fetch_or(push.kind == PushKind::Disconnection, Relaxed);
            Ok::<_, redis::aio::SendError>(())
        });
        Box::pin(async move {
            let info = info.into_connection_info()?;
            SETTINGS.set(Some((info.clone(), unnoticed)));
            let address = info.addr().to_string();
            let connected = <MultiplexedConnection as Connect>::connect_with_config(info, config).await;
            note_login(address, connected.as_ref().err());
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

#[cfg(test)]
mod tests {
    use redis::ErrorKind;
    use tokio::time::advance;

    use super::*;

    /// Regression test: a node that had left the cluster, and had refused the login, was the cause of all later failures.
    #[tokio::test(start_paused = true)]
    async fn a_login_that_was_refused_long_ago_is_no_cause() {
        let refused = RedisError::from((ErrorKind::AuthenticationFailed, "WRONGPASS invalid password"));
        let note = |address: &str| note_login(address.to_owned(), Some(&refused));
        note("left:1");
        note("other:1");
        note_login("other:1".to_owned(), None);
        assert!(refused_login().is_some_and(|why| why.starts_with("left:1: ")));
        advance(Duration::from_secs(600)).await;
        assert_eq!(refused_login(), None);
        note("member:1");
        assert!(refused_login().is_some_and(|why| why.starts_with("member:1: ")));
    }
}
