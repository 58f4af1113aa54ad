//! The page as a file, for the servers that read it for each request.
//!
//! Invariant: the file has the bytes of the page in memory, so every answer is compared with the same bytes. Cost: a directory
//! among the system's temporary files, which is removed at the end.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use crate::services::Page;

/// The file.
#[derive(Debug)]
pub struct PageFile {
    dir: PathBuf,
    path: PathBuf,
}

static FILES: AtomicU64 = AtomicU64::new(0);

impl PageFile {
    /// Creates the file in a directory of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be written.
    pub fn new() -> io::Result<Self> {
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("polyserve-page-{}-{number}", std::process::id()));
        fs::create_dir(&dir)?;
        let file = Self { path: dir.join("hello.html"), dir };
        fs::write(&file.path, Page::BODY)?;
        Ok(file)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PageFile {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir); // it may have been removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_bytes_of_the_page_and_goes_with_its_owner() {
        let (file, other) = (PageFile::new().unwrap(), PageFile::new().unwrap());
        assert_ne!(file.path(), other.path());
        assert_eq!(fs::read(file.path()).unwrap(), Page::BODY);
        let dir = file.dir.clone();
        drop(file);
        assert!(!dir.exists() && other.path().exists());
    }
}
