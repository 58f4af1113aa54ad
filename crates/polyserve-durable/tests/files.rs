//! What a store does to the files of its directory and of its backups.

mod common;

use std::fs;
use std::path::Path;
use std::process::{self, Command};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use polyserve_core::{Entity, EntityRepo, EntityRepoExt};
use polyserve_durable::{Durable, DurableOptions, maintenance};
use polyserve_memory::Sharded;

use common::TestDir;

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
    let own_file = dir.join("snapshot-0000000000000007.tmp");
    fs::write(&own_file, "what an interrupted compaction has left").unwrap();
    put(&open(&dir), 1);
    assert!(open(&dir).fetch(&1).wait().unwrap().is_some() && maintenance::check(&*dir).unwrap().damage.is_empty());
    assert!(dir.join("cache.tmp").is_dir() && !own_file.exists());
    for name in foreign {
        assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), "text of others\n", "{name}");
    }
}

#[test]
fn a_backup_leaves_files_that_are_not_its_own() {
    let dir = TestDir::new("backup-foreign");
    put(&open(&dir.join("store")), 1);
    let (copy, incomplete) = (dir.join("copy"), dir.join("copy.incomplete"));
    fs::create_dir(&incomplete).unwrap();
    fs::write(incomplete.join("notes"), "text of others").unwrap();
    let error = maintenance::backup(dir.join("store"), &copy).unwrap_err();
    assert!(error.to_string().contains("copy.incomplete"), "{error}");
    assert_eq!(fs::read_to_string(incomplete.join("notes")).unwrap(), "text of others");
    assert!(!copy.exists());
    fs::remove_dir_all(&incomplete).unwrap();
    assert_eq!(maintenance::backup(dir.join("store"), &copy).unwrap().files, 1);
    assert!(!incomplete.exists() && open(&copy).fetch(&1).wait().unwrap().is_some());
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
    let copy = dir.join("copies").join("first");
    assert!(maintenance::backup(&source, &copy).unwrap_err().to_string().contains("damaged"));
    assert!(!dir.join("copies").exists());
}

/// Regression test: a slash at the end of the name made the backup fail, with an empty directory of that name left.
#[test]
fn the_name_of_a_backup_may_end_with_a_slash() {
    let dir = TestDir::new("backup-slash");
    put(&open(&dir.join("store")), 1);
    for name in ["copy/", "copies/copy//", "copies/./other/."] {
        let copy = dir.join(name);
        assert_eq!(maintenance::backup(dir.join("store"), &copy).unwrap().files, 1, "{name}");
        assert!(open(&copy).fetch(&1).wait().unwrap().is_some(), "{name}");
        let error = maintenance::backup(dir.join("store"), &copy).unwrap_err();
        assert!(error.to_string().starts_with("cannot create "), "{error}");
    }
    fs::create_dir(dir.join("empty")).unwrap();
    for existing in ["empty", "empty/", "empty/..", ".", "/"] {
        assert!(maintenance::backup(dir.join("store"), dir.join(existing)).is_err(), "{existing}");
    }
    assert_eq!(fs::read_dir(dir.join("empty")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(&*dir).unwrap().count(), 4, "store, copy, copies, empty");
}

/// Regression test: a backup was written into the store that it copies.
#[test]
fn a_backup_into_the_store_is_refused() {
    let dir = TestDir::new("backup-nested");
    let store = dir.join("store");
    put(&open(&store), 1);
    fs::create_dir(store.join("below")).unwrap();
    std::os::unix::fs::symlink(store.join("below"), dir.join("link")).unwrap();
    let targets = ["store/copy", "store/below/copy", "store/new/copy/", "store/below/../copy", "link/copy", "link/a/b"];
    for target in targets {
        let error = maintenance::backup(&store, dir.join(target)).unwrap_err();
        let reason = std::error::Error::source(&error).unwrap().to_string();
        assert!(reason.contains("it lies in the store that is copied"), "{target}: {reason}");
    }
    let mut names: Vec<_> = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["below", "lock", "log-0000000000000001"]);
    assert_eq!(fs::read_dir(store.join("below")).unwrap().count(), 0);
}

/// Regression test: the path led into the store, but only after its missing directories had been created.
#[test]
fn a_backup_behind_missing_directories_and_back_is_refused() {
    let dir = TestDir::new("backup-dots");
    put(&open(&dir.join("store")), 1);
    for target in ["n/m/../../store/copy", "n/../store/copy", "n/../copy", "store/n/../../copy"] {
        let error = maintenance::backup(dir.join("store"), dir.join(target)).unwrap_err();
        let reason = std::error::Error::source(&error).unwrap().to_string();
        assert!(reason.contains("`..` behind the name of a directory that does not exist"), "{target}: {reason}");
    }
    assert_eq!(fs::read_dir(&*dir).unwrap().count(), 1);
    assert_eq!(fs::read_dir(dir.join("store")).unwrap().count(), 2);
}

/// Regression test: a backup read the whole store before it looked at the directory to write. Its file is damaged here.
#[test]
fn a_backup_looks_at_its_directory_first() {
    let dir = TestDir::new("backup-order");
    put(&open(&dir.join("store")), 1);
    fs::write(dir.join("store").join("log-0000000000000001"), "damaged ".repeat(10)).unwrap();
    let error = maintenance::backup(dir.join("store"), &*dir).unwrap_err();
    assert!(error.to_string().starts_with("cannot create "), "{error}");
}

/// Regression test: the backup of a store with a log that was being created copied no file and reported success.
#[test]
fn the_backup_of_an_empty_store_is_a_store() {
    let dir = TestDir::new("backup-empty");
    for (name, content) in [("created", None), ("empty", Some(&b""[..])), ("cut", Some(b"polysrv"))] {
        let (store, copy) = (dir.join(name), dir.join(format!("{name}-copy")));
        drop(open(&store));
        if let Some(content) = content {
            fs::write(store.join("log-0000000000000001"), content).unwrap();
            fs::remove_file(store.join("lock")).unwrap(); // a crash came before its note
        }
        let report = maintenance::backup(&store, &copy).unwrap();
        let checked = maintenance::check(&copy).unwrap();
        assert_eq!((report.files, report.bytes), (1, 28), "{name}");
        assert_eq!((checked.files, checked.bytes), (1, 28), "{name}");
        assert_eq!(open(&copy).recovery().entities, 0);
    }
}

/// Regression test: a start refused such a log, but a check and a repair found no damage, and a backup was an empty store.
#[test]
fn an_emptied_log_is_damage() {
    for (name, content) in [("empty", &b""[..]), ("cut", b"polysrv")] {
        let dir = TestDir::new(&format!("emptied-{name}"));
        let (store, log) = (dir.join("store"), dir.join("store/log-0000000000000001"));
        put(&open(&store), 1);
        fs::write(&log, content).unwrap();
        let damaged = "damaged: log-0000000000000001 at byte 0: ";
        let refused = if content.is_empty() { "cannot find the records of log-0000000000000001" } else { damaged };
        let error = Durable::open(&store, Sharded::new()).unwrap_err().to_string();
        assert!(error.starts_with(refused), "{error}");
        let error = maintenance::backup(&store, dir.join("copy")).unwrap_err().to_string();
        assert!(error.starts_with(damaged) && !dir.join("copy").exists(), "{error}");
        let report = maintenance::check(&store).unwrap();
        assert_eq!((report.damage.len(), report.torn, report.bytes), (1, None, 0));
        let repaired = maintenance::repair(&store).unwrap();
        assert_eq!((repaired.damage, repaired.renamed.len()), (report.damage, 1));
        assert_eq!(open(&store).recovery().entities, 0);

        // Without the note in the lock file, a crash may have left it. It is reported.
        put(&open(&dir.join("other")), 1);
        fs::write(dir.join("other/log-0000000000000001"), content).unwrap();
        fs::remove_file(dir.join("other/lock")).unwrap();
        let torn = maintenance::check(dir.join("other")).unwrap().torn.unwrap();
        assert_eq!((&*torn.file, torn.offset, torn.bytes), ("log-0000000000000001", 0, content.len() as u64));
        assert_eq!(open(&dir.join("other")).recovery().torn, Some(torn));
    }
}

/// Regression test: a check made a lock file, or wrote into it, so it failed on a read-only mount.
#[test]
fn a_check_writes_nothing() {
    let dir = TestDir::new("check-reads");
    put(&open(&dir), 1);
    for has_lock in [true, false] {
        if !has_lock {
            fs::remove_file(dir.join("lock")).unwrap();
        }
        let contents = || {
            let names = fs::read_dir(&*dir).unwrap().map(|entry| entry.unwrap().path());
            let mut files: Vec<_> = names.map(|path| (fs::read(&path).unwrap(), path)).collect();
            files.sort();
            files
        };
        if has_lock {
            fs::write(dir.join("lock"), "1\n").unwrap();
        }
        let before = contents();
        assert_eq!(maintenance::check(&*dir).unwrap().records, 1);
        assert_eq!(contents(), before);
    }
}

/// Regression test: a check noted each missing number before a file with a large one, until its memory was full.
#[test]
fn a_file_with_a_large_number_is_one_damage() {
    for name in ["log-7fffffffffffffff", "log-fffffffffffffffe", "snapshot-7fffffffffffffff"] {
        let dir = TestDir::new(&format!("stray-{name}"));
        put(&open(&dir), 1);
        fs::write(dir.join(name), "text of others").unwrap();
        let report = maintenance::check(&*dir).unwrap();
        assert!((1..=4).contains(&report.damage.len()), "{:?}", report.damage);
        assert!(Durable::open(&*dir, Sharded::new()).is_err(), "{name}");
        if name.starts_with("log") {
            let missing = format!("up to log-{:016x}", u64::from_str_radix(&name[4..], 16).unwrap() - 1);
            assert!(report.damage[0].reason.ends_with(&missing), "{:?}", report.damage);
            match maintenance::repair(&*dir) {
                Ok(_) => assert!(open(&dir).fetch(&1).wait().unwrap().is_some(), "{name}"),
                Err(error) => assert!(name.ends_with('e') && error.to_string().contains(name), "{error}"),
            }
            assert!(dir.join("log-0000000000000001").exists() != dir.join("damaged-log-0000000000000001").exists());
        }
    }
    // The last number is no name of a store, because no log could follow.
    let dir = TestDir::new("stray-last");
    put(&open(&dir), 1);
    fs::write(dir.join("log-ffffffffffffffff"), "text of others").unwrap();
    assert!(maintenance::check(&*dir).unwrap().damage.is_empty());
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

/// Returns the number of the newest snapshot.
fn newest_snapshot(directory: &Path) -> u64 {
    let names = fs::read_dir(directory).unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let numbers = names.filter_map(|name| u64::from_str_radix(name.strip_prefix("snapshot-")?, 16).ok());
    numbers.max().unwrap_or(0)
}

/// Backups while writers write and compactions run. A copy has every write that was answered before the backup began, and no
/// write that was not called before it ended.
#[test]
fn a_backup_under_load_has_all_answered_writes() {
    const WRITERS: i64 = 4;
    let dir = TestDir::new("backup-load");
    let source = dir.join("store");
    let options = DurableOptions::default().compact_from(8 << 10);
    let store = Durable::open_with(&source, Sharded::new(), &options).unwrap();
    let is_over = AtomicBool::new(false);
    // The last value of each writer that was called, and that was answered.
    let values: Vec<_> = (0..WRITERS).map(|_| (AtomicI64::new(0), AtomicI64::new(0))).collect();
    let load = |value: &AtomicI64| value.load(Ordering::SeqCst);
    thread::scope(|scope| {
        for (writer, (called, answered)) in (0..).zip(&values) {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                for value in 1.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    called.store(value, Ordering::SeqCst);
                    store.put(Entity::new(writer, "a text of some bytes", value as f64)).wait().unwrap();
                    answered.store(value, Ordering::SeqCst);
                }
            });
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut copies = 0;
            while copies < 40 || newest_snapshot(&source) < 5 {
                let min: Vec<_> = values.iter().map(|(_, answered)| load(answered)).collect();
                let copy = dir.join(format!("copy-{copies}"));
                let report = maintenance::backup(&source, &copy).unwrap();
                let max: Vec<_> = values.iter().map(|(called, _)| load(called)).collect();
                let checked = maintenance::check(&copy).unwrap();
                assert!(checked.damage.is_empty() && checked.torn.is_none(), "{checked:?}");
                assert_eq!((checked.files, checked.bytes), (report.files, report.bytes));
                let copied = open(&copy);
                for writer in 0..WRITERS {
                    let value = copied.fetch(&writer).wait().unwrap().map_or(0, |entity| entity.value as i64);
                    let (min, max) = (min[writer as usize], max[writer as usize]);
                    assert!(min <= value && value <= max, "{writer}: {value} is not in {min} to {max}");
                }
                drop(copied);
                fs::remove_dir_all(&copy).unwrap();
                copies += 1;
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        result.unwrap();
    });
}

/// A killed process cannot remove its temporary stores. The next one does.
#[test]
fn temporary_stores_of_killed_processes_are_removed() {
    let dir = TestDir::new("abandoned");
    let mut ended = Command::new("true").spawn().unwrap();
    let dead_id = ended.id();
    ended.wait().unwrap();
    let (abandoned, locked) = (dir.join(format!("temporary-{dead_id}-0")), dir.join(format!("temporary-{dead_id}-1")));
    let own_dir = dir.join(format!("temporary-{}-999", process::id()));
    let others = ["temporary-notes", "temporary-1-x", "other-1-0"].map(|name| dir.join(name));
    put(&open(&abandoned), 1);
    let _held = open(&locked);
    for path in others.iter().chain([&own_dir]) {
        fs::create_dir(path).unwrap();
    }
    drop(Durable::temporary(&*dir, Sharded::new()).unwrap());
    assert!(!abandoned.exists());
    assert!(others.iter().chain([&own_dir, &locked]).all(|path| path.is_dir()));
    assert_eq!(fs::read_dir(&*dir).unwrap().count(), others.len() + 2, "it has removed its own");
}
