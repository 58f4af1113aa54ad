//! The hasher of every map here: fast on ids, and of no use to a client who chooses them.
//!
//! An id is hashed in two steps, each with a secret, 320 bits in all, which [`IdState`] has std's SipHash make of its random key
//! of 128 bits:
//!
//! 1. *Multiply-shift* with a product of 128 bits (Dietzfelbinger, "Universal hashing and k-wise independent random
//!    variables via integer arithmetic without primes", STACS 1996): the upper half of `a * id + b` modulo 2^128.
//! 2. *A mix* of that half, one to one: its upper bits are folded onto its lower ones, multiplied by an odd number,
//!    and folded again.
//!
//! Invariant: the family is strongly universal. Any two ids that were chosen without knowing the secret fall on any two
//! hashes with the same probability, so that they share any given bits of them exactly as often as by chance. Step 1
//! has that by the theorem; step 2 keeps it, being one to one. So for *any* set of n ids, the expected number of others
//! that share an id's bucket, among m, is (n - 1) / m.
//!
//! Step 2 is there for what two at a time does not cover. Step 1 is linear: it lays an arithmetic progression, and ids
//! 1, 2, 3 are one, evenly around a circle. That is better than chance, except where the step nearly divides the
//! circle: then the ids stand in few heaps, and one secret in k^2 has a chain of k, some of them of hundreds. Whoever
//! found two ids that meet would have found a whole progression that does. After the mix no secret of thousands has
//! a chain that chance would not (the tests count both).
//!
//! What it does not claim: to withstand somebody who learns hashes. Nothing here shows one. Whoever can time single
//! probes of a table in another process, through a socket, for long enough, has std's SipHash to fear alone.
//!
//! Cost: three multiplications and a few additions and shifts, without a branch. The bench `hash` has it beside std's,
//! ahash and foldhash. A state is 40 bytes, and each map here holds one of them, however many shards it has.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Builds [`IdHasher`]s of one secret. Each `default()` draws a new one; a clone has its original's.
#[derive(Clone)]
pub struct IdState {
    /// The multiplier `a`, lower half first.
    multiplier: [u64; 2],
    /// The addend `b`, lower half first.
    addend: [u64; 2],
    /// What the mix multiplies by: odd, so that the mix is one to one.
    mixer: u64,
}

impl IdState {
    /// The state of these 320 bits.
    fn of(secret: [u64; 5]) -> Self {
        let [a, b, c, d, e] = secret;
        Self { multiplier: [a, b], addend: [c, d], mixer: e | 1 }
    }
}

impl Default for IdState {
    fn default() -> Self {
        let source = RandomState::new();
        Self::of([0_u8, 1, 2, 3, 4].map(|number| source.hash_one(number)))
    }
}

impl BuildHasher for IdState {
    type Hasher = IdHasher;

    #[inline]
    fn build_hasher(&self) -> IdHasher {
        IdHasher { multiplier: whole(self.multiplier), sum: whole(self.addend), mixer: self.mixer }
    }
}

impl std::fmt::Debug for IdState {
    /// Keeps the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdState").finish_non_exhaustive()
    }
}

/// Both halves as one number.
#[inline]
fn whole([lower, upper]: [u64; 2]) -> u128 {
    u128::from(upper) << 64 | u128::from(lower)
}

/// Hashes one id; made by [`IdState`].
#[derive(Clone)]
pub struct IdHasher {
    multiplier: u128,
    sum: u128,
    mixer: u64,
}

impl IdHasher {
    /// The upper half: step 1 alone.
    #[inline]
    fn upper(&self) -> u64 {
        (self.sum >> 64) as u64
    }
}

impl Hasher for IdHasher {
    #[inline]
    fn finish(&self) -> u64 {
        let upper = self.upper();
        let mixed = (upper ^ (upper >> 32)).wrapping_mul(self.mixer);
        mixed ^ (mixed >> 32)
    }

    #[inline]
    fn write_u64(&mut self, id: u64) {
        self.sum = self.multiplier.wrapping_mul(u128::from(id)).wrapping_add(self.sum);
    }

    #[inline]
    fn write_i64(&mut self, id: i64) {
        self.write_u64(id as u64);
    }

    /// Not used for ids. Words of eight bytes are hashed one after the other.
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.sum ^= u128::from(self.finish());
            self.write_u64(u64::from_le_bytes(word));
        }
    }
}

impl std::fmt::Debug for IdHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdHasher").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
