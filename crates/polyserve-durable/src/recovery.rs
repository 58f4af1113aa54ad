//! Reading a directory: which files count, in which order, and which file may end early.
//!
//! The state is the newest snapshot, then the logs from its number on. The last log may end with a torn frame: the crash came
//! before its fsync, so none of its writes was answered, and it is dropped. An invalid frame with a valid one behind it, or in a
//! file that was complete, is damage: the store refuses to open.
//!
//! The first log of a directory may have no header: the crash came while it was created. If the lock file notes that there was a log, its
//! header was on the disk, so an empty file is damage.
//!
//! A log with an end has a successor: if there is none, it was lost. A log without an end is the one to go on with. The next log
//! may be there already, without a frame, because a crash or a full disk has interrupted the change to it. It is removed.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, NamedFile};
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
        // A snapshot needs the log of its number.
        let expected_end = snapshot.map(|number| number + 1);
        let mut next = first;
        for number in kept.iter().copied().chain(expected_end.filter(|_| kept.is_empty())) {
            if number > next {
                tolerance.accept(missing(next, number - 1))?;
            }
            next = number + 1;
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

/// Returns the damage if the logs from `first` to `last` are missing. It is one, whatever their number: a file of another
/// program may have any name.
fn missing(first: u64, last: u64) -> Damage {
    let reason = match last - first {
        0 => "the file is missing".to_owned(),
        more => format!("the file is missing, and the {more} files up to {}", Kind::Log.file_name(last)),
    };
    Damage::new(&Kind::Log.file_name(first), 0, reason)
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

/// A file of a store that is open.
#[derive(Debug)]
pub(crate) struct StoreFile {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) number: u64,
    pub(crate) file: Box<dyn DiskFile>,
    /// Whether a crash may have interrupted the creation of the file: it is the only one, and it is not noted that there was a log.
    may_be_new: bool,
}

impl StoreFile {
    /// Returns the error of a call on the file.
    pub(crate) fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> OpenError {
        move |source| OpenError::io(action, Path::new(&self.name), source)
    }

    /// The end that a crash has torn of a log that was never completely created: the whole log.
    pub(crate) fn torn(&self) -> Result<TornTail, OpenError> {
        let bytes = self.file.len().map_err(self.failed("look at"))?;
        Ok(TornTail { file: self.name.clone(), offset: 0, bytes })
    }

    /// Whether the file is too short for a frame.
    fn has_no_frame(&self) -> Result<bool, OpenError> {
        Ok(self.file.len().map_err(self.failed("look at"))? <= HEADER as u64)
    }
}

/// Opens the files of a store, in order.
pub(crate) fn open_files(disk: &dyn Disk, files: &Files) -> Result<Vec<StoreFile>, OpenError> {
    // The note is later than the header of the first log, so it is read first.
    let may_be_new = files.in_order().count() == 1 && !disk.has_noted_log();
    let open = |(name, kind, number): (String, Kind, u64)| match disk.open(&name) {
        Ok(file) => Ok(StoreFile { name, kind, number, file, may_be_new }),
        Err(source) => Err(OpenError::io("open", Path::new(&name), source)),
    };
    files.in_order().map(open).collect()
}

/// What follows the last file of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Following {
    /// Nothing: the list is the whole store.
    Nothing,
    /// Another log, which is not in the list. All files of the list are complete.
    Log,
    /// Perhaps a log that was begun after the list was made: the store is in use.
    NewLog,
}

/// How far a file was read.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) header: FileHeader,
    /// The offset behind the last frame, but for the end.
    pub(crate) records_end: u64,
    /// The offset behind the last frame.
    pub(crate) end: u64,
    pub(crate) next_frame: u64,
    pub(crate) torn: Option<TornTail>,
}

impl Extent {
    /// Whether the file has its end.
    pub(crate) fn is_complete(&self) -> bool {
        self.records_end < self.end
    }
}

/// Whether a crash may have torn the file at `position`: it is the last one, or the next one has no frame.
fn may_be_torn(files: &[StoreFile], position: usize, following: Following) -> Result<bool, OpenError> {
    Ok(match &files[position + 1..] {
        _ if files[position].kind == Kind::Snapshot || following == Following::Log => false,
        [] => true,
        [next] => next.has_no_frame()?,
        _ => false,
    })
}

/// Reads the files of a store, in order. Calls `on_frame` with each frame.
///
/// Returns how far each was read: `None` for a file without a frame that can be read. The files behind the log to go on with are
/// not read, and have no entry.
pub(crate) fn read_files(
    files: &[StoreFile],
    following: Following,
    tolerance: &mut Tolerance<'_>,
    mut on_frame: impl FnMut(&StoreFile, Frame<'_>) -> Result<(), OpenError>,
) -> Result<Vec<Option<Extent>>, OpenError> {
    let mut extents = Vec::new();
    for (position, store_file) in files.iter().enumerate() {
        let may_be_torn = may_be_torn(files, position, following)?;
        let extent = read_file(store_file, may_be_torn, tolerance, |frame| on_frame(store_file, frame))?;
        let is_complete = extent.as_ref().map(Extent::is_complete);
        extents.push(extent);
        let is_last = position + 1 == files.len();
        match is_complete {
            Some(true) if is_last && store_file.kind == Kind::Log && following == Following::Nothing => {
                tolerance.accept(missing(store_file.number + 1, store_file.number + 1))?;
            }
            Some(false) if may_be_torn => break,
            _ => {}
        }
    }
    Ok(extents)
}

/// Reads all frames of a file.
///
/// Returns `None` if no frame can be read, because the log was never completely created, or because a tolerated damage has taken
/// the salt. Only the first log of a store may be incompletely created: a later one is durable before the store relies on it. Behind
/// another tolerated damage in the header, the frames are read.
fn read_file(
    StoreFile { name, kind, number, file, may_be_new }: &StoreFile,
    may_be_torn: bool,
    tolerance: &mut Tolerance<'_>,
    mut on_frame: impl FnMut(Frame<'_>) -> Result<(), OpenError>,
) -> Result<Option<Extent>, OpenError> {
    let (file, kind, number) = (&**file, *kind, *number);
    let failed = |source| OpenError::io("read", Path::new(name), source);
    let damage = |offset, reason: &str| Damage::new(name, offset, reason);
    let mut is_header_damaged = false;
    let mut reader = match Reader::open(file).map_err(failed)? {
        Ok(reader) => reader,
        // The header is synced before the first frame is written.
        Err(NoFileHeader::Damaged(_)) if may_be_torn && *may_be_new && file.len().map_err(failed)? <= HEADER as u64 => {
            return Ok(None);
        }
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
    let (mut end_at, mut torn) = (None, None);
    loop {
        let reason = match reader.next().map_err(failed)? {
            Next::Frame(frame) if end_at.is_some() => {
                tolerance.accept(damage(frame.offset, "there is a frame behind the end of the file"))?;
                break;
            }
            Next::Frame(frame) => {
                end_at = (frame.records == 0).then_some(frame.offset);
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
        // Nothing is written behind the end, so no crash has left these bytes. A start that dropped them would not cut them either: it
        // goes on with the next log, and with a frame in that one they would be damage.
        if may_be_torn && end_at.is_none() {
            torn = Some(TornTail { file: name.to_owned(), offset, bytes: reader.len() - offset });
        } else {
            let bytes = reader.len() - offset;
            tolerance.accept(damage(offset, &format!("{reason}; the last {bytes} bytes of the file are lost")))?;
        }
        break;
    }
    let end = reader.offset();
    if end_at.is_none() && header.has_end() && !may_be_torn {
        tolerance.accept(damage(end, "the file has no end"))?;
    }
    let records_end = end_at.unwrap_or(end);
    Ok(Some(Extent { header, records_end, end, next_frame: reader.next_number(), torn }))
}

/// A directory that was read.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The last log, to go on with.
    pub(crate) log: Log,
    pub(crate) files: Files,
    /// The name of each file before the last log, and the file.
    pub(crate) complete: Vec<NamedFile>,
    /// The bytes of the snapshot.
    pub(crate) snapshot_bytes: u64,
    /// The bytes of all logs but the last.
    pub(crate) complete_bytes: u64,
    pub(crate) torn: Option<TornTail>,
}

/// Reads the state of a directory, and makes it ready for the next write. Calls `on_frame` with every frame, in order, and the
/// name of its file. What an interrupted compaction or creation has left is removed.
pub(crate) fn recover(
    disk: &Arc<dyn Disk>,
    mut on_frame: impl FnMut(&str, Frame<'_>) -> Result<(), OpenError>,
) -> Result<Recovered, OpenError> {
    let mut files = Files::of(&**disk)?;
    let mut opened = open_files(&**disk, &files)?;
    for position in 0..opened.len() {
        if may_be_torn(&opened, position, Following::Nothing)? {
            // The last process may have failed or been killed before its fsync. What is read must be on the disk.
            let last = &mut opened[position];
            unless!(NoLogSyncAtOpen, last.file.sync().map_err(last.failed("sync"))?);
            last.file.drop_cache().map_err(last.failed("drop the cache of"))?;
        }
    }
    let is_lost = match &opened[..] {
        [] => disk.has_noted_log(),
        [only] => !only.may_be_new && only.file.len().map_err(only.failed("look at"))? == 0,
        _ => false,
    };
    if is_lost {
        return Err(lost_log(opened.first().map_or(&Kind::Log.file_name(1), |file| &file.name)));
    }
    let mut extents =
        read_files(&opened, Following::Nothing, &mut Tolerance::None, |file, frame| on_frame(&file.name, frame))?;
    let unused = opened.split_off(extents.len());
    files.logs.truncate(files.logs.len() - unused.len());
    files.obsolete.extend(unused.into_iter().map(|file| file.name));
    let last = opened.pop().zip(extents.pop());
    let bytes = |kind| {
        let read = opened.iter().zip(&extents).filter(|(file, _)| file.kind == kind);
        read.filter_map(|(_, extent)| extent.as_ref()).map(|extent| extent.end).sum()
    };
    let (snapshot_bytes, complete_bytes) = (bytes(Kind::Snapshot), bytes(Kind::Log));
    let named = |file: &StoreFile| -> Result<NamedFile, OpenError> {
        let (id, len) = file.file.id().and_then(|id| Ok((id, file.file.len()?))).map_err(file.failed("look at"))?;
        Ok(NamedFile { name: file.name.clone(), id, len })
    };
    let complete = opened.iter().map(named).collect::<Result<_, OpenError>>()?;
    let (log, torn) = match last {
        Some((StoreFile { name, file, .. }, Some(extent))) => {
            let log = Log::reopen(disk, file, extent.header, (extent.end, extent.next_frame));
            (log.map_err(|source| OpenError::io("go on with", Path::new(&name), source))?, extent.torn)
        }
        // A new directory, or a crash at the creation of its first log.
        unfinished => {
            let number = files.logs.last().copied().unwrap_or(1);
            let torn = unfinished.map(|(file, _)| file.torn()).transpose()?;
            let created = Log::create(disk, number);
            let log =
                created.map_err(|source| OpenError::io("create", Path::new(&Kind::Log.file_name(number)), source));
            (log?, torn)
        }
    };
    if files.logs.is_empty() {
        files.logs.push(log.number());
    }
    for name in files.obsolete.drain(..) {
        disk.remove(&name).map_err(|source| OpenError::io("remove", Path::new(&name), source))?;
    }
    if !disk.has_noted_log() {
        // Without the note, a start does not notice that the only log was lost. That is no reason to fail.
        let _ = disk.note_log();
    }
    Ok(Recovered { log, files, complete, snapshot_bytes, complete_bytes, torn })
}

/// Returns the error of a directory that had a log and has none, or an empty file of its name.
fn lost_log(name: &str) -> OpenError {
    let reason = "the directory had a log, and its files were removed or emptied; \
                  restore them, or remove the lock file to begin with an empty store";
    OpenError::io("find the records of", Path::new(name), io::Error::new(io::ErrorKind::NotFound, reason))
}

/// Returns the damage of a frame with a right checksum that has no records.
pub(crate) fn no_records(name: &str, offset: u64) -> Damage {
    Damage::new(name, offset, "the bytes of the frame are no records")
}
