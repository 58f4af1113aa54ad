//! The secrets are seeded, so the tests are reproducible; only `two_states_differ` uses random ones. With a truly random
//! function and a new seed for each run, a test would fail less than once in a million runs.

use super::*;

/// The number of ids of a shape. There are as many buckets, so a bucket has one id on average.
const IDS: usize = 1 << 14;

/// The maximum length of a chain. A truly random function practically never exceeds it: Poisson(1) exceeds 13 once in
/// 4 * 10^11.
const MAX_CHAIN: u32 = 13;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn state(&mut self) -> IdState {
        IdState::of([0; 5].map(|_| self.next()), RandomState::new())
    }
}

/// The result of step 1.
fn unmixed(state: &IdState, id: i64) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write_i64(id);
    hasher.upper()
}

/// Counts the `hashes` for each value of `bits` bits, starting at bit `from` (the lowest bit is 0).
fn counts(hashes: impl IntoIterator<Item = u64>, from: u32, bits: u32) -> Vec<u32> {
    let mut counts = vec![0; 1 << bits];
    for hash in hashes {
        counts[(hash >> from) as usize & ((1 << bits) - 1)] += 1;
    }
    counts
}

fn longest_chain(hashes: impl IntoIterator<Item = u64>, bits: u32) -> u32 {
    counts(hashes, 0, bits).into_iter().max().unwrap_or_default()
}

/// Ids as programs choose them, and as an attacker with knowledge of hash tables would choose them.
pub(crate) fn shapes() -> Vec<(String, Vec<i64>)> {
    let ids = || 0..IDS as i64;
    let mut shapes: Vec<(String, Vec<i64>)> = vec![
        ("a sequence".into(), ids().collect()),
        ("negative ids".into(), ids().map(|id| -1 - id).collect()),
        ("around zero".into(), ids().map(|id| id - IDS as i64 / 2).collect()),
        ("the largest".into(), ids().map(|id| i64::MAX - id).collect()),
        ("the smallest".into(), ids().map(|id| i64::MIN + id).collect()),
        ("high bits alone".into(), ids().map(|id| id << 50).collect()),
        ("twice the same half".into(), ids().map(|id| id << 32 | id).collect()),
        ("squares".into(), ids().map(|id| id * id).collect()),
        ("seconds of a day".into(), ids().map(|id| 1_700_000_000_000 + id * 1000).collect()),
    ];
    shapes.extend((1..50).step_by(3).map(|bit| (format!("multiples of 2^{bit}"), ids().map(|id| id << bit).collect())));
    let mut sparse = vec![0_u64];
    for first in 0..64_u32 {
        sparse.push(1 << first);
        for second in 0..first {
            sparse.push(1 << first | 1 << second);
            sparse.extend((0..second).map(|third| 1 << first | 1 << second | 1 << third));
        }
    }
    for (name, ids) in [("few low bits", &sparse[..IDS]), ("few high bits", &sparse[sparse.len() - IDS..])] {
        shapes.push((name.into(), ids.iter().map(|&id| id as i64).collect()));
    }
    shapes
}

/// hashbrown chooses buckets by the lowest bits and tags by the upper seven. Shards are chosen by the bits below those
/// seven.
#[test]
fn every_shape_is_spread_like_chance() {
    let mut random = Random(1);
    for (shape, ids) in shapes() {
        assert_eq!(ids.len(), IDS);
        for number in 0..6 {
            let state = random.state();
            let hashes: Vec<_> = ids.iter().map(|id| state.hash_one(id)).collect();
            let hashes = || hashes.iter().copied();
            let chain = longest_chain(hashes(), 14);
            assert!(chain <= MAX_CHAIN, "{shape}, secret {number}: a chain of {chain}");
            // 128 on average, with a standard deviation of 11.3; 64, and 8.
            let tags = counts(hashes(), 57, 7);
            assert!(tags.iter().all(|count| (44..=212).contains(count)), "{shape}, secret {number}: tags {tags:?}");
            let shards = counts(hashes(), 49, 8);
            assert!(
                shards.iter().all(|count| (8..=124).contains(count)),
                "{shape}, secret {number}: shards {shards:?}"
            );
            // Within one of sixteen shards, which has a sixteenth of the ids.
            let chain = longest_chain(hashes().filter(|hash| hash << 7 >> 60 == 5), 10);
            assert!(chain <= MAX_CHAIN, "{shape}, secret {number}: a chain of {chain} in a shard");
            // Pairs of ids with the same bucket and tag. A lookup compares them needlessly. There are 64 pairs on average.
            let mut keys: Vec<_> = hashes().map(|hash| hash.rotate_left(7) & 0x1f_ffff).collect();
            keys.sort_unstable();
            let pairs: usize = keys.chunk_by(PartialEq::eq).map(|met| met.len() * (met.len() - 1) / 2).sum();
            assert!(pairs <= 140, "{shape}, secret {number}: {pairs} pairs share bucket and tag");
        }
    }
}

/// Tests the theorem on pairs of ids that differ as little as possible: the hashes of a pair agree in seven given bits
/// for one of 128 secrets.
#[test]
fn no_pair_meets_more_often_than_by_chance() {
    let pairs = [(0, 1), (1, 2), (0, i64::MIN), (1, i64::MIN | 1), (-1, 1), (0, 1 << 32), (1 << 62, 1 << 63), (6, 7)];
    let mut random = Random(2);
    let states: Vec<_> = (0..IDS).map(|_| random.state()).collect();
    for (a, b) in pairs {
        for from in [0, 7, 30, 50, 57] {
            let bits = |id: i64, state: &IdState| state.hash_one(id) >> from & 0x7f;
            let met = states.iter().filter(|state| bits(a, state) == bits(b, state)).count();
            assert!((44..=212).contains(&met), "{a} and {b} share bits from {from} under {met} of {IDS} secrets");
        }
    }
}

#[test]
fn ids_that_meet_under_a_known_secret_do_not_under_another() {
    let mut random = Random(3);
    let known = random.state();
    let mut built: Vec<(&str, Vec<i64>, IdState)> = vec![
        ("a secret of zeros", (0..1024).collect(), IdState::of([0; 5], RandomState::new())),
        (
            "a secret that multiplies by one",
            (0..1024).map(|id| id << 32).collect(),
            IdState::of([0, 1, 0, 0, 1], RandomState::new()),
        ),
    ];
    let meeting = (0..).filter(|&id: &i64| known.hash_one(id) & 0x3ff == 0).take(1024).collect();
    built.push(("another secret", meeting, known));
    for (name, ids, known) in built {
        assert_eq!(longest_chain(ids.iter().map(|id| known.hash_one(id)), 10), 1024, "{name}: they meet");
        for _ in 0..20 {
            let state = random.state();
            let chain = longest_chain(ids.iter().map(|id| state.hash_one(id)), 10);
            assert!(chain <= MAX_CHAIN, "built for {name}: a chain of {chain} under another");
        }
    }
}

/// Progressions are the worst case of a linear hash. The mix prevents their long chains.
#[test]
fn no_progression_makes_a_chain() {
    let mut random = Random(4);
    let mut longest_unmixed = 0;
    for _ in 0..4000 {
        let (state, start, step) = (random.state(), random.next() as i64, random.next() as i64);
        let ids = || (0..1024).map(|number| step.wrapping_mul(number).wrapping_add(start));
        longest_unmixed = longest_unmixed.max(longest_chain(ids().map(|id| unmixed(&state, id)), 10));
        let chain = longest_chain(ids().map(|id| state.hash_one(id)), 10);
        assert!(chain <= MAX_CHAIN, "{start} + i * {step}: a chain of {chain}");
    }
    assert!(longest_unmixed > 2 * MAX_CHAIN, "the mix has nothing to do: without it {longest_unmixed} at most");
}

/// Two ids that nearly collide before the mix give a progression that collides. After the mix they do not, even for an
/// attacker that knows the secret of step 1.
#[test]
fn a_pair_that_meets_gives_no_progression() {
    let mut random = Random(5);
    for _ in 0..4 {
        let state = random.state();
        // The distance around the circle that one step of the progression covers.
        let from_zero = |step: i64| {
            let turned = whole(state.multiplier).wrapping_mul(step as u128) << 50;
            turned.min(turned.wrapping_neg())
        };
        let step = (1..1 << 21).min_by_key(|&step| from_zero(step)).expect("there are steps");
        let ids = || (0..IDS as i64).map(|number| number * step);
        let chain = longest_chain(ids().map(|id| unmixed(&state, id)), 14);
        assert!(chain > 5 * MAX_CHAIN, "step {step} makes only a chain of {chain}");
        let chain = longest_chain(ids().map(|id| state.hash_one(id)), 14);
        assert!(chain <= MAX_CHAIN, "step {step} makes a chain of {chain} after the mix");
    }
}

/// The chance that two secrets agree on one of these ids is 2^-58.
#[test]
fn two_states_differ() {
    let (first, second) = (IdState::default(), IdState::default());
    for id in -32..32_i64 {
        assert_ne!(first.hash_one(id), second.hash_one(id));
        assert_eq!(first.hash_one(id), first.clone().hash_one(id));
    }
}

#[test]
fn other_keys_are_hashed_whole() {
    let state = Random(6).state();
    let keys: [&[u8]; 6] =
        [b"", b"a", b"eight by", b"eight bytes and more", b"eight bytes and morf", b"fight bytes and more"];
    let hash = |key: &[u8]| {
        let mut hasher = state.build_hasher();
        hasher.write(key);
        hasher.finish()
    };
    for (number, key) in keys.iter().enumerate() {
        for other in &keys[..number] {
            assert_ne!(hash(key), hash(other), "{key:?} and {other:?}");
        }
    }
}

#[test]
fn a_secret_is_not_printed() {
    let state = Random(7).state();
    assert_eq!(format!("{state:?}"), "IdState { .. }");
    assert_eq!(format!("{:?}", state.build_hasher()), "IdHasher { .. }");
}

/// Ids that are no single number are hashed by SipHash: no part is lost, and the order matters.
#[test]
fn other_ids_are_hashed_whole() {
    let state = IdState::default();
    assert_eq!(state.hash_one("a"), state.hash_one(String::from("a")));
    assert_eq!(state.hash_one(7_u64), state.hash_one(7_i64));
    let pairs = [(1_u64, 2_u64), (2, 1), (0, 3), (3, 0), (1, 1), (2, 2)];
    let mut hashes: Vec<_> = pairs.iter().map(|pair| state.hash_one(pair)).collect();
    hashes.extend(["", "a", "b", "ab", "ba", "a\0", "12345678", "123456781234567"].map(|text| state.hash_one(text)));
    hashes.extend([[0_u8; 16], [1; 16]].map(|uuid| state.hash_one(uuid)));
    hashes.extend([1_u128, 1 << 64].map(|number| state.hash_one(number)));
    let count = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
    // Two states have two keys.
    assert_ne!(state.hash_one("a"), IdState::default().hash_one("a"));
    assert_eq!(state.hash_one("a"), state.clone().hash_one("a"));
}
