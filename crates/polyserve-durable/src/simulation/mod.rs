//! Power failures, failed calls and rotten bytes at every call that the store makes to the disk.
//!
//! A run is a few lives of one store on a [`SimulatedDisk`], over a repo in memory that each life fills anew. A life ends by a
//! power failure or a kill at one of the calls. After each, the recovered state must be the state after some batch: no earlier
//! than the last answered one, and no earlier than what a reader has seen. All is drawn from seeds, which failures print.

mod damage;
mod disk;
mod logs;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use polyserve_core::sync::lock;
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepoExt, Put, Removed, RepoAnswer, RepoError, promise,
};
use polyserve_memory::StdMutex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use self::disk::{Faults, SimulatedDisk};
use crate::commit::{Committer, Write};
use crate::disk::Disk;
use crate::durable::{DurableOptions, load};
use crate::format::Kind;
use crate::mistakes::{Mistake, making};
use crate::record::{put_record, remove_record};

const IDS: i64 = 6;

/// The stored entities: the description of each id.
type Stored = BTreeMap<i64, String>;

fn stored(memory: &StdMutex) -> Stored {
    (0..IDS).filter_map(|id| Some((id, memory.fetch(&id).wait().unwrap()?.description))).collect()
}

/// What the store must have kept.
#[derive(Clone, Debug, Default)]
struct Expected {
    /// The state after each batch. The first is the recovered one.
    states: Vec<Stored>,
    /// The position of the last state that was answered or seen.
    floor: usize,
}

impl Expected {
    fn note_seen(&mut self, seen: &Stored) {
        let position = self.states[self.floor..].iter().position(|state| state == seen);
        self.floor += position.unwrap_or_else(|| panic!("a reader sees {seen:?}, which is no state of {self:?}"));
    }

    /// Checks a recovered state, and begins anew with it.
    fn check(&mut self, recovered: Stored) -> Result<(), String> {
        if !self.states[self.floor..].contains(&recovered) {
            return Err(format!(
                "recovered {recovered:?}, which is no state from {} on of {:?}",
                self.floor, self.states
            ));
        }
        *self = Self { states: vec![recovered], floor: 0 };
        Ok(())
    }
}

type Answers = Vec<RepoAnswer<()>>;

/// What the answers state about a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchEnd {
    Done,
    NotDone,
    Unknown,
}

/// Returns what all answers state.
fn outcome(answers: Answers) -> BatchEnd {
    let answers = answers.into_iter().map(Answer::wait);
    let outcomes = answers.map(|answer| match answer {
        Ok(()) => BatchEnd::Done,
        Err(RepoError::Full(_) | RepoError::NotDone(_) | RepoError::ReadOnly(_)) => BatchEnd::NotDone,
        Err(_) => BatchEnd::Unknown,
    });
    let mut outcomes: Vec<_> = outcomes.collect();
    // If the end of a batch is unknown, its writes that change nothing were not done.
    if outcomes.contains(&BatchEnd::Unknown) {
        outcomes.iter_mut().filter(|end| **end == BatchEnd::NotDone).for_each(|end| *end = BatchEnd::Unknown);
    }
    assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "{outcomes:?}");
    outcomes[0]
}

/// Draws a batch of writes. Applies them to `state` as they must take effect.
fn batch(random: &mut ChaCha8Rng, state: &mut Stored) -> (VecDeque<Write<Entity>>, Answers) {
    let (mut writes, mut answers) = (VecDeque::new(), Answers::new());
    for _ in 0..random.random_range(1..=4) {
        let id = random.random_range(0..IDS);
        let condition = match random.random_range(0..4) {
            0 => Condition::absent(),
            1 => Condition::present(),
            _ => Condition::ALWAYS,
        };
        let (is_stored, is_absent_only) = (state.contains_key(&id), condition == Condition::absent());
        let is_allowed = condition.is_always() || is_stored != is_absent_only;
        if random.random_bool(0.7) {
            let text = format!("{:08x}", random.random::<u32>());
            let expected = match (is_allowed, is_stored) {
                (false, _) => Conditional::Refused,
                (true, false) => Conditional::Done(Put::Created),
                (true, true) => Conditional::Done(Put::Replaced),
            };
            if is_allowed {
                state.insert(id, text.clone());
            }
            let entity = Entity::new(id, text, 0.5);
            let (reply, answer) = promise(Err(RepoError::Closed));
            writes.push_back(Write::Put { record: put_record(&entity).unwrap(), entity, condition, reply });
            answers.push(answer.map(move |result| result.map(|done| assert_eq!(done, expected))));
        } else {
            let expected = match (is_stored, is_allowed) {
                (false, _) => Conditional::Done(Removed::Absent),
                (true, false) => Conditional::Refused,
                (true, true) => Conditional::Done(Removed::Removed),
            };
            if is_allowed {
                state.remove(&id);
            }
            let (reply, answer) = promise(Err(RepoError::Closed));
            writes.push_back(Write::Remove { id, record: remove_record::<Entity>(&id).unwrap(), condition, reply });
            answers.push(answer.map(move |result| result.map(|done| assert_eq!(done, expected))));
        }
    }
    (writes, answers)
}

/// A put, and its answer.
fn put_of(id: i64, condition: Condition) -> (Write<Entity>, Answer<Result<(), RepoError>>) {
    let entity = Entity::new(id, "text", 0.5);
    let (reply, answer) = promise(Err(RepoError::Closed));
    let record = put_record(&entity).unwrap();
    (Write::Put { record, entity, condition, reply }, answer.map(|put| put.map(drop)))
}

fn options() -> DurableOptions {
    DurableOptions::default().compact_from(700)
}

/// Opens the store. Compaction runs on this thread.
fn open(disk: &SimulatedDisk) -> Result<(Committer<StdMutex, Entity>, Arc<StdMutex>), String> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (committer, memory, ..) =
        load(&disk, StdMutex::new(), &options()).map_err(|error| format!("{error}: {error:?}"))?;
    Ok((committer.compacting_inline(), memory))
}

/// Runs a life of the store: opens it, checks what it recovered, and writes batches until the power fails or all are written.
fn run_life(disk: &SimulatedDisk, seed: u64, expected: &Arc<Mutex<Expected>>) -> Result<(), String> {
    let (mut committer, memory) = match open(disk) {
        Ok(opened) => opened,
        Err(_) if !disk.is_well() => return Ok(()),
        Err(error) => return Err(error),
    };
    lock(expected).check(stored(&memory))?;
    let (observed, watched) = (Arc::clone(expected), Arc::clone(&memory));
    disk.observe(move || lock(&observed).note_seen(&stored(&watched)));
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..12 {
        let mut state = lock(expected).states.last().unwrap().clone();
        let (mut writes, answers) = batch(&mut random, &mut state);
        lock(expected).states.push(state);
        committer.commit(&mut writes);
        let mut expected = lock(expected);
        match outcome(answers) {
            BatchEnd::Done => expected.floor = expected.states.len() - 1,
            BatchEnd::NotDone => drop(expected.states.pop()),
            // The batch may be on the disk or not. No later batch is.
            BatchEnd::Unknown => {
                drop(expected);
                let (mut writes, answers) = batch(&mut random, &mut Stored::new());
                committer.commit(&mut writes);
                for answer in answers.into_iter().map(Answer::wait) {
                    assert!(matches!(answer, Err(RepoError::ReadOnly(_))), "{answer:?}");
                }
                break;
            }
        }
    }
    lock(expected).note_seen(&stored(&memory));
    Ok(())
}

/// Runs `lives` of a store, each with the faults of `faults`, and checks the last recovered state.
fn run(seed: u64, lives: &[Faults], after: Faults) -> Result<u64, String> {
    let expected = Arc::new(Mutex::new(Expected { states: vec![Stored::new()], floor: 0 }));
    let mut disk = SimulatedDisk::new(lives.first().copied().unwrap_or(after));
    let mut calls = 0;
    for (life, next) in lives.iter().skip(1).chain([&after]).enumerate() {
        run_life(&disk, seed + life as u64, &expected)?;
        calls = disk.calls();
        disk = if lives[life].fails_at.is_some() && seed.is_multiple_of(2) {
            disk.after_kill(*next)
        } else {
            disk.after_power_failure(seed ^ 0x5eed, *next)
        };
    }
    let (_, memory) = open(&disk)?;
    lock(&expected).check(stored(&memory))?;
    Ok(calls)
}

/// The number of seeds: `POLYSERVE_SEEDS`, or 30.
fn seeds() -> u64 {
    std::env::var("POLYSERVE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(30)
}

/// Returns the first violation when the power fails at each call of `seeds` runs.
fn violation(seeds: u64, faults: Faults) -> Option<String> {
    for seed in 0..seeds {
        let calls = run(seed, &[faults], faults).unwrap_or(300);
        for call in 1..=calls {
            let with_failure = Faults { power_fails_at: Some(call), ..faults };
            if let Err(why) = run(seed, &[with_failure, with_failure], faults) {
                return Some(format!("seed {seed}, power failure at call {call}: {why}"));
            }
        }
    }
    None
}

#[test]
fn a_power_failure_at_any_call_takes_back_nothing() {
    assert_eq!(violation(seeds(), Faults::default()), None);
}

/// The faults of a call that fails, with no part of a write done, a half, or all, and with calls after it that fail too: what a
/// failed append has written cannot be cut off, or the cut cannot be synced.
fn failures(call: u64) -> impl Iterator<Item = Faults> {
    let variants = (0..3).flat_map(|halves| (0..3).map(move |then| (halves, then)));
    variants.map(move |(written_halves, fails_then)| Faults {
        fails_at: Some(call),
        fails_then,
        written_halves,
        ..Faults::default()
    })
}

/// A call fails; then the process is killed, or the power fails. A write that was answered as not done is not there.
#[test]
fn a_failed_call_takes_back_nothing() {
    for seed in 0..seeds().div_ceil(10) {
        let calls = run(seed, &[Faults::default()], Faults::default()).unwrap();
        for call in 1..=calls {
            for faults in failures(call) {
                let ended = run(seed, &[faults, Faults::default()], Faults::default());
                assert!(ended.is_ok(), "seed {seed}, {faults:?}: {ended:?}");
            }
        }
    }
}

/// Returns the first violation if a call fails, and the power fails or the process is killed at one of the next calls.
fn violation_after_failure(seeds: u64) -> Option<String> {
    for seed in 0..seeds {
        let calls = run(seed, &[Faults::default()], Faults::default()).unwrap_or(300);
        for (call, later) in (1..=calls).flat_map(|call| (1..=6).map(move |later| (call, later))) {
            for faults in failures(call) {
                let faults = Faults { power_fails_at: Some(call + later), ..faults };
                if let Err(why) = run(seed, &[faults, Faults::default()], Faults::default()) {
                    return Some(format!("seed {seed}, {faults:?}: {why}"));
                }
            }
        }
    }
    None
}

#[test]
fn a_crash_after_a_failed_call_takes_back_nothing() {
    assert_eq!(violation_after_failure(seeds().div_ceil(30)), None);
}

/// What a failed append has written stays, or comes back after a power failure.
#[test]
fn a_cut_that_is_left_out_or_not_synced_is_caught() {
    for mistake in [Mistake::NoCut, Mistake::NoCutSync] {
        let is_caught = making(mistake, || {
            std::panic::catch_unwind(|| violation_after_failure(seeds())).map_or(true, |found| found.is_some())
        });
        assert!(is_caught, "{mistake:?}");
    }
}

/// A disk of any size gets full, at any moment of a compaction too. Writes are rejected as not done, and nothing else fails. When
/// there is room, the store goes on without a restart. With enough room, compactions keep a place for all writes.
#[test]
fn a_full_disk_rejects_writes_and_stops_nothing() {
    let mut least = 0;
    for capacity in (100..3_000).step_by(7) {
        let disk = SimulatedDisk::new(Faults { capacity: Some(capacity), ..Faults::default() });
        let Ok((mut committer, memory)) = open(&disk) else { continue };
        let mut random = ChaCha8Rng::seed_from_u64(capacity as u64);
        let (mut state, mut rejected) = (Stored::new(), 0);
        let mut write = |state: &mut Stored| {
            let mut next = state.clone();
            let (mut writes, answers) = batch(&mut random, &mut next);
            committer.commit(&mut writes);
            let outcome = outcome(answers);
            if outcome == BatchEnd::Done {
                *state = next;
            }
            outcome
        };
        for _ in 0..100 {
            match write(&mut state) {
                BatchEnd::Done => {}
                BatchEnd::NotDone => rejected += 1,
                BatchEnd::Unknown => panic!("capacity {capacity}: writes have stopped"),
            }
            assert_eq!(stored(&memory), state, "capacity {capacity}");
            assert!(disk.used() <= capacity);
        }
        least = if rejected == 0 { least.min(capacity) } else { usize::MAX };
        let restarted = disk.after_power_failure(1, Faults::default());
        assert_eq!(open(&restarted).map(|(_, memory)| stored(&memory)), Ok(state.clone()), "capacity {capacity}");
        disk.set_capacity(None);
        assert_eq!(write(&mut state), BatchEnd::Done, "capacity {capacity}");
        assert_eq!(stored(&memory), state);
    }
    // Six entities have about 500 bytes, and compactions are due from 700.
    assert!(least < 2_000, "with {least} bytes, no write is rejected");
}

/// After a failed call to the log, every later write fails, and reads go on.
#[test]
fn writes_stop_after_the_first_failure_and_reads_go_on() {
    let disk = SimulatedDisk::new(Faults::default());
    let (mut committer, memory) = open(&disk).unwrap();
    let mut put = |id| {
        let (write, answer) = put_of(id, Condition::ALWAYS);
        committer.commit(&mut [write].into());
        answer.wait()
    };
    put(1).unwrap();
    disk.fail_next_sync();
    for (number, id) in [2, 1, 3].into_iter().enumerate() {
        let (is_first, error) = (number == 0, put(id).unwrap_err());
        match &error {
            RepoError::Unavailable(why) if is_first => assert!(why.to_string().contains("no space"), "{error:?}"),
            RepoError::ReadOnly(why) if !is_first => assert!(why.to_string().contains("no space"), "{error:?}"),
            _ => panic!("{error:?}"),
        }
        assert_eq!(stored(&memory), Stored::from([(1, "text".to_owned())]));
    }
}

/// Another process takes the lock while a frame is written. It may have read the log before.
#[test]
fn a_write_during_which_the_lock_is_lost_may_have_been_done() {
    let disk = SimulatedDisk::new(Faults::default());
    let (mut committer, memory) = open(&disk).unwrap();
    disk.lose_lock_at_next_sync();
    let mut put = |id| {
        let (write, answer) = put_of(id, Condition::ALWAYS);
        committer.commit(&mut [write].into());
        answer.wait()
    };
    assert!(matches!(put(1), Err(RepoError::Unavailable(_))));
    let calls = disk.calls();
    assert!(matches!(put(2), Err(RepoError::ReadOnly(_))));
    assert_eq!((disk.calls(), stored(&memory)), (calls, Stored::new()), "nothing is written any more");
}

/// In a batch that may be on the disk, a write that was refused or found nothing to remove was certainly not done.
#[test]
fn only_the_changes_of_a_failed_batch_may_have_been_done() {
    let disk = SimulatedDisk::new(Faults::default());
    let (mut committer, _) = open(&disk).unwrap();
    let remove = |id: i64| {
        let (reply, answer) = promise(Err(RepoError::Closed));
        let record = remove_record::<Entity>(&id).unwrap();
        let condition = Condition::ALWAYS;
        (Write::Remove { id, record, condition, reply }, answer.map(|removed| removed.map(drop)))
    };
    disk.fail_next_sync();
    let (mut writes, answers): (VecDeque<_>, Answers) =
        [put_of(1, Condition::ALWAYS), put_of(1, Condition::absent()), remove(2), remove(1)].into_iter().unzip();
    committer.commit(&mut writes);
    let may_be_done: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer.wait() {
            Err(RepoError::Unavailable(_)) => true,
            Err(RepoError::ReadOnly(_)) => false,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(may_be_done, [true, false, false, true]);
}

/// Any file that the next start needs is removed or replaced. The next batch is not answered as done, and no reader sees it.
#[test]
fn a_lost_file_stops_writes() {
    for replaced in [false, true] {
        for position in 0.. {
            let disk = SimulatedDisk::new(Faults::default());
            let (mut committer, memory) = open(&disk).unwrap();
            let (mut random, mut state) = (ChaCha8Rng::seed_from_u64(5), Stored::new());
            while disk.list().unwrap().len() < 2 {
                let (mut writes, answers) = batch(&mut random, &mut state);
                committer.commit(&mut writes);
                assert_eq!(outcome(answers), BatchEnd::Done);
            }
            let before = stored(&memory);
            let names = disk.list().unwrap();
            let Some(name) = names.get(position) else { break };
            disk.remove(name).unwrap();
            if replaced {
                disk.create(name).unwrap();
            }
            for _ in 0..3 {
                let (mut writes, answers) = loop {
                    let mut next = state.clone();
                    let drawn = batch(&mut random, &mut next);
                    // A batch that changes nothing writes nothing.
                    if next != state {
                        break drawn;
                    }
                };
                committer.commit(&mut writes);
                let answers: Vec<_> = answers.into_iter().map(Answer::wait).collect();
                assert!(
                    answers.iter().all(|answer| matches!(answer, Err(RepoError::ReadOnly(_)))),
                    "{name}: {answers:?}"
                );
                assert_eq!(stored(&memory), before, "{name}");
            }
            drop(committer);
            assert!(replaced || open(&disk.after_kill(Faults::default())).is_err(), "{name}");
        }
    }
}

/// Kills a process at call `call`, so that the system's cache keeps what was not synced. The next process opens the store and
/// shows what is stored. Then the power fails, before the first write.
fn killed_then_power_failure(seed: u64, call: u64) -> Result<bool, String> {
    let expected = Arc::new(Mutex::new(Expected { states: vec![Stored::new()], floor: 0 }));
    let killed = SimulatedDisk::new(Faults { power_fails_at: Some(call), ..Faults::default() });
    run_life(&killed, seed, &expected)?;
    let disk = killed.after_kill(Faults::default());
    lock(&expected).check(stored(&open(&disk)?.1))?;
    let disk = disk.after_power_failure(seed ^ 0x5eed, Faults::default());
    lock(&expected).check(stored(&open(&disk)?.1))?;
    Ok(killed.is_well())
}

/// Returns the first violation when a process is killed at each call of `seeds` runs, and the power fails after the next open.
fn violation_at_open(seeds: u64) -> Option<String> {
    for seed in 0..seeds {
        for call in 1.. {
            match killed_then_power_failure(seed, call) {
                Ok(true) => break,
                Ok(false) => {}
                Err(why) => return Some(format!("seed {seed}, kill at call {call}: {why}")),
            }
        }
    }
    None
}

/// What an open shows was only in the system's cache. It is on the disk before it is shown.
#[test]
fn a_power_failure_after_an_open_takes_back_nothing() {
    assert_eq!(violation_at_open(seeds()), None);
}

/// Each fsync is left out in turn.
#[test]
fn an_fsync_that_is_left_out_is_caught() {
    for mistake in Mistake::MISSING_SYNCS {
        let is_caught = making(mistake, || {
            let caught = || {
                let caught = violation_at_open(seeds()).or_else(|| violation(seeds(), Faults::default()));
                caught.or_else(|| violation_after_failure(seeds()))
            };
            std::panic::catch_unwind(caught).map_or(true, |found| found.is_some())
        });
        assert!(is_caught, "{mistake:?}");
    }
}

#[test]
fn fsyncs_that_are_left_out_are_caught() {
    assert!(violation(seeds(), Faults { forgets_file_syncs: true, ..Faults::default() }).is_some());
}

#[test]
fn a_directory_that_is_not_synced_is_caught() {
    assert!(violation(seeds(), Faults { forgets_name_syncs: true, ..Faults::default() }).is_some());
}

#[test]
fn checksums_that_are_not_looked_at_are_caught() {
    let caught = making(Mistake::ChecksumIgnored, || {
        std::panic::catch_unwind(|| violation(seeds(), Faults::default())).map_or(true, |found| found.is_some())
    });
    assert!(caught);
}

#[test]
fn a_write_that_is_shown_before_its_fsync_is_caught() {
    assert!(making(Mistake::PublishedBeforeSync, || violation(seeds(), Faults::default())).is_some());
}

/// Runs a store with one fault. Compactions go on after it, and remove all old files. Returns whether there was a fault. A fault
/// of the log itself stops all writes, which is right.
fn compacts_after(faults: Faults, call: u64) -> bool {
    let disk = SimulatedDisk::new(faults);
    let Ok((mut committer, memory)) = open(&disk) else { return true };
    let (mut random, mut state) = (ChaCha8Rng::seed_from_u64(3), Stored::new());
    let mut write = |batches| {
        (0..batches).all(|_| {
            let (mut writes, answers) = batch(&mut random, &mut state);
            committer.commit(&mut writes);
            answers.into_iter().all(|answer| answer.wait().is_ok())
        })
    };
    if !write(30) {
        return true;
    }
    let had_fault = disk.calls() >= call;
    if !write(30) {
        assert!(!had_fault, "call {call}: writes have stopped later");
        return had_fault;
    }
    drop(committer);
    let names = disk.list().unwrap();
    let numbers: Vec<_> = names.iter().map(|name| Kind::parse(name).map(|(_, number)| number)).collect();
    assert!(
        !had_fault || names.len() == 2 && numbers[0] == numbers[1],
        "call {call}, {faults:?}: old files stay: {names:?}"
    );
    assert_eq!(stored(&memory), state);
    let reopened = open(&disk).map(|(_, memory)| stored(&memory));
    assert_eq!(reopened, Ok(state), "call {call}, {faults:?}");
    had_fault
}

/// Each call of a compaction fails once, or one of its reads returns a wrong bit. A later compaction works.
#[test]
fn a_compaction_that_failed_does_not_stop_a_later_one() {
    for call in 1.. {
        let fails = compacts_after(Faults { fails_at: Some(call), ..Faults::default() }, call);
        let misreads = compacts_after(Faults { misreads_at: Some(call), ..Faults::default() }, call);
        if !fails && !misreads {
            assert!(call > 100);
            break;
        }
    }
}
