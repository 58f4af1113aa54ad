//! One directory has one writer, whatever happens to its names.

mod common;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use polyserve_core::{Entity, EntityRepo, EntityRepoExt, RepoError};
use polyserve_durable::{Durable, DurableOptions, OpenError};
use polyserve_memory::Sharded;

use common::TestDir;

fn open(directory: &Path) -> Result<Durable<Sharded>, OpenError> {
    Durable::open(directory, Sharded::new())
}

fn put(store: &Durable<Sharded>, id: i64) -> Result<(), RepoError> {
    store.put(Entity::new(id, "text", 0.5)).wait().map(drop)
}

/// Regression test: a second process could open a store after its lock file was removed, and both wrote the same files.
#[test]
fn a_removed_lock_file_lets_no_second_store_in() {
    let dir = TestDir::new("lock-removed");
    let store = open(&dir).unwrap();
    put(&store, 1).unwrap();
    for replaced in [false, true] {
        let _ = fs::remove_file(dir.join("lock"));
        if replaced {
            fs::write(dir.join("lock"), "").unwrap();
        }
        assert!(matches!(open(&dir), Err(OpenError::InUse { .. })), "replaced: {replaced}");
    }
    put(&store, 2).unwrap();
    drop(store);
    assert_eq!(open(&dir).unwrap().recovery().entities, 2);
}

/// Writes until the store stops writing. Returns the number of answered writes.
fn write_until_stopped(store: &Durable<Sharded>) -> i64 {
    let deadline = Instant::now() + Duration::from_secs(60);
    for id in 0.. {
        match put(store, id) {
            Ok(()) => assert!(Instant::now() < deadline, "the store does not stop"),
            Err(RepoError::ReadOnly(reason)) => {
                assert!(reason.to_string().contains("moved, removed or replaced"), "{reason}");
                return id;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("the range has no end")
}

/// Regression test: a store that was moved wrote its next logs to the directory that had got its path, which another process used.
#[test]
fn a_store_that_was_moved_writes_nothing_at_its_old_path_and_stops() {
    let dir = TestDir::new("moved");
    let (path, moved) = (dir.join("store"), dir.join("elsewhere"));
    let options = DurableOptions::default().compact_from(4 << 10);
    for has_successor in [false, true] {
        let store = Durable::open_with(&path, Sharded::new(), &options).unwrap();
        fs::rename(&path, &moved).unwrap();
        let successor = has_successor.then(|| open(&path).unwrap());
        assert!(matches!(open(&moved), Err(OpenError::InUse { .. })));
        let answered = write_until_stopped(&store);
        assert!(matches!(store.status().wait(), Err(RepoError::ReadOnly(_))));
        assert!(store.fetch(&0).wait().unwrap().is_some() || answered == 0, "reads go on");
        drop(store);
        if let Some(successor) = successor {
            put(&successor, 1).unwrap();
            drop(successor);
            assert_eq!(open(&path).unwrap().recovery().entities, 1);
            fs::remove_dir_all(&path).unwrap();
        }
        assert_eq!(open(&moved).unwrap().recovery().entities as i64, answered);
        fs::remove_dir_all(&moved).unwrap();
    }
}

/// Regression test: the status of a store that was moved was good until the next write.
#[test]
fn the_status_of_a_store_that_was_moved_needs_no_write() {
    let dir = TestDir::new("moved-status");
    let (path, moved) = (dir.join("store"), dir.join("elsewhere"));
    let store = open(&path).unwrap();
    fs::rename(&path, &moved).unwrap();
    match store.status().wait() {
        Err(RepoError::ReadOnly(reason)) => assert!(reason.to_string().contains("moved"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(put(&store, 1), Err(RepoError::ReadOnly(_))));
}

/// A link that names another directory now would lead the next start there.
#[test]
fn a_store_behind_a_link_that_was_changed_stops() {
    let dir = TestDir::new("link");
    let link = dir.join("link");
    for name in ["one", "two"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    std::os::unix::fs::symlink(dir.join("one"), &link).unwrap();
    let store = open(&link).unwrap();
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(dir.join("two"), &link).unwrap();
    let answered = write_until_stopped(&store);
    drop(store);
    assert_eq!(open(&dir.join("one")).unwrap().recovery().entities as i64, answered);
}

/// How a file is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    Removed,
    Replaced,
    Cut,
}

/// Regression test: the log of a store in use was removed, or a copy got its name. Later writes were answered, and the next start
/// found none of them and reported no error. A store that loses its snapshot or an older log stops too.
#[test]
fn a_store_that_has_lost_a_file_stops() {
    let dir = TestDir::new("files-lost");
    for (number, file) in ["log-", "snapshot-"].into_iter().enumerate() {
        for loss in [Loss::Removed, Loss::Replaced, Loss::Cut] {
            let path = dir.join(format!("store-{number}-{loss:?}"));
            let mut store = Some(open(&path).unwrap());
            put(store.as_ref().unwrap(), 0).unwrap();
            if file == "snapshot-" {
                drop(store.take());
                compact(&path);
                store = Some(open(&path).unwrap());
            }
            let store = store.unwrap();
            let names = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let lost = path.join(names.filter(|name| name.starts_with(file)).max().unwrap());
            match loss {
                Loss::Removed => fs::remove_file(&lost).unwrap(),
                Loss::Replaced => {
                    fs::copy(&lost, dir.join("copy")).unwrap();
                    fs::rename(dir.join("copy"), &lost).unwrap();
                }
                Loss::Cut => fs::write(&lost, "").unwrap(),
            }
            write_until_stopped(&store);
            assert!(matches!(store.status().wait(), Err(RepoError::ReadOnly(_))));
            assert!(store.fetch(&0).wait().unwrap().is_some(), "reads go on");
            drop(store);
            assert!(loss == Loss::Replaced || open(&path).is_err(), "{}", lost.display());
        }
    }
}

/// Regression test: writes were answered for up to a second after the directory of a store was deleted, or another file had got the
/// name of its log. They were lost. So were all writes after another program had cut the log, and those to a log that had another name.
#[test]
fn no_write_is_answered_that_the_next_start_cannot_find() {
    let dir = TestDir::new("log-unlinked");
    let log = |path: &Path| path.join("log-0000000000000001");
    type Lose<'a> = &'a dyn Fn(&Path, &Path);
    let cut = |log: &Path, len| fs::OpenOptions::new().write(true).open(log).unwrap().set_len(len).unwrap();
    let losses: [(&str, Lose<'_>); 9] = [
        ("the directory is deleted", &|path, _| fs::remove_dir_all(path).unwrap()),
        ("the directory is deleted, and its files have other names", &|path, log| {
            fs::hard_link(log, path.with_extension("snap")).unwrap();
            fs::remove_dir_all(path).unwrap();
        }),
        ("the log is renamed", &|_, log| fs::rename(log, log.with_extension("old")).unwrap()),
        ("the log is emptied", &|_, log| cut(log, 0)),
        ("the log is cut to a half", &|_, log| cut(log, fs::metadata(log).unwrap().len() / 2)),
        ("the log is longer", &|_, log| cut(log, fs::metadata(log).unwrap().len() + 1)),
        ("another directory has its path", &|path, _| {
            fs::remove_dir_all(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
        ("the log is deleted", &|_, log| fs::remove_file(log).unwrap()),
        ("another file has its name", &|_, log| {
            let copy = log.with_extension("copy");
            fs::copy(log, &copy).unwrap();
            fs::rename(copy, log).unwrap();
        }),
    ];
    for (number, (story, lose)) in losses.into_iter().enumerate() {
        let path = dir.join(format!("store-{number}"));
        let store = open(&path).unwrap();
        put(&store, 0).unwrap();
        lose(&path, &log(&path));
        for id in [1, 2] {
            let error = put(&store, id).expect_err(story);
            assert!(matches!(error, RepoError::ReadOnly(_)), "{story}: {error:?}");
        }
        assert!(matches!(store.status().wait(), Err(RepoError::ReadOnly(_))), "{story}");
        assert_eq!(store.fetch(&1).wait().unwrap(), None, "{story}");
        assert!(store.fetch(&0).wait().unwrap().is_some(), "{story}: reads go on");
    }
}

/// Makes a snapshot of the store.
fn compact(path: &Path) {
    let options = DurableOptions::default().compact_from(1);
    let has_snapshot = || {
        let mut names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.any(|name| name.starts_with("snapshot-") && !name.ends_with(".tmp"))
    };
    let store = Durable::open_with(path, Sharded::new(), &options).unwrap();
    while !has_snapshot() {
        put(&store, 0).unwrap();
    }
}

/// Regression test: a directory that had lost its only log was an empty store.
#[test]
fn a_directory_that_has_lost_its_only_log_is_no_empty_store() {
    let dir = TestDir::new("log-lost");
    let (path, copy) = (dir.join("store"), dir.join("copy"));
    let log = |path: &Path| path.join("log-0000000000000001");
    drop(open(&path).unwrap());
    put(&open(&path).unwrap(), 1).unwrap();
    polyserve_durable::maintenance::backup(&path, &copy).unwrap();
    for path in [&path, &copy] {
        for cut in [true, false] {
            if cut {
                fs::write(log(path), "").unwrap();
            } else {
                fs::remove_file(log(path)).unwrap();
            }
            for _ in 0..2 {
                let error = open(path).unwrap_err();
                let reason = std::error::Error::source(&error).unwrap().to_string();
                assert!(error.to_string().contains("log-0000000000000001"), "{error}");
                assert!(reason.contains("remove the lock file"), "{reason}");
            }
        }
        fs::remove_file(path.join("lock")).unwrap();
        assert_eq!(open(path).unwrap().recovery().entities, 0);
    }
}

/// A crash before the first log is durable leaves a lock file with the number of the process.
#[test]
fn a_directory_that_never_had_a_log_is_an_empty_store() {
    let dir = TestDir::new("no-log-yet");
    for (name, content) in [("named", "123\n"), ("empty", ""), ("foreign", "text of others\n")] {
        let path = dir.join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("lock"), content).unwrap();
        assert_eq!(open(&path).unwrap().recovery().entities, 0);
    }
}

const DIRECTORY: &str = "POLYSERVE_CHDIR_DIRECTORY";
const WRITES: i64 = 300;

/// Opens a store by a relative path, changes the current directory, and writes through several logs.
#[test]
fn child() {
    let Some(directory) = env::var_os(DIRECTORY) else { return };
    env::set_current_dir(&directory).unwrap();
    let options = DurableOptions::default().compact_from(1 << 10);
    let store = Durable::open_with("store", Sharded::new(), &options).unwrap();
    env::set_current_dir("other").unwrap();
    (0..WRITES).for_each(|id| put(&store, id).unwrap());
}

/// Regression test: after a `chdir`, the next logs of a store with a relative path were written below the new directory. The next
/// start did not find them, and reported no error.
#[test]
fn a_relative_path_does_not_follow_a_change_of_the_current_directory() {
    let dir = TestDir::new("chdir");
    fs::create_dir(dir.join("other")).unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    let child = command.args(["--exact", "child"]).env(DIRECTORY, &*dir).stdout(Stdio::null());
    assert!(child.status().unwrap().success());
    assert_eq!(open(&dir.join("store")).unwrap().recovery().entities as i64, WRITES);
    assert_eq!(fs::read_dir(dir.join("other")).unwrap().count(), 0);
}

/// Regression test: the entities of clients were readable for all users.
#[test]
fn files_and_directories_are_for_their_owner_alone() {
    let dir = TestDir::new("modes");
    let path = dir.join("above").join("store");
    let options = DurableOptions::default().compact_from(1 << 10);
    let store = Durable::open_with(&path, Sharded::new(), &options).unwrap();
    (0..100).for_each(|id| put(&store, id).unwrap());
    polyserve_durable::maintenance::backup(&path, dir.join("copy")).unwrap();
    let temporary = Durable::temporary(dir.join("scratch"), Sharded::<Entity>::new()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let mut files = 0;
    let mut directories = vec![dir.join("above"), path, dir.join("copy")];
    directories.extend(fs::read_dir(dir.join("scratch")).unwrap().map(|entry| entry.unwrap().path()));
    for directory in directories {
        assert_eq!(mode(&directory), 0o700, "{}", directory.display());
        for file in fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
            files += 1;
        }
    }
    assert!(files >= 6, "{files}");
    drop((store, temporary));
}
