#!/usr/bin/env bash
# Lints everything with clippy, all targets. `cargo clippy` would check each crate that is used once more; this takes what is built for
# the tests, and compiles only the crates of the workspace, without code.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
. ci/programs.sh
export RUSTC_WORKSPACE_WRAPPER=$PWD/ci/lint-rustc
# What cargo passes to clippy for `-- -D warnings`.
export CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
cargo test -q --no-run --workspace --all-targets --features "$features,polyserve/queue-waits,polyserve-examples/http2"
