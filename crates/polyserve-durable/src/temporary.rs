//! The directories of temporary stores: `temporary-PROCESS-NUMBER`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::disk::{Directory, make_directory};
use crate::error::OpenError;

/// Creates a directory for a temporary store of this process, and removes those that killed processes have left.
pub(crate) fn create(parent: &Path) -> Result<PathBuf, OpenError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    fs::create_dir_all(parent).map_err(|source| OpenError::io("create the directory", parent, source))?;
    remove_abandoned(parent);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = parent.join(format!("temporary-{}-{number}", process::id()));
        match make_directory(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(source) => return Err(OpenError::io("create the directory", &directory, source)),
        }
    }
}

/// Removes what it can: a directory that stays harms no store.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| is_abandoned(path)) {
        // The process may be alive in another container: then it holds the lock.
        let Ok(lock) = Directory::lock(&path) else { continue };
        match fs::remove_dir_all(&path) {
            Ok(()) => tracing::info!(directory = %path.display(), "removed a temporary store of a killed process"),
            Err(error) => tracing::warn!(%error, directory = %path.display(), "a temporary store cannot be removed"),
        }
        drop(lock);
    }
}

/// Whether it is the directory of a process that does not exist any more.
fn is_abandoned(path: &Path) -> bool {
    let process = || {
        let (process, number) = path.file_name()?.to_str()?.strip_prefix("temporary-")?.split_once('-')?;
        number.parse::<u64>().ok()?;
        Pid::from_raw(process.parse().ok().filter(|process| *process > 0)?)
    };
    process().is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH)) && path.is_dir()
}
