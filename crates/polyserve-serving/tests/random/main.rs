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
mod grammar;
mod mutate;
mod reader;
mod service;
mod valid;
#[path = "../common/wire.rs"]
mod wire;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use answers::{CONTINUE, Expected};
use polyserve_core::ServerConfig;
use polyserve_core::panics::panic_text;
use polyserve_serving::http1::{Env, Want};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reader::{Rules, Step};
use service::{Call, RecordedCalls, Recorder};
use wire::{AcceptFn, Wire};

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

/// The max number of requests on a connection; 0 is no limit.
fn max_requests(rng: &mut ChaCha8Rng) -> u64 {
    if rng.random_range(0..8) == 0 { rng.random_range(1..5) } else { 0 }
}

struct Case {
    stream: Vec<u8>,
    rules: Rules,
    max_requests: u64,
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

fn check(case: &Case, seed: u64) -> Result<u64, String> {
    let steps = reader::read(&case.stream, &case.rules);
    let max_requests = if case.max_requests == 0 { u64::MAX } else { case.max_requests };
    let expected = Expected::of(&steps, max_requests);

    let unsplit = serve(case, [case.stream.as_slice()].into_iter(), Box::new(|count| count));
    expected.check(&unsplit.out)?;
    let answers = expected.answers.iter().filter(|answer| **answer != answers::Expect::Continue).count() as u64;
    if unsplit.calls != expected.calls {
        return Err(format!("the service saw {:#?}, not {:#?}", unsplit.calls, expected.calls));
    } else if unsplit.closed != expected.closed || unsplit.answered != answers {
        let Served { closed, answered, .. } = unsplit;
        return Err(format!("closed: {closed}, not {}; answered: {answered}, not {answers}", expected.closed));
    }

    let bytewise = serve(case, case.stream.chunks(1), Box::new(|count| count));
    let mut rng = ChaCha8Rng::seed_from_u64(!seed);
    let at_random = serve(case, split(&mut rng, &case.stream).into_iter(), random_accept(rng));
    for (how, served) in [("byte by byte", bytewise), ("split at random", at_random)] {
        if !expected.depends_on_arrival && served != unsplit {
            return Err(format!("{how} it differs: {served:?}\nnot {unsplit:?}"));
        }
    }
    Ok(steps.len() as u64)
}

/// The result of serving a stream.
struct Served {
    calls: Vec<Call>,
    out: Vec<u8>,
    closed: bool,
    answered: u64,
}

impl PartialEq for Served {
    /// Removes `100 Continue`, because whether it is sent may depend on the split.
    fn eq(&self, other: &Self) -> bool {
        let same = (&self.calls, self.closed, self.answered) == (&other.calls, other.closed, other.answered);
        same && (self.out == other.out || without_continue(&self.out) == without_continue(&other.out))
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { calls, out, closed, answered } = self;
        write!(f, "{calls:?}, closed: {closed}, answered: {answered}, b\"{}\"", out.escape_ascii())
    }
}

fn without_continue(out: &[u8]) -> Vec<u8> {
    let mut rest = out;
    let mut filtered = Vec::with_capacity(out.len());
    while let Some((&byte, after)) = rest.split_first() {
        match rest.strip_prefix(CONTINUE) {
            Some(after) => rest = after,
            None => {
                filtered.push(byte);
                rest = after;
            }
        }
    }
    filtered
}

fn serve<'s>(case: &Case, parts: impl Iterator<Item = &'s [u8]>, accept: AcceptFn) -> Served {
    let recorded = RecordedCalls::default();
    let config = ServerConfig::default()
        .max_head(case.rules.max_head)
        .max_headers(case.rules.max_headers)
        .max_body(case.rules.max_body)
        .requests_per_connection((case.max_requests > 0).then_some(case.max_requests));
    config.validate().unwrap();
    let env = Env::new(Arc::new(Recorder { calls: Arc::clone(&recorded) }), &config);
    let mut wire = Wire::with_accept(&env, accept);
    for part in parts {
        if matches!(wire.send(part), Want::Close { .. }) {
            break;
        }
    }
    let (closed, sent) = (wire.is_closed(), wire.out.len());
    let end = wire.end();
    assert!(matches!(end, Want::Close { .. }) && wire.out.len() == sent, "the end of input ends it, and says nothing");
    let calls = std::mem::take(&mut *recorded.lock().unwrap());
    Served { calls, out: wire.out, closed, answered: wire.answered }
}

/// Splits a stream into a few pieces of any length.
fn split<'s>(rng: &mut ChaCha8Rng, stream: &'s [u8]) -> Vec<&'s [u8]> {
    let mut cuts: Vec<usize> = (0..rng.random_range(0..8)).map(|_| rng.random_range(0..=stream.len())).collect();
    cuts.sort_unstable();
    let mut parts = Vec::new();
    let mut start = 0;
    for cut in cuts.into_iter().chain([stream.len()]) {
        if cut > start {
            parts.push(&stream[start..cut]);
        }
        start = cut;
    }
    parts
}

fn random_accept(mut rng: ChaCha8Rng) -> AcceptFn {
    let all = rng.random_range(0..2) == 0;
    Box::new(move |count| if all || count == 0 { count } else { rng.random_range(0..=count) })
}
