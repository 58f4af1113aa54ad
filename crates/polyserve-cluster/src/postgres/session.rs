//! One connection, and the statements that run on it.

use std::cell::{Cell, OnceCell};
use std::future::{Ready, poll_fn, ready};
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::StreamExt as _;
use polyserve_core::MAX_PAGE_BYTES;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};
use tokio_postgres::config::Host;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Row, SimpleQueryMessage, Statement};

use crate::error::EngineFailure;

/// A statement of a store.
#[derive(Clone, Copy)]
pub(super) enum Query {
    Get,
    Put,
    Remove,
    Create,
    PutOver,
    RemoveSeen,
    TryWrite,
    Len,
    FirstPage,
    Page,
}

impl Query {
    /// Whether it changes rows.
    pub(super) fn is_write(self) -> bool {
        matches!(self, Self::Put | Self::Remove | Self::Create | Self::PutOver | Self::RemoveSeen)
    }
}

/// The number of statements.
pub(super) const QUERIES: usize = Query::Page as usize + 1;

/// The texts of the statements, in the order of [`Query`]. All parameters are texts.
pub(super) fn queries(table: &str) -> [String; QUERIES] {
    // The rows of a page, after one row or from the first on, and one more, as long as their values have room.
    let page = |comparison: &str| {
        format!(
            "SELECT coalesce(array_agg(id ORDER BY id), '{{}}'), coalesce(array_agg(value ORDER BY id), '{{}}'), coalesce(max(found), 0) FROM (
                SELECT id, value, row_number() OVER by_id AS row, sum(octet_length(value)) OVER by_id AS bytes, count(*) OVER () AS found
                FROM (SELECT id, value FROM {table} WHERE id {comparison} $1 ORDER BY id LIMIT $2::bigint) AS next
                WINDOW by_id AS (ORDER BY id)
            ) AS page WHERE bytes <= {MAX_PAGE_BYTES} OR row = 1"
        )
    };
    let upsert = "ON CONFLICT (id) DO UPDATE SET value = EXCLUDED.value RETURNING xmax = 0";
    [
        format!("SELECT value FROM {table} WHERE id = $1"),
        // A row that was replaced has the replacing transaction in `xmax`.
        format!("INSERT INTO {table} (id, value) VALUES ($1, $2) {upsert}"),
        format!("DELETE FROM {table} WHERE id = $1"),
        format!("INSERT INTO {table} (id, value) VALUES ($1, $2) ON CONFLICT DO NOTHING"),
        format!("UPDATE {table} SET value = $3 WHERE id = $1 AND value = $2"),
        format!("DELETE FROM {table} WHERE id = $1 AND value = $2"),
        format!("INSERT INTO {table} (id, value) SELECT '', '' WHERE false"),
        format!("SELECT count(*) FROM {table}"),
        // The empty text is before all others.
        page(">="),
        page(">"),
    ]
}

/// A statement waits for a lock for this part of the timeout.
const LOCK_PART: u32 = 10;

/// The number of parameters of each statement.
const PARAMETERS: [usize; QUERIES] = [1, 2, 1, 2, 3, 2, 0, 0, 2, 2];

/// A connection. Its statements are prepared while it serves, unless a pooler stands between: see the module's documentation.
pub(super) struct PoolSession {
    pub(super) client: Client,
    /// The prepared statements, in the order of [`Query`]. Empty if a pooler stands between, and until they are prepared.
    pub(super) prepared: OnceCell<Vec<Statement>>,
    pub(super) is_direct: bool,
    pub(super) place: Rc<SessionPlace>,
}

impl Drop for PoolSession {
    /// Also if it was not ready in time.
    fn drop(&mut self) {
        self.place.leave();
    }
}

/// The slot of a session, and its server.
#[derive(Debug)]
pub(super) struct SessionPlace {
    /// The index of its slot in the pool.
    pub(super) slot: usize,
    pub(super) server: ServerAddress,
    /// The number of commits that did not wait for their standby to the end.
    pub(super) unreplicated: Rc<Cell<u64>>,
    is_left: Cell<bool>,
    is_forgiven: Cell<bool>,
}

impl SessionPlace {
    pub(super) fn new(slot: usize, server: ServerAddress, unreplicated: Rc<Cell<u64>>) -> Self {
        Self { slot, server, unreplicated, is_left: Cell::new(false), is_forgiven: Cell::new(false) }
    }

    /// No further operation uses the session.
    pub(super) fn leave(&self) {
        self.is_left.set(true);
    }

    pub(super) fn is_left(&self) -> bool {
        self.is_left.get()
    }

    /// Whether the slot takes no writes because of this session.
    pub(super) fn holds_writes(&self) -> bool {
        self.is_left.get() && !self.is_forgiven.get()
    }

    /// Another session has committed a change. If this one was left before, it holds no writes any more.
    pub(super) fn forgive(&self) {
        self.is_forgiven.set(self.is_left.get());
    }
}

/// The function of the server that sends a warning, and then answers a commit as done, if an operator ends its wait for a standby. The text
/// of the warning depends on the server's language.
const WAIT_FOR_STANDBY: &str = "SyncRepWaitForLSN";

/// Reads and writes the socket of a client, until the client is dropped and all statements are answered, or the connection fails. Counts
/// the commits that did not wait for their standby to the end, each before it is answered.
pub(super) async fn drive<S, T>(mut connection: Connection<S, T>, unreplicated: Rc<Cell<u64>>) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
        if let AsyncMessage::Notice(notice) = message?
            && notice.routine() == Some(WAIT_FOR_STANDBY)
        {
            unreplicated.update(|count| count + 1);
        }
    }
    Ok(())
}

/// The address of a server, as the settings of a connection name it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerAddress(Vec<Host>, Vec<IpAddr>, Vec<u16>);

impl ServerAddress {
    pub(super) fn of(config: &Config) -> Self {
        Self(config.get_hosts().to_vec(), config.get_hostaddrs().to_vec(), config.get_ports().to_vec())
    }
}

/// What a statement has done.
#[derive(Default)]
pub(super) struct Ran {
    pub(super) first_row: Option<Row>,
    /// The number of rows that it has changed or returned. `None` before the server has completed it.
    pub(super) rows: Option<u64>,
}

impl Ran {
    pub(super) fn has_changed(&self) -> Result<bool, EngineFailure> {
        let rows = self.rows.ok_or_else(|| EngineFailure::Unknown("the number of changed rows is missing".into()))?;
        Ok(rows > 0)
    }
}

impl PoolSession {
    /// Runs a statement. If that fails, `ran` has what was known before.
    pub(super) async fn run(&self, query: Query, text: &str, values: &[&str], ran: &mut Ran) -> Result<(), Error> {
        let prepared = self.prepared.get().and_then(|prepared| prepared.get(query as usize));
        let rows = match prepared {
            Some(statement) => self.client.query_raw(statement, values).await?,
            None => self.client.query_typed_raw(text, values.iter().map(|value| (*value, Type::TEXT))).await?,
        };
        let mut rows = pin!(rows);
        loop {
            let row = rows.try_next().await;
            ran.rows = rows.rows_affected();
            match row? {
                Some(row) => _ = ran.first_row.get_or_insert(row),
                None => return Ok(()),
            }
        }
    }

    /// Prepares all statements in one round trip, and sets what a session needs. The settings are sent when this is polled first, so they
    /// hold for all statements that are sent after that.
    pub(super) async fn prepare(&self, queries: &[String; QUERIES], timeout: Duration) -> Result<(), Error> {
        // A statement must not hold its connection longer than anything waits for it. One that waits for a lock gives it to others
        // sooner, and is repeated.
        let millis = |time: Duration| time.as_millis().max(1);
        let (statement, lock) = (millis(timeout), millis(timeout / LOCK_PART));
        // Without warnings, a commit that no standby has looks like any other.
        let set = format!(
            "SET client_min_messages = warning; SET statement_timeout = {statement}; SET lock_timeout = {lock}"
        );
        let prepare = async |query: Query| {
            let query = query as usize;
            self.client.prepare_typed(&queries[query], &[const { Type::TEXT }; 3][..PARAMETERS[query]]).await
        };
        let (set, get, put, remove, create, put_over, remove_seen, try_write, len, first_page, page) = tokio::join!(
            self.client.batch_execute(&set),
            prepare(Query::Get),
            prepare(Query::Put),
            prepare(Query::Remove),
            prepare(Query::Create),
            prepare(Query::PutOver),
            prepare(Query::RemoveSeen),
            prepare(Query::TryWrite),
            prepare(Query::Len),
            prepare(Query::FirstPage),
            prepare(Query::Page),
        );
        set?;
        let writes = [put?, remove?, create?, put_over?, remove_seen?, try_write?];
        let _ = self.prepared.set([get?].into_iter().chain(writes).chain([len?, first_page?, page?]).collect());
        Ok(())
    }
}

/// How a client is connected.
pub(super) struct Route {
    /// Whether the client is connected to the server itself, and not to a pooler, which gives its clients other process ids than those
    /// of its servers.
    pub(super) is_direct: bool,
    /// Whether the settings of the server hide warnings.
    pub(super) hides_warnings: bool,
}

/// Finds how a client is connected.
pub(super) async fn route(client: &Client, has_tls: bool) -> Result<Route, Error> {
    let sql = "SELECT pg_backend_pid(), current_setting('client_min_messages') IN ('error', 'fatal', 'panic')";
    let messages = client.simple_query(sql).await?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let backend: Option<i32> = row.and_then(|row| row.get(0)?.parse().ok());
    let hides_warnings = row.is_some_and(|row| row.get(1) == Some("t"));
    // The client shows the process id that it was given in a request to cancel only: length, code, process id, key.
    let (mut ours, theirs) = duplex(64);
    let request = async {
        if has_tls {
            // The client asks for TLS first. It goes on without it if it is told that there is some.
            ours.read_exact(&mut [0; 8]).await?;
            ours.write_all(b"S").await?;
        }
        let mut request = [0; 12];
        ours.read_exact(&mut request).await?;
        Ok::<_, io::Error>(request)
    };
    let token = client.cancel_token();
    let (sent, request) = tokio::join!(token.cancel_query_raw(theirs, WithinProcess), request);
    sent?;
    let [.., a, b, c, d] = request.unwrap_or_default();
    Ok(Route { is_direct: backend == Some(i32::from_be_bytes([a, b, c, d])), hides_warnings })
}

/// The TLS of a stream that does not leave this process: none.
struct WithinProcess;

struct BareStream(DuplexStream);

impl TlsConnect<DuplexStream> for WithinProcess {
    type Stream = BareStream;
    type Error = io::Error;
    type Future = Ready<io::Result<BareStream>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(BareStream(stream)))
    }
}

impl TlsStream for BareStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for BareStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for BareStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
