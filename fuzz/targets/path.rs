//! Paths of entities: of the published type, and of a type with texts as ids.
#![no_main]

#[path = "../../crates/polyserve/tests/fuzzed/path.rs"]
mod path;

libfuzzer_sys::fuzz_target!(|input: &[u8]| path::check(input));
