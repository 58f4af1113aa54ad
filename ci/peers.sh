#!/usr/bin/env bash
# Other people's frameworks: their package is built and tested, and each takes part in a comparison. Some minutes, and the
# network the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
manifest=benches/peers/rust/Cargo.toml

cargo fmt --check --manifest-path "$manifest"
cargo clippy -q --locked --manifest-path "$manifest" --target-dir target/peers --all-targets -- -D warnings
cargo test -q --locked --manifest-path "$manifest" --target-dir target/peers
# Three rounds decide nothing; they show that every peer is built, started, verified and listed. It fails where one does not.
cargo run -q --release --bin polyserve -- compare --peers all --servers pool_server --repos two_level --rounds 3 --no-latency
