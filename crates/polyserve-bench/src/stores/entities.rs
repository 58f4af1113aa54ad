//! The stored entities, and their checks.
//!
//! An entity is a function of its id and its version: the value is the number of the version, and the description follows
//! from both. So a reader can check that an entity has the right id, is whole, and was put at some time. It needs no table
//! of the puts, which would displace the store from the cache.
//!
//! Cost: a hash, an allocation and a copy of each byte to make an entity; a comparison of each byte to check it whole.

use polyserve::{Entity, EntityRef};
pub use polyserve_conformance::history::mixed;

/// The number of bytes that a description repeats.
const BLOCK: usize = 16;

/// The bytes that the description of this version repeats: hexadecimal digits.
fn block(id: i64, version: u64) -> [u8; BLOCK] {
    let bits = mixed(id.cast_unsigned() ^ version.rotate_left(32));
    std::array::from_fn(|place| b"0123456789abcdef"[(bits >> (4 * place)) as usize & 15])
}

/// Returns the entity of `id` at `version`. The capacity of its description is its length.
pub fn entity(id: i64, version: u64, payload_bytes: usize) -> Entity {
    let block = block(id, version);
    let block = std::str::from_utf8(&block).unwrap_or_default();
    let mut description = String::with_capacity(payload_bytes);
    while description.len() < payload_bytes {
        description.push_str(&block[..BLOCK.min(payload_bytes - description.len())]);
    }
    Entity::new(id, description, version as f64)
}

/// The check of an entity that a get shows.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The last version that may have been put, as an entity's value.
    last: f64,
    /// Bytes of a description.
    payload_bytes: usize,
    /// Whether the description is read.
    whole: bool,
}

impl Check {
    /// A check for entities of versions up to `last`.
    pub(crate) fn new(last: u64, payload_bytes: usize, whole: bool) -> Self {
        Self { last: last as f64, payload_bytes, whole }
    }

    /// [`is_right`](Self::is_right), but only with the length of the description.
    #[inline]
    pub(crate) fn is_like(&self, id: i64, found: EntityRef<'_>) -> bool {
        found.id == id && found.value <= self.last && found.description.len() == self.payload_bytes
    }

    /// Returns true if this is the entity of `id` at one of the versions that were put.
    #[inline]
    pub(crate) fn is_right(&self, id: i64, found: EntityRef<'_>) -> bool {
        self.is_like(id, found) && (!self.whole || is_whole(id, found))
    }
}

/// Returns true if the description belongs to this id and version.
fn is_whole(id: i64, found: EntityRef<'_>) -> bool {
    let version = found.value as u64;
    let block = block(id, version);
    let mut pieces = found.description.as_bytes().chunks(BLOCK);
    version as f64 == found.value && pieces.all(|piece| *piece == block[..piece.len()])
}

/// The id at this place in an order of all `keys`. Each id occurs once, and consecutive ids are not neighbours, so that the
/// order suits no store.
pub fn spread(place: u64, keys: u64) -> i64 {
    let step = step(keys);
    ((u128::from(place) * u128::from(step)) % u128::from(keys.max(1))) as i64
}

/// The distance between consecutive ids: near the golden section of `keys`, and coprime to `keys`.
fn step(keys: u64) -> u64 {
    let near = (keys as f64 * 0.618_033_988_749_895) as u64;
    (near..).find(|step| *step > 0 && shares_no_factor(*step, keys)).unwrap_or(1)
}

fn shares_no_factor(mut a: u64, mut b: u64) -> bool {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_one_place() {
        for keys in [1, 2, 3, 10, 97, 1000, 4096] {
            let mut ids: Vec<i64> = (0..keys).map(|place| spread(place, keys)).collect();
            ids.sort_unstable();
            assert_eq!(ids, (0..keys.cast_signed()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_was_not_put_is_not_right() {
        let (last, payload_bytes) = (7, 40);
        let (quick, whole) = (Check::new(last, payload_bytes, false), Check::new(last, payload_bytes, true));
        let right = entity(3, 7, 40);
        assert!(quick.is_right(3, right.as_ref()) && whole.is_right(3, right.as_ref()));
        assert_eq!((right.description.len(), right.description.capacity()), (40, 40));
        let changed = |change: fn(&mut Entity)| {
            let mut entity = right.clone();
            change(&mut entity);
            entity
        };
        for (entity, is_quick) in [
            (changed(|entity| entity.id = 4), true),
            (changed(|entity| entity.value = 8.0), true),
            (changed(|entity| entity.description.truncate(20)), true),
            (changed(|entity| entity.value = 6.0), false),
            (changed(|entity| entity.value = 6.5), false),
            (changed(|entity| entity.description.replace_range(39.., "x")), false),
        ] {
            assert_eq!((quick.is_right(3, entity.as_ref()), whole.is_right(3, entity.as_ref())), (!is_quick, false));
        }
    }
}
