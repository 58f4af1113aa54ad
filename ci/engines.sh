#!/usr/bin/env bash
# The durable store next to embedded engines with one transaction for each PUT, in turn: writes, group commit on a slow disk,
# reads next to the repo in memory, and the start with a million entities. Two minutes, after a build of one.
# With `cluster`: an async server over etcd, Redis Cluster and PostgreSQL, next to their client libraries alone. Three minutes.
# ci/engines.sh [writes|delay|reads|start|all] [WRITERS]
# ci/engines.sh cluster [DIRECTORY]          records in DIRECTORY/cluster.csv
# ci/engines.sh model DIRECTORY [--check]    writes the tables of docs/SCALING.md from that record, or compares them: a few seconds
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
features=()
[ "${1-}" != model ] || features=(--no-default-features) # it needs none of the engines
cargo run -q --release --locked --manifest-path benches/engines/Cargo.toml --target-dir target/engines "${features[@]}" -- "$@"
