//! Nodes that are killed or paused while clients are recorded.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_cluster::StoreLimits;
use polyserve_conformance::history::{
    Call, CallAnswer, CheckVerdict, History, Operation, RecordingControl, RecordingWorkload, check, record_in_process,
    value_of,
};
use polyserve_core::{Condition, Conditional, Entity, EntityRepo, EntityRepoExt as _, Put};
use polyserve_engines::etcd::EtcdCluster;
use polyserve_engines::postgres::PostgresServer;
use polyserve_engines::process::{Missing, wait_for};
use polyserve_engines::redis::RedisNodes;

use crate::Test;
use crate::kind::{Connect as _, Kind, connect_redis, name_space};

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    match kind {
        Kind::Etcd => vec![
            Test::own(kind, "a_killed_leader_loses_no_write", a_killed_leader_loses_no_write),
            Test::own(kind, "a_stopped_leader_loses_no_write", a_stopped_leader_loses_no_write),
        ],
        Kind::Redis => vec![
            Test::own(kind, "a_temporary_store_is_removed_in_batches", a_temporary_store_is_removed_in_batches),
            Test::own(kind, "slots_move_under_load", || slots_move_under_load(0)),
            Test::own(kind, "slots_move_under_load_that_waits_for_replicas", || slots_move_under_load(1)),
            Test::own(kind, "a_scan_sees_a_slot_that_moves", || a_slot_that_moves_is_served(|_| ())),
            Test::own(kind, "a_slot_that_moves_to_a_new_node_is_served", || {
                a_slot_that_moves_is_served(RedisNodes::add_master)
            }),
            Test::own(kind, "a_slot_that_moves_to_a_node_without_a_host_is_served", || {
                a_slot_that_moves_is_served(|redis| {
                    redis.configure("cluster-preferred-endpoint-type", "unknown-endpoint");
                })
            }),
            Test::own(kind, "a_killed_master_loses_what_it_did_not_send", || a_lost_master(0, kill)),
            Test::own(kind, "a_killed_master_loses_nothing_that_its_replica_has", || a_lost_master(1, kill)),
            Test::own(kind, "a_paused_master_loses_what_it_did_not_send", || a_lost_master(0, pause)),
            Test::own(kind, "a_paused_master_loses_nothing_that_its_replica_has", || a_lost_master(1, pause)),
        ],
        Kind::Postgres => vec![Test::own(kind, "a_killed_server_loses_no_write", a_killed_server_loses_no_write)],
    }
}

/// The number of recorded clients.
const CLIENTS: u32 = 4;

fn limits() -> StoreLimits {
    StoreLimits::default().timeout(Duration::from_secs(2))
}

/// Records clients of a store. While they run, causes a fault. Then reads every key. The clients go on until enough operations have
/// ended after the fault.
///
/// # Panics
///
/// Panics if the history is not linearizable, so if an acknowledged write is lost.
pub(crate) fn recorded_through(kind: Kind, urls: &str, fault: impl FnOnce()) {
    let store: Arc<dyn EntityRepo> = kind.connect::<Entity>(urls, &name_space(), limits()).expect("it connects");
    let workload = RecordingWorkload { operations: 8_192, keys: 32, first_key: 1, seed: 3, conditions: false };
    recorded(kind, &store, &workload, |_| fault());
}

fn recorded(
    kind: Kind,
    store: &Arc<dyn EntityRepo>,
    workload: &RecordingWorkload,
    fault: impl FnOnce(&RecordingControl),
) {
    let control = RecordingControl::default();
    let start = Instant::now();
    // More than the clients do before they are stopped.
    let long = RecordingWorkload { operations: workload.operations * 64, ..*workload };
    let (recording, fault_at) = thread::scope(|scope| {
        // Also if the fault panics.
        let stop = OnDrop(|| control.stop());
        let recording = scope.spawn(|| record_in_process(store, &long, CLIENTS, &control));
        let wait_until_done = |what: &str, target: u64| wait_for(what, || (control.done() >= target).then_some(()));
        wait_until_done("a fourth of the load is done", workload.operations / 4);
        let fault_at = nanos(start);
        fault(&control);
        wait_for("the store serves after the fault", || store.fetch(&1).wait().ok());
        wait_until_done("clients go on after the fault", control.done() + workload.operations / 16);
        drop(stop);
        (recording.join().expect("the recording does not panic"), fault_at)
    });
    assert_eq!(recording.wrong, []);
    let mut operations = recording.operations;
    let answered = operations.iter().filter(|operation| operation.called > fault_at && !operation.is_unknown()).count();
    assert!(answered > 0, "no operation was called and answered after the fault");
    for key in 1..=workload.keys.cast_signed() {
        let called = nanos(start);
        let entity = wait_for("the store serves after a fault", || store.fetch(&key).wait().ok());
        let value = entity.map(|entity| value_of(key, entity.as_ref()).unwrap_or_else(|wrong| panic!("{wrong}")));
        let answer = Some(value.map_or(CallAnswer::Absent, CallAnswer::Found));
        let (process, call, condition) = (CLIENTS, Call::Get, None);
        operations.push(Operation { process, key, call, condition, answer, called, returned: nanos(start) });
    }
    let history = History::new(operations).unwrap_or_else(|invalid| panic!("{invalid}"));
    println!("{}: {} operations, {} not answered", kind.name(), history.operations().len(), history.unknown());
    assert_eq!(history.shows_nothing(), None);
    let verdict = check(&history);
    assert!(matches!(verdict, CheckVerdict::Linearizable), "{verdict:?}");
}

/// Runs a closure when it is dropped.
pub(crate) struct OnDrop<F: Fn()>(pub(crate) F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn nanos(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).expect("a test is short")
}

fn a_killed_leader_loses_no_write() -> Result<(), Missing> {
    let mut etcd = EtcdCluster::start_for_failovers()?;
    let urls = etcd.urls();
    recorded_through(Kind::Etcd, &urls, || {
        let leader = etcd.leader();
        etcd.member(leader).kill();
        wait_for("another member leads", || etcd.leader_but(leader));
        etcd.start_member(leader);
    });
    Ok(())
}

/// A leader that is paused, and goes on after another was elected.
fn a_stopped_leader_loses_no_write() -> Result<(), Missing> {
    let mut etcd = EtcdCluster::start_for_failovers()?;
    let urls = etcd.urls();
    recorded_through(Kind::Etcd, &urls, || {
        let leader = etcd.leader();
        etcd.member(leader).stop();
        wait_for("another member leads", || etcd.leader_but(leader));
        etcd.member(leader).resume();
    });
    Ok(())
}

fn a_killed_server_loses_no_write() -> Result<(), Missing> {
    let mut postgres = PostgresServer::start()?;
    let url = postgres.url();
    recorded_through(Kind::Postgres, &url, || {
        postgres.kill();
        postgres.restart();
    });
    Ok(())
}

/// Dropping a temporary store does not wait for each key.
fn a_temporary_store_is_removed_in_batches() -> Result<(), Missing> {
    let redis = RedisNodes::start()?;
    let store = Kind::Redis.connect_temporary(&redis.urls()).expect("it connects");
    let puts: Vec<_> = (0..4_000).map(|id| store.put(Entity::new(id, "temporary", 0.5))).collect();
    puts.into_iter().for_each(|put| _ = put.wait().expect("it is stored"));
    let before = redis.reads_of_masters();
    drop(store);
    let reads = redis.reads_of_masters() - before;
    println!("redis_cluster: {reads} reads to remove 4,000 keys");
    assert!(reads < 1_000, "{reads} reads for 4,000 keys");
    assert_eq!(Kind::Redis.count_temporary(&redis.urls()), 0);
    Ok(())
}

const PREFIX: &str = "failover:";

/// Moves the slot of each key to another master while clients use the keys. They are answered with `ASK` and `MOVED`.
fn slots_move_under_load(replicas: u32) -> Result<(), Missing> {
    let redis = RedisNodes::start()?;
    let store = connect_redis(&redis.urls(), PREFIX, replicas, None, limits()).expect("it connects");
    let workload = RecordingWorkload { operations: 10_000, keys: 32, first_key: 1, seed: 3, conditions: true };
    let mut slots = BTreeMap::<u16, Vec<String>>::new();
    for key in 1..=workload.keys {
        let key = format!("{PREFIX}{key}");
        slots.entry(redis.slot(&key)).or_default().push(key);
    }
    recorded(Kind::Redis, &store, &workload, |control| {
        let mut moved = 0;
        for (slot, keys) in slots.iter().cycle() {
            // On a busy machine each move takes long, and the clients go on.
            if control.done() >= workload.operations && moved > 4 {
                break;
            }
            redis.move_slot(*slot, keys, || {
                let target = control.done() + 50;
                wait_for("clients go on while a slot moves", || (control.done() >= target).then_some(()));
            });
            moved += 1;
        }
        println!("redis_cluster: {moved} slots moved");
    });
    Ok(())
}

/// While their slot moves, a scan shows each entity once, also if some of them are at each of two nodes, and writes are done.
///
/// Regression test: entities at a node that had no slot yet were unavailable until the whole slot had moved, and so was every scan. So were
/// those at a node with a host that the others do not know.
fn a_slot_that_moves_is_served(prepare: impl FnOnce(&mut RedisNodes)) -> Result<(), Missing> {
    let mut redis = RedisNodes::start()?;
    // The hash tag keeps all keys in one slot.
    let prefix = "{moves}:";
    let store = connect_redis(&redis.urls(), prefix, 0, None, limits()).expect("it connects");
    prepare(&mut redis);
    let put =
        |ids: Range<i64>| ids.for_each(|id| _ = store.put(Entity::new(id, "stays", 0.5)).wait().expect("it is stored"));
    let scanned = || {
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = store.scan(after.as_ref(), 7, &mut |_, _| ControlFlow::Continue(())).wait().expect("it scans");
            ids.extend(page.entities.iter().map(|entity| entity.id));
            after = ids.last().copied();
            if !page.has_more {
                ids.sort_unstable();
                return ids;
            }
        }
    };
    put(0..30);
    let keys: Vec<_> = (0..30).map(|id| format!("{prefix}{id}")).collect();
    let mut steps = 0;
    redis.move_slot(redis.slot(prefix), &keys, || {
        // New keys are put at the node that the slot moves to: ten more at each step.
        put(30 + 10 * steps..40 + 10 * steps);
        steps += 1;
        assert_eq!(scanned(), (0..30 + 10 * steps).collect::<Vec<_>>(), "at step {steps}");
        let replaced = store.put_if(Entity::new(0, "stays", 0.5), &Condition::present()).wait();
        assert!(matches!(replaced, Ok(Conditional::Done(Put::Replaced))), "{replaced:?} at step {steps}");
    });
    assert_eq!(steps, 3);
    Ok(())
}

/// A fault of a master. It calls its last argument, which waits until another node has taken over.
pub(crate) type MasterFault = fn(&mut RedisNodes, usize, &dyn Fn(&RedisNodes));

fn kill(redis: &mut RedisNodes, master: usize, taken_over: &dyn Fn(&RedisNodes)) {
    redis.node(master).kill();
    taken_over(redis);
}

/// The master goes on after another node has taken over, and finds the requests that it got in the meantime.
fn pause(redis: &mut RedisNodes, master: usize, taken_over: &dyn Fn(&RedisNodes)) {
    redis.node(master).stop();
    taken_over(redis);
    redis.node(master).resume();
    wait_for("the old master is a replica", || redis.is_replica(master).then_some(()));
}

/// A master fails while entities are put. A lost write is one of that master. None is lost if its replica had it.
pub(crate) fn a_lost_master(replicas: u32, fault: MasterFault) -> Result<(), Missing> {
    let mut redis = RedisNodes::start_for_failovers()?;
    let store = connect_redis(&redis.urls(), PREFIX, replicas, None, limits()).expect("it connects");
    let (master, slots) = redis.a_master();
    let is_lost_with_master = |redis: &RedisNodes, id: i64| {
        let slot = redis.slot(&format!("{PREFIX}{id}"));
        slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    };
    let (next_id, has_failed, is_over) = (AtomicI64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let acknowledged = Mutex::new(BTreeMap::new());
    let put = || {
        while !is_over.load(Relaxed) {
            let id = next_id.fetch_add(1, Relaxed);
            let entity = Entity::new(id, format!("number {id}"), id as f64);
            if store.put(entity.clone()).wait().is_ok() {
                acknowledged.lock().unwrap().insert(id, entity);
            }
            // A failover takes long.
            if has_failed.load(Relaxed) {
                thread::sleep(Duration::from_millis(10));
            }
        }
    };
    let count = || acknowledged.lock().unwrap().len();
    thread::scope(|scope| {
        // Also if a wait below gives up.
        let _end = OnDrop(|| is_over.store(true, Relaxed));
        (0..16).for_each(|_| _ = scope.spawn(put));
        wait_for("entities are put", || (count() >= 2_000).then_some(()));
        has_failed.store(true, Relaxed);
        fault(&mut redis, master, &|redis| {
            let failed_at = next_id.load(Relaxed);
            let of_master = (failed_at + 16..).find(|id| is_lost_with_master(redis, *id)).expect("ids do not end");
            let entity = Entity::new(of_master, "after the failover", 0.5);
            // The replica that takes over has no replica itself: a write that waits for one is never acknowledged.
            wait_for("a replica takes over", || match replicas {
                0 => store.put(entity.clone()).wait().map(drop).ok(),
                _ => store.fetch(&of_master).wait().map(drop).ok(),
            });
        });
    });
    let mut lost = Vec::new();
    let acknowledged = acknowledged.into_inner().unwrap();
    for (id, entity) in &acknowledged {
        let stored = wait_for("the store serves after the failover", || store.fetch(id).wait().ok());
        match stored {
            None => lost.push(*id),
            Some(stored) if stored.description == "after the failover" => {}
            Some(stored) => assert_eq!(&stored, entity),
        }
    }
    println!(
        "redis_cluster, {replicas} replicas waited for: {} of {} acknowledged writes are lost with their master",
        lost.len(),
        acknowledged.len()
    );
    assert!(lost.iter().all(|id| is_lost_with_master(&redis, *id)), "lost by masters that live: {lost:?}");
    assert!(replicas == 0 || lost.is_empty(), "a replica had them: {lost:?}");
    Ok(())
}
