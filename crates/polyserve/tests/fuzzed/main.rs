//! What the fuzz targets check, on the committed seeds and on random changes of them.
//!
//! Each module is a target of `fuzz/`, which feeds it inputs that are guided by coverage: `ci/fuzz.sh NAME`. This run is short. A longer
//! one has more changes of each seed:
//!
//! ```text
//! POLYSERVE_CASES=1000000 cargo test --release -p polyserve --all-features --test fuzzed
//! ```
#![forbid(unsafe_code)]

mod chunked;
mod conditions;
mod entity;
#[cfg(feature = "durable")]
mod log;
mod path;
#[cfg(feature = "tls")]
mod tls;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[test]
fn chunked_bodies_do_not_depend_on_their_splits() {
    run("chunked", 20_000, chunked::check);
}

#[test]
fn conditions_are_judged_as_the_rfc_judges_them() {
    run("conditions", 20_000, conditions::check);
}

#[test]
fn what_is_read_as_an_entity_is_json_and_is_kept() {
    run("entity", 20_000, entity::check);
}

#[test]
fn paths_name_what_they_encode() {
    run("path", 20_000, path::check);
}

#[cfg(feature = "durable")]
#[test]
fn a_log_opens_the_same_again_or_is_repaired() {
    run("log", 300, log::check);
}

#[cfg(feature = "tls")]
#[test]
fn bytes_over_tls_are_answered_as_without() {
    run("tls", 300, tls::check);
}

/// Checks every seed of a target, and this number of random changes of seeds.
fn run(target: &str, cases: u64, check: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut seeds: Vec<_> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| fs::read(entry.expect("it is listed").path()).expect("a seed can be read"))
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} has no seeds", directory.display());
    seeds.iter().for_each(|seed| checked(check, seed));
    let cases = match std::env::var("POLYSERVE_CASES") {
        Ok(cases) => cases.parse().expect("POLYSERVE_CASES is a number"),
        Err(_) => cases,
    };
    let mut random = ChaCha8Rng::seed_from_u64(41);
    for _ in 0..cases {
        let mut input = seeds[random.random_range(0..seeds.len())].clone();
        for _ in 0..random.random_range(1..4) {
            change(&mut random, &mut input, &seeds);
        }
        checked(check, &input);
    }
}

/// Changes an input: a bit, a byte, a piece, its end, or a piece of another one.
fn change(random: &mut ChaCha8Rng, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let at = random.random_range(0..=input.len());
    let end = random.random_range(at..=input.len());
    match random.random_range(0..6) {
        0 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
        1 if at < input.len() => input[at] = random.random(),
        2 => drop(input.drain(at..end)),
        3 => input.extend_from_within(at..end),
        4 => input.truncate(at),
        _ => {
            let other = &seeds[random.random_range(0..seeds.len())];
            let from = random.random_range(0..=other.len());
            drop(input.splice(at..end, other[from..].iter().copied().take(64)));
        }
    }
    input.truncate(4096);
}

/// Shows the input of a check that fails.
fn checked(check: fn(&[u8]), input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        eprintln!("the input is b\"{}\"", input.escape_ascii());
        resume_unwind(panic);
    }
}
