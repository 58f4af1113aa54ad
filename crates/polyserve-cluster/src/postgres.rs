//! `postgres`: a row for each entity in a table of PostgreSQL.
//!
//! Promises: linearizable on one primary, which acknowledges a write after it is on disk (settings `fsync` and
//! `synchronous_commit`, which are on by default). A failover to a standby that replicates asynchronously may lose
//! acknowledged writes.
//!
//! * A row has the text of the id and the JSON of the entity, both of type `text`. A put is an upsert that tells
//!   `Created` from `Replaced`. A write with a condition names, in its `WHERE`, the text of the entity that the condition
//!   was evaluated on.
//! * There is a small fixed number of connections, and a spare for each after a read over it was late. Operations take
//!   them in turn, and are pipelined: an operation does not wait for the answer to the one before. Each write is a
//!   transaction. Writes of different connections share an fsync of the server.
//! * The statements of a connection are prepared. A connection through a pooler, such as PgBouncer, uses unnamed statements:
//!   one that pools transactions passes each to any of its servers, and these know the names of other clients' statements.
//!   Such a connection has no `statement_timeout`. Set one for the user if statements may wait for locks.
//! * When a store opens, it looks at the columns, the key, the rules and the persistence of its table, and at the encoding of the
//!   database: see [`PostgresOptions::table`]. It logs rights that writes lack. It needs PostgreSQL 12 or later.
//! * `status` inserts no row. So it sees a standby, a missing right and a server that is away, and it does not see a disk that is
//!   full: a put fails there, and is not done.
//! * An id is stored with each NUL as `\0` and each backslash as `\\`, because `text` has no NUL. The index limits an id to
//!   about 2,700 bytes.
//!
//! *Wins when* PostgreSQL is there already, and its queries, backups and replicas are of use. *Loses when* one machine
//! cannot take all writes.

mod table;

use std::cell::{Cell, OnceCell};
use std::io;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::StreamExt as _;
use polyserve_core::{Entity, Identifiable, Put, Removed};
use tokio::io::{AsyncReadExt as _, duplex};
use tokio::task::spawn_local;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, Error, NoTls, Row, SimpleQueryMessage, Statement};

use crate::error::{ConnectError, EngineFailure, Source};
use crate::limits::StoreLimits;
use crate::remote::{Engine, Held, Remote, Renewed, Stored, unique_name};

/// A store in a table of PostgreSQL.
///
/// ```no_run
/// use polyserve_cluster::{Postgres, PostgresOptions};
/// use polyserve_core::repo::EntityRepoExt;
/// use polyserve_core::{Entity, EntityRepo};
///
/// let store = Postgres::<Entity>::connect("postgres://app:secret@10.0.0.1/app", PostgresOptions::default())?;
/// store.put(Entity::new(1, "first", 0.5)).wait()?;
/// assert_eq!(store.fetch(&1)?, Some(Entity::new(1, "first", 0.5)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Postgres<E: Identifiable = Entity> {
    remote: Remote<E, Pool>,
}

/// The settings of a [`Postgres`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// The table: letters, digits and `_`, after a schema and a dot if need be. It is created if it does not exist. Otherwise
    /// it needs `id text PRIMARY KEY, value text NOT NULL`; other columns need a default or may be null. It may not be
    /// `UNLOGGED` or temporary, and may have no rules.
    /// Stores with the same table share their entities. Default: `polyserve`.
    pub table: String,
    /// The number of connections. A read that is late uses another one, so there may be twice that number. Default: 4.
    pub connections: NonZeroUsize,
    /// The password, if the URL has none. Default: none.
    pub password: Option<String>,
    /// How long to wait, and how much to hold.
    pub limits: StoreLimits,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        let connections = const { NonZeroUsize::new(4).unwrap() };
        Self { table: "polyserve".into(), connections, password: None, limits: StoreLimits::default() }
    }
}

impl PostgresOptions {
    /// Sets the table.
    #[must_use]
    pub fn table(self, table: impl Into<String>) -> Self {
        Self { table: table.into(), ..self }
    }

    /// Sets the number of connections.
    #[must_use]
    pub fn connections(self, connections: NonZeroUsize) -> Self {
        Self { connections, ..self }
    }

    /// Sets the password.
    #[must_use]
    pub fn password(self, password: impl Into<String>) -> Self {
        Self { password: Some(password.into()), ..self }
    }

    /// Sets how long to wait, and how much to hold.
    #[must_use]
    pub fn limits(self, limits: StoreLimits) -> Self {
        Self { limits, ..self }
    }
}

impl<E: Identifiable> Postgres<E> {
    /// Connects to the database at `url`: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. A URL may name several hosts: the
    /// primary among them is used, as with `target_session_attrs=read-write`. A standby may have an old value.
    ///
    /// It blocks this thread until the database has answered.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL or the table's name is invalid, if the database does not answer within the connect
    /// timeout, if the table cannot be created, or if its columns, its key or the database's encoding are unfit. What can
    /// never succeed, such as a wrong password, fails at once.
    pub fn connect(url: &str, options: PostgresOptions) -> Result<Self, ConnectError> {
        let PostgresOptions { table, connections, password, limits } = options;
        let mut config = parsed(url)?;
        if !is_table(&table) {
            let what =
                format!("the table {table:?} is no name of at most 63 letters, digits and `_`; an example: polyserve");
            return Err(ConnectError::new(what));
        }
        if let (None, Some(password)) = (config.get_password(), password) {
            config.password(password);
        }
        let timeout = limits.timeout;
        config.connect_timeout(timeout / 3).tcp_user_timeout(timeout).keepalives_idle(Duration::from_secs(10));
        let open = move || Pool {
            queries: Rc::new(queries(&quoted(&table))),
            config,
            table: quoted(&table),
            is_checked: Cell::new(false),
            timeout,
            sessions: (0..connections.get()).map(|_| Renewed::new()).collect(),
            next: Cell::new(0),
        };
        Ok(Self { remote: Remote::connect(limits, String::new(), open)? })
    }

    /// Connects to a new, empty store, with a table of its own. The entities are removed when the store is dropped. For
    /// measurements and tests.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`connect`](Self::connect).
    pub fn temporary(url: &str, options: PostgresOptions) -> Result<Self, ConnectError> {
        let table = format!("{}_{}", options.table, unique_name());
        let mut store = Self::connect(url, options.table(table))?;
        store.remote.make_temporary();
        Ok(store)
    }
}

/// The settings in a URL. Of several hosts, the primary is used: a standby may have an old value.
fn parsed(url: &str) -> Result<Config, ConnectError> {
    // The URL may have a password, so messages do not show it.
    let invalid = |error| {
        ConnectError::caused(
            "the PostgreSQL URL is invalid; an example: postgres://user@127.0.0.1:5432/database",
            error,
        )
    };
    let mut config: Config = url.parse().map_err(invalid)?;
    if config.get_ssl_mode() == SslMode::Require {
        return Err(ConnectError::new("sslmode=require needs TLS, which this store does not support"));
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(ConnectError::new(
            "the PostgreSQL URL has no host; an example: postgres://user@127.0.0.1:5432/database",
        ));
    }
    let addresses = config.get_hosts().len().max(config.get_hostaddrs().len());
    if addresses > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    Ok(config)
}

/// Whether a text is a table's name, with or without a schema, that SQL takes as it is.
fn is_table(text: &str) -> bool {
    let is_name = |name: &str| {
        let is_start = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        is_start && name.len() < 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    text.split('.').count() <= 2 && text.split('.').all(is_name)
}

/// A table's name in quotes, so that it may be a word of SQL. Without quotes, capitals would be small letters.
fn quoted(table: &str) -> String {
    let names = table.split('.').map(|name| format!("\"{}\"", name.to_ascii_lowercase()));
    names.collect::<Vec<_>>().join(".")
}

crate::remote::repo!(Postgres);

/// A fixed number of connections.
struct Pool {
    config: Config,
    /// In quotes.
    table: String,
    /// Whether the table was found fit.
    is_checked: Cell<bool>,
    queries: Rc<[String; QUERIES]>,
    timeout: Duration,
    sessions: Vec<Renewed<Rc<PoolSession>>>,
    /// The session of the next operation.
    next: Cell<usize>,
}

/// A statement of a store.
#[derive(Clone, Copy)]
enum Query {
    Get,
    Put,
    Remove,
    Create,
    PutOver,
    RemoveSeen,
    TryWrite,
    Len,
}

/// The number of statements.
const QUERIES: usize = Query::Len as usize + 1;

/// The texts of the statements, in the order of [`Query`]. All parameters are texts.
fn queries(table: &str) -> [String; QUERIES] {
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
    ]
}

/// The number of parameters of each statement.
const PARAMETERS: [usize; QUERIES] = [1, 2, 1, 2, 3, 2, 0, 0];

/// A connection. Its statements are prepared while it serves, unless a pooler stands between: see the module's documentation.
struct PoolSession {
    client: Client,
    /// The prepared statements, in the order of [`Query`]. Empty if a pooler stands between, and until they are prepared.
    prepared: OnceCell<Vec<Statement>>,
    is_direct: bool,
}

/// What a statement has done.
#[derive(Default)]
struct Ran {
    first_row: Option<Row>,
    /// The number of rows that it has changed or returned. `None` before the server has completed it.
    rows: Option<u64>,
}

impl Ran {
    fn has_changed(&self) -> Result<bool, EngineFailure> {
        let rows = self.rows.ok_or_else(|| EngineFailure::Unknown("the number of changed rows is missing".into()))?;
        Ok(rows > 0)
    }
}

impl PoolSession {
    /// Runs a statement. If that fails, `ran` has what was known before.
    async fn run(&self, query: Query, text: &str, values: &[&str], ran: &mut Ran) -> Result<(), Error> {
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

    /// Prepares all statements in one round trip.
    async fn prepare(&self, queries: &[String; QUERIES], timeout: Duration) -> Result<(), Error> {
        // A statement that waits for a lock must not hold its connection longer than anything waits for it.
        let set = format!("SET statement_timeout = {}", timeout.as_millis().max(1));
        let prepare = async |query: Query| {
            let query = query as usize;
            self.client.prepare_typed(&queries[query], &[const { Type::TEXT }; 3][..PARAMETERS[query]]).await
        };
        let (set, get, put, remove, create, put_over, remove_seen, try_write, len) = tokio::join!(
            self.client.batch_execute(&set),
            prepare(Query::Get),
            prepare(Query::Put),
            prepare(Query::Remove),
            prepare(Query::Create),
            prepare(Query::PutOver),
            prepare(Query::RemoveSeen),
            prepare(Query::TryWrite),
            prepare(Query::Len),
        );
        set?;
        let _ = self.prepared.set(vec![get?, put?, remove?, create?, put_over?, remove_seen?, try_write?, len?]);
        Ok(())
    }
}

/// Whether the client is connected to the server itself, and not to a pooler, which gives its clients other process ids than those
/// of its servers.
async fn is_direct(client: &Client) -> Result<bool, Error> {
    let messages = client.simple_query("SELECT pg_backend_pid()").await?;
    let backend: Option<i32> = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    });
    // The client shows the process id that it was given in a request to cancel only: length, code, process id, key.
    let (mut ours, theirs) = duplex(64);
    client.cancel_token().cancel_query_raw(theirs, NoTls).await?;
    let mut request = [0; 12];
    let is_read = ours.read_exact(&mut request).await.is_ok();
    let [.., a, b, c, d] = request;
    Ok(is_read && backend == Some(i32::from_be_bytes([a, b, c, d])))
}

impl Pool {
    async fn open(&self) -> Result<Rc<PoolSession>, EngineFailure> {
        let (client, connection) = self.config.connect(NoTls).await.map_err(not_open)?;
        // Reads and writes the socket, until the client is dropped or the connection fails.
        spawn_local(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = &error as &dyn std::error::Error, "a connection to PostgreSQL has ended");
            }
        });
        self.start_session(client).await
    }

    /// Returns an error if the table is unfit. Asks once.
    async fn check_table(&self, client: &Client) -> Result<(), EngineFailure> {
        if !self.is_checked.get() {
            if let Some(misfit) = table::misfit(client, &self.table).await.map_err(not_open)? {
                return Err(EngineFailure::Rejected(misfit.into()));
            }
            self.is_checked.set(true);
        }
        Ok(())
    }

    /// Makes a session ready in one round trip if the table exists.
    async fn start_session(&self, client: Client) -> Result<Rc<PoolSession>, EngineFailure> {
        let mut session = PoolSession { client, prepared: OnceCell::new(), is_direct: false };
        let query = Query::Get;
        let mut ran = Ran::default();
        let (is_fit, is_direct, found) = tokio::join!(
            self.check_table(&session.client),
            is_direct(&session.client),
            session.run(query, &self.queries[query as usize], &[""], &mut ran)
        );
        is_fit?;
        session.is_direct = is_direct.map_err(not_open)?;
        match found {
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => {
                let columns = r#"(id text COLLATE "C" PRIMARY KEY, value text NOT NULL)"#;
                let create = format!("CREATE TABLE IF NOT EXISTS {} {columns}", self.table);
                session.client.batch_execute(&create).await.map_err(not_open)?;
            }
            found => found.map_err(not_open)?,
        }
        let session = Rc::new(session);
        if session.is_direct {
            let (session, queries, timeout) = (Rc::clone(&session), Rc::clone(&self.queries), self.timeout);
            spawn_local(async move {
                // Without prepared statements, a session serves more slowly.
                if let Err(error) = session.prepare(&queries, timeout).await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "statements cannot be prepared");
                }
            });
        }
        Ok(session)
    }

    /// Runs a statement. All its parameters are texts.
    async fn run(&self, turn: &PoolTurn, query: Query, values: &[&str]) -> Result<Ran, EngineFailure> {
        let session = &turn.held.connection;
        // The client takes the request at once, or not at all.
        if session.client.is_closed() {
            self.suspect(turn);
            return Err(EngineFailure::NotDone("the connection had ended".into()));
        }
        let mut ran = Ran::default();
        match session.run(query, &self.queries[query as usize], values, &mut ran).await {
            Ok(()) => Ok(ran),
            Err(error) => Err(self.failed(turn, error, ran.rows.is_some())),
        }
    }

    /// The failure of a statement. A session that has ended or is ending, has forgotten a statement, or is on a standby, is left.
    fn failed(&self, turn: &PoolTurn, error: Error, is_complete: bool) -> EngineFailure {
        let session = &turn.held.connection;
        let is_ending = matches!(severity(&error), Some(Severity::Fatal | Severity::Panic));
        let is_useless = is_forgotten(&error) || error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION);
        let failure = if !session.is_direct && !is_complete && has_no_server(&error) {
            EngineFailure::NotDone(error.into())
        } else {
            classify(error, is_complete || !session.is_direct)
        };
        if is_ending || is_useless || session.client.is_closed() || matches!(failure, EngineFailure::Unknown(_)) {
            self.suspect(turn);
        }
        failure
    }
}

/// Whether a session has lost a prepared statement, or the statement's result has changed its type.
fn is_forgotten(error: &Error) -> bool {
    match error.code() {
        Some(&SqlState::INVALID_SQL_STATEMENT_NAME | &SqlState::DUPLICATE_PSTATEMENT) => true,
        Some(&SqlState::FEATURE_NOT_SUPPORTED) => {
            error.as_db_error().and_then(DbError::routine) == Some("RevalidateCachedQuery")
        }
        _ => false,
    }
}

/// Texts of PgBouncer, which has one code for several errors, for a statement that it has given to no server.
const NO_SERVER: [&str; 4] =
    ["query_wait_timeout", "server login has been failing", "server login failed", "cannot connect to server"];

/// Whether a pooler has given the statement to no server.
fn has_no_server(error: &Error) -> bool {
    error.as_db_error().is_some_and(|error| is_without_server(error.code(), error.message()))
}

fn is_without_server(code: &SqlState, message: &str) -> bool {
    *code == SqlState::PROTOCOL_VIOLATION && NO_SERVER.iter().any(|text| message.contains(text))
}

/// What an error means for the statement. If `is_complete`, the server may have committed it before it sent the error.
fn classify(error: Error, is_complete: bool) -> EngineFailure {
    if is_forgotten(&error) {
        return EngineFailure::NotDone(error.into());
    }
    match error.code().map(SqlState::code) {
        Some(code) => failure_of(code, severity(&error), is_complete)(error.into()),
        None if is_of_values(&error) => EngineFailure::Rejected(error.into()),
        // The connection ended: a commit may have come before.
        None => EngineFailure::Unknown(error.into()),
    }
}

/// Whether a value could not be encoded, and was not sent, or cannot be decoded.
fn is_of_values(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| match source.downcast_ref::<io::Error>() {
        Some(error) => error.kind() == io::ErrorKind::InvalidInput,
        None => true,
    })
}

fn severity(error: &Error) -> Option<Severity> {
    error.as_db_error().and_then(DbError::parsed_severity)
}

/// What an SQLSTATE means for the statement. A code alone does not tell: a server that panics as it writes its log has the code of a
/// full disk, and the commit may be in that log.
fn failure_of(code: &str, severity: Option<Severity>, is_complete: bool) -> fn(Source) -> EngineFailure {
    match severity {
        Some(Severity::Panic) => return EngineFailure::Unknown,
        Some(Severity::Fatal) if is_complete => return EngineFailure::Unknown,
        _ => {}
    }
    match SqlState::from_code(code) {
        // The server ends: a commit may have come before.
        SqlState::CRASH_SHUTDOWN | SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => EngineFailure::Unknown,
        SqlState::ADMIN_SHUTDOWN if is_complete => EngineFailure::Unknown,
        // It was undone: the server was not ready, is a standby, or stopped the statement.
        SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::LOCK_NOT_AVAILABLE
        | SqlState::READ_ONLY_SQL_TRANSACTION => EngineFailure::NotDone,
        // Class 53: no room, no memory, too many connections. Class 57: an operator stopped it, or the server starts or ends.
        _ if code.starts_with("53") || code.starts_with("57") => EngineFailure::NotDone,
        // Class 08: a connection failed, perhaps one between a pooler and the server.
        _ if code.starts_with("08") => EngineFailure::Unknown,
        _ => EngineFailure::Rejected,
    }
}

/// What an error means for a session that is being opened. Nothing was written.
fn not_open(error: Error) -> EngineFailure {
    // The client has no code for these: settings without a host or a password, a method that it does not know.
    if ["invalid configuration", "authentication error"].contains(&&*error.to_string()) {
        return EngineFailure::Rejected(error.into());
    }
    match classify(error, false).of_read() {
        // Another process creates the table at the same time.
        EngineFailure::Rejected(source) if is_race(&source) => EngineFailure::NotDone(source),
        failure => failure,
    }
}

fn is_race(source: &Source) -> bool {
    let code = source.downcast_ref().and_then(Error::code);
    matches!(code, Some(&SqlState::UNIQUE_VIOLATION | &SqlState::DUPLICATE_TABLE | &SqlState::DUPLICATE_OBJECT))
}

/// A session for one operation.
struct PoolTurn {
    index: usize,
    held: Held<Rc<PoolSession>>,
}

/// An id as a text without NUL.
fn escaped(id: &str) -> String {
    id.replace('\\', r"\\").replace('\0', r"\0")
}

/// JSON as a text.
fn text(value: &[u8]) -> Result<&str, EngineFailure> {
    str::from_utf8(value).map_err(|error| EngineFailure::Rejected(error.into()))
}

impl Engine for Pool {
    const NAME: &'static str = "postgres";
    type Connection = PoolTurn;
    /// The text of a value tells it from another one.
    type Version = ();

    async fn connection(&self, late: Option<&PoolTurn>) -> Result<PoolTurn, EngineFailure> {
        let index = late.map_or_else(|| self.next.get() % self.sessions.len(), |late| late.index);
        if late.is_none() {
            self.next.set(index + 1);
        }
        let held = self.sessions[index].get(late.map(|late| &late.held), async |_| self.open().await).await?;
        Ok(PoolTurn { index, held })
    }

    fn suspect(&self, turn: &PoolTurn) {
        self.sessions[turn.index].suspect(&turn.held);
    }

    /// Class 53, but for too many connections, which come and go.
    fn lasts(why: &Source) -> bool {
        let code = why.downcast_ref().and_then(Error::code);
        code.is_some_and(|code| code.code().starts_with("53") && *code != SqlState::TOO_MANY_CONNECTIONS)
    }

    async fn get(&self, turn: &PoolTurn, id: &str) -> Result<Option<Stored<()>>, EngineFailure> {
        let found = self.run(turn, Query::Get, &[&escaped(id)]).await?;
        let value = found.first_row.map(|row| row.try_get::<_, String>(0)).transpose();
        let value = value.map_err(|error| EngineFailure::Rejected(error.into()))?;
        Ok(value.map(|value| Stored { value: value.into_bytes(), version: () }))
    }

    async fn put(&self, turn: &PoolTurn, id: &str, value: &[u8]) -> Result<Put, EngineFailure> {
        let put = self.run(turn, Query::Put, &[&escaped(id), text(value)?]).await?;
        let row = put
            .first_row
            .ok_or_else(|| EngineFailure::Rejected("a rule or trigger of the table dropped the row".into()))?;
        let created = row.try_get(0).map_err(|error| EngineFailure::Unknown(error.into()))?;
        Ok(if created { Put::Created } else { Put::Replaced })
    }

    async fn remove(&self, turn: &PoolTurn, id: &str) -> Result<Removed, EngineFailure> {
        let removed = self.run(turn, Query::Remove, &[&escaped(id)]).await?;
        Ok(if removed.has_changed()? { Removed::Removed } else { Removed::Absent })
    }

    async fn put_over(
        &self,
        turn: &PoolTurn,
        id: &str,
        seen: Option<&Stored<()>>,
        value: &[u8],
    ) -> Result<bool, EngineFailure> {
        let (id, value) = (escaped(id), text(value)?);
        let put = match seen {
            None => self.run(turn, Query::Create, &[&id, value]).await?,
            Some(seen) => self.run(turn, Query::PutOver, &[&id, text(&seen.value)?, value]).await?,
        };
        put.has_changed()
    }

    async fn remove_seen(&self, turn: &PoolTurn, id: &str, seen: &Stored<()>) -> Result<bool, EngineFailure> {
        self.run(turn, Query::RemoveSeen, &[&escaped(id), text(&seen.value)?]).await?.has_changed()
    }

    async fn try_write(&self, turn: &PoolTurn, _prefix: &str) -> Result<(), EngineFailure> {
        self.run(turn, Query::TryWrite, &[]).await.map(drop)
    }

    async fn len(&self, turn: &PoolTurn, _prefix: &str) -> Result<u64, EngineFailure> {
        let counted = self.run(turn, Query::Len, &[]).await?;
        let count: Option<i64> = counted
            .first_row
            .map(|row| row.try_get(0))
            .transpose()
            .map_err(|error| EngineFailure::Rejected(error.into()))?;
        Ok(count.unwrap_or(0).unsigned_abs())
    }

    /// Drops the table.
    async fn clear(&self, turn: &PoolTurn, _prefix: &str) -> Result<(), EngineFailure> {
        let client = &turn.held.connection.client;
        let dropped = client.batch_execute(&format!("DROP TABLE IF EXISTS {}", self.table)).await;
        dropped.map_err(|error| self.failed(turn, error, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primary_of_several_hosts_is_used() {
        let session = |url: &str| parsed(url).expect("the URL is valid").get_target_session_attrs();
        assert_eq!(session("postgres://user@one,two/database"), TargetSessionAttrs::ReadWrite);
        assert_eq!(session("postgres://user@/database?hostaddr=127.0.0.1,127.0.0.2"), TargetSessionAttrs::ReadWrite);
        assert_eq!(session("postgres://user@one/database"), TargetSessionAttrs::Any);
        let chosen = "postgres://user@one,two/database?target_session_attrs=read-only";
        assert_eq!(session(chosen), TargetSessionAttrs::ReadOnly);
    }

    #[test]
    fn a_lost_connection_leaves_a_statement_unknown() {
        let failure = |code: &str, is_complete| failure_of(code, Some(Severity::Error), is_complete)("test".into());
        // Class 08, also codes that this client does not know; completion unknown; the server crashes.
        for code in ["08000", "08003", "08006", "08007", "08P01", "08X99", "40003", "57P02"] {
            assert!(matches!(failure(code, false), EngineFailure::Unknown(_)), "{code}");
        }
        for code in
            ["40001", "40P01", "55P03", "57014", "57P03", "57P05", "25006", "53000", "53100", "53200", "53300", "53X99"]
        {
            assert!(matches!(failure(code, true), EngineFailure::NotDone(_)), "{code}");
        }
        for code in ["23505", "42P01", "42501", "54000", "40002", "0A000", "22021"] {
            assert!(matches!(failure(code, true), EngineFailure::Rejected(_)), "{code}");
        }
    }

    /// Regression test: a statement that PgBouncer gave to no server was reported as one that may have been done.
    #[test]
    fn a_pooler_without_a_server_has_not_done_it() {
        let is_without = |text| is_without_server(&SqlState::from_code("08P01"), text);
        assert!(is_without("query_wait_timeout"));
        assert!(is_without("server login has been failing, try again later (server_login_retry)"));
        assert!(is_without("pgbouncer cannot connect to server"));
        assert!(!is_without("server conn crashed?"));
        assert!(!is_without_server(&SqlState::from_code("P0001"), "query_wait_timeout"));
    }

    /// A server that is shut down ends a statement before its commit, if it has not sent that it is complete.
    #[test]
    fn a_shutdown_after_a_statement_is_complete_leaves_it_unknown() {
        for severity in [None, Some(Severity::Fatal)] {
            assert!(matches!(failure_of("57P01", severity, false)("test".into()), EngineFailure::NotDone(_)));
            assert!(matches!(failure_of("57P01", severity, true)("test".into()), EngineFailure::Unknown(_)));
        }
    }

    /// Regression test: a server that panicked as it wrote the log of a commit was said to have done nothing, and the write was
    /// sent again. The server finds the commit in its log when it starts.
    #[test]
    fn a_server_that_ends_leaves_a_statement_unknown() {
        let failure = |code, severity, is_complete| failure_of(code, Some(severity), is_complete)("test".into());
        for code in ["53100", "58030", "XX000"] {
            for is_complete in [false, true] {
                assert!(matches!(failure(code, Severity::Panic, is_complete), EngineFailure::Unknown(_)), "{code}");
            }
            assert!(matches!(failure(code, Severity::Fatal, true), EngineFailure::Unknown(_)), "{code}");
        }
        assert!(matches!(failure("53300", Severity::Fatal, false), EngineFailure::NotDone(_)));
    }
}
