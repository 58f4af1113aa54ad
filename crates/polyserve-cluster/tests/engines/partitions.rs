//! Nodes that are cut off from others while clients are recorded.
//!
//! Each test runs in a network name space of its own: its packet rules touch nothing else on this machine.

use std::env;
use std::process::Command;
use std::thread;
use std::time::Duration;

use polyserve_engines::etcd::EtcdCluster;
use polyserve_engines::postgres::PostgresServer;
use polyserve_engines::process::{Missing, output, program, wait_for};
use polyserve_engines::redis::{NODES, RedisNodes, source_address};

use crate::Test;
use crate::faults::{a_lost_master, recorded_through};
use crate::kind::Kind;

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    let test = |name, run: fn() -> Result<(), Missing>| {
        Test::own(kind, name, move || in_own_network(&format!("{}::{name}", kind.name()), run))
    };
    match kind {
        Kind::Etcd => vec![test("a_leader_that_is_cut_off_loses_no_write", cut_off_leader)],
        Kind::Redis => vec![
            test("a_master_that_is_cut_off_loses_what_it_did_not_send", || a_lost_master(0, cut_off)),
            test("a_master_that_is_cut_off_loses_nothing_that_its_replica_has", || a_lost_master(1, cut_off)),
        ],
        Kind::Postgres => vec![test("a_server_that_is_cut_off_loses_no_write", cut_off_server)],
    }
}

/// In this environment variable the child process learns that it is in a network of its own.
const IN_NETWORK: &str = "POLYSERVE_TEST_IN_NETWORK";

const ADD_TABLE: &str = "add table inet polyserve";
const ADD_CHAIN: &str = "add chain inet polyserve out { type filter hook output priority 0 ; }";
const ADD_RULE: &str = "add rule inet polyserve out";

/// Runs a test in a new network name space. `name` is the name of the test.
fn in_own_network(name: &str, run: fn() -> Result<(), Missing>) -> Result<(), Missing> {
    if env::var_os(IN_NETWORK).is_some() {
        rule(ADD_TABLE);
        rule(ADD_CHAIN);
        return run();
    }
    for name in ["ip", "nft", "unshare"] {
        program(name)?;
    }
    // Packet rules need root.
    let trial = format!("ip link set lo up && nft {ADD_TABLE} && nft '{ADD_CHAIN}' && nft {ADD_RULE} ct mark 7 drop");
    let result = Command::new("unshare").args(["--net", "sh", "-c", &trial]).output();
    let result = result.map_err(|error| Missing(format!("no network name space: {error}")))?;
    if !result.status.success() {
        let why = String::from_utf8_lossy(&result.stderr).trim().to_owned();
        return Err(Missing(format!("no network name space with packet rules: {why}")));
    }
    let mut child = Command::new("unshare");
    child.args(["--net", "sh", "-c", r#"ip link set lo up && exec "$0" "$@""#]);
    child.arg(env::current_exe().expect("this program has a path")).arg("--exact").arg(name);
    let text = output(child.env(IN_NETWORK, "1"));
    assert!(text.contains("1 passed"), "{text}");
    Ok(())
}

fn rule(text: &str) {
    output(Command::new("nft").args(text.split(' ')));
}

/// Drops the packets of all connections that are marked, in both directions. The first packet from here marks them.
fn cut() {
    rule(&format!("{ADD_RULE} ct mark 7 drop"));
}

fn heal() {
    rule("flush chain inet polyserve out");
}

/// The leader keeps its clients, and loses the other members. Rules tell the members apart by their users.
fn cut_off_leader() -> Result<(), Missing> {
    let users = [0, 1, 2].map(|number: u32| (61_001 + number).to_string());
    let mut etcd = EtcdCluster::prepared(users.clone().map(Some))?;
    etcd.fail_over_soon();
    etcd.run();
    let urls = etcd.urls();
    recorded_through(Kind::Etcd, &urls, || {
        let leader = etcd.leader();
        let peers: Vec<u16> = etcd.ports().into_iter().map(|(_, peer)| peer).collect();
        for (number, peer) in peers.iter().enumerate() {
            let side = if number == leader { "!= " } else { "" };
            rule(&format!("{ADD_RULE} meta skuid {side}{} tcp dport {peer} ct mark set 7", users[leader]));
        }
        cut();
        wait_for("another member leads", || etcd.leader_but(leader));
        heal();
    });
    Ok(())
}

/// The master keeps its clients, and loses the other nodes.
fn cut_off(redis: &mut RedisNodes, master: usize, taken_over: &dyn Fn(&RedisNodes)) {
    let others: Vec<_> =
        (0..NODES).filter(|node| *node != master).map(|node| source_address(node).to_string()).collect();
    rule(&format!("{ADD_RULE} ip saddr {} ct mark set 7", source_address(master)));
    for port in redis.ports(master) {
        rule(&format!("{ADD_RULE} ip saddr {{ {} }} tcp dport {port} ct mark set 7", others.join(", ")));
    }
    cut();
    wait_for("a replica is a master", || (redis.count_masters() > NODES / 2).then_some(()));
    taken_over(redis);
    heal();
    wait_for("the old master is a replica", || redis.is_replica(master).then_some(()));
}

/// The clients lose the server, for longer than the timeout.
fn cut_off_server() -> Result<(), Missing> {
    let postgres = PostgresServer::start()?;
    recorded_through(Kind::Postgres, &postgres.url(), || {
        rule(&format!("{ADD_RULE} tcp dport {} ct mark set 7", postgres.port()));
        cut();
        thread::sleep(Duration::from_secs(4));
        heal();
    });
    Ok(())
}
