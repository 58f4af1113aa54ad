//! A Redis Cluster of three masters, each with a replica.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{
    EngineProcess, Folder, MAX_WAIT, Missing, free_port, listens, output, program, wait_for, wait_until_closed,
};

/// Three masters and three replicas of Redis. They end when this is dropped.
#[derive(Debug)]
pub struct RedisNodes {
    nodes: Vec<(u16, EngineProcess)>,
    server: PathBuf,
    /// The port of each node's cluster bus.
    buses: Vec<u16>,
    folder: Folder,
    settings: RedisSettings,
}

/// The settings of nodes.
#[derive(Clone, Copy, Debug)]
struct RedisSettings {
    /// Whether each write is on disk before it is answered. Otherwise a restarted node has no data.
    keeps: bool,
    /// The time, in milliseconds, after which a silent master is replaced.
    node_timeout: &'static str,
}

/// For nodes that may be paused or killed: their replicas take over soon.
const SOON: &str = "2000";
/// For nodes that are not to be replaced: on a busy machine they may get no time for seconds.
const LATE: &str = "15000";

/// A server of Redis that is no cluster. It ends when this is dropped.
#[derive(Debug)]
pub struct LoneRedis {
    port: u16,
    _process: EngineProcess,
    _folder: Folder,
}

impl LoneRedis {
    /// Starts the server.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn start() -> Result<Self, Missing> {
        Self::start_with(&["--save", ""])
    }

    /// Starts a sentinel, which knows of no server, and of no command of a cluster.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn start_sentinel() -> Result<Self, Missing> {
        Self::start_with(&["--sentinel"])
    }

    fn start_with(args: &[&str]) -> Result<Self, Missing> {
        let server = program("redis-server")?;
        let (folder, port) = (Folder::new("redis"), free_port());
        // A sentinel writes its settings to a file.
        let file = folder.path().join("redis.conf");
        std::fs::write(&file, format!("port {port}\nbind 127.0.0.1\n")).expect("the folder is new");
        let args: Vec<&OsStr> = std::iter::once(file.as_os_str()).chain(args.iter().map(OsStr::new)).collect();
        let mut process = EngineProcess::start(&server, None, &args, &folder.path().join("log"));
        wait_for("redis-server listens", || {
            process.assert_runs();
            listens(port)
        });
        Ok(Self { port, _process: process, _folder: folder })
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

/// A master of a cluster.
#[derive(Debug)]
struct RedisMaster {
    number: usize,
    port: u16,
    id: String,
    /// The ranges of its slots.
    slots: Vec<(u16, u16)>,
}

/// The number of nodes: three masters and three replicas.
pub const NODES: usize = 6;

impl RedisNodes {
    /// Starts the nodes, and waits until all serve as a cluster. They keep nothing on disk. A replica takes over after its
    /// master has been silent for 15 s.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn start() -> Result<Self, Missing> {
        Self::start_all(RedisSettings { keeps: false, node_timeout: LATE })
    }

    /// Does as [`start`](Self::start), with replicas that take over after 2 s.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn start_for_failovers() -> Result<Self, Missing> {
        Self::start_all(RedisSettings { keeps: false, node_timeout: SOON })
    }

    /// Does as [`start_for_failovers`](Self::start_for_failovers), with nodes that have each write on disk before they answer it.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine is not installed.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn start_kept() -> Result<Self, Missing> {
        Self::start_all(RedisSettings { keeps: true, node_timeout: SOON })
    }

    fn start_all(settings: RedisSettings) -> Result<Self, Missing> {
        let (server, cli): (PathBuf, PathBuf) = (program("redis-server")?, program("redis-cli")?);
        let folder = Folder::new("redis");
        let buses: Vec<u16> = (0..NODES).map(|_| free_port()).collect();
        let run = |(number, bus): (usize, &u16)| {
            let port = free_port();
            (port, run(&server, &folder, number, port, *bus, settings))
        };
        let mut nodes: Vec<(u16, EngineProcess)> = buses.iter().enumerate().map(run).collect();
        for (port, process) in &mut nodes {
            wait_for("redis-server listens", || {
                process.assert_runs();
                listens(*port)
            });
        }
        let mut create = Command::new(cli);
        create.args(["--cluster", "create"]).args(nodes.iter().map(|(port, _)| format!("127.0.0.1:{port}")));
        output(create.args(["--cluster-replicas", "1", "--cluster-yes"]));
        let cluster = Self { nodes, server, buses, folder, settings };
        cluster.wait_until_whole();
        Ok(cluster)
    }

    /// Starts all nodes again after they were killed. They know their cluster.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn restart(&mut self) {
        (0..NODES).for_each(|number| self.start_node(number));
        self.wait_until_whole();
    }

    /// Starts a node again after it has ended. It knows its cluster.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn start_node(&mut self, number: usize) {
        let (port, process) = &mut self.nodes[number];
        *process = run(&self.server, &self.folder, number, *port, self.buses[number], self.settings);
    }

    /// Starts one more master, which has no slots, and waits until all nodes know it.
    ///
    /// # Panics
    ///
    /// Panics if the engine does not start.
    pub fn add_master(&mut self) {
        let (number, port, bus) = (self.nodes.len(), free_port(), free_port());
        let process = run(&self.server, &self.folder, number, port, bus, self.settings);
        self.nodes.push((port, process));
        self.buses.push(bus);
        wait_for("redis-server listens", || listens(port));
        order(port, &format!("CLUSTER MEET 127.0.0.1 {} {}", self.nodes[0].0, self.buses[0]));
        let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
        wait_for("all nodes know the new one", || {
            let knows = |(port, _): &(u16, _)| ask(*port, "CLUSTER INFO").is_some_and(|info| info.contains(&known));
            self.nodes.iter().all(knows).then_some(())
        });
        let is_met =
            |(port, _): &(u16, _)| ask(*port, "CLUSTER NODES").is_some_and(|nodes| !nodes.contains("handshake"));
        wait_for("all nodes have met", || self.nodes.iter().all(is_met).then_some(()));
    }

    /// Waits until each node sees all slots served, and half of the nodes are replicas. They are connected to a master, and
    /// it counts them.
    ///
    /// # Panics
    ///
    /// Panics if the cluster is not whole within [`MAX_WAIT`].
    pub fn wait_until_whole(&self) {
        wait_for("the Redis cluster is whole", || {
            let (mut connected, mut counted) = (0, 0);
            for (port, _) in &self.nodes {
                let is_ok = ask(*port, "CLUSTER INFO")?.contains("cluster_state:ok");
                let replication = ask(*port, "INFO replication")?;
                connected += usize::from(replication.contains("master_link_status:up"));
                counted += replication.matches("state=online").count();
                is_ok.then_some(())?;
            }
            ([connected, counted] == [NODES / 2; 2]).then_some(())
        });
    }

    /// Returns the URLs of all nodes, separated by commas.
    pub fn urls(&self) -> String {
        self.nodes.iter().map(|(port, _)| format!("redis://127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }

    /// Returns the processes of all nodes.
    pub fn processes(&mut self) -> impl Iterator<Item = &mut EngineProcess> {
        self.nodes.iter_mut().map(|(_, process)| process)
    }

    /// Returns the number of a master, and the ranges of its slots.
    ///
    /// # Panics
    ///
    /// Panics if no node is a master within [`MAX_WAIT`].
    pub fn a_master(&self) -> (usize, Vec<(u16, u16)>) {
        let master = wait_for("a node is a master", || self.masters().into_iter().next());
        (master.number, master.slots)
    }

    /// Returns whether a node is a replica that is connected to its master.
    pub fn is_replica(&self, number: usize) -> bool {
        let info = ask(self.nodes[number].0, "INFO replication");
        info.is_some_and(|info| info.contains("role:slave") && info.contains("master_link_status:up"))
    }

    fn masters(&self) -> Vec<RedisMaster> {
        let masters = self.nodes.iter().enumerate().filter_map(|(number, (port, _))| {
            let nodes = ask(*port, "CLUSTER NODES")?;
            let own_line = nodes.lines().find(|line| line.contains("myself,master"))?;
            let mut fields = own_line.split(' ');
            let id = fields.next()?.to_owned();
            let slots = fields.skip(7).filter_map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                Some((first.parse().ok()?, last.parse().ok()?))
            });
            Some(RedisMaster { number, port: *port, id, slots: slots.collect() })
        });
        masters.collect()
    }

    /// Moves the slot of some keys to another master, as a resharding does. Calls `pause` between its steps: after the
    /// slot is marked, after the keys are moved, and after the masters of both sides know.
    ///
    /// # Panics
    ///
    /// Panics if a node does not answer, or rejects a step.
    pub fn move_slot(&self, slot: u16, keys: &[String], mut pause: impl FnMut()) {
        let owns = |master: &RedisMaster| master.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot));
        let (source, target) = wait_for("a master has the slot, and another has not", || {
            let (mut sources, mut targets): (Vec<_>, Vec<_>) = self.masters().into_iter().partition(owns);
            Some((sources.pop()?, targets.pop()?))
        });
        let (source, target) = (&source, &target);
        let send = |master: &RedisMaster, command: &str| _ = order(master.port, command);
        send(target, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", source.id));
        send(source, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", target.id));
        pause();
        for key in keys {
            send(source, &format!("MIGRATE 127.0.0.1 {} {key} 0 5000", target.port));
        }
        pause();
        // First the new owner: the slot always has one.
        for master in [target, source] {
            send(master, &format!("CLUSTER SETSLOT {slot} NODE {}", target.id));
        }
        pause();
    }

    /// Makes all nodes hold what clients send for this time.
    ///
    /// # Panics
    ///
    /// Panics if a node does not answer.
    pub fn hold(&self, time: Duration) {
        for (port, _) in &self.nodes {
            order(*port, &format!("CLIENT PAUSE {} ALL", time.as_millis()));
        }
    }

    /// Sets a parameter of all nodes.
    ///
    /// # Panics
    ///
    /// Panics if a node does not answer, or rejects it.
    pub fn configure(&self, parameter: &str, value: &str) {
        for (port, _) in &self.nodes {
            let answer = order(*port, &format!("CONFIG SET {parameter} {value}"));
            assert_eq!(answer.trim(), "OK", "CONFIG SET {parameter} {value}");
        }
    }

    /// Makes the masters refuse all writes, or accept them again: each write needs more replicas than there are.
    ///
    /// # Panics
    ///
    /// Panics if a node does not answer.
    pub fn refuse_writes(&self, refuse: bool) {
        self.configure("min-replicas-to-write", if refuse { "9" } else { "0" });
    }

    /// Ends the connections of all clients, and waits until they have noticed it.
    ///
    /// # Panics
    ///
    /// Panics if a node or a client does not.
    pub fn end_connections(&self) {
        for (port, _) in &self.nodes {
            order(*port, "CLIENT KILL TYPE normal");
        }
        wait_until_closed(&self.nodes.iter().map(|(port, _)| *port).collect::<Vec<_>>());
    }

    /// Ends the connections of all clients, waits until they have noticed it, and makes all nodes refuse clients until the returned
    /// value is dropped.
    ///
    /// # Panics
    ///
    /// Panics if a node or a client does not.
    pub fn refuse_clients(&self) -> RefusedClients {
        let connect = |(port, _): &(u16, EngineProcess)| {
            let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).expect("a node accepts a client");
            connection.set_read_timeout(Some(MAX_WAIT)).expect("the timeout is not zero");
            BufReader::new(connection)
        };
        // Its connections stay: a node that refuses clients takes the command that ends this from no other one.
        let mut refused = RefusedClients(self.nodes.iter().map(connect).collect());
        refused.send("CONFIG SET maxclients 1");
        refused.send("CLIENT KILL TYPE normal");
        wait_until_closed(&self.nodes.iter().map(|(port, _)| *port).collect::<Vec<_>>());
        refused
    }

    /// Sends a command to all nodes.
    ///
    /// # Panics
    ///
    /// Panics if a node does not answer, or rejects it.
    pub fn ask_all(&self, command: &str) {
        for (port, _) in &self.nodes {
            order(*port, command);
        }
    }

    /// Sends a command to one node.
    ///
    /// # Panics
    ///
    /// Panics if the node does not answer, or rejects it.
    pub fn ask_node(&self, number: usize, command: &str) {
        order(self.nodes[number].0, command);
    }

    /// Sends a command to the nodes in turn until one takes it.
    ///
    /// # Panics
    ///
    /// Panics if none does.
    pub fn ask_any(&self, command: &str) {
        let taken = self.nodes.iter().find_map(|(port, _)| answer(*port, command, MAX_WAIT));
        assert!(taken.is_some(), "all nodes reject {command:?}");
    }

    /// Returns how often the nodes have run a command.
    ///
    /// # Panics
    ///
    /// Panics if a node does not answer.
    pub fn count_calls(&self, command: &str) -> u64 {
        let field = format!("cmdstat_{command}:calls=");
        let calls = |(port, _): &(u16, EngineProcess)| -> u64 {
            let info = order(*port, "INFO commandstats");
            let calls = info.lines().find_map(|line| line.strip_prefix(&*field)?.split(',').next()?.parse().ok());
            calls.unwrap_or(0)
        };
        self.nodes.iter().map(calls).sum()
    }

    /// Returns the number of times that masters have read from their connections.
    ///
    /// # Panics
    ///
    /// Panics if a node does not answer.
    pub fn reads_of_masters(&self) -> u64 {
        let reads = |(port, _): &(u16, EngineProcess)| {
            let info = order(*port, "INFO");
            let count = info.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
            let count: u64 = count.and_then(|count| count.trim().parse().ok()).expect("a node counts its reads");
            if info.contains("role:master") { count } else { 0 }
        };
        self.nodes.iter().map(reads).sum()
    }

    /// Returns the slot of a key.
    ///
    /// # Panics
    ///
    /// Panics if no node answers.
    pub fn slot(&self, key: &str) -> u16 {
        let answer = self.nodes.iter().find_map(|(port, _)| ask(*port, &format!("CLUSTER KEYSLOT {key}")));
        answer.and_then(|slot| slot.trim().parse().ok()).expect("a node knows the slot of a key")
    }

    /// Makes all nodes require a password from clients and from each other.
    ///
    /// # Panics
    ///
    /// Panics if a node does not answer.
    pub fn require_password(&self, password: &str) {
        self.configure("masterauth", password);
        self.configure("requirepass", password);
    }

    /// Returns the ports of a node: for clients, and of the cluster bus.
    pub fn ports(&self, number: usize) -> [u16; 2] {
        [self.nodes[number].0, self.buses[number]]
    }

    /// Returns the number of masters, also of those that another node has replaced and that do not know it.
    pub fn count_masters(&self) -> usize {
        self.masters().len()
    }

    /// Returns the process of a node.
    pub fn node(&mut self, number: usize) -> &mut EngineProcess {
        &mut self.nodes[number].1
    }
}

/// Nodes that refuse clients. A drop ends that.
#[derive(Debug)]
pub struct RefusedClients(Vec<BufReader<TcpStream>>);

impl RefusedClients {
    fn send(&mut self, command: &str) {
        for connection in &mut self.0 {
            connection.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("a node reads");
            let mut answer = String::new();
            connection.read_line(&mut answer).expect("a node answers");
            assert!(answer.starts_with(['+', ':']), "{command}: {answer}");
        }
    }
}

impl Drop for RefusedClients {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.send("CONFIG SET maxclients 1000");
        }
    }
}

/// Returns the address of the connections that a node opens to other nodes.
pub fn source_address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 11 + number as u8)
}

fn run(server: &Path, folder: &Folder, number: usize, port: u16, bus: u16, settings: RedisSettings) -> EngineProcess {
    let (log, data) = (folder.path().join(format!("{port}.log")), folder.path().join(port.to_string()));
    std::fs::create_dir_all(&data).expect("a directory can be made");
    let (port, bus, data) = (port.to_string(), bus.to_string(), data.to_str().expect("the path is UTF-8"));
    let source = source_address(number).to_string();
    #[rustfmt::skip]
    let args = [
        "--port", &port, "--cluster-port", &bus, "--bind", "127.0.0.1", "--dir", data,
        // Protected mode takes the other loopback addresses for foreign ones.
        "--bind-source-addr", &source, "--cluster-announce-ip", "127.0.0.1", "--protected-mode", "no",
        "--cluster-enabled", "yes", "--cluster-node-timeout", settings.node_timeout, "--save", "",
        "--appendonly", if settings.keeps { "yes" } else { "no" }, "--appendfsync", "always",
        // A replica that was just stopped may take over too.
        "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
    ];
    EngineProcess::start(server, None, &args, &log)
}

/// Sends a command to a node that may be paused. Returns the text of its answer, or `None` if it does not answer soon.
fn ask(port: u16, command: &str) -> Option<String> {
    answer(port, command, Duration::from_secs(2))
}

/// Sends a command to a node. Returns the text of its answer.
///
/// # Panics
///
/// Panics if the node does not answer within [`MAX_WAIT`], or rejects it.
fn order(port: u16, command: &str) -> String {
    answer(port, command, MAX_WAIT).unwrap_or_else(|| panic!("a node does not answer {command:?}, or rejects it"))
}

/// Sends a command to a node. Returns the text of its answer, or `None` if the node does not answer within `timeout`.
fn answer(port: u16, command: &str, timeout: Duration) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(timeout)).ok()?;
    stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
    let mut answer = BufReader::new(stream);
    let mut head = String::new();
    answer.read_line(&mut head).ok()?;
    match head.split_at_checked(1)? {
        (":" | "+", text) => Some(text.to_owned()),
        ("$", length) => {
            let mut text = vec![0; length.trim().parse().ok()?];
            answer.read_exact(&mut text).ok()?;
            String::from_utf8(text).ok()
        }
        _ => None,
    }
}
