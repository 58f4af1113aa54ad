//! A disk in memory that loses power: what was not synced is lost, torn, reordered or rotten afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use polyserve_core::sync::lock;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::disk::{Disk, DiskFile, FileId, NamedFile};

/// What the disk does instead of what it was asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// The number of the call at which the power fails. 1 is the first.
    pub(super) power_fails_at: Option<u64>,
    /// The number of the call that fails once.
    pub(super) fails_at: Option<u64>,
    /// Which of the calls after it fail too: bit 0 is the next one.
    pub(super) fails_then: u64,
    /// The part of its bytes that a failed write writes, in halves: 0 to 2.
    pub(super) written_halves: usize,
    /// The number of bytes that all files may have. Further writes fail, after the part that fits.
    pub(super) capacity: Option<usize>,
    /// The number of the call that returns a wrong bit once, if it reads.
    pub(super) misreads_at: Option<u64>,
    /// A sync of a file does nothing.
    pub(super) forgets_file_syncs: bool,
    /// A sync of the directory does nothing.
    pub(super) forgets_name_syncs: bool,
}

#[derive(Clone, Debug, Default)]
struct FileContent {
    live: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<ContentChange>,
    /// The number of bytes that have room.
    reserved: usize,
}

impl FileContent {
    /// Returns the number of bytes that the file takes of the disk.
    fn size(&self) -> usize {
        self.live.len().max(self.reserved)
    }
}

#[derive(Clone, Debug)]
enum ContentChange {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

#[derive(Clone, Debug)]
enum NameChange {
    Set(String, usize),
    Remove(String),
}

#[derive(Default)]
struct State {
    contents: Vec<FileContent>,
    live: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    unsynced: Vec<NameChange>,
    /// Whether it is noted that there is a log. A note that is durable at once is the worst case.
    has_noted_log: bool,
    faults: Faults,
    calls: u64,
    has_power: bool,
    fails_next_sync: bool,
    /// Whether the next sync of a file finds that another process has the lock.
    loses_lock: bool,
    has_lost_lock: bool,
    observer: Option<Box<dyn FnMut() + Send>>,
}

#[derive(Clone)]
pub(super) struct SimulatedDisk(Arc<Mutex<State>>);

struct SimulatedFile(SimulatedDisk, usize);

impl SimulatedDisk {
    pub(super) fn new(faults: Faults) -> Self {
        Self(Arc::new(Mutex::new(State { faults, has_power: true, ..State::default() })))
    }

    /// Returns the number of calls so far.
    pub(super) fn calls(&self) -> u64 {
        lock(&self.0).calls
    }

    /// Whether no call has failed and the power is on.
    pub(super) fn is_well(&self) -> bool {
        let state = lock(&self.0);
        state.has_power && state.faults.fails_at.is_none_or(|at| state.calls < at)
    }

    /// Makes the next sync of a file fail.
    pub(super) fn fail_next_sync(&self) {
        lock(&self.0).fails_next_sync = true;
    }

    /// Gives the lock of the directory to another process during the next sync of a file.
    pub(super) fn lose_lock_at_next_sync(&self) {
        lock(&self.0).loses_lock = true;
    }

    /// Sets the number of bytes that all files may have.
    pub(super) fn set_capacity(&self, capacity: Option<usize>) {
        lock(&self.0).faults.capacity = capacity;
    }

    /// Returns the number of bytes of all files.
    pub(super) fn used(&self) -> usize {
        lock(&self.0).used()
    }

    /// Calls `observer` before each further call to the disk.
    pub(super) fn observe(&self, observer: impl FnMut() + Send + 'static) {
        lock(&self.0).observer = Some(Box::new(observer));
    }

    /// Returns the disk as it is after the power came back. `faults` are those of its next life.
    pub(super) fn after_power_failure(&self, seed: u64, faults: Faults) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let state = lock(&self.0);
        let contents = state.contents.iter().map(|content| {
            let survived = survivor(content, &mut random);
            FileContent { live: survived.clone(), durable: survived, ..FileContent::default() }
        });
        let contents = contents.collect();
        let mut names = state.durable.clone();
        for change in state.unsynced.iter().filter(|_| random.random()) {
            apply(change.clone(), &mut names);
        }
        let next = Self::with(contents, names, faults);
        lock(&next.0).has_noted_log = state.has_noted_log;
        next
    }

    /// Returns the disk as another process sees it after the first one was killed.
    pub(super) fn after_kill(&self, faults: Faults) -> Self {
        let state = lock(&self.0);
        let contents = state.contents.clone();
        let next = Self::with(contents, state.live.clone(), faults);
        lock(&next.0).durable = state.durable.clone();
        lock(&next.0).unsynced = state.unsynced.clone();
        lock(&next.0).has_noted_log = state.has_noted_log;
        next
    }

    fn with(contents: Vec<FileContent>, names: BTreeMap<String, usize>, faults: Faults) -> Self {
        let (live, durable) = (names.clone(), names);
        Self(Arc::new(Mutex::new(State { contents, live, durable, faults, has_power: true, ..State::default() })))
    }

    /// Inverts the bits `mask` of a byte that is on the disk.
    pub(super) fn rot(&self, name: &str, offset: usize, mask: u8) {
        let mut state = lock(&self.0);
        let index = state.live[name];
        let content = &mut state.contents[index];
        content.live[offset] ^= mask;
        content.durable[offset] ^= mask;
    }

    /// Returns the bytes of a file.
    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let state = lock(&self.0);
        state.contents[state.live[name]].live.clone()
    }

    /// Makes a call: `run` gets the state, and whether the call is to fail.
    fn call<T>(&self, run: impl FnOnce(&mut State, bool) -> io::Result<T>) -> io::Result<T> {
        let observer = lock(&self.0).observer.take();
        if let Some(mut observer) = observer {
            observer();
            lock(&self.0).observer = Some(observer);
        }
        let mut state = lock(&self.0);
        if !state.has_power {
            return Err(io::Error::other("the power is off"));
        }
        state.calls += 1;
        let loses_power = state.faults.power_fails_at == Some(state.calls);
        let fails = state.faults.fails_at.is_some_and(|at| match state.calls.checked_sub(at) {
            None => false,
            Some(0) => true,
            Some(later) => later <= 64 && state.faults.fails_then >> (later - 1) & 1 == 1,
        });
        let result = run(&mut state, fails);
        if loses_power {
            state.has_power = false;
            return Err(io::Error::other("the power fails"));
        }
        if fails { Err(io::ErrorKind::StorageFull.into()) } else { result }
    }
}

fn id_of(content: usize) -> FileId {
    FileId(0, content as u64)
}

/// Returns what a power failure leaves of a file: some of the unsynced changes, in any order, torn and rotten.
fn survivor(content: &FileContent, random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = content.durable.clone();
    let mut changes: Vec<ContentChange> = content.unsynced.clone();
    if random.random_bool(0.3) {
        changes.shuffle(random);
    }
    let likely = random.random_range(0.0..=1.0);
    for change in changes {
        if !random.random_bool(likely) {
            continue;
        }
        match change {
            ContentChange::Write(offset, written) => {
                let end = if random.random() { written.len() } else { random.random_range(0..=written.len()) };
                let begin = if random.random_bool(0.2) { random.random_range(0..=end) } else { 0 };
                let full_length = offset + if random.random() { written.len() } else { end };
                if bytes.len() < full_length {
                    bytes.resize(full_length, 0);
                }
                bytes[offset + begin..offset + end].copy_from_slice(&written[begin..end]);
                if end > begin && random.random_bool(0.2) {
                    let rotten = offset + random.random_range(begin..end);
                    bytes[rotten] ^= 1 << random.random_range(0..8);
                }
            }
            ContentChange::SetLen(length) => bytes.resize(length, 0),
        }
    }
    bytes
}

/// Makes a change durable, whole.
fn write_through(change: ContentChange, bytes: &mut Vec<u8>) {
    match change {
        ContentChange::Write(offset, written) => {
            if bytes.len() < offset + written.len() {
                bytes.resize(offset + written.len(), 0);
            }
            bytes[offset..offset + written.len()].copy_from_slice(&written);
        }
        ContentChange::SetLen(length) => bytes.resize(length, 0),
    }
}

fn apply(change: NameChange, names: &mut BTreeMap<String, usize>) {
    match change {
        NameChange::Set(name, content) => drop(names.insert(name, content)),
        NameChange::Remove(name) => drop(names.remove(&name)),
    }
}

impl State {
    fn rename(&mut self, changes: impl IntoIterator<Item = NameChange>) {
        for change in changes {
            apply(change.clone(), &mut self.live);
            self.unsynced.push(change);
        }
    }

    /// Returns the number of bytes of all files that have a name.
    fn used(&self) -> usize {
        self.live.values().collect::<BTreeSet<_>>().into_iter().map(|content| self.contents[*content].size()).sum()
    }

    /// Returns the number of bytes that files may still take.
    fn room(&self) -> usize {
        self.faults.capacity.map_or(usize::MAX, |capacity| capacity.saturating_sub(self.used()))
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.live.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0);
        let lengths: BTreeMap<_, _> =
            state.live.iter().map(|(name, content)| (name, state.contents[*content].live.len())).collect();
        f.debug_struct("SimulatedDisk").field("calls", &state.calls).field("files", &lengths).finish_non_exhaustive()
    }
}

impl Disk for SimulatedDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.call(|state, _| Ok(state.live.keys().cloned().collect()))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let content = self.call(|state, _| state.find(name))?;
        Ok(Box::new(SimulatedFile(self.clone(), content)))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let content = self.call(|state, fails| {
            if fails {
                return Ok(0);
            }
            // An open file with this name keeps its content, as on a real disk after an unlink. The store never opens a file
            // twice, so a new content is the same.
            state.contents.push(FileContent::default());
            let content = state.contents.len() - 1;
            state.rename([NameChange::Set(name.to_owned(), content)]);
            Ok(content)
        })?;
        Ok(Box::new(SimulatedFile(self.clone(), content)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.call(|state, fails| {
            let content = state.find(from)?;
            if !fails {
                state.rename([NameChange::Set(to.to_owned(), content), NameChange::Remove(from.to_owned())]);
            }
            Ok(())
        })
    }

    fn link(&self, name: &str, second: &str) -> io::Result<()> {
        self.call(|state, fails| {
            let content = state.find(name)?;
            if state.live.contains_key(second) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            if !fails {
                state.rename([NameChange::Set(second.to_owned(), content)]);
            }
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.call(|state, fails| {
            state.find(name)?;
            if !fails {
                state.rename([NameChange::Remove(name.to_owned())]);
            }
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.call(|state, fails| {
            if !fails && !state.faults.forgets_name_syncs {
                state.durable = state.live.clone();
                state.unsynced.clear();
            }
            Ok(())
        })
    }

    /// Is no call: it changes nothing, and a failure is as if nothing had been asked.
    fn room(&self) -> io::Result<u64> {
        Ok(lock(&self.0).room() as u64)
    }

    fn verify(&self) -> Result<(), String> {
        self.verify_lock()
    }

    fn verify_file(&self, NamedFile { name, id, len }: &NamedFile) -> Result<(), String> {
        let state = lock(&self.0);
        let found = state.live.get(name).map(|content| (id_of(*content), state.contents[*content].live.len() as u64));
        if found == Some((*id, *len)) { Ok(()) } else { Err(format!("{name} was changed: {found:?}")) }
    }

    fn verify_lock(&self) -> Result<(), String> {
        if lock(&self.0).has_lost_lock { Err("the lock file was removed".to_owned()) } else { Ok(()) }
    }

    fn note_log(&self) -> io::Result<()> {
        lock(&self.0).has_noted_log = true;
        Ok(())
    }

    fn has_noted_log(&self) -> bool {
        lock(&self.0).has_noted_log
    }
}

impl fmt::Debug for SimulatedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimulatedFile").field(&self.1).finish()
    }
}

impl SimulatedFile {
    fn call<T>(&self, run: impl FnOnce(&mut FileContent, bool, Faults) -> io::Result<T>) -> io::Result<T> {
        self.0.call(|state, fails| {
            let faults = state.faults;
            run(&mut state.contents[self.1], fails, faults)
        })
    }
}

impl DiskFile for SimulatedFile {
    fn len(&self) -> io::Result<u64> {
        self.call(|content, _, _| Ok(content.live.len() as u64))
    }

    fn id(&self) -> io::Result<FileId> {
        Ok(id_of(self.1))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.call(|state, _| {
            let is_misread = state.faults.misreads_at == Some(state.calls);
            let content = &state.contents[self.1];
            let rest = content.live.get(offset as usize..).unwrap_or_default();
            let read = rest.len().min(into.len());
            into[..read].copy_from_slice(&rest[..read]);
            if is_misread && read > 0 {
                into[read / 2] ^= 0x10;
            }
            Ok(read)
        })
    }

    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.call(|state, fails| {
            let (room, halves) = (state.room(), state.faults.written_halves);
            let content = &mut state.contents[self.1];
            let offset = offset as usize;
            // A full disk takes a part.
            let fits = content.size().saturating_add(room).saturating_sub(offset).min(bytes.len());
            let written = &bytes[..if fails { fits.min(bytes.len() * halves / 2) } else { fits }];
            if content.live.len() < offset + written.len() {
                content.live.resize(offset + written.len(), 0);
            }
            content.live[offset..offset + written.len()].copy_from_slice(written);
            content.unsynced.push(ContentChange::Write(offset, written.to_vec()));
            if written.len() < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        self.0.call(|state, _| {
            let room = state.room();
            let content = &mut state.contents[self.1];
            if content.size().saturating_add(room) < len as usize {
                return Err(io::ErrorKind::StorageFull.into());
            }
            content.reserved = len as usize;
            Ok(())
        })
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.call(|content, fails, _| {
            if !fails {
                content.reserved = 0;
                content.live.resize(len as usize, 0);
                content.unsynced.push(ContentChange::SetLen(len as usize));
            }
            Ok(())
        })
    }

    /// After a failed sync, the kernel takes the unsynced pages for written: a later sync does not write them.
    fn sync(&mut self) -> io::Result<()> {
        let fails_next = {
            let mut state = lock(&self.0.0);
            state.has_lost_lock |= state.loses_lock;
            std::mem::take(&mut state.fails_next_sync)
        };
        self.call(|content, fails, faults| {
            if fails_next {
                content.unsynced.clear();
                return Err(io::ErrorKind::StorageFull.into());
            }
            if fails {
                content.unsynced.clear();
            } else if !faults.forgets_file_syncs {
                for change in content.unsynced.drain(..) {
                    write_through(change, &mut content.durable);
                }
            }
            Ok(())
        })
    }

    fn drop_cache(&mut self) -> io::Result<()> {
        self.call(|content, _, _| {
            content.live = content.durable.clone();
            for change in content.unsynced.clone() {
                write_through(change, &mut content.live);
            }
            Ok(())
        })
    }
}
