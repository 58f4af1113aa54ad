//! `postgres`: a row for each entity in a table of PostgreSQL.
//!
//! Promises: linearizable on one primary, which acknowledges a write after it is on disk (settings `fsync` and
//! `synchronous_commit`, which are on by default; a store logs a warning if one is off when it opens). A failover to a standby that
//! replicates asynchronously may lose acknowledged writes. If an operator ends the wait of a commit for a standby that replicates
//! synchronously, the write is not acknowledged: it may have been done.
//!
//! * A row has the text of the id and the JSON of the entity, both of type `text`. A put is an upsert that tells
//!   `Created` from `Replaced`. A write with a condition names, in its `WHERE`, the text of the entity that the condition
//!   was evaluated on.
//! * There is a small fixed number of connections, and a spare for each after a read over it was late. An operation takes the
//!   one with the fewest others, and is pipelined: it does not wait for the answer to the one before. Each write is a
//!   transaction. Writes of different connections share an fsync of the server.
//! * The writes of one id share a connection, and a statement waits for a lock for a tenth of the timeout before it gives the
//!   connection to others. So a row that another program has locked delays only its own writes, while fewer rows are locked than
//!   there are connections.
//! * A connection that does not answer in time is replaced, and stays until the server has answered. Until then, its successor takes no
//!   writes, unless another write is committed. So while commits hang, for example because they wait for a standby that is away, reads
//!   are answered, `status` fails, most writes are certainly not done, and the server keeps connections for other programs.
//! * The statements of a connection are prepared. A connection through a pooler, such as PgBouncer, uses unnamed statements:
//!   one that pools transactions passes each to any of its servers, and these know the names of other clients' statements.
//!   Such a connection has no `statement_timeout` and no `lock_timeout`. Set them for the user if statements may wait for locks. It is
//!   refused if `client_min_messages` hides warnings, by which the server tells that it has not waited for a standby. Other
//!   connections set that.
//! * When a store opens, it looks at the columns, the key, the rules and the persistence of its table, and at the encoding of the
//!   database: see [`PostgresOptions::table`]. It logs rights that writes lack. It needs PostgreSQL 12 or later.
//! * `status` inserts no row. So it sees a standby, a missing right and a server that is away, and it does not see a disk that is
//!   full: a put fails there, and is not done.
//! * An id is stored with each NUL as `\0` and each backslash as `\\`, because `text` has no NUL. The index limits an id to
//!   about 2,700 bytes.
//! * A scan is in the order of the ids' texts in the collation of the column, by the index of the key.
//!
//! *Wins when* PostgreSQL is there already, and its queries, backups and replicas are of use. *Loses when* one machine
//! cannot take all writes.

mod failure;
mod pool;
mod session;
mod table;
mod url;

use std::num::NonZeroUsize;
use std::time::Duration;

use polyserve_core::{Entity, Identifiable};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use self::pool::SessionPool;
use self::url::{DatabaseUrl, parsed};
use crate::error::ConnectError;
use crate::limits::StoreLimits;
use crate::remote::{Remote, unique_name};
use crate::tls::EngineTls;

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
    /// The number of connections. A read that is late uses another one, so there may be twice that number; and three times as many again
    /// while the server does not answer. Default: 4.
    pub connections: NonZeroUsize,
    /// The password, if the URL has none. Default: none.
    pub password: Option<String>,
    /// The authorities and the certificate of the store, if the URL has an `sslmode` that needs them, and no files. Default: none.
    pub tls: Option<EngineTls>,
    /// How long to wait, and how much to hold.
    pub limits: StoreLimits,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        let connections = const { NonZeroUsize::new(4).unwrap() };
        Self { table: "polyserve".into(), connections, password: None, tls: None, limits: StoreLimits::default() }
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

    /// Sets the authorities and the certificate of the store.
    #[must_use]
    pub fn tls(self, tls: EngineTls) -> Self {
        Self { tls: Some(tls), ..self }
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
    /// With `?sslmode=verify-full&sslrootcert=FILE`, connections are encrypted, and the server shows a certificate of an authority of the
    /// file for its host. `verify-ca` does not look at the host, and `require` without a file takes any certificate. `sslcert` and
    /// `sslkey` are the files of the store's certificate. Without `sslmode`, with `prefer` and with `allow`, nothing is encrypted.
    ///
    /// It blocks this thread until the database has answered.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL or the table's name is invalid, if the database does not answer within the connect
    /// timeout, if the table cannot be created, or if its columns, its key or the database's encoding are unfit. What can
    /// never succeed, such as a wrong password, fails at once.
    pub fn connect(url: &str, options: PostgresOptions) -> Result<Self, ConnectError> {
        let PostgresOptions { table, connections, password, tls, limits } = options;
        let DatabaseUrl { mut config, tls } = parsed(url, tls)?;
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
        let (hosts, pool_limits) = (one_by_one(&config)?, limits.clone());
        let open = move || SessionPool::new((hosts, tls), quoted(&table), connections, &pool_limits);
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

/// The settings of each host. The client would wait for one that is silent, before it tries the next.
fn one_by_one(config: &Config) -> Result<Vec<Config>, ConnectError> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        let (hosts, addresses) = (hosts.len(), addresses.len());
        let what = format!(
            "the PostgreSQL URL has {hosts} hosts and {addresses} hostaddrs; there has to be one for each host"
        );
        return Err(ConnectError::new(what));
    }
    if ports.len() > 1 && ports.len() != count {
        let ports = ports.len();
        let what = format!(
            "the PostgreSQL URL has an invalid number of ports: {ports}, and {count} hosts; one port is for all"
        );
        return Err(ConnectError::new(what));
    }
    let settings_of = |index: usize| {
        let mut one = Config::new();
        match hosts.get(index) {
            Some(Host::Tcp(name)) => _ = one.host(name),
            #[cfg(unix)]
            Some(Host::Unix(path)) => _ = one.host_path(path),
            None => {}
        }
        addresses.get(index).map(|address| one.hostaddr(*address));
        ports.get(index).or(ports.first()).map(|port| one.port(*port));
        config.get_user().map(|user| one.user(user));
        config.get_password().map(|password| one.password(password));
        config.get_dbname().map(|name| one.dbname(name));
        config.get_options().map(|options| one.options(options));
        config.get_application_name().map(|name| one.application_name(name));
        config.get_connect_timeout().map(|time| one.connect_timeout(*time));
        config.get_tcp_user_timeout().map(|time| one.tcp_user_timeout(*time));
        config.get_keepalives_interval().map(|time| one.keepalives_interval(time));
        config.get_keepalives_retries().map(|count| one.keepalives_retries(count));
        one.keepalives(config.get_keepalives()).keepalives_idle(config.get_keepalives_idle());
        one.ssl_mode(config.get_ssl_mode()).channel_binding(config.get_channel_binding());
        one.target_session_attrs(config.get_target_session_attrs()).load_balance_hosts(config.get_load_balance_hosts());
        one
    };
    Ok((0..count).map(settings_of).collect())
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

    /// All settings but the hosts are those of each host.
    #[test]
    fn each_host_has_the_settings_of_the_url() {
        let one = "postgres://a:b@one:1/c?options=-c%20d&application_name=e&keepalives=0&keepalives_idle=2&\
                   keepalives_interval=3&keepalives_retries=4&connect_timeout=5&tcp_user_timeout=6&sslmode=disable&\
                   channel_binding=disable&target_session_attrs=read-only&load_balance_hosts=random";
        let hosts = |url: &str| one_by_one(&url.parse().expect("the URL is valid"));
        assert_eq!(hosts(one).unwrap(), [one.parse().unwrap()]);
        let several = hosts(&one.replace("one:1", "one:1,two:2,%2Fthree:3")).unwrap();
        let expected = ["one:1", "two:2", "%2Fthree:3"].map(|host| one.replace("one:1", host).parse().unwrap());
        assert_eq!(several, expected);
        let several = hosts("postgres://a@/c?hostaddr=127.0.0.1,::1&port=7").unwrap();
        let expected =
            ["127.0.0.1", "::1"].map(|host| format!("postgres://a@/c?hostaddr={host}&port=7").parse().unwrap());
        assert_eq!(several, expected);
        for (url, why) in [
            ("postgres://a@one,two/c?hostaddr=127.0.0.1", "hostaddrs"),
            ("postgres://a@one/c?port=1,2", "number of ports"),
        ] {
            assert!(hosts(url).expect_err(url).to_string().contains(why));
        }
    }
}
