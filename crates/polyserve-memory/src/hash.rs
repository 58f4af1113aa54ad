//! The hasher of every map here. It is fast on ids, and a client that chooses ids cannot make them collide.
//!
//! An id is hashed in two steps. Each step has a secret, 320 bits in all. [`IdState`] derives the secrets from the
//! random key of 128 bits of std's SipHash:
//!
//! 1. *Multiply-shift* with a product of 128 bits (Dietzfelbinger, "Universal hashing and k-wise independent random
//!    variables via integer arithmetic without primes", STACS 1996): the upper half of `a * id + b` modulo 2^128.
//! 2. *A mix* of that half, which is a bijection: the upper bits are folded onto the lower ones, multiplied by an odd
//!    number, and folded again.
//!
//! Invariant: the family is strongly universal. Two ids that were chosen without knowing the secret get any two hashes
//! with the same probability. So they share any given bits of their hashes exactly as often as by chance. The theorem
//! proves it for step 1, and step 2 keeps it, because it is a bijection. So for *any* set of n ids and m buckets, the
//! expected number of other ids in an id's bucket is (n - 1) / m.
//!
//! Step 2 covers what pairwise independence does not. Step 1 is linear: it maps an arithmetic progression, such as ids
//! 1, 2, 3, evenly around a circle. Usually that is better than chance. But if the step of the progression nearly
//! divides the circle, the ids form a few clusters: one secret in k^2 has a chain of k, and some chains have hundreds.
//! If two ids of a progression collide, then many do. After the mix no secret of thousands has longer chains than
//! chance would give (the tests count both).
//!
//! Ids of other types: a `u64` is hashed in the same way. All other ids, such as `String`s, UUIDs and pairs of numbers, are
//! hashed by std's SipHash with a random key, which no set of chosen ids makes collide.
//!
//! Limit: the hasher of numbers does not withstand an attacker that knows hashes. Nothing in this crate shows a hash. Only std's
//! SipHash would stop an attacker that can time single probes of a table in another process for long enough.
//!
//! Cost of a number: three multiplications and a few additions and shifts, without a branch. The bench `hash` compares it
//! with std's hasher, ahash and foldhash. A state is 56 bytes. Each map here has one, however many shards it has.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};

/// Builds [`IdHasher`]s with one secret. Each `default()` draws a new secret; a clone has the secret of its original.
///
/// ```
/// use polyserve_memory::hash::IdState;
/// use std::collections::HashMap;
///
/// let mut map = HashMap::<i64, &str, IdState>::default();
/// map.insert(1, "first");
/// assert_eq!(map.get(&1), Some(&"first"));
/// ```
#[derive(Clone)]
pub struct IdState {
    /// The multiplier `a`, lower half first.
    multiplier: [u64; 2],
    /// The addend `b`, lower half first.
    addend: [u64; 2],
    /// The factor of the mix. It is odd, so the mix is a bijection.
    mixer: u64,
    /// The key of SipHash, for ids that are no numbers.
    keyed: RandomState,
}

impl IdState {
    /// Creates a state from a secret of 320 bits for numbers, and a key for other ids.
    fn of(secret: [u64; 5], keyed: RandomState) -> Self {
        let [a, b, c, d, e] = secret;
        Self { multiplier: [a, b], addend: [c, d], mixer: e | 1, keyed }
    }
}

impl Default for IdState {
    fn default() -> Self {
        let source = RandomState::new();
        Self::of([0_u8, 1, 2, 3, 4].map(|number| source.hash_one(number)), source)
    }
}

impl BuildHasher for IdState {
    type Hasher = IdHasher;

    #[inline]
    fn build_hasher(&self) -> IdHasher {
        IdHasher {
            multiplier: whole(self.multiplier),
            addend: whole(self.addend),
            mixer: self.mixer,
            number: None,
            keyed: Keyed::Unused(self.keyed.clone()),
        }
    }

    /// As by default, but the compiler can inline it in every unit of a crate.
    #[allow(clippy::manual_hash_one)]
    #[inline]
    fn hash_one<T: Hash>(&self, value: T) -> u64 {
        let mut hasher = self.build_hasher();
        value.hash(&mut hasher);
        hasher.finish()
    }
}

impl std::fmt::Debug for IdState {
    /// Does not show the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdState").finish_non_exhaustive()
    }
}

/// Joins two halves into one number.
#[inline]
fn whole([lower, upper]: [u64; 2]) -> u128 {
    u128::from(upper) << 64 | u128::from(lower)
}

/// Hashes one id. [`IdState`] creates it.
///
/// ```
/// use polyserve_memory::hash::{IdHasher, IdState};
/// use std::hash::{BuildHasher, Hash, Hasher};
/// let state = IdState::default();
/// let mut hasher: IdHasher = state.build_hasher();
/// 7_i64.hash(&mut hasher);
/// assert_eq!(hasher.finish(), state.hash_one(7_i64));
/// ```
#[derive(Clone)]
pub struct IdHasher {
    multiplier: u128,
    addend: u128,
    mixer: u64,
    /// The number that was written, if nothing else was.
    number: Option<u64>,
    keyed: Keyed,
}

/// The hasher of ids that are more than a number. It is created when the first part arrives.
#[derive(Clone)]
enum Keyed {
    Unused(RandomState),
    Used(DefaultHasher),
}

impl IdHasher {
    /// Returns the upper half: the result of step 1.
    #[inline]
    fn upper(&self) -> u64 {
        let number = u128::from(self.number.unwrap_or_default());
        (self.multiplier.wrapping_mul(number).wrapping_add(self.addend) >> 64) as u64
    }

    /// Returns the hasher of ids that are more than a number. A number that came before is written to it.
    fn keyed(&mut self) -> &mut DefaultHasher {
        if let Keyed::Unused(state) = &self.keyed {
            let mut hasher = state.build_hasher();
            if let Some(number) = self.number.take() {
                hasher.write_u64(number);
            }
            self.keyed = Keyed::Used(hasher);
        }
        match &mut self.keyed {
            Keyed::Used(hasher) => hasher,
            Keyed::Unused(_) => unreachable!("it was created above"),
        }
    }
}

impl Hasher for IdHasher {
    #[inline]
    fn finish(&self) -> u64 {
        if let Keyed::Used(hasher) = &self.keyed {
            return hasher.finish();
        }
        let upper = self.upper();
        let mixed = (upper ^ (upper >> 32)).wrapping_mul(self.mixer);
        mixed ^ (mixed >> 32)
    }

    #[inline]
    fn write_u64(&mut self, id: u64) {
        if self.number.is_none() && matches!(self.keyed, Keyed::Unused(_)) {
            self.number = Some(id);
        } else {
            self.keyed().write_u64(id);
        }
    }

    #[inline]
    fn write_i64(&mut self, id: i64) {
        self.write_u64(id as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        self.keyed().write(bytes);
    }
}

impl std::fmt::Debug for IdHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdHasher").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
