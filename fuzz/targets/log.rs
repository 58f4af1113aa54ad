//! The recovery of a durable store from any bytes in its files.
#![no_main]

#[path = "../../crates/polyserve/tests/fuzzed/log.rs"]
mod log;

libfuzzer_sys::fuzz_target!(|input: &[u8]| log::check(input));
