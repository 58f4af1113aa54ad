//! The distribution of keys: uniform, Zipf's law, or a single hot key.
//!
//! Invariant: one 64-bit number draws one key, by the integer arithmetic of this module. So a seed gives the same keys in
//! every version. Zipf's law uses an alias table (Vose, 1991): eight bytes a key, and one comparison a draw for any
//! exponent.

use std::fmt;
use std::str::FromStr;

/// The distribution of the requested keys.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Dist {
    /// Every key has the same probability.
    #[default]
    Uniform,
    /// Key `k`, counted from 0, has a probability in proportion to `1 / (k + 1)` to this power. A usual power is 0.99.
    Zipf(f64),
    /// Every request has the key 0.
    Hot,
}

impl FromStr for Dist {
    type Err = String;

    /// `uniform`, `zipf:0.99` or `hot`.
    fn from_str(text: &str) -> Result<Self, String> {
        let message = || format!("{text:?} is none of uniform, hot and zipf:0.99, its exponent above 0 and at most 10");
        match text {
            "uniform" => return Ok(Self::Uniform),
            "hot" => return Ok(Self::Hot),
            _ => {}
        }
        let power = text.strip_prefix("zipf:").and_then(|power| power.parse().ok()).ok_or_else(message)?;
        let dist = Self::Zipf(power);
        if dist.is_valid() { Ok(dist) } else { Err(message()) }
    }
}

impl fmt::Display for Dist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(power) => write!(f, "zipf:{power}"),
            Self::Hot => f.write_str("hot"),
        }
    }
}

impl Dist {
    pub(crate) fn is_valid(self) -> bool {
        match self {
            Self::Uniform | Self::Hot => true,
            Self::Zipf(power) => power > 0.0 && power <= 10.0,
        }
    }
}

/// A sampler of keys below a bound.
#[derive(Debug)]
pub struct Picker {
    keys: u32,
    aliases: Option<Vec<AliasSlot>>,
}

/// A slot of the alias table: the slot's own key below the threshold, else the alias.
#[derive(Clone, Copy, Debug)]
struct AliasSlot {
    threshold: u32,
    alias: u32,
}

impl Picker {
    /// Creates a sampler of `keys` keys, at least one. Zipf's law allocates eight bytes a key.
    pub fn new(keys: u32, dist: Dist) -> Self {
        let (bound, aliases) = match dist {
            Dist::Uniform => (keys, None),
            Dist::Zipf(power) => (keys, Some(aliases(keys, power))),
            Dist::Hot => (1, None),
        };
        Self { keys: bound, aliases }
    }

    /// Returns the key for `random`. All 64 bits must be random.
    pub fn pick(&self, random: u64) -> u32 {
        let wide = u128::from(random) * u128::from(self.keys);
        // The integer part is below `keys`. The fraction is uniform.
        let (slot, rest) = ((wide >> 64) as u32, (wide as u64 >> 32) as u32);
        match self.aliases.as_ref().and_then(|table| table.get(slot as usize)) {
            Some(entry) if rest >= entry.threshold => entry.alias,
            _ => slot,
        }
    }
}

/// Builds Vose's table. Every slot has the same weight, which at most two keys share.
fn aliases(keys: u32, power: f64) -> Vec<AliasSlot> {
    let mut weights: Vec<f64> = (1..=keys).map(|rank| f64::from(rank).powf(-power)).collect();
    let mean = weights.iter().sum::<f64>() / f64::from(keys);
    weights.iter_mut().for_each(|weight| *weight /= mean);
    let mut table: Vec<AliasSlot> = (0..keys).map(|key| AliasSlot { threshold: u32::MAX, alias: key }).collect();
    let (mut small, mut large): (Vec<u32>, Vec<u32>) = (0..keys).partition(|key| weights[*key as usize] < 1.0);
    while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
        let weight = weights[poor as usize];
        table[poor as usize] = AliasSlot { threshold: (weight * 4_294_967_296.0) as u32, alias: rich };
        let left = weights[rich as usize] - (1.0 - weight);
        weights[rich as usize] = left;
        if left < 1.0 {
            large.pop();
            small.push(rich);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    fn counts(dist: Dist, keys: u32, draws: u32) -> Vec<u32> {
        let (picker, mut random) = (Picker::new(keys, dist), ChaCha8Rng::from_seed([7; 32]));
        let mut counts = vec![0; keys as usize];
        (0..draws).for_each(|_| counts[picker.pick(random.next_u64()) as usize] += 1);
        counts
    }

    /// Exact counts of one seed, each within five standard deviations of the expected count.
    #[test]
    fn shares_follow_the_law() {
        let (keys, draws) = (100_u32, 1_000_000_u32);
        for dist in [Dist::Uniform, Dist::Zipf(0.99), Dist::Zipf(2.0)] {
            let weight = |key: u32| match dist {
                Dist::Uniform => 1.0,
                Dist::Zipf(power) => f64::from(key + 1).powf(-power),
                Dist::Hot => unreachable!("it is of one key"),
            };
            let total: f64 = (0..keys).map(weight).sum();
            for (key, count) in (0..keys).zip(counts(dist, keys, draws)) {
                let share = weight(key) / total;
                let expected = share * f64::from(draws);
                let spread = (expected * (1.0 - share)).sqrt();
                assert!((f64::from(count) - expected).abs() < 5.0 * spread, "{dist}: {key}: {count} of {expected}");
            }
        }
    }

    /// Recorded runs must stay reproducible: these counts never change.
    #[test]
    fn the_draws_are_pinned() {
        assert_eq!(counts(Dist::Zipf(0.99), 5, 1_000), PINNED_ZIPF);
        assert_eq!(counts(Dist::Uniform, 5, 1_000), PINNED_UNIFORM);
    }

    const PINNED_ZIPF: [u32; 5] = [438, 253, 143, 101, 65];
    const PINNED_UNIFORM: [u32; 5] = [196, 223, 198, 186, 197];

    #[test]
    fn one_key_is_always_itself_and_the_last_can_be_drawn() {
        for dist in [Dist::Uniform, Dist::Zipf(0.5)] {
            assert_eq!(Picker::new(1, dist).pick(u64::MAX), 0);
            assert!(counts(dist, 3, 1_000).iter().all(|count| *count > 0));
        }
    }

    #[test]
    fn a_hot_key_takes_everything() {
        assert_eq!(counts(Dist::Hot, 3, 1_000), [1_000, 0, 0]);
        assert_eq!(Picker::new(3, Dist::Hot).pick(u64::MAX), 0);
    }

    #[test]
    fn a_distribution_is_read_and_nonsense_is_refused() {
        assert_eq!("uniform".parse(), Ok(Dist::Uniform));
        assert_eq!("zipf:0.99".parse(), Ok(Dist::Zipf(0.99)));
        assert_eq!(("hot".parse(), Dist::Hot.to_string().as_str()), (Ok(Dist::Hot), "hot"));
        assert_eq!(Dist::Zipf(0.99).to_string(), "zipf:0.99");
        for invalid in ["", "zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:nan", "zipf:inf", "zipf:11", "Uniform"] {
            assert!(invalid.parse::<Dist>().unwrap_err().contains("zipf:0.99"), "{invalid}");
        }
    }
}
