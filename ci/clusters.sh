#!/usr/bin/env bash
# Every server of the catalog over the durable store and over real engines: the published stress scenario with its final state
# verified, histories of concurrent clients, and a comparison. The engines run on loopback and end with this script.
# ci/clusters.sh [SCALE [REPO...]]   SCALE is a multiple of the published 40 000 requests: 0.01 by default, a few minutes
#                                    REPO is durable, etcd, redis_cluster or postgres; all by default
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
scale=${1:-0.01}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- durable etcd redis_cluster postgres
# The same build as in ci/test.sh.
cargo build -q --release --examples --bins --features polyserve-cli/etcd
bin=target/release/polyserve
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# over REPO: the servers over one repo.
over() {
    echo "-- every server over ${1%%:*}"
    "$bin" stress --server all --repo "$1" --scale "$scale" --out "$tmp/${1%%:*}"
    "$bin" check --servers pool_server,tokio_tcp,leader_followers --repo "$1" --ops 2000
}

engines=()
for repo in "$@"; do
    [ "$repo" = durable ] && over "durable:$tmp" || engines+=("$repo")
done
[ ${#engines[@]} -gt 0 ] || exit 0
# They end when their input does.
coproc ENGINES { target/release/polyserve-engines "${engines[@]}"; }
names=()
for repo in "${engines[@]}"; do
    read -r name <&"${ENGINES[0]}" || { echo "$repo does not start" >&2; exit 1; }
    names+=("$name")
done
for name in "${names[@]}"; do over "$name"; done
# A list of repos whose locations have commas. Too short for a decision.
"$bin" compare --servers tokio_tcp --repos "$(IFS=,; echo "durable:$tmp,${names[*]}")" --rounds 2 --slice 100ms --connections 16 \
    --keys 200 --mix get=90,put=10 --no-latency
