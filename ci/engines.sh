#!/usr/bin/env bash
# Measures the durable store next to embedded engines with one transaction per PUT, in turn: writes, group commit on a
# slow disk, reads next to the repo in memory, and the start with a million entities. Takes two minutes, after a build
# of one minute.
#
# With `cluster`, measures an async server over etcd, Redis Cluster and PostgreSQL, next to their client libraries
# alone. Takes three minutes.
# ci/engines.sh [writes|delay|reads|start|all] [WRITERS]
# ci/engines.sh cluster [DIRECTORY]          records in DIRECTORY/cluster.csv
# ci/engines.sh model DIRECTORY [--check]    writes the tables of docs/SCALING.md from that record, or checks them;
#                                            a few seconds
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
features=()
[ "${1-}" != model ] || features=(--no-default-features) # the model needs no engine
cargo run -q --release --locked --manifest-path benches/engines/Cargo.toml --target-dir target/engines "${features[@]}" -- "$@"
