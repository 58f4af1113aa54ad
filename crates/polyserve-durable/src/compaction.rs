//! Compaction: the newest snapshot and the complete logs become one snapshot, without the records that later ones replaced.
//!
//! It runs on a thread of its own and reads files alone, so neither writes nor reads wait for it. It can be interrupted at any
//! point: the old files are removed after the new snapshot is durable under its name.
//!
//! The first pass reads the logs, and notes the place of the last record of each id. The second pass reads all files, and copies
//! the records of these places, and the records of the old snapshot that have an id of no log. An id is noted as a keyed hash
//! of 128 bits: among a billion ids, two are the same with a probability of 1e-21.
//!
//! Cost: two passes over the logs and one over the snapshot; one more over both if the room on the disk is short. Memory: 28 to 57
//! bytes for each id that the logs have, and half as much again while the table grows; not for an entity that is in the snapshot
//! alone.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::disk::{Disk, NamedFile};
use crate::error::OpenError;
use crate::format::{Change, FRAME_HEADER, HEADER, Kind, Record};
use crate::log::{INCOMPLETE, SNAPSHOT_FRAME, SnapshotWriter};
use crate::recovery::{Files, Following, StoreFile, Tolerance, no_records, open_files, read_files};

/// What a compaction has done.
#[derive(Debug, Default)]
pub(crate) struct Compacted {
    /// The snapshot. `None` if there is none, because the compaction was cancelled or failed.
    pub(crate) snapshot: Option<NamedFile>,
    /// The names of the files that are not needed, and may still be there.
    pub(crate) obsolete: Vec<String>,
    pub(crate) error: Option<OpenError>,
}

/// Writes the snapshot with the number `next` from `files`, which no one writes any more, and removes them.
pub(crate) fn compact(disk: &Arc<dyn Disk>, files: &Files, next: u64, cancelled: &AtomicBool) -> Compacted {
    let mut compacted = Compacted { obsolete: files.obsolete.clone(), ..Compacted::default() };
    match merge(disk, files, Following::Log, next, cancelled, &mut Tolerance::None) {
        Ok(Some(snapshot)) => {
            compacted.snapshot = Some(snapshot);
            compacted.obsolete.extend(files.in_order().map(|(name, ..)| name));
            let removed = remove_all(disk, &mut compacted.obsolete);
            compacted.error = removed.err().map(|(name, error)| OpenError::io("remove", Path::new(&name), error));
        }
        Ok(None) => {}
        Err(error) => {
            // The snapshot may be there, also under its name, and is not known to be durable.
            let name = Kind::Snapshot.file_name(next);
            compacted.obsolete.extend([name.clone() + INCOMPLETE, name]);
            compacted.error = Some(error);
        }
    }
    compacted
}

/// Removes files. The names that are gone leave the list. Returns the first error, and what it is about.
fn remove_all(disk: &Arc<dyn Disk>, names: &mut Vec<String>) -> Result<(), (String, io::Error)> {
    let mut result = Ok(());
    names.retain(|name| match disk.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            if result.is_ok() {
                result = Err((name.clone(), error));
            }
            true
        }
        _ => false,
    });
    // A name that comes back after a crash is removed by the next start.
    result.and(disk.sync().map_err(|error| ("the directory".to_owned(), error)))
}

/// Writes the snapshot with the number `next` from `files`. Returns it, or `None` if that was cancelled.
pub(crate) fn merge(
    disk: &Arc<dyn Disk>,
    files: &Files,
    following: Following,
    next: u64,
    cancelled: &AtomicBool,
    tolerance: &mut Tolerance<'_>,
) -> Result<Option<NamedFile>, OpenError> {
    let opened = open_files(&**disk, files)?;
    let source = Source { files: &opened, following, cancelled };
    let written = source.last_records(tolerance).and_then(|last| {
        let bytes = source.check_room(&**disk, &last, tolerance)?;
        source.write_snapshot(disk, (next, bytes), &last, tolerance)
    });
    if written.is_err() {
        // The first error is the one to report, and the next start removes the file too.
        let _ = disk.remove(&(Kind::Snapshot.file_name(next) + INCOMPLETE));
    }
    match written {
        Err(_) if cancelled.load(Ordering::Relaxed) => Ok(None),
        written => written.map(Some),
    }
}

/// The files that a compaction reads.
#[derive(Clone, Copy)]
struct Source<'a> {
    files: &'a [StoreFile],
    following: Following,
    cancelled: &'a AtomicBool,
}

impl Source<'_> {
    /// Reads the files from `first` on, and calls `on_record` with the file, each record, its offset and its bytes. What is no record
    /// ends its frame, and is damage.
    fn for_each(
        self,
        first: usize,
        tolerance: &mut Tolerance<'_>,
        mut on_record: impl FnMut(&StoreFile, Record<'_>, u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), OpenError> {
        let mut damage = Vec::new();
        read_files(&self.files[first..], self.following, tolerance, |file, frame| {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(file.failed("read")(io::ErrorKind::Interrupted.into()));
            }
            let result =
                frame.for_each(|record, offset, length| on_record(file, record, offset, frame.bytes(offset, length)));
            match result {
                Err(Some(error)) => return Err(file.failed("copy")(error)),
                Err(None) => damage.push(no_records(&file.name, frame.offset)),
                Ok(()) => {}
            }
            Ok(())
        })?;
        damage.into_iter().try_for_each(|damage| tolerance.accept(damage))
    }

    /// Returns the place of the last record of each id in the logs.
    fn last_records(self, tolerance: &mut Tolerance<'_>) -> Result<LastRecords, OpenError> {
        let mut last = LastRecords::default();
        let mut base = 0;
        for StoreFile { kind, number, file, name, .. } in self.files {
            if *kind == Kind::Log {
                last.bases.push((*number, base));
                base += file.len().map_err(|source| OpenError::io("look at", Path::new(name), source))?;
            }
        }
        let first_log = self.files.iter().take_while(|file| file.kind == Kind::Snapshot).count();
        self.for_each(first_log, tolerance, |file, record, offset, _| {
            let place = last.place(file, record.change, offset);
            last.places.insert(last.hash(record.id), place);
            Ok(())
        })?;
        Ok(last)
    }

    /// Reads all files, and calls `on_record` with the last record of each stored entity.
    fn for_each_last(
        self,
        last: &LastRecords,
        tolerance: &mut Tolerance<'_>,
        mut on_record: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), OpenError> {
        let mut left = last.places.values().filter(|place| is_put(**place)).count() as u64;
        self.for_each(0, tolerance, |file, record, offset, bytes| {
            let is_last = match (file.kind, last.places.get(&last.hash(record.id))) {
                (Kind::Snapshot, found) => found.is_none(),
                (Kind::Log, found) => {
                    let place = last.place(file, record.change, offset);
                    is_put(place) && found == Some(&place)
                }
            };
            if !is_last {
                return Ok(());
            }
            if file.kind == Kind::Log {
                left = left.wrapping_sub(1);
            }
            on_record(bytes)
        })?;
        if left == 0 {
            return Ok(());
        }
        let reason = io::Error::new(io::ErrorKind::InvalidData, "they were read with other bytes before");
        Err(OpenError::io("copy the records of", Path::new("the logs"), reason))
    }

    /// Checks that the disk has room for the snapshot. Returns its max length, which is exact if the room is short.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind `StorageFull` if there is less room.
    fn check_room(self, disk: &dyn Disk, last: &LastRecords, tolerance: &mut Tolerance<'_>) -> Result<u64, OpenError> {
        let mut lengths = 0;
        for file in self.files {
            lengths += file.file.len().map_err(file.failed("look at"))?;
        }
        // What cannot be looked at shows when the snapshot is written.
        let room = disk.room().unwrap_or(u64::MAX);
        // A snapshot has more frames than small logs, but no more than one for each of its MiB, and two.
        let with_frames = |bytes: u64| {
            let frames = bytes / SNAPSHOT_FRAME as u64 + 2;
            bytes + HEADER as u64 + frames * FRAME_HEADER as u64
        };
        if with_frames(lengths) <= room / 2 {
            return Ok(with_frames(lengths));
        }
        let mut bytes = 0;
        self.for_each_last(last, tolerance, |record| {
            bytes += record.len() as u64;
            Ok(())
        })?;
        let needed = with_frames(bytes);
        if needed <= room {
            return Ok(needed);
        }
        let reason = format!("it needs {needed} bytes, and the disk has room for {room}");
        let reason = io::Error::new(io::ErrorKind::StorageFull, reason);
        Err(OpenError::io("write", Path::new("a snapshot"), reason))
    }

    fn write_snapshot(
        self,
        disk: &Arc<dyn Disk>,
        (next, bytes): (u64, u64),
        last: &LastRecords,
        tolerance: &mut Tolerance<'_>,
    ) -> Result<NamedFile, OpenError> {
        let failed = |source| OpenError::io("write", Path::new(&Kind::Snapshot.file_name(next)), source);
        let mut snapshot = SnapshotWriter::create(disk, next, bytes).map_err(failed)?;
        self.for_each_last(last, tolerance, |record| snapshot.push(record))?;
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(failed(io::ErrorKind::Interrupted.into()));
        }
        snapshot.finish().map_err(failed)
    }
}

/// The last record of each id in the logs.
#[derive(Default)]
struct LastRecords {
    keys: [RandomState; 2],
    places: HashMap<IdHash, u64, BuildHasherDefault<FirstHalf>>,
    /// The number of each log, and the bytes of all logs before it.
    bases: Vec<(u64, u64)>,
}

impl LastRecords {
    fn hash(&self, id: &str) -> IdHash {
        let [first, second] = &self.keys;
        IdHash(first.hash_one(id), second.hash_one(id))
    }

    /// Returns a number for the place of a record in the logs, and for whether it is a put.
    fn place(&self, file: &StoreFile, change: Change, offset: u64) -> u64 {
        let base = self.bases.iter().find(|(number, _)| *number == file.number).map_or(0, |(_, base)| *base);
        (base + offset) << 1 | u64::from(change != Change::Remove)
    }
}

fn is_put(place: u64) -> bool {
    place & 1 == 1
}

/// A keyed hash of an id, in two halves.
#[derive(Clone, Copy, PartialEq, Eq)]
struct IdHash(u64, u64);

impl Hash for IdHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// The hasher of a hash: its first half.
#[derive(Default)]
struct FirstHalf(u64);

impl Hasher for FirstHalf {
    fn write(&mut self, _: &[u8]) {
        unreachable!("an `IdHash` writes one number");
    }

    fn write_u64(&mut self, half: u64) {
        self.0 = half;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
