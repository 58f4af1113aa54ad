//! What several tests need.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A new directory that is removed at the end.
pub(crate) struct TestDir(PathBuf);

impl TestDir {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("polyserve-durable-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path); // a killed process with the same number may have left it
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Deref for TestDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
