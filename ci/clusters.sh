#!/usr/bin/env bash
# Runs every server of the catalog over the durable store and over real engines: the published stress scenario with a
# check of the final state, histories of concurrent clients, and a comparison. The engines run on loopback and end with
# this script.
# ci/clusters.sh [IDS [REPO...]]
#   IDS     a quarter of the number of requests; published were 10 000. 100 by default, which takes a few minutes
#   REPO    durable, etcd, redis_cluster or postgres; all by default
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
ids=${1:-100}
[ $# = 0 ] || shift
[ $# -gt 0 ] || set -- durable etcd redis_cluster postgres
. ci/programs.sh
build_programs
bin=$programs/polyserve
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# over REPO: runs the servers over one repo.
over() {
    echo "-- every server over ${1%%:*}"
    "$bin" bench stress --set "contestants=['catalog:*/$1']" --set "mode.ids=$ids" \
        --set 'sweep.connection_use=["close","keep-alive"]' --out "$tmp/${1%%:*}"
    "$bin" check --servers pool_server,tokio_tcp,leader_followers --repo "$1" --ops 2000
}

# left REPO: prints the keys, tables or directories of temporary stores.
left() {
    local url=${1#*:} node
    case $1 in
    durable:*) find "$url" -maxdepth 1 -name 'temporary-*' ;;
    etcd:*) ETCDCTL_API=3 etcdctl --endpoints "$url" get --prefix temporary_ --keys-only ;;
    redis_cluster:*) for node in ${url//,/ }; do redis-cli -u "$node" --scan --pattern '*temporary_*'; done ;;
    postgres:*) psql "$url" -Atc "SELECT tablename FROM pg_tables WHERE tablename LIKE '%temporary\_%'" ;;
    esac
}

# interrupted REPO: a measurement that is interrupted leaves nothing in the store.
interrupted() {
    echo "-- interrupted over ${1%%:*}"
    "$bin" compare --servers tokio_tcp --repos "$1" --rounds 1000 --keys 500 --connections 4 --no-latency >"$tmp/interrupted" 2>&1 &
    local pid=$! kept ended=0
    for _ in {1..100}; do # wait until something is stored
        kept=$(left "$1" | grep -c .) && break
        sleep 0.1
    done
    [ "$kept" -gt 0 ] || { echo "nothing was stored"; cat "$tmp/interrupted"; return 1; }
    kill -TERM "$pid"
    wait "$pid" || ended=$?
    [ "$ended" = 143 ] || { cat "$tmp/interrupted"; return 1; } # 128 and the number of SIGTERM
    kept=$(left "$1" | grep -c .) || true
    [ "$kept" = 0 ] || { echo "$kept keys, tables or directories are left"; return 1; }
}

engines=()
for repo in "$@"; do
    if [ "$repo" != durable ]; then engines+=("$repo"); continue; fi
    over "durable:$tmp"
    interrupted "durable:$tmp"
done
[ ${#engines[@]} -gt 0 ] || exit 0
# The engines end when their input ends.
coproc ENGINES { "$programs/polyserve-engines" "${engines[@]}"; }
names=()
for repo in "${engines[@]}"; do
    read -r name <&"${ENGINES[0]}" || { echo "$repo does not start" >&2; exit 1; }
    names+=("$name")
done
for name in "${names[@]}"; do
    over "$name"
    interrupted "$name"
done
# Checks a list of repos whose locations contain commas. The run is too short to compare them.
"$bin" compare --servers tokio_tcp --repos "$(IFS=,; echo "durable:$tmp,${names[*]}")" --rounds 2 --slice 100ms --connections 16 \
    --keys 200 --mix get=90,put=10 --no-latency
