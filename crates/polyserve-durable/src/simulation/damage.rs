//! Rotten bytes in the files of a store, and repairs that a power failure cuts.

use std::sync::Arc;

use polyserve_core::Entity;
use polyserve_memory::StdMutex;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::disk::{Faults, SimulatedDisk};
use super::{Stored, batch, open, stored};
use crate::disk::Disk;
use crate::error::Damage;
use crate::format::{FRAME_HEADER, FrameBuffer, Kind};
use crate::maintenance::repair_on;
use crate::record::{apply, put_record};
use crate::recovery::{Files, Following, Tolerance, open_files, read_files, recover};

/// A store of a snapshot and a log, its files, and its states after each frame of the last log.
fn damaged_store() -> (SimulatedDisk, Vec<String>, Vec<Stored>) {
    let disk = SimulatedDisk::new(Faults::default());
    let (mut committer, memory) = open(&disk).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let (mut state, mut states) = (Stored::new(), Vec::new());
    let files = || {
        let mut names = disk.list().unwrap();
        names.retain(|name| Kind::parse(name).is_some());
        names
    };
    while files().len() < 2 || states.len() < 30 {
        let (mut writes, _answers) = batch(&mut random, &mut state);
        committer.commit(&mut writes);
        states.push(stored(&memory));
    }
    drop(committer);
    let names = files();
    (disk, names, states)
}

/// Returns what the frames of all files store. The frame of `name` with the byte at `lost` does not count.
fn replay(disk: &SimulatedDisk, name: &str, lost: usize) -> Stored {
    let memory = StdMutex::new();
    let files = open_files(disk, &Files::of(disk).unwrap()).unwrap();
    let read = read_files(&files, Following::Nothing, &mut Tolerance::None, |file, frame| {
        let start = frame.offset as usize;
        if file.name == name && (start..start + FRAME_HEADER + frame.payload.len()).contains(&lost) {
            return Ok(());
        }
        frame.for_each(|record, offset, _| apply(&memory, &file.name, record, offset)).map_err(Option::unwrap)
    });
    read.unwrap();
    stored(&memory)
}

/// Repairs the disk and checks what is stored: all records of the whole frames.
fn repaired(disk: &SimulatedDisk, expected: &Stored, files: usize) -> Vec<Damage> {
    let (damage, kept) = repair_on(&(Arc::new(disk.clone()) as _)).unwrap();
    assert!(!damage.is_empty() && kept.len() == files, "{damage:?} {kept:?}");
    assert_eq!(stored(&open(disk).unwrap().1), *expected, "{damage:?}");
    damage
}

/// A bit of any byte of any file is inverted. The store refuses to open, or opens with everything but the last frame, which
/// could be a torn one. A repair makes it open again, with all records of the frames that are whole.
#[test]
fn rotten_bytes_are_refused_and_repaired() {
    let (disk, names, states) = damaged_store();
    let last = states.last().unwrap();
    let mut refused = 0;
    for name in &names {
        for offset in 0..disk.bytes(name).len() {
            let rotten = disk.after_kill(Faults::default());
            rotten.rot(name, offset, 1 << (offset % 8));
            let expected = replay(&disk, name, offset);
            match open(&rotten) {
                Ok((_, memory)) => {
                    let is_last_log =
                        name.starts_with("log-") && Some(name) == names.iter().rfind(|n| n.starts_with("log-"));
                    assert!(is_last_log && stored(&memory) == expected, "{name} at {offset}: {:?}", stored(&memory));
                }
                Err(why) => {
                    refused += 1;
                    assert!(why.contains(name.as_str()), "{name} at {offset}: {why}");
                    let damage = repaired(&rotten, &expected, names.len());
                    assert!(damage.iter().all(|damage| damage.file == *name), "{damage:?}");
                }
            }
        }
    }
    assert!(refused > 100, "{refused} of the bytes are refused");
    assert_eq!(stored(&open(&disk).unwrap().1), *last);
}

/// Regression test: a check listed a frame with a right checksum and without records, and no repair got past it.
#[test]
fn a_frame_without_records_is_repaired() {
    let (disk, names, mut states) = damaged_store();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut log = recover(&shared, |_, _| Ok(())).unwrap().log;
    let record = |id| put_record(&Entity::new(id, "behind", 0.5)).unwrap();
    let mut frame = FrameBuffer::new();
    let mut append = |records: &[&[u8]]| {
        frame.clear();
        records.iter().for_each(|record| _ = frame.push(record));
        log.append(&mut frame).unwrap();
    };
    append(&[b"no record"]);
    append(&[&record(0)]);
    let state = states.last_mut().unwrap();
    state.insert(0, "behind".to_owned());
    assert!(open(&disk).is_err_and(|why| why.contains("are no records")));
    let damage = repaired(&disk, state, names.len());
    assert_eq!(damage.len(), 1, "{damage:?}");
}

/// The salt and the checksum of a header are rotten, so no frame of the file can be checked. The repair states so.
#[test]
fn a_rotten_salt_is_reported() {
    let (disk, names, states) = damaged_store();
    for name in &names {
        let rotten = disk.after_kill(Faults::default());
        rotten.rot(name, 12, 1);
        rotten.rot(name, 13, 1);
        assert!(open(&rotten).is_err());
        let (damage, kept) = repair_on(&(Arc::new(rotten.clone()) as _)).unwrap();
        let reason = format!("{name} at byte 0: the salt in the header is damaged");
        assert!(damage.iter().any(|damage| damage.to_string().starts_with(&reason)), "{damage:?}");
        assert_eq!(kept.len(), names.len());
        let kept = kept.iter().find(|kept| kept.ends_with(name.as_str())).unwrap();
        assert_eq!(rotten.bytes(kept).len(), disk.bytes(name).len());
        // Each entity that is there was stored at some time.
        for (id, text) in stored(&open(&rotten).unwrap().1) {
            assert!(states.iter().any(|state| state.get(&id) == Some(&text)), "{id} {text}");
        }
    }
}

/// A header of another version with a right checksum is no damage, so a repair changes nothing.
#[test]
fn another_version_is_refused_and_left() {
    let (disk, names, _) = damaged_store();
    for name in &names {
        let newer = disk.after_kill(Faults::default());
        let mut header = disk.bytes(name)[..24].to_vec();
        header[8] = 3;
        let mut file = newer.open(name).unwrap();
        file.write_all_at(&header, 0).unwrap();
        file.write_all_at(&crc32fast::hash(&header).to_le_bytes(), 24).unwrap();
        let before = newer.list().unwrap();
        assert!(
            open(&newer).is_err_and(|why| why.contains("has format version 3; this program reads versions 1 to 2"))
        );
        assert!(repair_on(&(Arc::new(newer.clone()) as _)).is_err());
        assert_eq!(newer.list().unwrap(), before);
    }
}

/// The power fails at any call of a repair. Each file of the damaged store is still there, under its name or its new one.
#[test]
fn a_repair_that_is_cut_keeps_the_damaged_files() {
    let (disk, names, _) = damaged_store();
    let contents: Vec<Vec<u8>> = names.iter().map(|name| disk.bytes(name)).collect();
    for name in &names {
        let offset = disk.bytes(name).len() / 2;
        let expected = replay(&disk, name, offset);
        let mut call = 1;
        loop {
            let rotten = disk.after_kill(Faults { power_fails_at: Some(call), ..Faults::default() });
            rotten.rot(name, offset, 1);
            let is_repaired = repair_on(&(Arc::new(rotten.clone()) as _)).is_ok();
            for seed in 0..10 {
                let next = rotten.after_power_failure(seed, Faults::default());
                let check = || {
                    for (original, content) in names.iter().zip(&contents) {
                        let mut content = content.clone();
                        if original == name {
                            content[offset] ^= 1;
                        }
                        let found = next.list().unwrap();
                        assert!(
                            found
                                .iter()
                                .any(|found| found.ends_with(original.as_str()) && next.bytes(found) == content),
                            "call {call}, seed {seed}: {original} is lost: {found:?}"
                        );
                    }
                };
                check();
                if let Err(why) = open(&next) {
                    check();
                    let repaired = repair_on(&(Arc::new(next.clone()) as _));
                    assert!(repaired.is_ok(), "call {call}, seed {seed}: {why}: {repaired:?}");
                }
                check();
                assert_eq!(stored(&open(&next).unwrap().1), expected, "call {call}, seed {seed}");
                check();
            }
            if is_repaired {
                break;
            }
            call += 1;
        }
    }
}
