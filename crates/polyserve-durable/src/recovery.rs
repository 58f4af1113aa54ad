//! Reading a directory: which files count, in which order, and which file may end early.
//!
//! The state is the newest snapshot, then the logs from its number on. The last log may end with a torn frame: the crash came
//! before its fsync, so none of its writes was answered, and it is dropped. An invalid frame with a valid one behind it, or in a
//! file that was complete, is damage: the store refuses to open.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::error::{Damage, OpenError};
use crate::format::{FileHeader, HEADER, Kind, NoFileHeader};
use crate::log::{INCOMPLETE, Log};
use crate::mistakes::unless;
use crate::reader::{Frame, Next, Reader};

/// The files of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// The number of the newest snapshot.
    pub(crate) snapshot: Option<u64>,
    /// The numbers of the logs that follow it, without a gap.
    pub(crate) logs: Vec<u64>,
    /// The names of the files that an interrupted or failed compaction has left.
    pub(crate) obsolete: Vec<String>,
}

impl Files {
    /// Reads the names of a directory.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError::Damaged`] if a file is missing.
    pub(crate) fn of(disk: &dyn Disk) -> Result<Self, OpenError> {
        Self::list(disk, &mut Tolerance::None)
    }

    /// Reads the names of a directory. Missing files are damage.
    pub(crate) fn list(disk: &dyn Disk, tolerance: &mut Tolerance<'_>) -> Result<Self, OpenError> {
        let names = disk.list().map_err(|source| OpenError::io("list", Path::new("the directory"), source))?;
        let (mut snapshots, mut logs, mut obsolete) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for name in names {
            match Kind::parse(&name) {
                Some((Kind::Snapshot, number)) => drop(snapshots.insert(number)),
                Some((Kind::Log, number)) => drop(logs.insert(number)),
                None if is_incomplete(&name) => obsolete.push(name),
                None => {}
            }
        }
        let snapshot = snapshots.pop_last();
        let first = snapshot.unwrap_or(1);
        obsolete.extend(snapshots.into_iter().map(|number| Kind::Snapshot.file_name(number)));
        let kept = logs.split_off(&first);
        obsolete.extend(logs.into_iter().map(|number| Kind::Log.file_name(number)));
        let is_new = snapshot.is_none() && kept.is_empty();
        let end = kept.last().map_or(if is_new { first } else { first + 1 }, |last| last + 1);
        for number in (first..end).filter(|number| !kept.contains(number)) {
            tolerance.accept(Damage::new(&Kind::Log.file_name(number), 0, "the file is missing"))?;
        }
        Ok(Self { snapshot, logs: kept.into_iter().collect(), obsolete })
    }

    /// Returns the files to read, in order, each with its name and its kind.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (String, Kind, u64)> + '_ {
        let snapshot = self.snapshot.map(|number| (Kind::Snapshot, number));
        let logs = self.logs.iter().map(|number| (Kind::Log, *number));
        snapshot.into_iter().chain(logs).map(|(kind, number)| (kind.file_name(number), kind, number))
    }
}

/// Whether the name is that of an incomplete snapshot. Other files are not the store's, whatever their names end with.
fn is_incomplete(name: &str) -> bool {
    let complete = name.strip_suffix(INCOMPLETE).and_then(Kind::parse);
    matches!(complete, Some((Kind::Snapshot, _)))
}

/// The end of a log that a crash has torn. It was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TornTail {
    /// The name of the file.
    pub file: String,
    /// The offset of the first dropped byte.
    pub offset: u64,
    /// The number of dropped bytes.
    pub bytes: u64,
}

/// What becomes of damage.
#[derive(Debug)]
pub(crate) enum Tolerance<'a> {
    /// The first damage is an error.
    None,
    /// Damage is collected, and what is whole is read.
    Collect(&'a mut Vec<Damage>),
}

impl Tolerance<'_> {
    pub(crate) fn accept(&mut self, damage: Damage) -> Result<(), OpenError> {
        match self {
            Self::None => Err(OpenError::Damaged(damage)),
            Self::Collect(all) => {
                all.push(damage);
                Ok(())
            }
        }
    }
}

/// How far a file was read.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) header: FileHeader,
    /// The offset behind the last frame.
    pub(crate) end: u64,
    pub(crate) next_frame: u64,
    pub(crate) torn: Option<TornTail>,
}

/// Reads all frames of a file.
///
/// `is_last` is whether the file is the last log, which may be torn. Returns `None` if no frame can be read, because the
/// last log was never completely created, or because a tolerated damage has taken the salt. Behind another tolerated damage in
/// the header, the frames are read.
pub(crate) fn read_file(
    file: &dyn DiskFile,
    (name, kind, number): (&str, Kind, u64),
    is_last: bool,
    tolerance: &mut Tolerance<'_>,
    mut on_frame: impl FnMut(Frame<'_>) -> Result<(), OpenError>,
) -> Result<Option<Extent>, OpenError> {
    let failed = |source| OpenError::io("read", Path::new(name), source);
    let damage = |offset, reason: &str| Damage::new(name, offset, reason);
    let mut is_header_damaged = false;
    let mut reader = match Reader::open(file).map_err(failed)? {
        Ok(reader) => reader,
        // The header is synced before the first frame is written.
        Err(NoFileHeader::Damaged(_)) if is_last && file.len().map_err(failed)? <= HEADER as u64 => return Ok(None),
        Err(NoFileHeader::Version(version)) => {
            return Err(OpenError::Version { file: name.to_owned(), version });
        }
        Err(NoFileHeader::Damaged(reason)) => {
            tolerance.accept(damage(0, reason))?;
            is_header_damaged = true;
            match Reader::open_damaged(file, kind, number).map_err(failed)? {
                Some(reader) => reader,
                None => return Ok(None),
            }
        }
    };
    let header = reader.header;
    if (header.kind, header.number) != (kind, number) {
        return tolerance.accept(damage(0, "the header is that of another file")).map(|()| None);
    }
    if is_header_damaged && reader.len() > HEADER as u64 && !reader.has_frame().map_err(failed)? {
        let bytes = reader.len() - HEADER as u64;
        let reason = format!("the salt in the header is damaged, so no frame can be checked; {bytes} bytes are lost");
        return tolerance.accept(damage(0, &reason)).map(|()| None);
    }
    let (mut is_complete, mut torn) = (false, None);
    loop {
        let reason = match reader.next().map_err(failed)? {
            Next::Frame(frame) if is_complete => {
                tolerance.accept(damage(frame.offset, "there is a frame behind the end of the snapshot"))?;
                break;
            }
            Next::Frame(frame) => {
                is_complete = kind == Kind::Snapshot && frame.records == 0;
                on_frame(frame)?;
                continue;
            }
            Next::End => break,
            Next::Invalid(reason) => reason,
        };
        let offset = reader.offset();
        let later = reader.find_later().map_err(failed)?;
        if let Some(later) = later {
            let frames = reader.skip_to(later).map_err(failed)?.max(1);
            let bytes = later - offset;
            tolerance.accept(damage(offset, &format!("{reason}; {bytes} bytes and {frames} frames are lost")))?;
            continue;
        }
        if is_last {
            torn = Some(TornTail { file: name.to_owned(), offset, bytes: reader.len() - offset });
        } else {
            let bytes = reader.len() - offset;
            tolerance.accept(damage(offset, &format!("{reason}; the last {bytes} bytes of the file are lost")))?;
        }
        break;
    }
    if kind == Kind::Snapshot && !is_complete {
        tolerance.accept(damage(reader.offset(), "the snapshot has no end"))?;
    }
    Ok(Some(Extent { header, end: reader.offset(), next_frame: reader.next_number(), torn }))
}

/// A directory that was read.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The last log, to go on with.
    pub(crate) log: Log,
    pub(crate) files: Files,
    /// The bytes of the snapshot.
    pub(crate) snapshot_bytes: u64,
    /// The bytes of all logs but the last.
    pub(crate) sealed_bytes: u64,
    pub(crate) torn: Option<TornTail>,
}

/// Reads the state of a directory, and makes it ready for the next write. Calls `on_frame` with every frame, in order, and the
/// name of its file. What an interrupted compaction or creation has left is removed.
pub(crate) fn recover(
    disk: &Arc<dyn Disk>,
    mut on_frame: impl FnMut(&str, Frame<'_>) -> Result<(), OpenError>,
) -> Result<Recovered, OpenError> {
    let files = Files::of(&**disk)?;
    let (mut snapshot_bytes, mut sealed_bytes, mut torn, mut log) = (0, 0, None, None);
    for (name, kind, number) in files.in_order() {
        let failed = |action| {
            let name = name.clone();
            move |source| OpenError::io(action, Path::new(&name), source)
        };
        let mut file = disk.open(&name).map_err(failed("open"))?;
        let is_last = kind == Kind::Log && Some(&number) == files.logs.last();
        if is_last {
            // The last process may have failed or been killed before its fsync. What is read must be on the disk.
            unless!(NoLogSyncAtOpen, file.sync().map_err(failed("sync"))?);
            file.drop_cache().map_err(failed("drop the cache of"))?;
        }
        let Some(extent) =
            read_file(&*file, (&name, kind, number), is_last, &mut Tolerance::None, |frame| on_frame(&name, frame))?
        else {
            break;
        };
        if is_last {
            let end = (extent.end, extent.next_frame);
            let reopened = Log::reopen(disk, file, extent.header, end);
            log = Some(reopened.map_err(failed("go on with"))?);
            torn = extent.torn;
        } else if kind == Kind::Snapshot {
            snapshot_bytes = extent.end;
        } else {
            sealed_bytes += extent.end;
        }
    }
    let log = match log {
        Some(log) => log,
        // A new directory, or a crash at the creation of its last log.
        None => {
            let number = files.logs.last().copied().unwrap_or(1);
            let created = Log::create(disk, number);
            created.map_err(|source| OpenError::io("create", Path::new(&Kind::Log.file_name(number)), source))?
        }
    };
    let mut files = files;
    if files.logs.is_empty() {
        files.logs.push(log.number());
    }
    for name in files.obsolete.drain(..) {
        disk.remove(&name).map_err(|source| OpenError::io("remove", Path::new(&name), source))?;
    }
    Ok(Recovered { log, files, snapshot_bytes, sealed_bytes, torn })
}

/// Returns the error of a frame with a right checksum that has no records.
pub(crate) fn no_records(name: &str, offset: u64) -> OpenError {
    OpenError::Damaged(Damage::new(name, offset, "the bytes of the frame are no records"))
}
