//! Ids with code that panics: it costs the operation that called it, and nothing else.
//!
//! Each run arms one call of one operation of an id, so that a panic meets every step of a store: a lookup, an insert, a
//! growth, a removal, a table that shrinks. After that the store must answer, and must have every entity that no failed
//! operation has named.
//!
//! Regression tests: `papaya` parked all later puts for ever, and `sharded` lost the entities of a shard.

use std::cmp::Ordering as Order;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use polyserve_core::{EntityRepo, Lookup, Visit, identifiable};
#[cfg(feature = "copy-on-write")]
use polyserve_memory::CopyOnWrite;
#[cfg(feature = "dashmap")]
use polyserve_memory::Dashmap;
#[cfg(feature = "packed")]
use polyserve_memory::Packed;
#[cfg(feature = "papaya")]
use polyserve_memory::Papaya;
#[cfg(feature = "scc")]
use polyserve_memory::Scc;
#[cfg(feature = "seqlock")]
use polyserve_memory::Seqlock;
use polyserve_memory::{Actor, Sharded, StdMutex, StdRwlock, TwoLevel};
use serde::{Deserialize, Serialize};

/// An operation of an id.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
enum Call {
    Hash = 1,
    Compare,
    Clone,
    Drop,
}

/// Panics once, in a call that a test chooses. All ids of a run share it.
#[derive(Debug, Default)]
struct Trap {
    armed: AtomicU8,
    /// The number of calls before the one that panics.
    calls: AtomicU32,
}

impl Trap {
    fn arm(&self, call: Call, calls: u32) {
        self.calls.store(calls, Ordering::SeqCst);
        self.armed.store(call as u8, Ordering::SeqCst);
    }

    /// Returns whether it was armed, and disarms it.
    fn disarm(&self) -> bool {
        self.armed.swap(0, Ordering::SeqCst) != 0
    }

    fn pass(&self, call: Call) {
        let armed = self.armed.load(Ordering::SeqCst) == call as u8;
        if armed && self.calls.fetch_sub(1, Ordering::SeqCst) == 0 && self.disarm() && !thread::panicking() {
            resume_unwind(Box::new("an id's own panic")); // past the hook, which would print it
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct TrappedId {
    number: i64,
    #[serde(skip)]
    trap: Arc<Trap>,
}

impl Hash for TrappedId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.trap.pass(Call::Hash);
        self.number.hash(state);
    }
}

impl PartialEq for TrappedId {
    fn eq(&self, other: &Self) -> bool {
        self.trap.pass(Call::Compare);
        self.number == other.number
    }
}

impl Eq for TrappedId {}

impl PartialOrd for TrappedId {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for TrappedId {
    fn cmp(&self, other: &Self) -> Order {
        self.trap.pass(Call::Compare);
        self.number.cmp(&other.number)
    }
}

impl Clone for TrappedId {
    fn clone(&self) -> Self {
        self.trap.pass(Call::Clone);
        Self { number: self.number, trap: Arc::clone(&self.trap) }
    }
}

impl Drop for TrappedId {
    fn drop(&mut self) {
        self.trap.pass(Call::Drop);
    }
}

impl fmt::Display for TrappedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

impl FromStr for TrappedId {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { number: text.parse()?, trap: Arc::default() })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Trapped {
    id: TrappedId,
}
identifiable!(Trapped, id: TrappedId);

/// The number of ids of a run. Each table grows several times.
const IDS: i64 = 400;

const MAX_WAIT: Duration = Duration::from_secs(120);

/// One run. Returns whether the panic came.
fn run<R: EntityRepo<Trapped>>(store: &R, call: Call, calls: u32) -> bool {
    let trap = Arc::new(Trap::default());
    let id = |number| TrappedId { number, trap: Arc::clone(&trap) };
    // Ids of which an operation has failed: what is stored of them is not known.
    let mut unknown = BTreeSet::new();
    let mut attempt = |number: i64, operation: &dyn Fn()| {
        if catch_unwind(AssertUnwindSafe(operation)).is_err() {
            unknown.insert(number);
        }
    };
    let put = |number| {
        let answer = store.put(Trapped { id: id(number) }).wait();
        answer.expect("a panic in an owner");
    };
    let removed = |number: i64| number % 8 != 0;
    trap.arm(call, calls);
    for number in 0..IDS {
        attempt(number, &|| put(number));
    }
    for number in (0..IDS).filter(|number| removed(*number)) {
        attempt(number, &|| {
            store.remove(&id(number)).wait().expect("a panic in an owner");
        });
    }
    for number in IDS..IDS + IDS / 8 {
        attempt(number, &|| put(number));
    }
    let came = !trap.disarm();
    let has = |number: i64| {
        let id = id(number);
        !matches!(
            store.get(&id, Visit::new(&mut |shown| assert_eq!(shown.to_owned().id, id))).wait(),
            Ok(Lookup::Absent)
        )
    };
    for number in (0..IDS + IDS / 8).filter(|number| !unknown.contains(number)) {
        let expected = number >= IDS || !removed(number);
        assert_eq!(
            has(number),
            expected,
            "{number} is stored, after a panic in {call:?} number {calls} at {unknown:?}"
        );
    }
    assert!(unknown.len() <= 1, "a panic in {call:?} number {calls} failed the operations of {unknown:?}");
    // The store takes and grows on.
    for number in 10 * IDS..12 * IDS {
        put(number);
    }
    assert!((10 * IDS..12 * IDS).all(has), "after a panic in {call:?} number {calls}");
    came
}

fn contains_panics<R: EntityRepo<Trapped>>(new: fn() -> R) {
    let (sender, progress) = mpsc::channel();
    let running = thread::spawn(move || {
        for call in [Call::Hash, Call::Compare, Call::Clone, Call::Drop] {
            let mut calls = 0;
            loop {
                let _ = sender.send((call, calls));
                if !run(&new(), call, calls) {
                    break;
                }
                calls += 1 + calls / 8;
            }
        }
    });
    let mut last = None;
    loop {
        match progress.recv_timeout(MAX_WAIT) {
            Ok(run) => last = Some(run),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no operation ends after a panic in {last:?}"),
        }
    }
    if let Err(panic) = running.join() {
        resume_unwind(panic);
    }
}

macro_rules! stores {
    ($($name:ident: $store:ident $($feature:literal)?),* $(,)?) => {$(
        $(#[cfg(feature = $feature)])?
        #[test]
        fn $name() {
            contains_panics($store::of::<Trapped>);
        }
    )*};
}

stores! {
    std_mutex: StdMutex,
    std_rwlock: StdRwlock,
    two_level: TwoLevel,
    sharded: Sharded,
    packed: Packed "packed",
    copy_on_write: CopyOnWrite "copy-on-write",
    actor: Actor,
    dashmap: Dashmap "dashmap",
    papaya: Papaya "papaya",
    scc: Scc "scc",
    seqlock: Seqlock "seqlock",
}
