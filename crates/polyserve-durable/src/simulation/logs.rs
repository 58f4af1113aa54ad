//! Logs that are missing, logs of the first version of the format, and compactions that are cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use polyserve_core::Entity;

use super::disk::{Faults, SimulatedDisk};
use super::{Stored, open, stored};
use crate::compaction::compact;
use crate::disk::Disk;
use crate::format::{FrameBuffer, Kind};
use crate::log::Log;
use crate::maintenance::{check_on, repair_on};
use crate::record::put_record;
use crate::recovery::Files;

fn shared(disk: &SimulatedDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn append(log: &mut Log, id: i64, text: &str) {
    let mut frame = FrameBuffer::new();
    frame.push(&put_record(&Entity::new(id, text, 0.5)).unwrap());
    log.append(&mut frame).unwrap();
}

/// A disk with logs 1 to `logs`. Log N has entity N.
fn with_logs(logs: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new(Faults::default());
    let mut log = Log::create(&shared(&disk), 1).unwrap();
    for number in 1..=logs {
        if number > 1 {
            log.rotate().unwrap();
        }
        append(&mut log, number as i64, "text");
    }
    disk
}

fn entities(numbers: impl IntoIterator<Item = i64>) -> Stored {
    numbers.into_iter().map(|number| (number, "text".to_owned())).collect()
}

/// Regression test: a store opened without its last log, and without an error.
#[test]
fn a_missing_log_is_noticed() {
    for missing in 1..=3 {
        let disk = with_logs(3);
        assert_eq!(stored(&open(&disk).unwrap().1), entities(1..=3));
        let name = Kind::Log.file_name(missing);
        disk.remove(&name).unwrap();
        let why = open(&disk).map(drop).unwrap_err();
        assert!(why.contains(&format!("{name} at byte 0: the file is missing")), "{why}");
        let report = check_on(&disk).unwrap();
        assert_eq!(report.damage.len(), 1, "{report:?}");
        assert_eq!(report.damage[0].file, name);
        // A repair keeps what is there.
        repair_on(&shared(&disk)).unwrap();
        let kept = (1..=3).filter(|number| *number != missing as i64);
        assert_eq!(stored(&open(&disk).unwrap().1), entities(kept));
    }
}

/// A log that ends early is noticed, also if the cut is between two frames, and if the file is empty.
#[test]
fn a_log_that_was_cut_is_noticed() {
    for cut in 0..with_logs(3).bytes("log-0000000000000002").len() {
        let disk = with_logs(3);
        disk.open("log-0000000000000002").unwrap().set_len(cut as u64).unwrap();
        let why = open(&disk).map(drop).unwrap_err();
        assert!(why.contains("log-0000000000000002 at byte "), "{cut}: {why}");
        let damage = check_on(&disk).unwrap().damage;
        assert!(!damage.is_empty() && damage.iter().all(|damage| damage.file == "log-0000000000000002"), "{damage:?}");
    }
    let disk = with_logs(3);
    disk.open("log-0000000000000003").unwrap().set_len(0).unwrap();
    assert!(open(&disk).is_err(), "the header of a log is durable before the log before it gets its end");
}

/// A directory of the first version of the format opens, and goes on as one of the present version.
#[test]
fn files_of_version_1_are_read() {
    for has_frame in [false, true] {
        let disk = with_logs(3);
        for number in 1..=3 {
            let name = Kind::Log.file_name(number);
            let mut file = disk.open(&name).unwrap();
            let mut header = disk.bytes(&name)[..24].to_vec();
            header[8] = 1;
            file.write_all_at(&header, 0).unwrap();
            file.write_all_at(&crc32fast::hash(&header).to_le_bytes(), 24).unwrap();
            let end = disk.bytes(&name).len() - if number < 3 { 24 } else { 0 };
            file.set_len(if number == 3 && !has_frame { 28 } else { end as u64 }).unwrap();
        }
        let last = if has_frame { 3 } else { 2 };
        assert_eq!(check_on(&disk).unwrap().damage, []);
        let (committer, memory) = open(&disk).unwrap();
        assert_eq!(stored(&memory), entities(1..=last));
        drop(committer);
        let numbers = Files::of(&disk).unwrap().logs;
        assert_eq!(numbers.last(), Some(&(last as u64)));
        // The log of version 1 gets an end too.
        let mut recovered = crate::recovery::recover(&shared(&disk), |_, _| Ok(())).unwrap();
        append(&mut recovered.log, 4, "text");
        recovered.log.rotate().unwrap();
        append(&mut recovered.log, 5, "text");
        assert_eq!(stored(&open(&disk).unwrap().1), entities((1..=last).chain([4, 5])));
        disk.remove(&Kind::Log.file_name(last as u64 + 1)).unwrap();
        assert!(open(&disk).map(drop).unwrap_err().contains("the file is missing"));
    }
}

/// A store of 1,000 bytes needs twice these, an eighth, and what makes a compaction due.
#[test]
fn a_disk_with_too_little_room_is_noticed() {
    let is_short = |capacity, min_bytes| {
        let disk = with_logs(3);
        let used = disk.used();
        disk.set_capacity(Some(capacity));
        let recovered = crate::recovery::recover(&shared(&disk), |_, _| Ok(())).unwrap();
        let needed = 2 * used + used / 8 + used.max(min_bytes);
        let short = crate::compactor::short_room(&disk, min_bytes as u64, &recovered);
        assert_eq!(short, (capacity < needed).then_some((capacity as u64, needed as u64)));
        short.is_some()
    };
    assert!(is_short(1_000, 700) && !is_short(2_000, 700));
    assert!(is_short(1_000, 0) && is_short(2_000, 2_000));
}

/// Regression test: a compaction that was cancelled read its first file to the end, so a drop of the store waited for it.
#[test]
fn a_cancelled_compaction_ends_soon() {
    let disk = with_logs(1);
    let mut log = Log::create(&shared(&disk), 1).unwrap();
    let text = "x".repeat(300 << 10);
    for id in 0..40 {
        append(&mut log, id, &text);
    }
    log.rotate().unwrap();
    let files = Files { logs: vec![1], ..Files::default() };
    let mut is_complete = false;
    let mut call = 1;
    while !is_complete {
        let disk = disk.after_kill(Faults::default());
        let (cancelled, after) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (flag, count, watched) = (Arc::clone(&cancelled), Arc::clone(&after), disk.clone());
        disk.observe(move || {
            if watched.calls() + 1 == call {
                flag.store(true, Ordering::Relaxed);
            } else if flag.load(Ordering::Relaxed) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let compacted = compact(&shared(&disk), &files, 2, &cancelled);
        is_complete = !cancelled.load(Ordering::Relaxed);
        if !is_complete && compacted.snapshot.is_none() {
            assert!(compacted.error.is_none());
            assert!(after.load(Ordering::Relaxed) <= 8, "call {call}: {} more", after.load(Ordering::Relaxed));
            assert_eq!(disk.list().unwrap(), ["log-0000000000000001", "log-0000000000000002"]);
        }
        call += 1;
    }
    assert!(call > 30, "{call}");
}
