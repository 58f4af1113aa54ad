//! `If-Match` and `If-None-Match` as a second reading of RFC 9110, section 13, judges them.
#![no_main]

#[path = "../../crates/polyserve/tests/fuzzed/conditions.rs"]
mod conditions;

libfuzzer_sys::fuzz_target!(|input: &[u8]| conditions::check(input));
