//! The HTTP/1.1 session against the plain reader of RFC 9112: in one piece, byte by byte, and split at random.
#![no_main]

#[path = "../../crates/polyserve-serving/tests/random/answers.rs"]
mod answers;
#[path = "../../crates/polyserve-serving/tests/random/check.rs"]
mod check;
#[path = "../../crates/polyserve-serving/tests/random/grammar.rs"]
mod grammar;
#[path = "../../crates/polyserve-serving/tests/random/reader.rs"]
mod reader;
#[path = "../../crates/polyserve-serving/tests/random/service.rs"]
mod service;
#[path = "../../crates/polyserve-serving/tests/common/wire.rs"]
mod wire;

use check::{Case, case_of, check};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((case, splits)) = case_of(input) else { return };
    if let Err(error) = check(&case, splits) {
        let Case { stream, rules, max_requests } = case;
        panic!("{error}\n{rules:?}, at most {max_requests} requests, the stream b\"{}\"", stream.escape_ascii());
    }
});
