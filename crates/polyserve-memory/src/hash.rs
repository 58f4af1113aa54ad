//! The hasher of every map here: fast on ids, and of no use to a client who chooses them.
//!
//! Invariant: each [`IdState`] draws its own secret, 256 bits from std's seeded SipHash, and never shows a hash. An id is
//! hashed by multiply-shift with a product of 128 bits (Dietzfelbinger, "Universal hashing and k-wise independent random
//! variables via integer arithmetic without primes", STACS 1996): the upper half of `a * id + b` modulo 2^128, for random
//! `a` and `b`. That family is strongly universal: any two ids that were chosen without knowing the secret fall on any
//! two hashes with the same probability, so that they share any given bits of them as seldom as by chance.
//!
//! Cost: two multiplications and three additions, without a branch.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Builds [`IdHasher`]s of one secret. Each `default()` draws a new one.
#[derive(Clone)]
pub struct IdState {
    multiplier: u128,
    addend: u128,
}

impl Default for IdState {
    fn default() -> Self {
        let source = RandomState::new();
        let word = |number: u8| u128::from(source.hash_one(number));
        Self { multiplier: word(0) << 64 | word(1) | 1, addend: word(2) << 64 | word(3) }
    }
}

impl BuildHasher for IdState {
    type Hasher = IdHasher;

    #[inline]
    fn build_hasher(&self) -> IdHasher {
        IdHasher { multiplier: self.multiplier, sum: self.addend }
    }
}

impl std::fmt::Debug for IdState {
    /// Keeps the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdState").finish_non_exhaustive()
    }
}

/// Hashes one id; made by [`IdState`].
#[derive(Clone)]
pub struct IdHasher {
    multiplier: u128,
    sum: u128,
}

impl Hasher for IdHasher {
    #[inline]
    fn finish(&self) -> u64 {
        (self.sum >> 64) as u64
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
            self.sum ^= self.sum >> 64;
            self.write_u64(u64::from_le_bytes(word) ^ (self.sum as u64));
        }
    }
}

impl std::fmt::Debug for IdHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdHasher").finish_non_exhaustive()
    }
}
