//! The codec is compared with a plain reading of RFC 9112, on random streams.
//!
//! Each stream is served three times: in one piece, byte by byte, and split at random offsets to a client that reads
//! the answers in random parts. The first run is compared with the result of the plain reader: the requests that the
//! service received, the answers, and whether the connection closed. The other two runs must give the same bytes as the
//! first.
//!
//! By default the run is short. The full run has a million requests for each of the tests:
//!
//! ```text
//! POLYSERVE_CASES=1000000 cargo test --release -p polyserve-serving --test random -- --nocapture
//! ```
//!
//! A failure prints its seed and the shortest stream found that fails in the same way. `POLYSERVE_SEED=...
//! POLYSERVE_CASES=1` runs it again.
#![forbid(unsafe_code)]

mod answers;
mod check;
mod grammar;
mod mutate;
mod reader;
mod service;
mod valid;
#[path = "../common/wire.rs"]
mod wire;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use check::{Case, case_of, check};
use polyserve_core::panics::panic_text;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reader::{Rules, Step};

#[test]
fn valid_streams_are_served_as_they_were_written() {
    run("valid", |rng| {
        let count = rng.random_range(1..12);
        let (stream, written) = valid::stream(rng, count);
        let rules = Rules { max_head: 16 * 1024, max_headers: 100, max_body: 1024 * 1024 };
        let steps: Vec<Step> = written.into_iter().map(|(head, body)| Step::Request(head, body)).collect();
        assert_eq!(reader::read(&stream, &rules), steps, "the reader reads {}", stream.escape_ascii());
        Case { stream, rules, max_requests: max_requests(rng) }
    });
}

#[test]
fn mutated_streams_are_read_as_the_rfc_reads_them() {
    run("mutated", |rng| {
        let mut stream = match rng.random_range(0..4) {
            0 => mutate::garbage(rng),
            _ => {
                let count = rng.random_range(1..5);
                let mut stream = valid::stream(rng, count).0;
                mutate::mutate(rng, &mut stream);
                stream
            }
        };
        stream.truncate(40_000);
        Case { stream, rules: mutate::rules(rng), max_requests: max_requests(rng) }
    });
}

/// Each seed of the fuzz target `session`: among them are the streams that were once misread.
#[test]
fn the_seeds_of_the_fuzz_target_are_read_as_the_rfc_reads_them() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/session");
    let mut steps = 0;
    for seed in fs::read_dir(directory).unwrap_or_else(|error| panic!("{directory}: {error}")) {
        let path = seed.expect("it is listed").path();
        let Some((case, splits)) = case_of(&fs::read(&path).expect("a seed can be read")) else { continue };
        steps += check_catching_panics(&case, splits).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    assert!(steps > 0, "no seed has a request");
}

/// The max number of requests on a connection; 0 is no limit.
fn max_requests(rng: &mut ChaCha8Rng) -> u64 {
    if rng.random_range(0..8) == 0 { rng.random_range(1..5) } else { 0 }
}

fn number_from(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")),
        Err(_) => default,
    }
}

fn run(name: &str, make: impl Fn(&mut ChaCha8Rng) -> Case) {
    let min_requests = number_from("POLYSERVE_CASES", 6_000);
    let start = Instant::now();
    let (mut streams, mut requests, mut seed) = (0_u64, 0_u64, number_from("POLYSERVE_SEED", 1));
    while requests < min_requests {
        let case = make(&mut ChaCha8Rng::seed_from_u64(seed));
        match check_catching_panics(&case, seed) {
            Ok(count) => requests += count,
            Err(error) => {
                let smallest = shrink(&case, seed);
                let error = check_catching_panics(&smallest, seed).err().unwrap_or(error);
                panic!(
                    "POLYSERVE_SEED={seed} fails: {error}\n{:?}, at most {} requests, the stream b\"{}\"",
                    smallest.rules,
                    smallest.max_requests,
                    smallest.stream.escape_ascii()
                );
            }
        }
        (streams, seed) = (streams + 1, seed + 1);
        requests += u64::from(min_requests == 1);
    }
    println!("{name}: {requests} requests in {streams} streams, each served three times, in {:.1?}", start.elapsed());
}

/// Returns the case with a shorter stream that still fails.
fn shrink(case: &Case, seed: u64) -> Case {
    let mut smallest = Case { stream: case.stream.clone(), ..*case };
    let mut size = smallest.stream.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at + size <= smallest.stream.len() {
            let mut candidate = Case { stream: smallest.stream.clone(), ..smallest };
            candidate.stream.drain(at..at + size);
            if check_catching_panics(&candidate, seed).is_err() {
                smallest = candidate;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    smallest
}

/// Returns the number of requests in the stream of `case`, or how the codec misread it.
fn check_catching_panics(case: &Case, seed: u64) -> Result<u64, String> {
    catch_unwind(AssertUnwindSafe(|| check(case, seed))).unwrap_or_else(|panic| Err(panic_text(panic.as_ref())))
}
