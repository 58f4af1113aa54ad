//! The body of a PUT as an entity, next to a reading by serde_json alone.
#![no_main]

#[path = "../../crates/polyserve/tests/fuzzed/entity.rs"]
mod entity;

libfuzzer_sys::fuzz_target!(|input: &[u8]| entity::check(input));
