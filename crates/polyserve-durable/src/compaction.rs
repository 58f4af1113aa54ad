//! Compaction: the newest snapshot and the complete logs become one snapshot, without the records that later ones replaced.
//!
//! It runs on a thread of its own and reads files alone, so neither writes nor reads wait for it. It can be interrupted at any
//! point: the old files are removed after the new snapshot is durable under its name.
//!
//! Cost: two passes over the old files. Memory: the id of each entity and 24 bytes.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::disk::{Disk, DiskFile};
use crate::error::OpenError;
use crate::format::{Change, Kind};
use crate::log::{INCOMPLETE, SnapshotWriter};
use crate::recovery::{Files, Tolerance, no_records, read_file};

/// The place of a record. The order is that in which the files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RecordPlace {
    /// The position of the file in the list.
    position: u32,
    offset: u64,
    length: u32,
    /// CRC-32 of the record. The second pass checks what it reads.
    checksum: u32,
}

/// What a compaction has done.
#[derive(Debug, Default)]
pub(crate) struct Compacted {
    /// The length of the snapshot. `None` if there is none, because the compaction was cancelled or failed.
    pub(crate) bytes: Option<u64>,
    /// The names of the files that are not needed, and may still be there.
    pub(crate) obsolete: Vec<String>,
    pub(crate) error: Option<OpenError>,
}

/// Writes the snapshot with the number `next` from `files`, which no one writes any more, and removes them.
pub(crate) fn compact(disk: &Arc<dyn Disk>, files: &Files, next: u64, cancelled: &AtomicBool) -> Compacted {
    let mut compacted = Compacted { obsolete: files.obsolete.clone(), ..Compacted::default() };
    match merge(disk, files, next, cancelled, &mut Tolerance::None) {
        Ok(Some(bytes)) => {
            compacted.bytes = Some(bytes);
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

/// Writes the snapshot with the number `next` from `files`.
pub(crate) fn merge(
    disk: &Arc<dyn Disk>,
    files: &Files,
    next: u64,
    cancelled: &AtomicBool,
    tolerance: &mut Tolerance<'_>,
) -> Result<Option<u64>, OpenError> {
    let io = |action: &'static str, name: String| move |source| OpenError::io(action, Path::new(&name), source);
    let name = Kind::Snapshot.file_name(next);
    let remove_incomplete = || {
        let removed = disk.remove(&(name.clone() + INCOMPLETE));
        removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    };
    let mut opened = Vec::new();
    for (name, kind, number) in files.in_order() {
        let file = disk.open(&name).map_err(io("open", name.clone()))?;
        opened.push(SourceFile { file, name, kind, number });
    }
    let Some(places) = last_places(&opened, cancelled, tolerance)? else { return Ok(None) };
    let written = write_snapshot(disk, next, &opened, places, cancelled);
    match written {
        Ok(Some(bytes)) => Ok(Some(bytes)),
        Ok(None) => remove_incomplete().map_err(io("remove", name.clone())).map(|()| None),
        Err(source) => {
            let _ = remove_incomplete(); // the first error is the one to report; the next start removes the file
            Err(io("write", name.clone())(source))
        }
    }
}

/// An open file that a compaction reads.
struct SourceFile {
    file: Box<dyn DiskFile>,
    name: String,
    kind: Kind,
    number: u64,
}

/// Returns the place of the last record of each stored entity.
fn last_places(
    opened: &[SourceFile],
    cancelled: &AtomicBool,
    tolerance: &mut Tolerance<'_>,
) -> Result<Option<Vec<RecordPlace>>, OpenError> {
    let mut places: HashMap<Box<str>, RecordPlace> = HashMap::new();
    for (position, SourceFile { file, name, kind, number }) in opened.iter().enumerate() {
        if cancelled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let is_last = matches!(tolerance, Tolerance::Collect(_)) && position + 1 == opened.len();
        read_file(&**file, (name, *kind, *number), is_last, tolerance, |frame| {
            let result = frame.for_each(|record, offset, length| {
                let place = || RecordPlace {
                    position: position as u32,
                    offset,
                    length: length as u32, // at most that of a frame
                    checksum: crc32fast::hash(frame.bytes(offset, length)),
                };
                match (record.change, places.get_mut(record.id)) {
                    (Change::Remove, _) => drop(places.remove(record.id)),
                    (Change::Put | Change::PutPacked, Some(last)) => *last = place(),
                    (Change::Put | Change::PutPacked, None) => {
                        places.insert(record.id.into(), place());
                    }
                }
                Ok::<(), ()>(())
            });
            result.map_err(|_| no_records(name, frame.offset))
        })?;
    }
    let mut places: Vec<RecordPlace> = places.into_values().collect();
    places.sort_unstable(); // so that the files are read from their beginning to their end
    Ok(Some(places))
}

fn write_snapshot(
    disk: &Arc<dyn Disk>,
    next: u64,
    opened: &[SourceFile],
    places: Vec<RecordPlace>,
    cancelled: &AtomicBool,
) -> io::Result<Option<u64>> {
    let mut snapshot = SnapshotWriter::create(disk, next)?;
    let mut window = Window::default();
    for place in places {
        if cancelled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        snapshot.push(window.read(opened, place)?)?;
    }
    snapshot.finish().map(Some)
}

/// Bytes of a file, so that neighbouring records are read at once.
#[derive(Debug, Default)]
struct Window {
    bytes: Vec<u8>,
    position: usize,
    start: u64,
}

impl Window {
    const LENGTH: usize = 1 << 20;

    fn read(&mut self, opened: &[SourceFile], place: RecordPlace) -> io::Result<&[u8]> {
        let (position, offset, length) = (place.position as usize, place.offset, place.length as usize);
        let end = offset + length as u64;
        if self.position != position || offset < self.start || end > self.start + self.bytes.len() as u64 {
            let file = &opened[position].file;
            let left = usize::try_from(file.len()?.saturating_sub(offset)).unwrap_or(usize::MAX);
            (self.position, self.start) = (position, offset);
            self.bytes.clear();
            self.bytes.resize(length.max(Self::LENGTH).min(left), 0);
            let mut filled = 0;
            while filled < self.bytes.len() {
                match file.read_at(&mut self.bytes[filled..], offset + filled as u64)? {
                    0 => break,
                    read => filled += read,
                }
            }
            self.bytes.truncate(filled);
        }
        let from = (offset - self.start) as usize;
        let record = self.bytes.get(from..from + length).ok_or(io::ErrorKind::UnexpectedEof)?;
        if crc32fast::hash(record) != place.checksum {
            let name = &opened[position].name;
            let reason = format!("{name} at byte {offset}: the record was read with other bytes before");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(record)
    }
}
