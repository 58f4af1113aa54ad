//! The recovery of a durable store from any bytes in its files.
//!
//! The first byte of an input selects what the rest is: the bytes of a log as they are, or its frames, for which this file writes the
//! headers and right checksums, so that their records are reached. A frame is its number of records, the length of its records in two
//! bytes, and the records. A second number of the log follows in the same way.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, process};

use polyserve::durable::{Durable, OpenError, maintenance};
use polyserve::memory::{Ordered, StdMutex};
use polyserve::{Answer, Entity, EntityRepo as _, Identifiable as _};

pub(crate) fn check(input: &[u8]) {
    let [kind, rest @ ..] = input else { return };
    let directory = directory();
    let (first, second) = match rest {
        [half, rest @ ..] if kind & 2 != 0 => rest.split_at((usize::from(*half) * 8).min(rest.len())),
        _ => (rest, &[][..]),
    };
    let version = if kind & 4 == 0 { 2 } else { 1 };
    for (number, bytes) in [(1, first), (2, second)] {
        if number == 2 && kind & 2 == 0 {
            break;
        }
        let bytes = if kind & 1 == 0 { bytes.to_vec() } else { log(number, version, bytes) };
        fs::write(directory.join(format!("log-{number:016x}")), bytes).expect("the test can write");
    }
    match entities(directory) {
        Ok(before) => {
            let report = maintenance::check(directory).expect("it can be read");
            assert_eq!(report.damage, [], "a store that opens is damaged");
            assert_eq!(entities(directory).expect("it opens again"), before);
        }
        Err(OpenError::Damaged(damage)) => {
            let report = maintenance::check(directory).expect("it can be read");
            assert!(!report.damage.is_empty(), "not in the report: {damage}");
            if maintenance::repair(directory).is_ok() {
                let opened = entities(directory);
                let is_repaired = matches!(opened, Ok(_) | Err(OpenError::NotAnEntity { .. }));
                assert!(is_repaired, "after a repair: {opened:?}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// An empty directory of this process, in memory if the system has such a place.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let path = DIRECTORY.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { env::temp_dir() };
        parent.join(format!("polyserve-fuzzed-log-{}", process::id()))
    });
    let _ = fs::remove_dir_all(path); // an error: it is not there
    fs::create_dir(path).expect("the test can write");
    path
}

/// Opens the store, writes an entity, and returns what is stored.
fn entities(directory: &Path) -> Result<Vec<String>, OpenError> {
    let store = Durable::<_, Entity>::open(directory, Ordered::new(StdMutex::new()))?;
    store.put(Entity::new(i64::MAX, "written", 0.5)).wait().expect("a store that opens takes writes");
    let mut stored = Vec::new();
    let mut visit = |_: &i64, shown: polyserve::Shown<'_>| {
        let mut json = Vec::new();
        shown.to_owned().write_json(&mut json).expect("a vector takes all");
        stored.push(String::from_utf8(json).expect("JSON is UTF-8"));
        std::ops::ControlFlow::Continue(())
    };
    let Answer::Now(page) = store.scan(None, 1_000, &mut visit) else { panic!("it is in memory") };
    page.expect("it can scan");
    Ok(stored)
}

/// The bytes of a log with these frames, in the format that `format.rs` of polyserve-durable describes.
fn log(number: u64, version: u16, mut frames: &[u8]) -> Vec<u8> {
    const SALT: u32 = 0x5eed_5eed;
    let mut bytes = b"polysrv\x1a".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend(SALT.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    for frame in 1_u64.. {
        let [records, length @ .., _] = frames.first_chunk::<4>().copied().unwrap_or_default();
        if frames.len() < 3 {
            break;
        }
        let length = usize::from(u16::from_le_bytes(length)).min(frames.len() - 3);
        let payload = &frames[3..3 + length];
        frames = &frames[3 + length..];
        let start = bytes.len();
        bytes.extend([0xF1, 0x9A, 0xC3, 0x5E]);
        bytes.extend((length as u32).to_le_bytes());
        bytes.extend(frame.to_le_bytes());
        bytes.extend(u32::from(records).to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&SALT.to_le_bytes());
        hasher.update(&bytes[start..]);
        hasher.update(payload);
        bytes.extend(hasher.finalize().to_le_bytes());
        bytes.extend(payload);
    }
    bytes.extend(frames);
    bytes
}
