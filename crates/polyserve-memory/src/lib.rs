//! Entity repos in memory, one locking strategy a file.
//!
//! All but [`actor`] answer [`Answer::Now`](polyserve_core::Answer::Now), show an entity in place, and allocate nothing
//! for that; `actor` answers [`Answer::Later`](polyserve_core::Answer::Later), with a copy. All of them move a put's
//! `String` in, and drop a replaced or removed entity where no lock is held. Where one does otherwise, its module says so:
//! [`packed`] copies short descriptions. A visit that panics costs its caller that one answer.
//!
//! ```
//! use polyserve_core::{Answer, Entity, EntityRepo, Lookup, Put};
//! use polyserve_memory::StdMutex;
//!
//! let repo = StdMutex::new();
//! assert!(matches!(repo.put(Entity::new(1, "first", 60.750847)), Answer::Now(Ok(Put::Created))));
//! let mut length = 0;
//! let answer = repo.get(1, &mut |entity| length = entity.description.len());
//! assert!(matches!(answer, Answer::Now(Ok(Lookup::Visited))));
//! assert_eq!(length, 5);
//! ```
//!
//! What each wins and loses by is told in its module, and measured by the bench `repos`.
//!
//! # Layout
//!
//! * [`std_mutex`]: one lock around one map. The baseline.
//! * [`std_rwlock`]: one reader-writer lock around one map.
//! * [`two_level`]: a reader-writer lock around the map and one around each entity.
//! * [`sharded`]: shards of this crate's own, each a table behind a reader-writer lock.
//! * [`packed`]: the same shards, with entities packed in pages: the leanest.
//! * [`dashmap`]: the `dashmap` crate's map in shards, each with a reader-writer lock. Feature `dashmap`, on by
//!   default.
//! * [`papaya`]: the `papaya` crate's lock-free map. Feature `papaya`, on by default.
//! * [`scc`]: the `scc` crate's map, a lock for each bucket. Feature `scc`, on by default.
//! * [`copy_on_write`]: immutable chunks behind pointers; readers never wait.
//! * [`actor`]: each shard belongs to one thread, operations are messages to it.
//!
//! # What a call costs
//!
//! A program that names its repo's type, `EntityService::new(Dashmap::new())`, has `get` compiled into its own code, the visit
//! too (of [`std_mutex`], [`std_rwlock`], [`sharded`], [`packed`], [`dashmap`] and [`papaya`]; of [`scc`] all but that crate's
//! own read). Measured, it takes as long as the same map used bare, within 4 %. Behind an `Arc<dyn EntityRepo>`, which is
//! chosen while the program runs, a get has some twenty instructions more. `polyserve seam` measures both.
//!
//! # Hashing
//!
//! Clients choose the ids, so every map here hashes with [`hash::IdState`]: nobody can pick ids that meet in one bucket
//! and turn a lookup into a walk. It is the same for all of them, or a comparison of locks would become one of hashers.
#![forbid(unsafe_code)]

pub mod actor;
pub mod copy_on_write;
#[cfg(feature = "dashmap")]
pub mod dashmap;
pub mod hash;
#[cfg(all(test, any(polyserve_loom, polyserve_shuttle)))]
mod models;
pub mod packed;
#[cfg(feature = "papaya")]
pub mod papaya;
#[cfg(feature = "scc")]
pub mod scc;
pub mod sharded;
mod shards;
pub mod std_mutex;
pub mod std_rwlock;
pub mod two_level;

pub use self::actor::Actor;
pub use self::copy_on_write::CopyOnWrite;
#[cfg(feature = "dashmap")]
pub use self::dashmap::Dashmap;
pub use self::packed::Packed;
#[cfg(feature = "papaya")]
pub use self::papaya::Papaya;
#[cfg(feature = "scc")]
pub use self::scc::Scc;
pub use self::sharded::Sharded;
pub use self::std_mutex::StdMutex;
pub use self::std_rwlock::StdRwlock;
pub use self::two_level::TwoLevel;

/// That what a put replaces, and what a remove takes out, is handed out whole when no lock is held any more.
#[cfg(test)]
fn handed_out_whole(
    replace: &dyn Fn(polyserve_core::Entity) -> Option<polyserve_core::Entity>,
    take: &dyn Fn(i64) -> Option<polyserve_core::Entity>,
    free: &dyn Fn() -> bool,
) {
    let [first, second] =
        [("first", 1.0), ("second", 2.0)].map(|(text, value)| polyserve_core::Entity::new(7, text, value));
    assert_eq!(replace(first.clone()), None);
    let replaced = replace(second.clone());
    assert!(free() && replaced == Some(first));
    let removed = take(7);
    assert!(free() && removed == Some(second));
    assert!(take(7).is_none() && free());
}
