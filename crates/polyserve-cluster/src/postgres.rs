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
//! * An id is stored with each NUL as `\0` and each backslash as `\\`, because `text` has no NUL. The index limits an id to
//!   about 2,700 bytes.
//!
//! *Wins when* PostgreSQL is there already, and its queries, backups and replicas are of use. *Loses when* one machine
//! cannot take all writes.

mod table;

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use polyserve_core::{Entity, Identifiable, Put, Removed};
use tokio::task::spawn_local;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, NoTls, Row, Statement};

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
    /// it needs `id text PRIMARY KEY, value text NOT NULL`; other columns need a default or may be null.
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
    timeout: Duration,
    sessions: Vec<Renewed<Rc<PreparedClient>>>,
    /// The session of the next operation.
    next: Cell<usize>,
}

/// A connection with its statements.
struct PreparedClient {
    client: Client,
    statements: Statements,
}

struct Statements {
    get: Statement,
    put: Statement,
    remove: Statement,
    create: Statement,
    put_over: Statement,
    remove_seen: Statement,
    len: Statement,
}

impl Statements {
    /// Prepares all statements in one round trip.
    async fn prepare(client: &Client, table: &str) -> Result<Self, Error> {
        let prepare = async |sql: String| client.prepare(&sql).await;
        let upsert = "ON CONFLICT (id) DO UPDATE SET value = EXCLUDED.value RETURNING xmax = 0";
        let (get, put, remove, create, put_over, remove_seen, len) = tokio::try_join!(
            prepare(format!("SELECT value FROM {table} WHERE id = $1")),
            // A row that was replaced has the replacing transaction in `xmax`.
            prepare(format!("INSERT INTO {table} (id, value) VALUES ($1, $2) {upsert}")),
            prepare(format!("DELETE FROM {table} WHERE id = $1")),
            prepare(format!("INSERT INTO {table} (id, value) VALUES ($1, $2) ON CONFLICT DO NOTHING")),
            prepare(format!("UPDATE {table} SET value = $3 WHERE id = $1 AND value = $2")),
            prepare(format!("DELETE FROM {table} WHERE id = $1 AND value = $2")),
            prepare(format!("SELECT count(*) FROM {table}")),
        )?;
        Ok(Self { get, put, remove, create, put_over, remove_seen, len })
    }
}

impl Pool {
    async fn open(&self) -> Result<Rc<PreparedClient>, EngineFailure> {
        let (client, connection) = self.config.connect(NoTls).await.map_err(not_open)?;
        // Reads and writes the socket, until the client is dropped or the connection fails.
        spawn_local(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = &error as &dyn std::error::Error, "a connection to PostgreSQL has ended");
            }
        });
        if !self.is_checked.get() {
            if let Some(misfit) = table::misfit(&client, &self.table).await.map_err(not_open)? {
                return Err(EngineFailure::Rejected(misfit.into()));
            }
            self.is_checked.set(true);
        }
        self.prepared(client).await.map(Rc::new).map_err(not_open)
    }

    /// Makes a session ready in one round trip if the table exists.
    async fn prepared(&self, client: Client) -> Result<PreparedClient, Error> {
        // A statement that waits for a lock must not hold its connection longer than anything waits for it.
        let set = format!("SET statement_timeout = {}", self.timeout.as_millis().max(1));
        let (set, prepared) = tokio::join!(client.batch_execute(&set), Statements::prepare(&client, &self.table));
        set?;
        let statements = match prepared {
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => {
                let columns = r#"(id text COLLATE "C" PRIMARY KEY, value text NOT NULL)"#;
                client.batch_execute(&format!("CREATE TABLE IF NOT EXISTS {} {columns}", self.table)).await?;
                Statements::prepare(&client, &self.table).await?
            }
            prepared => prepared?,
        };
        Ok(PreparedClient { client, statements })
    }

    /// The failure of a statement. A session that is closed, fails, or is on a standby, is left.
    fn failed(&self, connection: &PoolTurn, error: Error) -> EngineFailure {
        let failure = classify(error);
        if connection.held.connection.client.is_closed() || !matches!(failure, EngineFailure::Rejected(_)) {
            self.suspect(connection);
        }
        failure
    }

    async fn execute(
        &self,
        turn: &PoolTurn,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, EngineFailure> {
        turn.session().client.execute(statement, values).await.map_err(|error| self.failed(turn, error))
    }

    async fn rows(
        &self,
        turn: &PoolTurn,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, EngineFailure> {
        turn.session().client.query_opt(statement, values).await.map_err(|error| self.failed(turn, error))
    }
}

/// What an error means for the statement.
fn classify(error: Error) -> EngineFailure {
    match error.code().map(SqlState::code) {
        Some(code) => failure_of(code)(error.into()),
        // The connection ended: a commit may have come before.
        None => EngineFailure::Unknown(error.into()),
    }
}

/// What an SQLSTATE means for the statement.
fn failure_of(code: &str) -> fn(Source) -> EngineFailure {
    match SqlState::from_code(code) {
        // It was undone: the server was not ready, is a standby, or stopped the statement.
        SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::QUERY_CANCELED
        | SqlState::READ_ONLY_SQL_TRANSACTION
        | SqlState::CANNOT_CONNECT_NOW
        | SqlState::TOO_MANY_CONNECTIONS => EngineFailure::NotDone,
        // The server ends: a commit may have come before.
        SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN | SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => {
            EngineFailure::Unknown
        }
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
    match classify(error) {
        EngineFailure::Unknown(source) => EngineFailure::NotDone(source),
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
    held: Held<Rc<PreparedClient>>,
}

impl PoolTurn {
    fn session(&self) -> &PreparedClient {
        &self.held.connection
    }
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

    async fn get(&self, turn: &PoolTurn, id: &str) -> Result<Option<Stored<()>>, EngineFailure> {
        let row = self.rows(turn, &turn.session().statements.get, &[&escaped(id)]).await?;
        let value = row.map(|row| row.try_get::<_, String>(0)).transpose().map_err(|error| self.failed(turn, error))?;
        Ok(value.map(|value| Stored { value: value.into_bytes(), version: () }))
    }

    async fn put(&self, turn: &PoolTurn, id: &str, value: &[u8]) -> Result<Put, EngineFailure> {
        let row = self.rows(turn, &turn.session().statements.put, &[&escaped(id), &text(value)?]).await?;
        let row =
            row.ok_or_else(|| EngineFailure::Rejected("a rule or trigger of the table dropped the row".into()))?;
        let created = row.try_get(0).map_err(|error| self.failed(turn, error))?;
        Ok(if created { Put::Created } else { Put::Replaced })
    }

    async fn remove(&self, turn: &PoolTurn, id: &str) -> Result<Removed, EngineFailure> {
        let removed = self.execute(turn, &turn.session().statements.remove, &[&escaped(id)]).await?;
        Ok(if removed > 0 { Removed::Removed } else { Removed::Absent })
    }

    async fn put_over(
        &self,
        turn: &PoolTurn,
        id: &str,
        seen: Option<&Stored<()>>,
        value: &[u8],
    ) -> Result<bool, EngineFailure> {
        let (id, value, session) = (escaped(id), text(value)?, turn.session());
        let changed = match seen {
            None => self.execute(turn, &session.statements.create, &[&id, &value]).await?,
            Some(seen) => self.execute(turn, &session.statements.put_over, &[&id, &text(&seen.value)?, &value]).await?,
        };
        Ok(changed > 0)
    }

    async fn remove_seen(&self, turn: &PoolTurn, id: &str, seen: &Stored<()>) -> Result<bool, EngineFailure> {
        let values: [&(dyn ToSql + Sync); 2] = [&escaped(id), &text(&seen.value)?];
        Ok(self.execute(turn, &turn.session().statements.remove_seen, &values).await? > 0)
    }

    async fn len(&self, turn: &PoolTurn, _prefix: &str) -> Result<u64, EngineFailure> {
        let row = self.rows(turn, &turn.session().statements.len, &[]).await?;
        let count: Option<i64> = row.map(|row| row.try_get(0)).transpose().map_err(|error| self.failed(turn, error))?;
        Ok(count.unwrap_or(0).unsigned_abs())
    }

    /// Drops the table.
    async fn clear(&self, turn: &PoolTurn, _prefix: &str) -> Result<(), EngineFailure> {
        let dropped = turn.session().client.batch_execute(&format!("DROP TABLE IF EXISTS {}", self.table)).await;
        dropped.map_err(|error| self.failed(turn, error))
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
        let failure = |code: &str| failure_of(code)("test".into());
        // Class 08, also codes that this client does not know; completion unknown; the server ends.
        for code in ["08000", "08003", "08006", "08007", "08P01", "08X99", "40003", "57P01", "57P02"] {
            assert!(matches!(failure(code), EngineFailure::Unknown(_)), "{code}");
        }
        for code in ["40001", "40P01", "57014", "25006", "57P03", "53300"] {
            assert!(matches!(failure(code), EngineFailure::NotDone(_)), "{code}");
        }
        for code in ["23505", "42P01", "54000", "40002"] {
            assert!(matches!(failure(code), EngineFailure::Rejected(_)), "{code}");
        }
    }
}
