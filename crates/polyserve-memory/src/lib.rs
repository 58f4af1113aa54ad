//! Entity repos in memory: one strategy for sharing data in each file.
//!
//! All repos but [`Actor`] answer [`Answer::Now`](polyserve_core::Answer::Now), show an entity in place, and allocate
//! nothing for a get. `actor` answers [`Answer::Later`](polyserve_core::Answer::Later) with a copy. All repos move the
//! `String` of a put in, and drop a replaced or removed entity when no lock is held. A module that does otherwise
//! states it: [`Packed`] copies short descriptions. If a visit or an operation of an id panics, only that call fails
//! ([`EntityId`](polyserve_core::EntityId) names an exception).
//!
//! ```
//! use polyserve_core::{Answer, Entity, EntityRepo, Lookup, Put, Visit};
//! use polyserve_memory::StdMutex;
//!
//! let repo = StdMutex::new();
//! assert!(matches!(repo.put(Entity::new(1, "first", 60.750847)), Answer::Now(Ok(Put::Created))));
//! let mut length = 0;
//! let answer = repo.get(&1, Visit::new(&mut |shown| length = shown.fields().map_or(0, |entity| entity.description.len())));
//! assert!(matches!(answer, Answer::Now(Ok(Lookup::Visited(_)))));
//! assert_eq!(length, 5);
//! ```
//!
//! All items are at the root, except the hasher in [`hash`]. The source of each repo states how it works, when it wins and when
//! it loses, with the record that shows it.
//!
//! # Layout
//!
//! * [`StdMutex`]: one lock around one map. The baseline.
//! * [`StdRwlock`]: one readers-writer lock around one map.
//! * [`TwoLevel`]: a readers-writer lock around the map and one around each entity.
//! * [`Sharded`]: shards of this crate's own, each a table behind a readers-writer lock.
//! * [`Packed`]: the same shards, with entities packed in pages. It takes the least memory. Feature `packed`, on by default.
//! * [`Dashmap`]: the `dashmap` crate's map in shards, each behind a readers-writer lock. Feature `dashmap`, on by
//!   default.
//! * [`Papaya`]: the `papaya` crate's lock-free map. Feature `papaya`, on by default.
//! * [`Scc`]: the `scc` crate's map, with a lock for each bucket. Feature `scc`, on by default.
//! * [`Seqlock`]: packed entities behind a version for each bucket; readers write nothing. Feature `seqlock`, on by default.
//! * [`CopyOnWrite`]: immutable chunks behind pointers; readers never wait. Feature `copy-on-write`, on by default.
//! * [`Actor`]: each shard belongs to one thread, and operations are messages to it.
//! * [`Ordered`]: an index of ids over one of these repos, for scans in the order of the ids.
//! * [`hash`]: the hasher of all of them.
//!
//! # What a call costs
//!
//! If a program names the type of its repo, as in `EntityService::new(Dashmap::new())`, the compiler inlines `get` and
//! the visit into the program. If gets wait for each other, a get then takes as long as a get of the same map used bare;
//! otherwise somewhat longer. Behind an `Arc<dyn EntityRepo>`, a get has some sixty instructions more. The command
//! `polyserve bench seam` measures both; the record is `docs/results/2026-11-25/seam.jsonl`.
//!
//! # Hashing
//!
//! Clients choose the ids, so every map here hashes with [`hash::IdState`]. A client cannot choose ids that share a
//! bucket and make lookups slow. All maps use the same hasher, so that a comparison of locks does not become one of
//! hashers.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod actor;
#[cfg(feature = "copy-on-write")]
mod copy_on_write;
#[cfg(feature = "dashmap")]
mod dashmap;
pub mod hash;
#[cfg(all(test, any(polyserve_loom, polyserve_shuttle)))]
mod models;
mod ordered;
#[cfg(any(feature = "packed", feature = "seqlock"))]
mod pack;
#[cfg(feature = "packed")]
mod packed;
#[cfg(feature = "papaya")]
mod papaya;
mod published;
mod result;
#[cfg(feature = "scc")]
mod scc;
#[cfg(feature = "seqlock")]
mod seqlock;
mod sharded;
mod shards;
mod std_mutex;
mod std_rwlock;
mod two_level;
mod versions;

pub use self::actor::Actor;
#[cfg(feature = "copy-on-write")]
pub use self::copy_on_write::CopyOnWrite;
#[cfg(feature = "dashmap")]
pub use self::dashmap::Dashmap;
pub use self::ordered::Ordered;
#[cfg(feature = "packed")]
pub use self::packed::Packed;
#[cfg(feature = "papaya")]
pub use self::papaya::Papaya;
pub use self::published::IsPublished;
#[cfg(feature = "scc")]
pub use self::scc::Scc;
#[cfg(feature = "seqlock")]
pub use self::seqlock::Seqlock;
pub use self::sharded::Sharded;
pub use self::std_mutex::StdMutex;
pub use self::std_rwlock::StdRwlock;
pub use self::two_level::TwoLevel;

#[cfg(test)]
use polyserve_core::{Condition, Conditional, Entity};

/// Checks that a replaced, refused or removed entity is returned whole, after the lock is released.
#[cfg(test)]
fn handed_out_whole(
    replace: impl Fn(Entity, &Condition) -> Result<Option<Entity>, Entity>,
    take: impl Fn(i64, &Condition) -> Conditional<Option<Entity>>,
    free: impl Fn() -> bool,
) {
    let (always, absent) = (Condition::ALWAYS, Condition::absent());
    let [first, second] = [("first", 1.0), ("second", 2.0)].map(|(text, value)| Entity::new(7, text, value));
    assert_eq!(replace(first.clone(), &always), Ok(None));
    let replaced = replace(second.clone(), &always);
    assert!(free() && replaced == Ok(Some(first.clone())));
    let refused = replace(first.clone(), &absent);
    assert!(free() && refused == Err(first));
    assert!(take(7, &absent) == Conditional::Refused && free());
    let removed = take(7, &always);
    assert!(free() && removed == Conditional::Done(Some(second)));
    assert!(take(7, &always) == Conditional::Done(None) && free());
}
