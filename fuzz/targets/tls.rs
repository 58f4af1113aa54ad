//! Bytes of a client to a server that speaks TLS: any bytes, and requests in records of any length, which are answered as without TLS.
#![no_main]

#[path = "../../crates/polyserve/tests/fuzzed/tls.rs"]
mod tls;

libfuzzer_sys::fuzz_target!(|input: &[u8]| tls::check(input));
