use std::fs;

use polyserve_core::{Entity, EntityRepo as _, RepoError};
use polyserve_memory::StdMutex;

use super::*;
use crate::{Durable, DurableOptions};

/// A name is durable after a sync of the directory that has it.
#[test]
fn each_new_directory_is_synced_into_its_parent() {
    let root = std::env::temp_dir().canonicalize().unwrap().join(format!("polyserve-disk-{}", std::process::id()));
    make_directory(&root).unwrap();
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
fn copies_of_the_locked_files_do_not_hold_the_locks() {
    let root = std::env::temp_dir().join(format!("polyserve-disk-lock-{}", std::process::id()));
    let directory = Directory::lock(&root).unwrap();
    let inherited = [directory.lock_file.as_ref().unwrap(), &directory.handle].map(|file| file.try_clone().unwrap());
    assert!(matches!(Directory::lock(&root), Err(OpenError::InUse { .. })));
    drop(directory);
    Directory::lock(&root).unwrap();
    drop(inherited);
    fs::remove_dir_all(&root).unwrap();
}

/// The lock of a directory on NFS, which needs a handle that may write.
fn refused(_: &File, _: FlockOperation) -> Result<(), Errno> {
    Err(Errno::BADF)
}

/// A file system that cannot lock directories: the lock file excludes a second store and a check.
#[test]
fn the_lock_file_is_enough() {
    let root = std::env::temp_dir().join(format!("polyserve-disk-lock-file-{}", std::process::id()));
    let store = Directory::lock_by(&root, refused).unwrap();
    assert!(!store.is_locked);
    for _ in 0..2 {
        match Directory::lock_by(&root, refused) {
            Err(OpenError::InUse { process, .. }) => assert_eq!(process, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        assert!(matches!(Directory::lock_to_read_by(&root, refused), Err(OpenError::InUse { .. })));
    }
    store.verify_lock().unwrap();
    store.verify().unwrap();
    drop(store);
    let check = Directory::lock_to_read_by(&root, refused).unwrap();
    assert!(matches!(Directory::lock_by(&root, refused), Err(OpenError::InUse { .. })));
    drop(check);
    Directory::lock_by(&root, refused).unwrap();
    fs::remove_dir_all(&root).unwrap();
}

/// Regression test: on a file system that cannot lock directories, a store went on for up to a second after its lock file was
/// removed, while a second store wrote the same log.
#[test]
fn a_store_without_its_lock_file_answers_no_write() {
    let root = std::env::temp_dir().join(format!("polyserve-disk-lock-lost-{}", std::process::id()));
    let open = || {
        let disk: Arc<dyn Disk> = Directory::lock_by(&root, refused).unwrap();
        Durable::open_on(&disk, StdMutex::new(), &DurableOptions::default()).unwrap()
    };
    let put = |store: &Durable<StdMutex>, id| store.put(Entity::new(id, "text", 0.5)).wait();
    let first = open();
    put(&first, 1).unwrap();
    fs::remove_file(root.join(LOCK)).unwrap();
    let second = open();
    put(&second, 2).unwrap();
    for id in 3..6 {
        match put(&first, id) {
            Err(RepoError::ReadOnly(reason)) => assert!(reason.to_string().contains("removed or replaced")),
            other => panic!("{other:?}"),
        }
    }
    put(&second, 6).unwrap();
    drop((first, second));
    assert_eq!(open().recovery().entities, 3);
    fs::remove_dir_all(&root).unwrap();
}

/// Regression test: while a check ran, a start named the process of the last store, which had ended.
#[test]
fn a_process_that_does_not_hold_the_locks_is_not_named() {
    let root = std::env::temp_dir().join(format!("polyserve-disk-named-{}", std::process::id()));
    let named = || match Directory::lock(&root) {
        Err(OpenError::InUse { process, .. }) => process,
        other => panic!("{other:?}"),
    };
    let store = Directory::lock(&root).unwrap();
    assert_eq!(named(), Some(std::process::id()));
    drop(store);
    let check = Directory::lock_to_read(&root).unwrap();
    assert_eq!(named(), None, "this process exists, and holds no exclusive lock");
    drop(check);
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let _store = Directory::lock(&root).unwrap();
    fs::write(root.join(LOCK), format!("{}\n", ended.id())).unwrap();
    assert_eq!(named(), None);
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn the_parent_of_a_single_name_is_the_current_directory() {
    assert_eq!(parent_of(Path::new("data")), Some(Path::new(".")));
    assert_eq!(parent_of(Path::new("data/store")), Some(Path::new("data")));
    assert_eq!(parent_of(Path::new("/")), None);
}
