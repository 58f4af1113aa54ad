//! `etcd`: a key for each entity in an etcd cluster.
//!
//! Promises: linearizable. etcd acknowledges a write after a majority of the members has it on disk. A get asks the
//! majority too.
//!
//! * A key is the prefix and the text of the id; its value is the JSON of the entity. A get is a linearizable range
//!   read, a put returns the previous pair, which tells `Created` from `Replaced`. A write with a condition is a
//!   transaction that compares the revision of the entity that the condition was evaluated on.
//! * Requests go over one HTTP/2 connection to one member, which passes them to the leader. A read that is late is also
//!   sent to the next member. If the member does not answer, or has no leader, later requests go to the next member.
//!   After a leader fails, etcd answers again when it has elected another one: after about a second with its default
//!   settings.
//! * A scan is in the order of the ids' texts.
//!
//! Limits of etcd: a request has at most 1.5 MiB, and a database a few GiB.
//!
//! *Wins when* no acknowledged write may be lost and reads must never be stale, across machines. *Loses when* writes are
//! many: each costs an fsync on a majority of the members.

use std::error::Error as StdError;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::time::Duration;

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, DeleteOptions, Error, GetOptions, Identity, KvClient,
    PutOptions, TlsOptions, Txn, TxnOp,
};
use polyserve_core::log::with_causes;
use polyserve_core::{Entity, Identifiable, MAX_PAGE_BYTES, Put, Removed};
use tokio::time::timeout;
use tonic::{Code, ConnectError as TonicConnectError, Status};

use crate::error::{ConnectError, EngineFailure, Source, in_one_line, is_untrusted};
use crate::limits::StoreLimits;
use crate::remote::{
    Engine, Held, MAX_KEYS_PASSED, Remote, Renewed, Stored, StoredEntry, StoredPage, first_open, unique_name,
};
use crate::tls::EngineTls;
use crate::urls;

/// A store in an etcd cluster.
///
/// ```no_run
/// use polyserve_cluster::{Etcd, EtcdOptions};
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt};
///
/// let members = "http://10.0.0.1:2379,http://10.0.0.2:2379,http://10.0.0.3:2379";
/// let store = Etcd::<Entity>::connect(members, EtcdOptions::default())?;
/// store.put(Entity::new(1, "first", 0.5)).wait()?;
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Etcd<E: Identifiable = Entity> {
    remote: Remote<E, Members>,
}

/// The settings of an [`Etcd`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// The text that begins each key. Stores with the same prefix share their entities. No prefix may begin with the
    /// prefix of another store, because [`len`](polyserve_core::EntityRepo::len) counts by prefix. Default: `polyserve/`.
    pub prefix: String,
    /// The name and the password, if the cluster has users. The user needs to read and write the keys with the prefix,
    /// and no others. Default: none.
    pub user: Option<(String, String)>,
    /// The authorities that may have issued the members' certificates, and the certificate of the store: for `https` URLs. Default: none.
    pub tls: Option<EngineTls>,
    /// How long to wait, and how much to hold.
    pub limits: StoreLimits,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self { prefix: "polyserve/".into(), user: None, tls: None, limits: StoreLimits::default() }
    }
}

impl EtcdOptions {
    /// Sets the text that begins each key.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets the name and the password.
    #[must_use]
    pub fn user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some((name.into(), password.into())), ..self }
    }

    /// Sets the authorities and the certificate of the store, for `https` URLs.
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

impl<E: Identifiable> Etcd<E> {
    /// Connects to the members at `urls`, which are separated by commas: `http://HOST:PORT,...`, or
    /// `https://HOST:PORT,...` with [`EtcdOptions::tls`].
    ///
    /// It blocks this thread until a member has answered.
    ///
    /// # Errors
    ///
    /// Returns an error if a URL is invalid, or if no member answers within the connect timeout. What can never succeed, such
    /// as a wrong password, fails at once.
    pub fn connect(urls: &str, options: EtcdOptions) -> Result<Self, ConnectError> {
        let urls = urls::split(urls).into_iter().map(checked).collect::<Result<Vec<_>, _>>()?;
        let EtcdOptions { prefix, user, tls, limits } = options;
        let mut settings = ConnectOptions::new()
            .with_connect_timeout(limits.timeout / 3)
            // etcd closes a connection that is probed more often than each 5 seconds.
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(5))
            // A member without a leader rejects requests. It would hold them until it has a leader again.
            .with_require_leader(true);
        if let Some((name, password)) = user {
            settings = settings.with_user(name, password).with_auto_token_refresh(true);
        }
        if urls.iter().any(|url| url.starts_with("https:")) {
            let tls = tls.unwrap_or_default();
            let Some(ca) = &tls.ca else {
                let what = "the etcd URL is https, and needs the authorities of the members: EtcdOptions::tls, or the file of \
                            ETCDCTL_CACERT for a command";
                return Err(ConnectError::new(what));
            };
            tls.check("etcd")?;
            let mut client = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
            if let Some((chain, key)) = &tls.identity {
                client = client.identity(Identity::from_pem(chain, key));
            }
            settings = settings.with_tls(client);
        }
        let probe = prefix.clone();
        let (timeout, max_opening) = (limits.timeout, limits.max_opening());
        let open = move || Members { urls, settings, probe, timeout, current: Renewed::new(max_opening) };
        Ok(Self { remote: Remote::connect(limits, prefix, open)? })
    }

    /// Connects to a new, empty store, with a prefix of its own. The entities are removed when the store is dropped. For
    /// measurements and tests.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`connect`](Self::connect).
    pub fn temporary(urls: &str, options: EtcdOptions) -> Result<Self, ConnectError> {
        let prefix = format!("{}{}", unique_name(), options.prefix);
        let mut store = Self::connect(urls, options.prefix(prefix))?;
        store.remote.make_temporary();
        Ok(store)
    }
}

/// Returns a URL if it is valid.
fn checked(url: &str) -> Result<String, ConnectError> {
    // A URL with a user may have a password, so the message does not show it.
    let shown = if url.contains('@') { String::new() } else { format!(" {url:?}") };
    let invalid =
        |why: &str| Err(ConnectError::new(format!("the etcd URL{shown} {why}; an example: http://127.0.0.1:2379")));
    let Some((scheme, address)) = url.split_once("://") else { return invalid("has no scheme") };
    if !["http", "https"].contains(&scheme) {
        return invalid("has another scheme than http and https");
    }
    if address.contains('@') {
        return invalid("has a user; set it in the options");
    }
    let address = address.strip_suffix('/').unwrap_or(address);
    let Some((host, port)) = address.rsplit_once(':') else { return invalid("does not end with HOST:PORT") };
    let is_digit = |byte: u8| byte.is_ascii_digit();
    if !port.bytes().all(is_digit) || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return invalid("does not end with HOST:PORT, a port from 1 to 65535");
    }
    let is_ip_v6 = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if bracketed.is_some_and(is_ip_v6) {
        return Ok(url.to_owned());
    }
    if is_ip_v6(host) || is_ip_v6(address) {
        return invalid("has an IPv6 address without brackets, which stand before the port as in http://[::1]:2379");
    }
    if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        return invalid("has no valid host before its port");
    }
    // The last part of a name is no number: this is an address of IPv4, or none.
    let last = host.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(is_digit) && host.parse::<Ipv4Addr>().is_err() {
        return invalid("has an invalid IPv4 address");
    }
    Ok(url.to_owned())
}

crate::remote::repo!(Etcd);

/// The members of a cluster. Requests go to one of them at a time.
struct Members {
    urls: Vec<String>,
    settings: ConnectOptions,
    /// The key that a new connection reads. It is in the store's prefix, which may be all that the user may read.
    probe: String,
    timeout: Duration,
    current: Rc<Renewed<KvClient>>,
}

impl Members {
    /// Connects to a member. The one of this number comes first, in turn.
    async fn open(self: Rc<Self>, number: usize) -> Result<KvClient, EngineFailure> {
        let first = number % self.urls.len();
        let (before, after) = self.urls.split_at(first);
        let members: Vec<_> = after.iter().chain(before).map(|url| self.open_member(url)).collect();
        first_open(members.into_iter(), self.timeout).await
    }

    /// Connects to a member. It is connected if it answers a read of its own data.
    async fn open_member(&self, url: &String) -> Result<KvClient, EngineFailure> {
        let max_wait = self.timeout / 2;
        let connected = timeout(max_wait, async {
            let mut client = Client::connect([url], Some(self.settings.clone())).await?.kv_client();
            client = client.max_decoding_message_size(MAX_ANSWER_BYTES);
            client.get(&*self.probe, Some(GetOptions::new().with_serializable().with_count_only())).await?;
            Ok(client)
        });
        match connected.await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) if is_untrusted(&text(&error)) => Err(EngineFailure::Unauthenticated(text(&error).into())),
            Ok(Err(error)) => Err(classify(error).of_read()),
            Err(_) => Err(EngineFailure::NotDone(format!("{url} does not answer within {max_wait:?}").into())),
        }
    }

    /// The failure of a request. A member that fails is left, and so is a token that the member does not know any more: a new
    /// connection gets a new one. A member that is full or busy is like the others.
    fn failed(&self, connection: &Held<KvClient>, error: Error) -> EngineFailure {
        let is_refused =
            matches!(&error, Error::GRpcStatus(status) if [NO_SPACE, TOO_MANY_REQUESTS].contains(&status.message()));
        let failure = classify(error);
        if !is_refused && !failure.is_final() {
            self.current.suspect(connection);
        }
        failure
    }

    /// Runs `operation` if the revision of the key is `revision`, which is 0 if there is no such key.
    async fn transact(
        &self,
        connection: &Held<KvClient>,
        key: &str,
        revision: i64,
        operation: TxnOp,
    ) -> Result<bool, EngineFailure> {
        let unchanged = Compare::mod_revision(key, CompareOp::Equal, revision);
        let transaction = Txn::new().when([unchanged]).and_then([operation]);
        let done = connection.connection.clone().txn(transaction).await;
        Ok(done.map_err(|error| self.failed(connection, error))?.succeeded())
    }
}

/// Messages of etcd, which has one code of gRPC for several errors.
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
const TOO_MANY_REQUESTS: &str = "etcdserver: too many requests";
const NO_LEADER: &str = "etcdserver: no leader";
const OLD_TOKEN: &str = "etcdserver: revision of auth store is old";
/// The cluster does not know the user or the password, has got users since the store began, or has none any more.
const NO_LOGIN: [&str; 3] = [
    "etcdserver: authentication failed, invalid user ID or password",
    "etcdserver: user name is empty",
    "etcdserver: authentication is not enabled",
];
/// The texts for a request of more bytes than `--max-request-bytes`, of etcd and of its gRPC server.
const TOO_LARGE: [&str; 2] = ["etcdserver: request is too large", "grpc: received message larger than max"];
/// A member that does not vote yet answers only reads of its own data.
const LEARNER: &str = "etcdserver: rpc not supported for learner";

/// What an error means for the request. The numbers are the codes of gRPC.
fn classify(error: Error) -> EngineFailure {
    let text = text(&error).into();
    let Error::GRpcStatus(status) = error else { return EngineFailure::Unknown(text) };
    match (i32::from(status.code()), status.message()) {
        _ if was_not_sent(&status) => EngineFailure::NotDone(text),
        (_, NO_LEADER | TOO_MANY_REQUESTS | NO_SPACE | OLD_TOKEN | LEARNER) => EngineFailure::NotDone(text),
        (_, message) if NO_LOGIN.contains(&message) => EngineFailure::Unauthenticated(text),
        (_, message) if TOO_LARGE.iter().any(|known| message.starts_with(known)) => EngineFailure::TooLarge(text),
        // Unauthenticated: the token is invalid.
        (16, _) => EngineFailure::NotDone(text),
        // Cancelled, unknown, deadline exceeded, aborted, internal, unavailable.
        (1 | 2 | 4 | 10 | 13 | 14, _) => EngineFailure::Unknown(text),
        _ => EngineFailure::Rejected(text),
    }
}

/// Whether the client library has not sent the request: it could not connect, or the connection ended while the request was in
/// its queue. Only a status that the library has made has a source.
fn was_not_sent(status: &Status) -> bool {
    let mut source = StdError::source(status);
    let is_of_library = source.is_some();
    while let Some(error) = source {
        if error.is::<TonicConnectError>() {
            return true;
        }
        source = error.source();
    }
    // The text of a request that hyper has returned, because it was not sent.
    is_of_library && status.code() == Code::Cancelled && status.message() == "operation was canceled"
}

/// The text of an error. A status of gRPC shows its fields as Rust code, so its message is taken.
fn text(error: &Error) -> String {
    let Error::GRpcStatus(status) = error else { return in_one_line(error) };
    let message = Some(status.message()).filter(|message| !message.is_empty());
    let message = message.map_or_else(|| status.code().to_string(), str::to_owned);
    with_causes(&message, StdError::source(status))
}

/// The max number of values in the first range of a page.
const FIRST_RANGE: usize = 8;

/// A range that was larger than [`MAX_RANGE_BYTES`] is repeated with this part of its values, but with one value at least.
const RANGE_PART: usize = 4;

/// The max bytes of the answer to a range of several values.
const MAX_RANGE_BYTES: usize = 4 << 20;

/// The max bytes of another answer, which has one value at most. The client library takes 4 MiB by default. etcd takes what
/// `--max-request-bytes` says, 1.5 MiB by default, and answers a put with the value that it has replaced.
const MAX_ANSWER_BYTES: usize = 1 << 30;

/// Returns the first key after all that begin with a prefix. The text has no byte 255.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        Some(last) => *last += 1,
        // All keys.
        None => end.push(0),
    }
    end
}

impl Engine for Members {
    const NAME: &'static str = "etcd";
    type Connection = Held<KvClient>;
    /// The revision of the last write to the key.
    type Version = i64;

    async fn connection(
        self: &Rc<Self>,
        late: Option<&Held<KvClient>>,
        _: Option<&str>,
    ) -> Result<Held<KvClient>, EngineFailure> {
        self.current.get(late, |number| Rc::clone(self).open(number)).await
    }

    fn suspect(&self, connection: &Held<KvClient>) {
        self.current.suspect(connection);
    }

    fn lasts(why: &Source) -> bool {
        why.to_string() == NO_SPACE
    }

    async fn get(&self, connection: &Held<KvClient>, key: &str) -> Result<Option<Stored<i64>>, EngineFailure> {
        let found = connection.connection.clone().get(key, None).await;
        let mut found = found.map_err(|error| self.failed(connection, error))?;
        Ok(found.take_kvs().pop().map(|pair| {
            let version = pair.mod_revision();
            Stored { value: pair.into_key_value().1, version }
        }))
    }

    async fn put(&self, connection: &Held<KvClient>, key: &str, value: &[u8]) -> Result<Put, EngineFailure> {
        let done = connection.connection.clone().put(key, value, Some(PutOptions::new().with_prev_key())).await;
        let done = done.map_err(|error| self.failed(connection, error))?;
        Ok(if done.prev_key().is_some() { Put::Replaced } else { Put::Created })
    }

    async fn remove(&self, connection: &Held<KvClient>, key: &str) -> Result<Removed, EngineFailure> {
        let done = connection.connection.clone().delete(key, Some(DeleteOptions::new())).await;
        let done = done.map_err(|error| self.failed(connection, error))?;
        Ok(if done.deleted() > 0 { Removed::Removed } else { Removed::Absent })
    }

    async fn put_over(
        &self,
        connection: &Held<KvClient>,
        key: &str,
        seen: Option<&Stored<i64>>,
        value: &[u8],
    ) -> Result<bool, EngineFailure> {
        let revision = seen.map_or(0, |seen| seen.version);
        self.transact(connection, key, revision, TxnOp::put(key, value, None)).await
    }

    async fn remove_seen(
        &self,
        connection: &Held<KvClient>,
        key: &str,
        seen: &Stored<i64>,
    ) -> Result<bool, EngineFailure> {
        self.transact(connection, key, seen.version, TxnOp::delete(key, None)).await
    }

    /// A transaction with a condition that never holds. A member that would refuse its put refuses the transaction.
    async fn try_write(&self, connection: &Held<KvClient>, prefix: &str) -> Result<(), EngineFailure> {
        self.transact(connection, prefix, -1, TxnOp::put(prefix, "", None)).await.map(drop)
    }

    /// The number of values in a range is limited, and not their bytes. So a page is a few ranges: a short one first, and then as
    /// many values as have room if they are as large as the largest one so far.
    async fn page(
        &self,
        connection: &Held<KvClient>,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<StoredPage, EngineFailure> {
        let end = end_of(prefix);
        // The key after a key has a zero byte more.
        let mut start = after.map_or_else(|| prefix.as_bytes().to_vec(), |key| format!("{key}\0").into_bytes());
        let (mut page, mut bytes, mut largest) = (StoredPage::default(), 0, 1);
        let (mut max_values, mut wanted) = (FIRST_RANGE, limit);
        loop {
            // For etcd, 0 is no limit.
            let count = max_values.min(wanted).max(1);
            let options = GetOptions::new().with_range(end.clone()).with_limit(count as i64);
            let max_bytes = if count > 1 { MAX_RANGE_BYTES } else { MAX_ANSWER_BYTES };
            let mut client = connection.connection.clone().max_decoding_message_size(max_bytes);
            let mut found = match client.get(start.clone(), Some(options)).await {
                Err(Error::GRpcStatus(status)) if status.code() == Code::OutOfRange && count > 1 => {
                    max_values = count / RANGE_PART;
                    continue;
                }
                found => found.map_err(|error| self.failed(connection, error))?,
            };
            page.has_more = found.more();
            let before = page.entries.len();
            for pair in found.take_kvs() {
                let (key, value) = pair.into_key_value();
                largest = largest.max(value.len());
                start = [&key[..], b"\0"].concat();
                // A key that is no text is not of this store: its value takes no room of the page.
                let Ok(key) = String::from_utf8(key) else { continue };
                if bytes + value.len() > MAX_PAGE_BYTES && !page.entries.is_empty() {
                    page.has_more = true;
                    return Ok(page);
                }
                bytes += value.len();
                page.entries.push(StoredEntry { key, value: Ok(value) });
            }
            if !page.has_more || page.entries.len() >= limit || bytes >= MAX_PAGE_BYTES {
                return Ok(page);
            }
            max_values = ((MAX_PAGE_BYTES - bytes) / largest).max(1);
            // A range without a text is passed in larger ones.
            let is_passed = page.entries.len() == before;
            wanted = if is_passed { wanted.max(MAX_KEYS_PASSED) } else { limit - page.entries.len() };
        }
    }

    async fn len(&self, connection: &Held<KvClient>, prefix: &str) -> Result<u64, EngineFailure> {
        let options = GetOptions::new().with_prefix().with_count_only();
        let found = connection.connection.clone().get(prefix, Some(options)).await;
        Ok(found.map_err(|error| self.failed(connection, error))?.count().unsigned_abs())
    }

    async fn clear(&self, connection: &Held<KvClient>, prefix: &str) -> Result<(), EngineFailure> {
        let done = connection.connection.clone().delete(prefix, Some(DeleteOptions::new().with_prefix())).await;
        done.map(drop).map_err(|error| self.failed(connection, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_url_is_shown_without_its_password() {
        for url in ["http://user:secret@127.0.0.1:1", "https://user:secret@127.0.0.1:1", "user:secret@127.0.0.1:1"] {
            let error = checked(url).expect_err(url).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(checked("http://127.0.0.1").expect_err("it has no port").to_string().contains("127.0.0.1\""));
    }

    /// Regression test: a write that a learner refused was reported as one that may have been done.
    #[test]
    fn a_learner_has_not_done_it() {
        let failure = |text| classify(Error::GRpcStatus(Status::unavailable(text)));
        assert!(matches!(failure("etcdserver: rpc not supported for learner"), EngineFailure::NotDone(_)));
        assert!(matches!(failure("etcdserver: request timed out"), EngineFailure::Unknown(_)));
    }

    /// The library authenticates again once. A request that fails again was not done: the member refused its token.
    #[test]
    fn a_request_without_a_valid_token_is_not_done() {
        let failure = |code, text| classify(Error::GRpcStatus(Status::new(code, text)));
        for text in ["etcdserver: invalid auth token", ""] {
            let failure = failure(Code::Unauthenticated, text);
            assert!(matches!(failure, EngineFailure::NotDone(_)), "{failure:?}");
        }
        let old = failure(Code::InvalidArgument, OLD_TOKEN);
        assert!(matches!(old, EngineFailure::NotDone(_)), "{old:?}");
    }

    #[test]
    fn a_code_tells_whether_a_request_may_have_been_done() {
        let failure = |code| classify(Error::GRpcStatus(Status::new(code, "etcdserver: test")));
        for code in
            [Code::Cancelled, Code::Unknown, Code::DeadlineExceeded, Code::Aborted, Code::Internal, Code::Unavailable]
        {
            assert!(matches!(failure(code), EngineFailure::Unknown(_)), "{code:?}");
        }
        for code in [
            Code::InvalidArgument,
            Code::NotFound,
            Code::AlreadyExists,
            Code::PermissionDenied,
            Code::ResourceExhausted,
            Code::FailedPrecondition,
            Code::OutOfRange,
            Code::Unimplemented,
            Code::DataLoss,
        ] {
            assert!(matches!(failure(code), EngineFailure::Rejected(_)), "{code:?}");
        }
        // The connection failed, and the library has no status.
        let broken = classify(Error::IoError(std::io::ErrorKind::ConnectionReset.into()));
        assert!(matches!(broken, EngineFailure::Unknown(_)), "{broken:?}");
    }

    #[test]
    fn a_member_that_is_busy_or_full_has_not_done_it() {
        for text in [NO_LEADER, TOO_MANY_REQUESTS, NO_SPACE] {
            for status in [Status::unavailable(text), Status::resource_exhausted(text)] {
                let failure = classify(Error::GRpcStatus(status));
                assert!(matches!(failure, EngineFailure::NotDone(_)), "{failure:?}");
            }
        }
    }

    /// Regression test: an IPv6 address without brackets was tried until the connect timeout.
    #[test]
    fn only_addresses_are_taken() {
        for url in
            ["http://[::1]:2379", "http://10.0.0.1:2379/", "http://etcd-0.etcd:2379", "http://node_1:1", "http://1a:1"]
        {
            assert_eq!(checked(url).unwrap(), url);
        }
        for (url, why) in [
            ("http://::1:2379", "brackets"),
            ("http://fe80::1", "brackets"),
            ("http://[::1]", "HOST:PORT"),
            ("http://[::g]:2379", "no valid host"),
            ("http://[10.0.0.1]:2379", "no valid host"),
            ("http://10.0.0.256:2379", "IPv4"),
            ("http://10.0.0:2379", "IPv4"),
            ("http://a b:2379", "no valid host"),
            ("http://a/b:2379", "no valid host"),
            ("http://a:2379//", "HOST:PORT"),
            ("http://a:2379?b", "HOST:PORT"),
            ("http://a:+2379", "HOST:PORT"),
            ("http://a:0", "HOST:PORT"),
            ("http://a:65536", "HOST:PORT"),
            ("http://:2379", "no valid host"),
            ("http://a:2379,b:2379", "no valid host"),
            ("http//a:2379", "no scheme"),
        ] {
            let error = checked(url).expect_err(url).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
