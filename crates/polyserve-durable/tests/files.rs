//! What a store does to the files of its directory and of its backups.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use polyserve_core::repo::EntityRepoExt;
use polyserve_core::{Entity, EntityRepo};
use polyserve_durable::{Durable, maintenance};
use polyserve_memory::Sharded;

/// A new directory that is removed at the end.
struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("polyserve-files-{}-{name}", std::process::id()));
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

fn open(directory: &Path) -> Durable<Sharded> {
    Durable::open(directory, Sharded::new()).unwrap()
}

fn put(store: &Durable<Sharded>, id: i64) {
    store.put(Entity::new(id, "text", 0.5)).wait().unwrap();
}

#[test]
fn a_store_leaves_files_that_are_not_its_own() {
    let dir = TestDir::new("foreign");
    fs::create_dir(dir.join("cache.tmp")).unwrap();
    let foreign = ["notes.tmp", ".tmp", "snapshot-1.tmp", "log-0000000000000001.tmp", "lock"];
    for name in foreign {
        fs::write(dir.join(name), "text of others\n").unwrap();
    }
    let own = dir.join("snapshot-0000000000000007.tmp");
    fs::write(&own, "what an interrupted compaction has left").unwrap();
    put(&open(&dir), 1);
    assert!(open(&dir).fetch(&1).unwrap().is_some() && maintenance::check(&*dir).unwrap().damage.is_empty());
    assert!(dir.join("cache.tmp").is_dir() && !own.exists());
    for name in foreign {
        assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), "text of others\n", "{name}");
    }
}

#[test]
fn a_backup_leaves_files_that_are_not_its_own() {
    let dir = TestDir::new("backup-foreign");
    put(&open(&dir.join("store")), 1);
    let (to, incomplete) = (dir.join("copy"), dir.join("copy.incomplete"));
    fs::create_dir(&incomplete).unwrap();
    fs::write(incomplete.join("notes"), "text of others").unwrap();
    let error = maintenance::backup(dir.join("store"), &to).unwrap_err();
    assert!(error.to_string().contains("copy.incomplete"), "{error}");
    assert_eq!(fs::read_to_string(incomplete.join("notes")).unwrap(), "text of others");
    assert!(!to.exists());
    fs::remove_dir_all(&incomplete).unwrap();
    assert_eq!(maintenance::backup(dir.join("store"), &to).unwrap().files, 1);
    assert!(!incomplete.exists() && open(&to).fetch(&1).unwrap().is_some());
}

/// A backup that fails removes what it made.
#[test]
fn a_failed_backup_leaves_nothing() {
    let dir = TestDir::new("backup-failed");
    let source = dir.join("store");
    let store = open(&source);
    (1..=3).for_each(|id| put(&store, id));
    drop(store);
    let log = source.join("log-0000000000000001");
    let mut bytes = fs::read(&log).unwrap();
    bytes[60] ^= 1;
    fs::write(&log, bytes).unwrap();
    let to = dir.join("copies").join("first");
    assert!(maintenance::backup(&source, &to).unwrap_err().to_string().contains("damaged"));
    assert_eq!(fs::read_dir(dir.join("copies")).unwrap().count(), 0);
}

/// A typing error is no store without damage.
#[test]
fn a_directory_without_a_store_is_refused_and_left_as_it_is() {
    let dir = TestDir::new("no-store");
    fs::write(dir.join("notes"), "text of others").unwrap();
    for error in [
        maintenance::check(&*dir).unwrap_err(),
        maintenance::repair(&*dir).unwrap_err(),
        maintenance::backup(&*dir, dir.join("copy")).unwrap_err(),
    ] {
        assert!(error.to_string().starts_with("cannot find a store in "), "{error}");
    }
    let names: Vec<_> = fs::read_dir(&*dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["notes"]);
}
