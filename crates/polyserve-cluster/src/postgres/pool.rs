//! A fixed number of sessions, which operations share: the engine of a store in PostgreSQL.
//!
//! An operation takes the session with the fewest others. A write of an id takes the one on which the writes of this id that are not
//! answered run: they would wait for each other's row in any case. So a row that is locked delays one session, and other ids use the
//! rest.
//!
//! A session that does not answer in time is left, and its slot opens another one. The connection of the first one stays until the server
//! has answered: without a client, the server would go on with the statement too. Until then, the slot takes no writes, which might
//! not be answered either: commits may wait for a standby that is away. So its reads are answered, and hung commits do not use up
//! the connections of the server. If no slot takes writes, one write at a time is a trial: the connections may lead to a server that was
//! replaced. A write that has changed something ends the state for all sessions that were left before.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::poll_once;
use polyserve_core::{Put, Removed};
use rustls::ClientConfig;
use tokio::net::lookup_host;
use tokio::task::spawn_local;
use tokio_postgres::config::Host;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::{classify, has_no_server, is_forgotten, not_open, severity};
use super::session::{PoolSession, QUERIES, Query, Ran, ServerAddress, SessionPlace, drive, queries, route};
use super::table;
use crate::error::{EngineFailure, Source};
use crate::limits::StoreLimits;
use crate::remote::{Engine, Held, MAX_KEYS_PASSED, Renewed, Stored, StoredEntry, StoredPage, first_open};

/// While this number of sessions for each slot was left, and is not answered, none is opened. A trial leaves room for one.
const MAX_LEFT: usize = 3;

/// A fixed number of connections.
pub(super) struct SessionPool {
    /// The settings of each host of the URL.
    hosts: Vec<Config>,
    /// How connections speak TLS, if they do.
    tls: Option<MakeRustlsConnect>,
    /// In quotes.
    table: String,
    /// Whether the table was found fit.
    is_checked: Cell<bool>,
    queries: Rc<[String; QUERIES]>,
    timeout: Duration,
    slots: Vec<Slot>,
    /// The slot of the next operation, if several have as few operations.
    next: Cell<usize>,
    /// The writes that are not answered: for the hash of a key, the index of their slot, and their number.
    writes: RefCell<HashMap<u64, (usize, usize)>>,
    hasher: RandomState,
    /// The places of all sessions with an open connection. The last one is at the server that is used.
    places: RefCell<Vec<Rc<SessionPlace>>>,
    /// Whether a write is a trial.
    has_trial: Cell<bool>,
}

/// A session, and those that come after it.
struct Slot {
    session: Rc<Renewed<Rc<PoolSession>>>,
    /// The number of operations that are not answered.
    in_flight: Cell<usize>,
}

impl SessionPool {
    /// `table` is in quotes. Nothing is connected yet.
    pub(super) fn new(
        (hosts, tls): (Vec<Config>, Option<ClientConfig>),
        table: String,
        connections: NonZeroUsize,
        limits: &StoreLimits,
    ) -> Self {
        let new_slot = |_| Slot { session: Renewed::new(limits.max_opening()), in_flight: Cell::new(0) };
        Self {
            queries: Rc::new(queries(&table)),
            hosts,
            tls: tls.map(MakeRustlsConnect::new),
            table,
            is_checked: Cell::new(false),
            timeout: limits.timeout,
            slots: (0..connections.get()).map(new_slot).collect(),
            next: Cell::new(0),
            writes: RefCell::default(),
            hasher: RandomState::new(),
            places: RefCell::default(),
            has_trial: Cell::new(false),
        }
    }

    /// Returns the index of the slot for an operation, and whether it is a trial.
    ///
    /// # Errors
    ///
    /// Returns a failure if no slot takes writes, or none has a session and none may be opened.
    fn choose(&self, write: Option<u64>) -> Result<(usize, bool), EngineFailure> {
        let left = self.left();
        let is_usable = |index: &usize| left < self.max_left() || self.slots[*index].session.is_open();
        let takes_writes = |index: &usize| left == 0 || !self.holds_writes(*index);
        let in_flight = write.and_then(|write| self.writes.borrow().get(&write).copied());
        if let Some((index, _)) = in_flight.filter(|(index, _)| takes_writes(index)) {
            return Ok((index, false));
        }
        let (count, first) = (self.slots.len(), self.next.get());
        let in_turn = || (0..count).map(|offset| (first + offset) % count).filter(is_usable);
        let fewest = |index: &usize| self.slots[*index].in_flight.get();
        let (index, is_trial) =
            match in_turn().filter(|index| write.is_none() || takes_writes(index)).min_by_key(fewest) {
                Some(index) => (index, false),
                None if write.is_some() && self.may_try(left) => {
                    (in_turn().min_by_key(fewest).ok_or_else(unanswered)?, true)
                }
                None => return Err(unanswered()),
            };
        self.next.set((index + 1) % count);
        Ok((index, is_trial))
    }

    fn max_left(&self) -> usize {
        MAX_LEFT * self.slots.len()
    }

    /// Whether a write may be a trial, with this number of sessions that were left.
    fn may_try(&self, left: usize) -> bool {
        !self.has_trial.get() && left + 1 < self.max_left()
    }

    /// The number of sessions that were left and that the server has not answered. Those at another server do not count: it may have
    /// been replaced.
    fn left(&self) -> usize {
        let places = self.places.borrow();
        let Some(last) = places.last() else { return 0 };
        places.iter().filter(|place| place.is_left() && place.server == last.server).count()
    }

    /// Whether a slot takes no writes.
    fn holds_writes(&self, index: usize) -> bool {
        let places = self.places.borrow();
        let Some(last) = places.last() else { return false };
        places.iter().any(|place| place.slot == index && place.holds_writes() && place.server == last.server)
    }

    /// Notes that the server has committed a change.
    fn committed(&self) {
        self.places.borrow().iter().for_each(|place| place.forgive());
    }

    /// Opens a session for the slot of this index.
    async fn open(self: Rc<Self>, slot: usize) -> Result<Rc<PoolSession>, EngineFailure> {
        if self.left() >= self.max_left() {
            return Err(unanswered());
        }
        let hosts = self.hosts.iter().map(|host| connect_host(host, self.tls.as_ref(), self.timeout));
        let OpenConnection { client, connection, server, unreplicated } = first_open(hosts, self.timeout).await?;
        let place = Rc::new(SessionPlace::new(slot, server, unreplicated));
        self.places.borrow_mut().push(Rc::clone(&place));
        let (pool, of_connection) = (Rc::downgrade(&self), Rc::clone(&place));
        spawn_local(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = &error as &dyn std::error::Error, "a connection to PostgreSQL has ended");
            }
            if let Some(pool) = pool.upgrade() {
                pool.places.borrow_mut().retain(|place| !Rc::ptr_eq(place, &of_connection));
            }
        });
        self.start_session(client, place).await
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
    async fn start_session(&self, client: Client, place: Rc<SessionPlace>) -> Result<Rc<PoolSession>, EngineFailure> {
        let mut session = PoolSession { client, prepared: OnceCell::new(), is_direct: false, place };
        let query = Query::Get;
        let mut ran = Ran::default();
        let (is_fit, route, found) = tokio::join!(
            self.check_table(&session.client),
            route(&session.client, self.tls.is_some()),
            session.run(query, &self.queries[query as usize], &[""], &mut ran)
        );
        is_fit?;
        let route = route.map_err(not_open)?;
        session.is_direct = route.is_direct;
        if route.hides_warnings && !route.is_direct {
            // A setting of a connection of the pooler would be one of its other clients too.
            let why = "client_min_messages hides warnings, so the store cannot tell whether a standby has a write; it has to be warning \
                       or lower: ALTER ROLE name SET client_min_messages = warning";
            return Err(EngineFailure::Rejected(why.into()));
        }
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
            let (prepared, queries, timeout) = (Rc::clone(&session), Rc::clone(&self.queries), self.timeout);
            let mut preparing = Box::pin(async move {
                // Without prepared statements, a session serves more slowly.
                if let Err(error) = prepared.prepare(&queries, timeout).await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "statements cannot be prepared");
                }
            });
            // The settings are sent before the first statement of an operation.
            if poll_once(&mut preparing).await.is_none() {
                spawn_local(preparing);
            }
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
        let unreplicated = session.place.unreplicated.get();
        match session.run(query, &self.queries[query as usize], values, &mut ran).await {
            Ok(()) => {
                if query.is_write() && ran.rows.is_some_and(|rows| rows > 0) {
                    if session.place.unreplicated.get() > unreplicated {
                        let why = "it is committed, and the wait for a standby was ended: a failover may lose it";
                        return Err(EngineFailure::Unknown(why.into()));
                    }
                    self.committed();
                }
                Ok(ran)
            }
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

/// The failure if the server has not answered what it was sent before.
fn unanswered() -> EngineFailure {
    EngineFailure::NotDone("the server has not answered earlier statements, and connections wait for it".into())
}

/// What reads and writes the socket of a client, with TLS or without.
type PoolConnection = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// A connection that has just been opened.
struct OpenConnection {
    client: Client,
    connection: PoolConnection,
    server: ServerAddress,
    unreplicated: Rc<Cell<u64>>,
}

/// Connects to one of the addresses of a host.
async fn connect_host(
    host: &Config,
    tls: Option<&MakeRustlsConnect>,
    timeout: Duration,
) -> Result<OpenConnection, EngineFailure> {
    let connect = async |config: Config| -> Result<OpenConnection, EngineFailure> {
        let unreplicated = Rc::<Cell<u64>>::default();
        let counted = Rc::clone(&unreplicated);
        let (client, connection): (_, PoolConnection) = match tls {
            None => {
                let (client, connection) = config.connect(NoTls).await.map_err(not_open)?;
                (client, Box::pin(drive(connection, counted)))
            }
            Some(tls) => {
                let (client, connection) = config.connect(tls.clone()).await.map_err(not_open)?;
                (client, Box::pin(drive(connection, counted)))
            }
        };
        Ok(OpenConnection { client, connection, server: ServerAddress::of(&config), unreplicated })
    };
    let ([Host::Tcp(name)], []) = (host.get_hosts(), host.get_hostaddrs()) else { return connect(host.clone()).await };
    let port = host.get_ports().first().copied().unwrap_or(5_432);
    let addresses = lookup_host((&**name, port)).await.map_err(|error| EngineFailure::NotDone(error.into()))?;
    let addresses: Vec<_> = addresses.collect();
    let each = addresses.iter().map(|address| {
        let mut config = host.clone();
        config.hostaddr(address.ip());
        connect(config)
    });
    first_open(each, timeout).await
}

/// The place of an operation in a slot. It is free again when this is dropped.
struct Place {
    pool: Rc<SessionPool>,
    index: usize,
    /// The hash of the key of a write.
    write: Option<u64>,
    is_trial: bool,
}

impl Place {
    fn new(pool: &Rc<SessionPool>, index: usize, write: Option<u64>, is_trial: bool) -> Self {
        if is_trial {
            pool.has_trial.set(true);
        }
        let in_flight = &pool.slots[index].in_flight;
        in_flight.set(in_flight.get() + 1);
        if let Some(write) = write {
            pool.writes.borrow_mut().entry(write).or_insert((index, 0)).1 += 1;
        }
        Self { pool: Rc::clone(pool), index, write, is_trial }
    }

    fn session(&self) -> &Rc<Renewed<Rc<PoolSession>>> {
        &self.pool.slots[self.index].session
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let in_flight = &self.pool.slots[self.index].in_flight;
        in_flight.set(in_flight.get() - 1);
        if self.is_trial {
            self.pool.has_trial.set(false);
        }
        if let Some(write) = self.write
            && let Entry::Occupied(mut writes) = self.pool.writes.borrow_mut().entry(write)
        {
            writes.get_mut().1 -= 1;
            if writes.get().1 == 0 {
                writes.remove();
            }
        }
    }
}

/// A session for one operation.
pub(super) struct PoolTurn {
    place: Place,
    held: Held<Rc<PoolSession>>,
}

/// An id as a text without NUL.
fn escaped(id: &str) -> String {
    id.replace('\\', r"\\").replace('\0', r"\0")
}

/// The id of a text that [`escaped`] returns, or `None` for another text.
fn unescaped(text: &str) -> Option<String> {
    let mut id = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        id.push(match letter {
            '\\' => match letters.next()? {
                '\\' => '\\',
                '0' => '\0',
                _ => return None,
            },
            letter => letter,
        });
    }
    Some(id)
}

/// JSON as a text.
fn text(value: &[u8]) -> Result<&str, EngineFailure> {
    str::from_utf8(value).map_err(|error| EngineFailure::Rejected(error.into()))
}

impl Engine for SessionPool {
    const NAME: &'static str = "postgres";
    type Connection = PoolTurn;
    /// The text of a value tells it from another one.
    type Version = ();

    async fn connection(
        self: &Rc<Self>,
        late: Option<&PoolTurn>,
        written: Option<&str>,
    ) -> Result<PoolTurn, EngineFailure> {
        let write = written.map(|key| self.hasher.hash_one(key));
        let (index, is_trial) = late.map_or_else(|| self.choose(write), |late| Ok((late.place.index, false)))?;
        let place = Place::new(self, index, write, is_trial);
        let held = place.session().get(late.map(|late| &late.held), |_| Rc::clone(self).open(index)).await?;
        Ok(PoolTurn { place, held })
    }

    fn suspect(&self, turn: &PoolTurn) {
        turn.held.connection.place.leave();
        turn.place.session().suspect(&turn.held);
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
        if (0..self.slots.len()).all(|index| self.holds_writes(index)) && !self.may_try(self.left()) {
            return Err(unanswered());
        }
        self.run(turn, Query::TryWrite, &[]).await.map(drop)
    }

    async fn page(
        &self,
        turn: &PoolTurn,
        _prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<StoredPage, EngineFailure> {
        let mut limit = limit;
        let (mut query, mut after) = after.map_or((Query::FirstPage, String::new()), |id| (Query::Page, escaped(id)));
        loop {
            let rows = limit.saturating_add(1).min(u32::MAX as usize).to_string();
            let read = self.run(turn, query, &[&after, &rows]).await?;
            let Some(row) = read.first_row else { return Ok(StoredPage::default()) };
            let read = || Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            let page: Result<(Vec<String>, Vec<String>, i64), Error> = read();
            let (mut ids, values, found) = page.map_err(|error| EngineFailure::Rejected(error.into()))?;
            ids.truncate(limit);
            let has_more = found.unsigned_abs() > ids.len() as u64;
            let entry = |(id, value): (&String, String)| {
                Some(StoredEntry { key: unescaped(id)?, value: Ok(value.into_bytes()) })
            };
            let entries: Vec<_> = ids.iter().zip(values).filter_map(entry).collect();
            match ids.pop().filter(|_| entries.is_empty() && has_more) {
                // These are no ids of a store, and the page after them may have some.
                Some(last) => (query, after, limit) = (Query::Page, last, limit.max(MAX_KEYS_PASSED)),
                None => return Ok(StoredPage { entries, has_more }),
            }
        }
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
