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
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FlockOperation, fadvise, flock};

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
}

/// An open file.
#[allow(clippy::len_without_is_empty)]
pub trait DiskFile: fmt::Debug + Send {
    /// Returns the number of bytes.
    fn len(&self) -> io::Result<u64>;

    /// Reads at `offset`. Returns the number of bytes, which is 0 at the end only.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file.
    fn set_len(&mut self, len: u64) -> io::Result<()>;

    /// Makes the content and the length durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Lets later reads return what is on the disk. After a failed fsync, the system may hold bytes in memory alone and take
    /// them for written.
    fn drop_cache(&mut self) -> io::Result<()>;
}

/// A directory of the file system that one process uses at a time.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The directory itself: an fsync makes names durable.
    handle: File,
    lock: Option<File>,
}

/// The name of the lock file.
pub(crate) const LOCK: &str = "lock";

impl Directory {
    /// Opens a directory, and creates it if it does not exist. Locks it against other processes.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError::InUse`] if another store, in this process or another, has the directory open.
    pub fn lock(path: &Path) -> Result<Arc<Self>, OpenError> {
        let failed = |action| move |source| OpenError::io(action, path, source);
        create_directory(path, &mut sync_directory).map_err(failed("create the directory"))?;
        let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path.join(LOCK));
        let lock = open.map_err(failed("open the lock file of"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let holder = io::read_to_string(&lock).unwrap_or_default();
                return Err(OpenError::InUse { path: path.to_owned(), process: holder.trim().parse().ok() });
            }
            Err(error) => return Err(failed("lock")(error.into())),
        }
        // The number is only for the error message of the next process, so a failure is none. Another text in a file of that
        // name is not the store's, and stays.
        if io::read_to_string(&lock).is_ok_and(|text| text.trim().is_empty() || text.trim().parse::<u32>().is_ok()) {
            let number = format!("{}\n", std::process::id());
            let _ = lock.set_len(0).and_then(|()| FileExt::write_all_at(&lock, number.as_bytes(), 0));
        }
        Self::at(path, Some(lock)).map(Arc::new).map_err(failed("open"))
    }

    /// Creates a directory and locks it.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory exists.
    pub(crate) fn create(path: &Path) -> Result<Arc<Self>, OpenError> {
        let parent = parent_of(path).map_or(Ok(()), |parent| create_directory(parent, &mut sync_directory));
        parent.and_then(|()| fs::create_dir(path)).map_err(|source| OpenError::io("create", path, source))?;
        Self::lock(path)
    }

    /// Opens a directory without its lock, to read files that another process may be writing.
    pub(crate) fn unlocked(path: &Path) -> Result<Self, OpenError> {
        Self::at(path, None).map_err(|source| OpenError::io("open", path, source))
    }

    fn at(path: &Path, lock: Option<File>) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), handle: File::open(path)?, lock })
    }
}

impl Drop for Directory {
    /// Releases the lock. Closing the file is not enough: a process that is being started has a copy for a moment.
    fn drop(&mut self) {
        if let Some(lock) = &self.lock {
            let _ = flock(lock, FlockOperation::Unlock);
        }
    }
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
    match fs::create_dir(path) {
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
        for entry in fs::read_dir(&self.path)? {
            // The store gives no name that is not UTF-8.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let read_only = self.lock.is_none();
        let file = OpenOptions::new().read(true).write(!read_only).open(self.path.join(name))?;
        Ok(Box::new(file))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let path = self.path.join(name);
        Ok(Box::new(OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn link(&self, name: &str, second: &str) -> io::Result<()> {
        fs::hard_link(self.path.join(name), self.path.join(second))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
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
mod tests {
    use super::*;

    /// A name is durable after a sync of the directory that has it.
    #[test]
    fn each_new_directory_is_synced_into_its_parent() {
        let root = std::env::temp_dir().canonicalize().unwrap().join(format!("polyserve-disk-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        let create = |path: &Path| {
            let mut synced = Vec::new();
            let mut sync = |path: &Path| {
                synced.push(path.canonicalize()?);
                Ok(())
            };
            create_directory(path, &mut sync).map(|()| synced)
        };
        let parent = root.parent().unwrap();
        let [first, second, third] = ["n", "n/x", "n/x/y"].map(|name| root.join(name));
        assert_eq!(create(&third).unwrap(), [parent, &*root, &*first, &*second]);
        assert!(third.is_dir());
        assert_eq!(create(&third).unwrap(), [&*second]);
        fs::write(root.join("file"), "text").unwrap();
        assert!(create(&root.join("file")).is_err() && create(&root.join("file/x")).is_err());
        fs::remove_dir_all(&root).unwrap();
    }

    /// A process that is being started has copies of all open files until it runs its own program.
    #[test]
    fn a_copy_of_the_lock_file_does_not_hold_the_lock() {
        let root = std::env::temp_dir().join(format!("polyserve-disk-lock-{}", std::process::id()));
        let directory = Directory::lock(&root).unwrap();
        let inherited = directory.lock.as_ref().unwrap().try_clone().unwrap();
        assert!(matches!(Directory::lock(&root), Err(OpenError::InUse { .. })));
        drop(directory);
        Directory::lock(&root).unwrap();
        drop(inherited);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_parent_of_a_single_name_is_the_current_directory() {
        assert_eq!(parent_of(Path::new("data")), Some(Path::new(".")));
        assert_eq!(parent_of(Path::new("data/store")), Some(Path::new("data")));
        assert_eq!(parent_of(Path::new("/")), None);
    }
}
