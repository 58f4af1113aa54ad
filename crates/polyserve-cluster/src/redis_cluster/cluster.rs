//! The engine: the requests of a store to the nodes of a cluster, and what their answers mean.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use polyserve_core::{Put, Removed};
use redis::aio::ConnectionLike as _;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, cmd};

use tokio::task::spawn_local;

use super::link::{Link, refused_login, sent};
use super::pages::SlotProbes;
use super::reply::{
    ReplyForm, Scanned, ServedSlots, classify, has_lost_all, is_no_login, is_unknown_node, lasts, read,
};
use crate::error::{EngineFailure, Source, is_untrusted};
use crate::remote::{Engine, Held, Renewed, Stored, StoredPage, in_order};

/// Stores the second argument under the key, if the key's value is the first.
const PUT_OVER: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then redis.call('SET',KEYS[1],ARGV[2]) return 1 end return 0";
/// Removes the key, if its value is the argument.
const REMOVE_SEEN: &str = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

/// Hash tags of keys in slots that are far apart: each is in another sixteenth of the slots.
const SPREAD_TAGS: [&str; 16] =
    ["18", "249", "83", "223", "105", "2", "95", "235", "265", "34", "218", "155", "273", "129", "219", "48"];

/// The connections to the nodes, by the layout of the cluster.
pub(super) type Nodes = ClusterConnection<Link>;

/// The connections to the nodes of a cluster.
pub(super) struct Cluster {
    client: ClusterClient,
    replicas: u32,
    /// The max wait for replicas.
    max_wait: Duration,
    /// Whether the masters were asked what they evict.
    is_checked: Cell<bool>,
    /// A key for each slot. It is made by the first page.
    pub(super) probes: OnceCell<SlotProbes>,
    /// The connections to nodes that an `ASK` has named and that the library does not know.
    asked: RefCell<HashMap<AskedNode, Link>>,
    current: Rc<Renewed<Nodes>>,
}

impl Cluster {
    /// `max_wait` is the max wait for replicas.
    pub(super) fn new(client: ClusterClient, replicas: u32, max_wait: Duration, max_opening: Duration) -> Self {
        let (is_checked, probes, asked) = (Cell::new(false), OnceCell::new(), RefCell::default());
        Self { client, replicas, max_wait, is_checked, probes, asked, current: Renewed::new(max_opening) }
    }

    async fn open(self: Rc<Self>) -> Result<Nodes, EngineFailure> {
        let nodes = self.client.get_async_generic_connection::<Link>().await.map_err(|error| not_open(&error))?;
        if !self.is_checked.replace(true) {
            spawn_local(warn_of_eviction(nodes.clone()));
        }
        Ok(nodes)
    }

    /// Sends a command to the master of `key`.
    async fn ask<T: ReplyForm>(
        &self,
        connection: &Held<Nodes>,
        key: &str,
        command: impl Fn() -> Cmd,
    ) -> Result<T, EngineFailure> {
        let before = sent();
        self.ask_master(connection, key, command).await.map_err(|failure| explained(failure_if_sent(failure, before)))
    }

    async fn ask_master<T: ReplyForm>(
        &self,
        connection: &Held<Nodes>,
        key: &str,
        command: impl Fn() -> Cmd,
    ) -> Result<T, EngineFailure> {
        let to_master = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
        let mut nodes = connection.connection.clone();
        let answer = nodes.route_command(command(), RoutingInfo::SingleNode(to_master)).await;
        let answer = match answer {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                let asking = [cmd("ASKING"), command()];
                let node = AskedNode::of(&error).ok_or_else(|| classify(error))?;
                let answer = Box::pin(self.ask_other(nodes, &asking, node)).await?.pop();
                answer.ok_or_else(missing)?
            }
            answer => answer.map_err(classify)?,
        };
        read(answer)
    }

    /// Sends a write to the master of `key`. If replicas have to have it, waits for them.
    async fn write<T: ReplyForm>(
        &self,
        connection: &Held<Nodes>,
        key: &str,
        command: impl Fn() -> Cmd,
    ) -> Result<T, EngineFailure> {
        if self.replicas == 0 {
            return self.ask(connection, key, command).await;
        }
        let before = sent();
        let written = self.write_and_wait(connection, key, command).await;
        written.map_err(|failure| explained(failure_if_sent(failure, before)))
    }

    async fn write_and_wait<T: ReplyForm>(
        &self,
        connection: &Held<Nodes>,
        key: &str,
        command: impl Fn() -> Cmd,
    ) -> Result<T, EngineFailure> {
        let mut wait = cmd("WAIT");
        wait.arg(self.replicas).arg(u64::try_from(self.max_wait.as_millis()).unwrap_or(u64::MAX));
        // Both over one connection: `WAIT` is for the writes of its own connection.
        let to_master = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
        let nodes = connection.connection.clone();
        let commands = [command(), wait];
        let answers = match pipelined(nodes.clone(), &commands, to_master).await {
            Err(EngineFailure::NotDone(source)) => match source.downcast_ref().and_then(AskedNode::of) {
                // A node forgets `ASKING` after one command: the one that follows.
                Some(node) => {
                    let [command, wait] = commands;
                    let answers = self.ask_other(nodes, &[cmd("ASKING"), command, wait], node).await;
                    let mut answers = answers.map_err(of_write_or_wait)?;
                    succeeded(Some(answers.remove(0)))?;
                    answers
                }
                None => return Err(of_write_or_wait(EngineFailure::NotDone(source))),
            },
            answers => answers?,
        };
        replicated(answers, self.replicas)
    }

    /// Sends commands to the node that an `ASK` names, in one piece. Returns their answers, each of which may be an error.
    pub(super) async fn ask_other(
        &self,
        nodes: Nodes,
        commands: &[Cmd],
        node: AskedNode,
    ) -> Result<Vec<Value>, EngineFailure> {
        let to_node = SingleNodeRoutingInfo::ByAddress { host: node.host.clone(), port: node.port };
        match pipelined(nodes, commands, to_node).await {
            Err(EngineFailure::NotDone(source)) if source.downcast_ref().is_some_and(is_unknown_node) => {}
            answers => return answers,
        }
        let known = self.asked.borrow().get(&node).filter(|link| !link.has_ended()).cloned();
        let mut link = match known {
            Some(link) => link,
            None => {
                let link = Link::to(&node.host, node.port).await.map_err(|error| classify(error).of_read())?;
                let mut asked = self.asked.borrow_mut();
                asked.retain(|_, link| !link.has_ended());
                asked.insert(node, link.clone());
                link
            }
        };
        let pipeline = pipeline_of(commands);
        link.req_packed_commands(&pipeline, 0, commands.len()).await.map_err(classify)
    }
}

/// The failure of a request. If nothing was sent since there were `before` requests, it was certainly not done.
fn failure_if_sent(failure: EngineFailure, before: u64) -> EngineFailure {
    match failure {
        EngineFailure::Unknown(source) if sent() == before => EngineFailure::NotDone(source),
        failure => failure,
    }
}

/// Names the cause of a request that was not done because there is no connection to its node: the node does not accept the store's
/// login. The library does not tell it, and passes the request to another node, which knows where the key is.
fn explained(failure: EngineFailure) -> EngineFailure {
    let EngineFailure::NotDone(source) = &failure else { return failure };
    let Some(error) = source.downcast_ref::<RedisError>() else { return failure };
    let is_of_connection = error.kind() == ErrorKind::ClusterConnectionNotFound
        || error.kind() == ErrorKind::Server(ServerErrorKind::Moved)
        || error.is_connection_refusal();
    match refused_login() {
        Some(why) if is_of_connection && !has_lost_all(error) => EngineFailure::NotDone(
            RedisError::from((error.kind(), "a node does not accept the store's login", why)).into(),
        ),
        _ => failure,
    }
}

/// Reads the answers to a write and to the `WAIT` after it.
///
/// A node that executed the write may reject its `WAIT`, for instance a master that is demoted. Such a write may be done.
fn replicated<T: ReplyForm>(answers: Vec<Value>, replicas: u32) -> Result<T, EngineFailure> {
    let mut answers = answers.into_iter();
    let written = succeeded(answers.next())?;
    let acknowledged: u64 = succeeded(answers.next()).and_then(read).map_err(EngineFailure::into_unknown)?;
    if acknowledged < u64::from(replicas) {
        let source = format!("{acknowledged} replicas have the write; {replicas} have to");
        return Err(EngineFailure::Unknown(source.into()));
    }
    read(written).map_err(EngineFailure::into_unknown)
}

/// The failure of a write that is sent with a `WAIT`. The library returns one error for both. A node that was demoted after the
/// write refuses the `WAIT` if it has no data.
fn of_write_or_wait(failure: EngineFailure) -> EngineFailure {
    let EngineFailure::NotDone(source) = &failure else { return failure };
    match source.downcast_ref().map(RedisError::kind) {
        Some(ErrorKind::Server(ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown)) => failure.into_unknown(),
        _ => failure,
    }
}

/// Sends commands to one node, in one piece. Returns their answers, each of which may be an error.
async fn pipelined(
    mut nodes: Nodes,
    commands: &[Cmd],
    node: SingleNodeRoutingInfo,
) -> Result<Vec<Value>, EngineFailure> {
    nodes.route_pipeline(pipeline_of(commands), 0, commands.len(), node).await.map_err(classify)
}

fn pipeline_of(commands: &[Cmd]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    commands.iter().for_each(|command| _ = pipeline.add_command(command.clone()));
    pipeline
}

/// Returns an answer that is no error.
fn succeeded(answer: Option<Value>) -> Result<Value, EngineFailure> {
    answer.ok_or_else(missing)?.extract_error().map_err(classify)
}

pub(super) fn missing() -> EngineFailure {
    EngineFailure::Unknown("an answer is missing".into())
}

/// The node that an `ASK` names. The host may be empty: see [`Link::to`].
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct AskedNode {
    host: String,
    port: u16,
}

impl AskedNode {
    pub(super) fn of(error: &RedisError) -> Option<Self> {
        if error.kind() != ErrorKind::Server(ServerErrorKind::Ask) {
            return None;
        }
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }
}

/// Texts of errors that no other try mends: a server that is too old, a right, a server that is no cluster, such as a sentinel, one
/// that is no Redis, another database.
const NEVER_OPEN: [&str; 6] = [
    "doesn't support HELLO",
    "NOPERM",
    "cluster support disabled",
    "unknown command 'CLUSTER'",
    "Parse error",
    "SELECT is not allowed",
];

/// What an error means for a connection that is being opened. Nothing was written.
///
/// The client makes one error of all nodes' errors, which has their texts and not their kinds. It quotes the code of a node, and what
/// is quoted is left out of a message: see [`without_data`](crate::error::without_data). No entity was sent yet.
fn not_open(error: &RedisError) -> EngineFailure {
    let text = error.to_string().replace('"', "");
    let has = |known: &[&str]| known.iter().any(|known| text.contains(known));
    let kind = if is_no_login(&text) || is_untrusted(&text) {
        EngineFailure::Unauthenticated
    } else if has(&NEVER_OPEN) {
        EngineFailure::Rejected
    } else {
        EngineFailure::NotDone
    };
    kind(text.into())
}

impl Engine for Cluster {
    const NAME: &'static str = "redis_cluster";
    type Connection = Held<Nodes>;
    /// The bytes of a value tell it from another one.
    type Version = ();

    async fn connection(
        self: &Rc<Self>,
        late: Option<&Held<Nodes>>,
        _: Option<&str>,
    ) -> Result<Held<Nodes>, EngineFailure> {
        self.current.get(late, |_| Rc::clone(self).open()).await
    }

    fn suspect(&self, connection: &Held<Nodes>) {
        self.current.suspect(connection);
    }

    /// A master that is cut off from the cluster refuses all requests, and tells nothing of its successor. A new connection
    /// asks some node for the layout. If the library has lost its connections to all nodes, it does not tell why they are not opened
    /// again. A new connection does, for instance that the password was changed.
    fn refused(&self, connection: &Held<Nodes>, why: &Source) {
        let Some(why) = why.downcast_ref::<RedisError>() else { return };
        if why.kind() == ErrorKind::Server(ServerErrorKind::ClusterDown) || has_lost_all(why) {
            self.current.refused(connection);
        }
    }

    fn lasts(why: &Source) -> bool {
        why.downcast_ref().is_some_and(lasts)
    }

    async fn get(&self, connection: &Held<Nodes>, key: &str) -> Result<Option<Stored<()>>, EngineFailure> {
        let value: Option<Vec<u8>> = self.ask(connection, key, || Cmd::get(key)).await?;
        Ok(value.map(|value| Stored { value, version: () }))
    }

    async fn put(&self, connection: &Held<Nodes>, key: &str, value: &[u8]) -> Result<Put, EngineFailure> {
        let set = || {
            let mut set = Cmd::set(key, value);
            set.arg("GET");
            set
        };
        let replaced: Option<Vec<u8>> = self.write(connection, key, set).await?;
        Ok(if replaced.is_some() { Put::Replaced } else { Put::Created })
    }

    async fn remove(&self, connection: &Held<Nodes>, key: &str) -> Result<Removed, EngineFailure> {
        let removed: u64 = self.write(connection, key, || Cmd::del(key)).await?;
        Ok(if removed > 0 { Removed::Removed } else { Removed::Absent })
    }

    async fn put_over(
        &self,
        connection: &Held<Nodes>,
        key: &str,
        seen: Option<&Stored<()>>,
        value: &[u8],
    ) -> Result<bool, EngineFailure> {
        let Some(seen) = seen else {
            return self.write(connection, key, || Cmd::set_nx(key, value)).await;
        };
        let script = || {
            let mut script = cmd("EVAL");
            script.arg(PUT_OVER).arg(1).arg(key).arg(&seen.value).arg(value);
            script
        };
        self.write(connection, key, script).await
    }

    async fn remove_seen(&self, connection: &Held<Nodes>, key: &str, seen: &Stored<()>) -> Result<bool, EngineFailure> {
        let script = || {
            let mut script = cmd("EVAL");
            script.arg(REMOVE_SEEN).arg(1).arg(key).arg(&seen.value);
            script
        };
        self.write(connection, key, script).await
    }

    /// Asks all masters at once, as far as [`SPREAD_TAGS`] finds them. A node looks at the rights of the user, at its memory and its
    /// replicas before it looks at the options of `SET`, and these two exclude each other. So it stores nothing, and what it
    /// refuses before it would refuse a put.
    async fn try_write(&self, connection: &Held<Nodes>, prefix: &str) -> Result<(), EngineFailure> {
        let try_to_set = async |key: String| {
            let set_nothing = || {
                let mut set = Cmd::set(&key, "");
                set.arg("NX").arg("XX");
                set
            };
            match self.ask::<Option<Vec<u8>>>(connection, &key, set_nothing).await {
                Err(EngineFailure::Rejected(why)) if is_syntax_error(&why) => Ok(()),
                answer => answer.map(drop),
            }
        };
        in_order(SPREAD_TAGS.iter().map(|tag| try_to_set(format!("{prefix}{{{tag}}}")))).await.map(drop)
    }

    async fn page(
        &self,
        connection: &Held<Nodes>,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<StoredPage, EngineFailure> {
        self.read_page(connection, prefix, after, limit).await.map_err(explained)
    }

    /// Counts keys in a set: `SCAN` may show a key more than once.
    async fn len(&self, connection: &Held<Nodes>, prefix: &str) -> Result<u64, EngineFailure> {
        let mut distinct = HashSet::new();
        for (_, keys) in keys(connection, prefix).await.map_err(explained)? {
            distinct.extend(keys.into_iter().map(Vec::into_boxed_slice));
        }
        Ok(distinct.len() as u64)
    }

    /// Removes keys in batches. A slot that moves fails it, and the next attempt scans again.
    async fn clear(&self, connection: &Held<Nodes>, prefix: &str) -> Result<(), EngineFailure> {
        for (master, keys) in keys(connection, prefix).await? {
            for batch in keys.chunks(SCAN_COUNT) {
                let unlink: Vec<Cmd> = batch.iter().map(Cmd::unlink).collect();
                let answers = pipelined(connection.connection.clone(), &unlink, master.clone()).await?;
                answers.into_iter().try_for_each(|answer| read::<u64>(answer).map(drop))?;
            }
        }
        Ok(())
    }
}

/// Logs which masters remove entities if they are full. A user may have no right to ask: then it logs nothing.
async fn warn_of_eviction(mut nodes: Nodes) {
    let mut info = cmd("INFO");
    info.arg("memory");
    let all_masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
    let Ok(answer) = nodes.route_command(info, all_masters).await else { return };
    for (master, info) in read::<Vec<(String, String)>>(answer).unwrap_or_default() {
        if let Some(policy) = evicting_policy(&info) {
            tracing::warn!(
                master,
                policy,
                "Redis removes acknowledged entities if its memory is full; set maxmemory-policy to noeviction"
            );
        }
    }
}

/// The policy of a node that removes keys without a time to live, which entities are.
fn evicting_policy(info: &str) -> Option<&str> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
    field("maxmemory_policy:").filter(|policy| policy.starts_with("allkeys") && field("maxmemory:") != Some("0"))
}

/// Whether a node has looked at a command's options, and found them wrong.
fn is_syntax_error(why: &Source) -> bool {
    why.downcast_ref().and_then(RedisError::detail) == Some("syntax error")
}

/// The number of keys that a master visits for one `SCAN`, and removes in one piece.
const SCAN_COUNT: usize = 1_000;

/// The number of slots of a cluster.
const SLOTS: u64 = 16_384;

/// Checks that a number of masters is that of all masters, and that each slot has one. The library leaves out a master to which it
/// has no connection.
async fn check_is_all(nodes: &mut Nodes, asked: usize) -> Result<(), EngineFailure> {
    let mut slots = cmd("CLUSTER");
    slots.arg("SLOTS");
    let answer = nodes.route_command(slots, RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random)).await;
    let ServedSlots { count, masters } = read(answer.map_err(classify)?)?;
    if (count, masters.len()) == (SLOTS, asked) {
        return Ok(());
    }
    let masters = masters.len();
    let login =
        refused_login().map_or_else(String::new, |why| format!("; a node does not accept the store's login: {why}"));
    let why = format!("{asked} of {masters} masters are connected, and {count} of {SLOTS} slots have a master{login}");
    Err(EngineFailure::NotDone(why.into()))
}

/// Returns the keys of each master that begin with `prefix`. It visits all keys of the database. A key may be there twice.
async fn keys(
    connection: &Held<Nodes>,
    prefix: &str,
) -> Result<Vec<(SingleNodeRoutingInfo, Vec<Vec<u8>>)>, EngineFailure> {
    let mut nodes = connection.connection.clone();
    let pattern = format!("{}*", escaped(prefix));
    let scan = |cursor: u64| {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
        scan
    };
    let all_masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
    let first = nodes.route_command(scan(0), all_masters).await.map_err(classify)?;
    let first: Vec<(String, Scanned)> = read(first)?;
    check_is_all(&mut nodes, first.len()).await?;
    let mut masters = Vec::with_capacity(first.len());
    for (address, (mut cursor, mut keys)) in first {
        let (host, port) = address.rsplit_once(':').unwrap_or((&address, ""));
        let port = port.parse().map_err(|_| EngineFailure::Rejected(format!("{address} is no address").into()))?;
        let master = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port };
        while cursor != 0 {
            let next = nodes.route_command(scan(cursor), RoutingInfo::SingleNode(master.clone())).await;
            let (next, mut found): Scanned = read(next.map_err(classify)?)?;
            cursor = next;
            keys.append(&mut found);
        }
        masters.push((master, keys));
    }
    Ok(masters)
}

/// A text as a pattern that matches only the text.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use redis::cluster_routing::Slot;
    use redis::parse_redis_value;

    use super::*;

    fn value(text: &str) -> Value {
        parse_redis_value(text.as_bytes()).expect("the text is RESP")
    }

    #[test]
    fn the_tags_are_in_all_parts_of_the_slots() {
        for (part, tag) in (0..16).zip(SPREAD_TAGS) {
            let slot = Slot::for_key(format!("polyserve:{{{tag}}}"));
            assert!((0..1_024).any(|offset| Slot::new(part * 1_024 + offset) == Some(slot)), "{tag}");
        }
    }

    #[test]
    fn only_a_policy_for_all_keys_evicts_entities() {
        let policy_of = |max, policy| {
            let info = format!("# Memory\r\nused_memory:1\r\nmaxmemory:{max}\r\nmaxmemory_policy:{policy}\r\n");
            evicting_policy(&info).map(str::to_owned)
        };
        assert_eq!(policy_of(1, "allkeys-lru").as_deref(), Some("allkeys-lru"));
        assert_eq!(policy_of(0, "allkeys-lru"), None);
        assert_eq!(policy_of(1, "volatile-lru"), None);
        assert_eq!(policy_of(1, "noeviction"), None);
    }

    /// Regression test: the error of the `WAIT` was taken for that of the write before it.
    #[test]
    fn an_error_that_may_be_of_a_wait_leaves_the_write_unknown() {
        let failure = |text| of_write_or_wait(classify(value(text).extract_error().expect_err("it is an error")));
        for text in ["-MASTERDOWN x\r\n", "-LOADING x\r\n"] {
            assert!(matches!(failure(text), EngineFailure::Unknown(_)), "{text}");
        }
        for text in ["-READONLY x\r\n", "-MOVED 7 127.0.0.1:1\r\n", "-CLUSTERDOWN x\r\n"] {
            assert!(matches!(failure(text), EngineFailure::NotDone(_)), "{text}");
        }
    }

    /// The node executed the write, so nothing that `WAIT` answers makes it undone.
    #[test]
    fn a_write_with_a_failed_wait_may_be_done() {
        for wait in [
            "-UNBLOCKED force unblock from blocking operation, instance state changed\r\n",
            "-ERR WAIT cannot be used with replica instances\r\n",
            "-LOADING x\r\n",
            "+OK\r\n",
            ":0\r\n",
        ] {
            let answers = vec![value("$-1\r\n"), value(wait)];
            let failure = replicated::<Option<Vec<u8>>>(answers, 1).expect_err(wait);
            assert!(matches!(failure, EngineFailure::Unknown(_)), "{wait}: {failure:?}");
        }
        let failure = replicated::<Option<Vec<u8>>>(vec![value("$-1\r\n")], 1).expect_err("`WAIT` was not answered");
        assert!(matches!(failure, EngineFailure::Unknown(_)), "{failure:?}");
    }

    #[test]
    fn a_write_is_judged_by_its_own_answer() {
        let answers = |write| vec![value(write), value(":1\r\n")];
        assert_eq!(replicated::<u64>(answers(":1\r\n"), 1).unwrap(), 1);
        let refused = replicated::<u64>(answers("-READONLY x\r\n"), 1).expect_err("a replica takes no writes");
        assert!(matches!(refused, EngineFailure::NotDone(_)), "{refused:?}");
        let rejected = replicated::<u64>(answers("-NOPERM x\r\n"), 1).expect_err("it is not allowed");
        assert!(matches!(rejected, EngineFailure::Rejected(_)), "{rejected:?}");
    }
}
