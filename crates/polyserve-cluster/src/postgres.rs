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

mod failure;
mod pool;
mod session;
mod table;

use std::num::NonZeroUsize;
use std::time::Duration;

use polyserve_core::{Entity, Identifiable};
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use self::pool::SessionPool;
use crate::error::ConnectError;
use crate::limits::StoreLimits;
use crate::remote::{Remote, unique_name};

/// A store in a table of PostgreSQL.
///
/// ```no_run
/// use polyserve_cluster::{Postgres, PostgresOptions};
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt};
///
/// let store = Postgres::<Entity>::connect("postgres://app:secret@10.0.0.1/app", PostgresOptions::default())?;
/// store.put(Entity::new(1, "first", 0.5)).wait()?;
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Postgres<E: Identifiable = Entity> {
    remote: Remote<E, SessionPool>,
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
        let open = move || SessionPool::new(config, quoted(&table), connections, timeout);
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
}
