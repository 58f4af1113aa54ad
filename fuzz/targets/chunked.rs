//! A chunked body in one piece, byte by byte, and skipped.
#![no_main]

#[path = "../../crates/polyserve/tests/fuzzed/chunked.rs"]
mod chunked;

libfuzzer_sys::fuzz_target!(|input: &[u8]| chunked::check(input));
