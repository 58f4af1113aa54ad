//! Check, repair and backup of a directory. They work on files alone, so they need no entity type.
//!
//! `polyserve durable check|repair|backup` calls them.

use std::fs;
use std::io;
use std::iter;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::compaction::merge;
use crate::disk::{Directory, Disk, DiskFile, LOCK, sync_directory};
use crate::error::{Damage, OpenError};
use crate::format::Kind;
use crate::log::Log;
use crate::recovery::{Extent, Files, Following, StoreFile, Tolerance, TornTail, no_records, open_files, read_files};

/// What [`check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreReport {
    /// The number of files that were read.
    pub files: u64,
    /// The bytes of their valid frames and headers.
    pub bytes: u64,
    /// The number of valid records. Several may be of one entity.
    pub records: u64,
    /// The torn end of the last log. The next start drops it. Its offset is 0 if the only log has no header: the store is empty then.
    pub torn: Option<TornTail>,
    /// The damage. Each place makes a start fail.
    pub damage: Vec<Damage>,
}

/// Reads all files of a store, and lists what is damaged. Changes nothing.
///
/// # Errors
///
/// Returns an error if the directory has no store, if the store is in use, if a file cannot be read, or if it has another
/// version.
///
/// ```
/// use polyserve_core::{Entity, EntityRepo};
/// use polyserve_durable::{Durable, maintenance};
/// use polyserve_memory::Sharded;
///
/// # let directory = std::env::temp_dir().join(format!("polyserve-doc-check-{}", std::process::id()));
/// let store = Durable::open(&directory, Sharded::new())?;
/// store.put(Entity::new(1, "first", 0.5)).wait()?;
/// drop(store);
/// let report = maintenance::check(&directory)?;
/// assert!(report.records == 1 && report.damage.is_empty());
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(directory: impl AsRef<Path>) -> Result<StoreReport, OpenError> {
    let directory = directory.as_ref();
    find_store(directory)?;
    check_on(&Directory::lock_to_read(directory)?)
}

/// Returns the directory if it is one: a typing error must not create an empty store.
fn existing(directory: &Path) -> Result<&Path, OpenError> {
    match fs::metadata(directory) {
        Ok(found) if found.is_dir() => Ok(directory),
        Ok(_) => Err(OpenError::io("open the directory", directory, io::ErrorKind::NotADirectory.into())),
        Err(source) => Err(OpenError::io("open the directory", directory, source)),
    }
}

/// Returns an error if the directory has no store. A directory without one stays as it is.
fn find_store(directory: &Path) -> Result<(), OpenError> {
    let found = Directory::unlocked(existing(directory)?)?.list();
    let names = found.map_err(|source| OpenError::io("list", directory, source))?;
    if names.iter().all(|name| Kind::parse(name).is_none()) {
        return Err(no_store(directory));
    }
    Ok(())
}

fn no_store(directory: &Path) -> OpenError {
    let reason = io::Error::new(io::ErrorKind::NotFound, "the directory has no log and no snapshot");
    OpenError::io("find a store in", directory, reason)
}

pub(crate) fn check_on(disk: &dyn Disk) -> Result<StoreReport, OpenError> {
    let mut report = StoreReport::default();
    let mut tolerance = Tolerance::Collect(&mut report.damage);
    let files = Files::list(disk, &mut tolerance)?;
    let opened = open_files(disk, &files)?;
    let mut no_record_frames = Vec::new();
    let extents = read_files(&opened, Following::Nothing, &mut tolerance, |file, frame| {
        match frame.for_each(|_, _, _| Ok::<(), ()>(())) {
            Ok(()) => report.records += u64::from(frame.records),
            Err(_) => no_record_frames.push(no_records(&file.name, frame.offset)),
        }
        Ok(())
    })?;
    no_record_frames.into_iter().try_for_each(|damage| tolerance.accept(damage))?;
    report.files = opened.len() as u64;
    for (file, extent) in opened.iter().zip(extents) {
        match extent {
            Some(extent) => {
                report.bytes += extent.end;
                report.torn = extent.torn.or(report.torn);
            }
            None if report.damage.is_empty() => report.torn = Some(file.torn()?),
            None => {} // its damage is listed
        }
    }
    Ok(report)
}

/// What [`repair`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairReport {
    /// The damage. What stood there is lost. Of a damaged header, that is nothing, unless the reason names lost bytes.
    pub damage: Vec<Damage>,
    /// The new names of the damaged store's files, if there was damage. They are kept as they were.
    pub renamed: Vec<PathBuf>,
}

/// Makes a damaged store open again: writes a snapshot of all valid records, and renames the old files so that a store does
/// not read them. A store without damage stays as it is.
///
/// A crash at any point keeps the damaged files, under their old or their new names. If the store does not open after it, the
/// next repair completes it. The file system must have hard links.
///
/// Writes that were acknowledged may be lost with the damage. If the last record of an entity is lost, the entity has
/// the value of an earlier record, or is absent.
///
/// # Errors
///
/// Returns an error if the directory has no store, if the store is in use, or if a file cannot be read or written.
pub fn repair(directory: impl AsRef<Path>) -> Result<RepairReport, OpenError> {
    let directory = directory.as_ref();
    find_store(directory)?;
    let disk: Arc<dyn Disk> = Directory::lock(directory)?;
    let (damage, renamed) = repair_on(&disk)?;
    let named = |name: &String| directory.join(name);
    Ok(RepairReport { damage, renamed: renamed.iter().map(named).collect() })
}

pub(crate) fn repair_on(disk: &Arc<dyn Disk>) -> Result<(Vec<Damage>, Vec<String>), OpenError> {
    let report = check_on(&**disk)?;
    if report.damage.is_empty() {
        return Ok(Default::default());
    }
    let mut damage = Vec::new();
    let files = Files::list(&**disk, &mut Tolerance::Collect(&mut damage))?;
    let last = files.snapshot.into_iter().chain(files.logs.iter().copied()).max().unwrap_or(0);
    let next = last + 1;
    if Kind::parse(&Kind::Log.file_name(next)).is_none() {
        let reason = "its number is too large for a log behind it; remove the file if it is not of this store";
        let reason = io::Error::new(io::ErrorKind::InvalidData, reason);
        return Err(OpenError::io("repair the store with", Path::new(&Kind::Log.file_name(last)), reason));
    }
    let failed = |action, name: &str| {
        let name = name.to_owned();
        move |source| OpenError::io(action, Path::new(&name), source)
    };
    // The second names are durable before there is a snapshot, because the next start removes the files before a snapshot.
    let names = disk.list().map_err(failed("list", "the directory"))?;
    let mut renamed = Vec::new();
    for (name, _, _) in files.in_order() {
        let new = damaged_name(&name, &names);
        disk.link(&name, &new).map_err(failed("link", &name))?;
        renamed.push(new);
    }
    disk.sync().map_err(failed("sync", "the directory"))?;
    // A snapshot needs the log of its number.
    drop(Log::create(disk, next).map_err(failed("create", &Kind::Log.file_name(next)))?);
    let not_cancelled = AtomicBool::new(false);
    merge(disk, &files, Following::Nothing, next, &not_cancelled, &mut Tolerance::Collect(&mut damage))?;
    for (name, _, _) in files.in_order() {
        disk.remove(&name).map_err(failed("remove", &name))?;
    }
    disk.sync().map_err(failed("sync", "the directory"))?;
    Ok((report.damage, renamed))
}

/// Returns a new name for a damaged file. An earlier repair may have used the first one.
fn damaged_name(name: &str, taken: &[String]) -> String {
    let first = format!("damaged-{name}");
    let others = (2..).map(|count| format!("damaged-{count}-{name}"));
    let mut names = iter::once(first).chain(others);
    names.find(|new| !taken.contains(new)).expect("there are more numbers than files")
}

/// What [`backup`] copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// The number of files.
    pub files: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// The number of times that a backup lists the files anew, because a compaction has removed one before it was opened.
const MAX_TRIES: u32 = 100;

/// Copies a store, also while it is in use, to the new directory `to`. The copy has every write that was answered before this
/// call, and is a state that the store had: opening the copy is like opening the store after a crash.
///
/// # Errors
///
/// Returns an error if `to` exists, lies in the store, or has `..` behind a directory that does not exist, if a file is damaged, or if
/// one cannot be read or written. Then there is no `to`.
///
/// The copy is written to a new directory: the name of `to`, with `.incomplete` behind it. A backup that fails
/// removes the directory, and those above it that it has created. A backup that is killed leaves them, and the next one returns an
/// error that names the directory.
pub fn backup(directory: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<BackupReport, OpenError> {
    let directory = directory.as_ref();
    find_store(directory)?;
    let source = Directory::unlocked(directory)?;
    // A wrong `to` is found before the whole store is read.
    let CopyPath { to, incomplete, above } = CopyPath::new(&source, to.as_ref())?;
    let opened = open_all(&source, directory)?;
    let extents = read_files(&opened, Following::NewLog, &mut Tolerance::None, |_, _| Ok(()))?;
    let copied = Directory::create(&incomplete).and_then(|target| {
        let copied = copy_all(&opened, extents, &(Arc::clone(&target) as _)).and_then(|report| {
            target
                .note_log()
                .and_then(|()| target.sync())
                .map_err(|source| OpenError::io("sync", &incomplete, source))?;
            let moved = fs::rename(&incomplete, &to).and_then(|()| sync_parent(&to));
            moved.map(|()| report).map_err(|source| OpenError::io("create", &to, source))
        });
        if copied.is_err() {
            // The names are those that this call has written; with a file of another name, the directory stays.
            for name in opened.iter().map(|file| file.name.as_str()).chain([LOCK]) {
                let _ = target.remove(name);
            }
            // If only the names could not be synced, the copy has its final name.
            let _ = fs::remove_dir(&incomplete).or_else(|_| fs::remove_dir(&to));
        }
        copied
    });
    if copied.is_err() {
        for created in incomplete.ancestors().skip(1).take_while(|created| *created != above) {
            let _ = fs::remove_dir(created);
        }
    }
    copied
}

/// The paths of a backup.
struct CopyPath {
    /// The absolute path of the copy.
    to: PathBuf,
    /// The path until it is complete.
    incomplete: PathBuf,
    /// The nearest directory above it that exists.
    above: PathBuf,
}

impl CopyPath {
    fn new(source: &Directory, to: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::io("create", to, source);
        let absolute = std::path::absolute(to).map_err(failed)?;
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        };
        let mut incomplete = name.to_owned();
        incomplete.push(".incomplete");
        // Without a slash at the end.
        let (path, incomplete) = (parent.join(name), parent.join(incomplete));
        if fs::symlink_metadata(&path).is_ok() {
            let reason = "it exists already, and a backup makes a new directory";
            return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, reason)));
        }
        let above = parent.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/")).to_owned();
        // The new directories would make the rest of the path lead elsewhere, into the store for example.
        if parent.strip_prefix(&above).is_ok_and(|new| new.components().any(|part| part == Component::ParentDir)) {
            let reason = "there is `..` behind the name of a directory that does not exist";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, reason)));
        }
        if source.contains(&above).map_err(failed)? {
            let reason = "it lies in the store that is copied";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, reason)));
        }
        Ok(Self { to: path, incomplete, above })
    }
}

/// Makes the name of a directory durable.
fn sync_parent(directory: &Path) -> io::Result<()> {
    directory.canonicalize()?.parent().map_or(Ok(()), sync_directory)
}

/// Copies the valid frames of the files that have an extent.
fn copy_all(
    opened: &[StoreFile],
    extents: Vec<Option<Extent>>,
    target: &Arc<dyn Disk>,
) -> Result<BackupReport, OpenError> {
    let mut report = BackupReport::default();
    let last = extents.len() - 1;
    for (position, (store_file, extent)) in opened.iter().zip(extents).enumerate() {
        let failed = store_file.failed("copy");
        report.files += 1;
        let Some(extent) = extent else {
            // The first log of a store, which is being created: a store without it is none.
            report.bytes += Log::create(target, store_file.number).map_err(failed)?.len();
            continue;
        };
        // The last log may have got its end since the list was made. The copy has no log behind it.
        let end = if position == last { extent.records_end } else { extent.end };
        let mut copy = target.create(&store_file.name).map_err(&failed)?;
        copy_bytes(&*store_file.file, &mut *copy, end).and_then(|()| copy.sync()).map_err(failed)?;
        report.bytes += end;
    }
    Ok(report)
}

/// Opens all files of a store that may be in use. A file that is open stays readable after a compaction has removed it.
fn open_all(disk: &dyn Disk, directory: &Path) -> Result<Vec<StoreFile>, OpenError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match Files::of(disk).and_then(|files| open_files(disk, &files)) {
            Ok(opened) if opened.is_empty() => {
                return Err(no_store(directory));
            }
            Ok(opened) => return Ok(opened),
            // A directory that is read while its files change may show neither an old file nor its successor.
            Err(OpenError::Damaged(_)) if tries < MAX_TRIES => {}
            Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound && tries < MAX_TRIES => {}
            Err(error) => return Err(error),
        }
    }
}

fn copy_bytes(from: &dyn DiskFile, to: &mut dyn DiskFile, length: u64) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < length {
        let chunk = buffer.len().min(usize::try_from(length - offset).unwrap_or(usize::MAX));
        match from.read_at(&mut buffer[..chunk], offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => to.write_all_at(&buffer[..read], offset)?,
        }
        offset = to.len()?;
    }
    Ok(())
}
