#!/usr/bin/env bash
# Everything that the README promises, tested. Ends with the test runner's own lines.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh

step() { echo; echo "== $*"; "$@"; }

step cargo build --release --examples --bins
step ci/scratch.sh
step ci/ab.sh
step cargo bench -q -- --test
step cargo run -q --release --example custom_repo
step cargo run -q --release --example custom_server
step cargo run -q --release --example graceful_shutdown
step cargo test --workspace
