//! Values of each thread, and their sum.
//!
//! Invariants: a thread writes only into values of its own. The sum over all threads, living and ended, has every addition once. A thread
//! that ends adds its values to those of the ended threads, so that a server with a thread for each connection does not grow.
//!
//! Cost of an addition: a search among the few kinds of the thread, and what the value takes. No lock, and no instruction that other cores
//! wait for. A thread allocates for each new kind, under a lock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::LocalKey;

use polyserve_core::sync::lock;

/// A value that one thread changes, and others read.
pub(super) trait ThreadValue: Debug + Send + Sync + Sized + 'static {
    /// What a value is kept under.
    type Kind: Copy + Debug + Ord + Send + 'static;
    /// The values of several threads.
    type Sum: Clone + Debug + Send;

    fn new() -> Self;

    fn read(&self) -> Self::Sum;

    fn merge(sum: &mut Self::Sum, other: &Self::Sum);

    /// The values of this thread. Few kinds are usual, so a list is searched faster than a map.
    fn of_this_thread() -> &'static LocalKey<RefCell<Vec<OwnValue<Self>>>>;
}

/// The values of all threads.
#[derive(Debug)]
pub(super) struct PerThread<V: ThreadValue> {
    /// Tells these values from others in the same process.
    id: u64,
    threads: Mutex<Threads<V>>,
}

#[derive(Debug)]
struct Threads<V: ThreadValue> {
    /// A thread that lives has one value of each of its kinds.
    living: Vec<(V::Kind, Arc<V>)>,
    ended: BTreeMap<V::Kind, V::Sum>,
}

impl<V: ThreadValue> PerThread<V> {
    pub(super) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let threads = Mutex::new(Threads { living: Vec::new(), ended: BTreeMap::new() });
        Arc::new(Self { id: NEXT.fetch_add(1, Ordering::Relaxed), threads })
    }

    /// Changes the value of this thread.
    #[inline]
    pub(super) fn add(self: &Arc<Self>, kind: V::Kind, add: impl Fn(&V)) {
        let added = V::of_this_thread().try_with(|all| {
            let mut all = all.borrow_mut();
            match all.iter().find(|own| own.kind == kind && own.id == self.id) {
                Some(own) => add(&own.value),
                None => {
                    all.retain(|own| own.of.strong_count() > 0);
                    let own = OwnValue::new(self, kind);
                    add(&own.value);
                    all.push(own);
                }
            }
        });
        if added.is_err() {
            let alone = V::new();
            add(&alone);
            lock(&self.threads).end(kind, &alone); // the thread is ending
        }
    }

    /// Returns the sums so far, in the order of their kinds.
    pub(super) fn all(&self) -> BTreeMap<V::Kind, V::Sum> {
        let threads = lock(&self.threads);
        let mut all = threads.ended.clone();
        threads.living.iter().for_each(|(kind, value)| merge(&mut all, *kind, &**value));
        all
    }

    /// The number of values of threads that live.
    #[cfg(test)]
    pub(super) fn living(&self) -> usize {
        lock(&self.threads).living.len()
    }
}

impl<V: ThreadValue> Threads<V> {
    /// Keeps the value of a thread that ends.
    fn end(&mut self, kind: V::Kind, value: &V) {
        merge(&mut self.ended, kind, value);
    }
}

fn merge<V: ThreadValue>(sums: &mut BTreeMap<V::Kind, V::Sum>, kind: V::Kind, value: &V) {
    let read = value.read();
    match sums.get_mut(&kind) {
        Some(sum) => V::merge(sum, &read),
        None => drop(sums.insert(kind, read)),
    }
}

/// A value of a thread.
pub(super) struct OwnValue<V: ThreadValue> {
    kind: V::Kind,
    id: u64,
    value: Arc<V>,
    of: Weak<PerThread<V>>,
}

impl<V: ThreadValue> OwnValue<V> {
    #[cold]
    fn new(of: &Arc<PerThread<V>>, kind: V::Kind) -> Self {
        let value = Arc::new(V::new());
        lock(&of.threads).living.push((kind, Arc::clone(&value)));
        Self { kind, id: of.id, value, of: Arc::downgrade(of) }
    }
}

impl<V: ThreadValue> Drop for OwnValue<V> {
    fn drop(&mut self) {
        let Some(of) = self.of.upgrade() else { return };
        let mut threads = lock(&of.threads);
        threads.living.retain(|(_, other)| !Arc::ptr_eq(other, &self.value));
        threads.end(self.kind, &self.value);
    }
}
