//! The file seam: the calls that the store makes to a disk. [`Directory`] makes them to the file system; tests make them to a
//! simulated disk that loses, tears and reorders what was not synced.
//!
//! Invariants that the store relies on, and that a simulated disk keeps:
//!
//! * What a [`DiskFile::sync`] that succeeded covers survives a crash. Nothing else is certain to: an unsynced write may be
//!   lost, torn or written before an earlier one.
//! * A write does not change bytes at other offsets, also if it is torn.
//! * A name survives a crash after a [`Disk::sync`] that succeeded. Nothing else is certain to.
//!
//! This module is unstable: its items may change in any release.

use std::fmt;
use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    Advice, AtFlags, CWD, Dir, FallocateFlags, FlockOperation, Mode, OFlags, Stat, fadvise, fallocate, flock, fstat,
    fstatvfs, linkat, openat, renameat, stat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::error::OpenError;

/// A directory of files.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Returns the names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Creates an empty file, or empties the one that is there. Opens it for reading and writing.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file. Replaces the one that has the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives a file a second name, which no file has.
    fn link(&self, name: &str, second: &str) -> io::Result<()>;

    /// Removes a name of a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all creations, renamings, links and removals durable.
    fn sync(&self) -> io::Result<()>;

    /// Returns the number of bytes that files may still take.
    fn room(&self) -> io::Result<u64>;

    /// Checks that the next start of the store opens this directory, and that no other process may lock the directory.
    ///
    /// # Errors
    ///
    /// Returns the reason if it is known that one of these is wrong.
    fn verify(&self) -> Result<(), String>;

    /// Checks that the next start of the store finds a file as the store has written it. One system call.
    ///
    /// # Errors
    ///
    /// Returns the reason if it is known that the name has no file, another file, or a file of another length.
    fn verify_file(&self, file: &NamedFile) -> Result<(), String>;

    /// Checks that no other process may lock the directory. It costs nothing if the file system locks directories, else two system
    /// calls.
    ///
    /// # Errors
    ///
    /// Returns the reason if it is known that another process may.
    fn verify_lock(&self) -> Result<(), String>;

    /// Notes in the directory that it has a log.
    fn note_log(&self) -> io::Result<()>;

    /// Whether it is noted that the directory had a log. If it has none now, the log was lost.
    fn has_noted_log(&self) -> bool;
}

/// The numbers of a file's device and of its inode. No two files that exist have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(pub u64, pub u64);

/// A file that the next start needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// The name that it must have.
    pub name: String,
    /// The file itself.
    pub id: FileId,
    /// Its number of bytes.
    pub len: u64,
}

/// An open file.
#[allow(clippy::len_without_is_empty)]
pub trait DiskFile: fmt::Debug + Send {
    /// Returns the number of bytes.
    fn len(&self) -> io::Result<u64>;

    /// Returns what tells the file from all others.
    fn id(&self) -> io::Result<FileId>;

    /// Reads at `offset`. Returns the number of bytes, which is 0 at the end only.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Reserves the room of the first `len` bytes, so that writes to them do not find a full disk. The length stays. A file system
    /// that cannot reserve room does nothing.
    fn reserve(&mut self, len: u64) -> io::Result<()>;

    /// Cuts the file, and ends a reservation.
    fn set_len(&mut self, len: u64) -> io::Result<()>;

    /// Makes the content and the length durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Lets later reads return what is on the disk. After a failed fsync, the system may hold bytes in memory alone and take
    /// them for written.
    fn drop_cache(&mut self) -> io::Result<()>;
}

/// A directory of the file system that one process uses at a time.
///
/// All files are opened by the handle of the directory, so neither a `chdir` nor a new name of the directory changes which files
/// they are. Two locks exclude other processes: that of the handle, which goes with the directory, and that of a lock file, for
/// file systems that cannot lock a directory (NFS).
#[derive(Debug)]
pub struct Directory {
    /// The absolute path that the directory was opened by.
    path: PathBuf,
    /// The directory itself: an fsync makes names durable.
    handle: File,
    /// Whether the handle is locked.
    is_locked: bool,
    lock_file: Option<File>,
    /// Whether files are opened for reading alone.
    is_read_only: bool,
}

/// A call that locks an open file or directory: `flock`, but in tests of a file system that cannot lock directories.
type LockCall = fn(&File, FlockOperation) -> Result<(), Errno>;

/// The name of the lock file.
pub(crate) const LOCK: &str = "lock";

/// The line of the lock file of a directory that had a log. The line before it is the number of the process.
const HAS_LOG: &str = "has a log";

/// The bytes of a lock file that are read. Another program may have written more.
const MAX_LOCK_TEXT: u64 = 4096;

/// A file is for its owner alone: it holds the entities of clients.
const FILE_MODE: u32 = 0o600;

/// A directory is for its owner alone.
const DIRECTORY_MODE: u32 = 0o700;

impl Directory {
    /// Opens a directory, and creates it if it does not exist. Locks it against other processes.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError::InUse`] if another store, in this process or another, has the directory open.
    pub fn lock(path: &Path) -> Result<Arc<Self>, OpenError> {
        Self::lock_by(path, |file, operation| flock(file, operation))
    }

    /// Does the same. `lock_handle` locks the handle of the directory.
    fn lock_by(path: &Path, lock_handle: LockCall) -> Result<Arc<Self>, OpenError> {
        let created = create_directory(path, &mut sync_directory);
        created.map_err(|source| OpenError::io("create the directory", path, source))?;
        let mut directory = Self::unlocked(path)?;
        let failed = |action| move |source| OpenError::io(action, path, source);
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        directory.lock_handle(exclusive, lock_handle)?;
        let lock = loop {
            let file =
                directory.open_at(LOCK, OFlags::CREATE | OFlags::RDWR).map_err(failed("open the lock file of"))?;
            match flock(&file, exclusive) {
                Ok(()) if directory.is_named(LOCK, &file) => break file,
                Ok(()) => {} // it was removed before it was locked
                Err(Errno::WOULDBLOCK) => return Err(directory.in_use(&file)),
                Err(error) => return Err(failed("lock")(error.into())),
            }
        };
        // The number is only for the error message of the next process, so a failure is none.
        let _ = LockText::read(&lock).and_then(|text| text.write(&lock, text.has_log));
        directory.lock_file = Some(lock);
        directory.is_read_only = false;
        Ok(Arc::new(directory))
    }

    /// Opens a directory to read its files. Nothing is written, also no lock file. No store can open the directory meanwhile.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError::InUse`] if a store has the directory open.
    pub(crate) fn lock_to_read(path: &Path) -> Result<Self, OpenError> {
        Self::lock_to_read_by(path, |file, operation| flock(file, operation))
    }

    fn lock_to_read_by(path: &Path, lock_handle: LockCall) -> Result<Self, OpenError> {
        let mut directory = Self::unlocked(path)?;
        let shared = FlockOperation::NonBlockingLockShared;
        directory.lock_handle(shared, lock_handle)?;
        match directory.open_at(LOCK, OFlags::RDONLY) {
            Ok(file) if flock(&file, shared) == Err(Errno::WOULDBLOCK) => Err(directory.in_use(&file)),
            Ok(file) => {
                directory.lock_file = Some(file);
                Ok(directory)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(directory),
            Err(source) => Err(OpenError::io("open the lock file of", path, source)),
        }
    }

    /// Creates a directory and locks it.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory exists.
    pub(crate) fn create(path: &Path) -> Result<Arc<Self>, OpenError> {
        let parent = parent_of(path).map_or(Ok(()), |parent| create_directory(parent, &mut sync_directory));
        parent.and_then(|()| make_directory(path)).map_err(|source| OpenError::io("create", path, source))?;
        Self::lock(path)
    }

    /// Opens a directory without its locks, to read files that another process may be writing.
    pub(crate) fn unlocked(path: &Path) -> Result<Self, OpenError> {
        let open = || {
            let path = std::path::absolute(path)?;
            let handle = openat(CWD, &path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            Ok(Self { path, handle: handle.into(), is_locked: false, lock_file: None, is_read_only: true })
        };
        open().map_err(|source| OpenError::io("open", path, source))
    }

    /// Locks the handle, if the file system can.
    fn lock_handle(&mut self, operation: FlockOperation, lock: LockCall) -> Result<(), OpenError> {
        match lock(&self.handle, operation) {
            Err(Errno::WOULDBLOCK) => Err(self.in_use(&self.handle)),
            // The lock file alone has to do.
            locked => {
                self.is_locked = locked.is_ok();
                Ok(())
            }
        }
    }

    /// The error if another process has locked `locked`. The lock file names a store's process. A check writes no number, so the file
    /// may name a process that has ended: then a shared lock succeeds, as for a second check.
    fn in_use(&self, locked: &File) -> OpenError {
        if flock(locked, FlockOperation::NonBlockingLockShared).is_ok() {
            let _ = flock(locked, FlockOperation::Unlock);
            return OpenError::InUse { path: self.path.clone(), process: None };
        }
        let holder = self.open_at(LOCK, OFlags::RDONLY).and_then(|file| LockText::read(&file));
        OpenError::InUse {
            path: self.path.clone(),
            process: holder.ok().and_then(|holder| holder.process).filter(|process| exists(*process)),
        }
    }

    fn open_at(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let opened = openat(&self.handle, name, flags | OFlags::CLOEXEC, Mode::from_raw_mode(FILE_MODE));
        Ok(opened.map(File::from)?)
    }

    /// Whether the open file has this name.
    fn is_named(&self, name: &str, file: &File) -> bool {
        let found = statat(&self.handle, name, AtFlags::empty());
        found.is_ok_and(|found| fstat(file).is_ok_and(|file| is_same(&found, &file)))
    }

    /// Whether the directory is this one, or lies in it.
    pub(crate) fn contains(&self, path: &Path) -> io::Result<bool> {
        let own = fstat(&self.handle)?;
        let path = path.canonicalize()?;
        Ok(path.ancestors().any(|above| stat(above).is_ok_and(|found| is_same(&found, &own))))
    }
}

/// What a lock file states.
struct LockText {
    /// The number of the process that wrote it.
    process: Option<u32>,
    /// Whether the directory had a log.
    has_log: bool,
    /// Whether it may be written: a text of another program stays.
    is_own: bool,
}

impl LockText {
    fn read(file: &File) -> io::Result<Self> {
        let mut reader = file;
        let _ = reader.rewind(); // a pipe cannot
        let text = io::read_to_string(reader.take(MAX_LOCK_TEXT))?;
        let process = text.lines().next().and_then(|line| line.trim().parse().ok());
        let has_log = process.is_some() && text.lines().any(|line| line == HAS_LOG);
        Ok(Self { process, has_log, is_own: process.is_some() || text.trim().is_empty() })
    }

    /// Writes the number of this process, and whether the directory has a log. At each moment, the file has the line of the
    /// log if it had it before.
    fn write(&self, file: &File, has_log: bool) -> io::Result<()> {
        if !self.is_own {
            return Ok(());
        }
        let log = if has_log { HAS_LOG } else { "" };
        let text = format!("{}\n{log}\n", std::process::id());
        FileExt::write_all_at(file, text.as_bytes(), 0)?;
        file.set_len(text.len() as u64)
    }
}

/// Whether there is a process with this number.
fn exists(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) != Err(Errno::SRCH))
}

fn id_of(stat: &Stat) -> FileId {
    FileId(stat.st_dev, stat.st_ino)
}

/// Whether both are of one file.
fn is_same(one: &Stat, other: &Stat) -> bool {
    id_of(one) == id_of(other)
}

impl Drop for Directory {
    /// Releases the locks. Closing the files is not enough: a process that is being started has copies for a moment.
    fn drop(&mut self) {
        for locked in [self.lock_file.as_ref(), Some(&self.handle)].into_iter().flatten() {
            let _ = flock(locked, FlockOperation::Unlock);
        }
    }
}

/// Creates a directory that only its owner may use.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIRECTORY_MODE).create(path)
}

/// Creates a directory and the directories above it that do not exist. `sync` makes the names in a directory durable: it is
/// called for the parent of each new directory, and for the parent of the first that existed, which a process may have created
/// and not synced.
fn create_directory(path: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    if path.is_dir() {
        let path = path.canonicalize()?;
        return match path.parent().map_or(Ok(()), sync) {
            // A directory that this process may not list was created by another user.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        };
    }
    let parent = parent_of(path).ok_or(ErrorKind::NotFound)?;
    create_directory(parent, sync)?;
    match make_directory(path) {
        // Another thread or process has created it, or the path ends with `..`.
        Err(_) if path.is_dir() => {}
        created => created?,
    }
    sync(parent)
}

/// Returns the directory of a path. The directory of a single name is the current one.
fn parent_of(path: &Path) -> Option<&Path> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl Disk for Directory {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.handle)? {
            // The store gives no name that is not UTF-8.
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let flags = if self.is_read_only { OFlags::RDONLY } else { OFlags::RDWR };
        Ok(Box::new(self.open_at(name, flags)?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(self.open_at(name, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.handle, from, &self.handle, to)?)
    }

    fn link(&self, name: &str, second: &str) -> io::Result<()> {
        Ok(linkat(&self.handle, name, &self.handle, second, AtFlags::empty())?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn room(&self) -> io::Result<u64> {
        let found = fstatvfs(&self.handle)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn verify(&self) -> Result<(), String> {
        let path = self.path.display();
        let own = fstat(&self.handle).map_err(|error| format!("the directory {path} cannot be looked at: {error}"))?;
        match stat(&self.path) {
            Ok(found) if is_same(&found, &own) => {}
            Ok(_) => return Err(format!("the path {path} names another directory")),
            Err(error @ (Errno::NOENT | Errno::NOTDIR)) => {
                return Err(format!("the directory {path} was moved or removed: {error}"));
            }
            // Nothing is known, for example because a directory above must not be searched any more.
            Err(_) => {}
        }
        self.verify_lock()
    }

    fn verify_file(&self, NamedFile { name, id, len }: &NamedFile) -> Result<(), String> {
        let what = match statat(&self.handle, name.as_str(), AtFlags::empty()) {
            Ok(found) if id_of(&found) != *id => "was replaced".to_owned(),
            Ok(found) if found.st_size.cast_unsigned() != *len => {
                format!("has {} bytes and not {len}: another program has written it", found.st_size)
            }
            Err(Errno::NOENT) => "was removed".to_owned(),
            // Nothing is known if there is another error.
            _ => return Ok(()),
        };
        Err(format!("the file {name} in {} {what}", self.path.display()))
    }

    fn verify_lock(&self) -> Result<(), String> {
        let Some(file) = self.lock_file.as_ref().filter(|_| !self.is_locked) else { return Ok(()) };
        let is_gone = match (statat(&self.handle, LOCK, AtFlags::empty()), fstat(file)) {
            (Ok(found), Ok(own)) => !is_same(&found, &own),
            (Err(Errno::NOENT), _) | (_, Err(Errno::STALE)) => true,
            // Nothing is known: any other error may pass.
            _ => false,
        };
        if is_gone {
            return Err(format!("the lock file in {} was removed or replaced", self.path.display()));
        }
        Ok(())
    }

    fn note_log(&self) -> io::Result<()> {
        self.lock_file.as_ref().map_or(Ok(()), |file| LockText::read(file)?.write(file, true))
    }

    fn has_noted_log(&self) -> bool {
        let has_log = |file: &File| LockText::read(file).is_ok_and(|text| text.has_log);
        // A directory that is read while its store is in use has no lock. The open of a pipe would wait without the flag.
        let opened = || self.open_at(LOCK, OFlags::RDONLY | OFlags::NONBLOCK);
        self.lock_file.as_ref().map_or_else(|| opened().is_ok_and(|file| has_log(&file)), has_log)
    }
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn id(&self) -> io::Result<FileId> {
        Ok(id_of(&fstat(self)?))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match FileExt::read_at(self, into, offset) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        match fallocate(&*self, FallocateFlags::KEEP_SIZE, 0, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            reserved => Ok(reserved?),
        }
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    /// fdatasync(2): the length is part of what it makes durable, because the data could not be read without it.
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn drop_cache(&mut self) -> io::Result<()> {
        Ok(fadvise(self, 0, None, Advice::DontNeed)?)
    }
}

#[cfg(test)]
mod tests;
