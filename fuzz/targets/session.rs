//! The HTTP/1.1 session against the plain reader of RFC 9112: in one piece, byte by byte, and split at random.
//!
//! The first byte of an input selects the limits, the second the splits. The rest is the stream.
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

use check::{Case, check};
use libfuzzer_sys::fuzz_target;
use reader::Rules;

fuzz_target!(|input: &[u8]| {
    let [limits, splits, stream @ ..] = input else { return };
    let rules = match limits % 3 {
        0 => Rules { max_head: 16 * 1024, max_headers: 100, max_body: 1024 * 1024 },
        1 => Rules { max_head: 256, max_headers: 4, max_body: 64 },
        _ => Rules { max_head: 1024, max_headers: 100, max_body: 0 },
    };
    let max_requests = u64::from(limits / 64);
    let case = Case { stream: stream.to_vec(), rules, max_requests };
    if let Err(error) = check(&case, u64::from(*splits)) {
        panic!("{error}\n{rules:?}, at most {max_requests} requests, the stream b\"{}\"", stream.escape_ascii());
    }
});
