#!/usr/bin/env bash
# Records the runs behind the tables of the docs.
# ci/results.sh DIR [PART...]   DIR is for example docs/results/2026-11-25
# * Nothing else should run on the machine. The script first prints its parts and an estimate of their time.
# * After an interruption, the same command continues. The parts can be recorded one by one, with commits of records and
#   docs between them.
# * At the end, the docs show the records of that directory. The figures in prose, and what the headers of the
#   strategies say about wins and losses, have to be compared with them by hand.
set -uo pipefail
trap 'exit 130' INT TERM # an interrupted command ends by itself, so the script must too
cd "$(dirname "$0")/.."
. ci/setup.sh

# The parts in order, with their minutes on two cores.
parts=(matrix:160 stress:12 tasks:150 page:95 ladder:60 growth:75 capacity:45 seam:19 stores:80 compare:18 crowd:55 dispatch:5
    benches:14 trial:115 instrument:6 docs:1)

dir=${1:?a directory to record in}
dir=${dir%/}
shift
known() { printf '%s\n' "${parts[@]%%:*}" | grep -qxF -- "$1"; }
for part in "$@"; do known "$part" || { echo "there is no part $part: they are ${parts[*]%%:*}" >&2; exit 2; }; done
chosen=()
minutes=0
for part in "${parts[@]}"; do
    if [ $# = 0 ] || printf '%s\n' "$@" | grep -qxF -- "${part%%:*}"; then
        chosen+=("${part%%:*}")
        minutes=$((minutes + ${part##*:}))
        printf '%-10s about %3d min\n' "${part%%:*}" "${part##*:}"
    fi
done
printf '%-10s about %d h %02d min, with the builds of the ladder\n' "in all" $((minutes / 60)) $((minutes % 60))

cargo build --release --workspace --bins || exit
failed=0
# A command that fails prints its error, and the script continues.
polyserve() { echo; echo "== polyserve $* (after $((SECONDS / 60)) min)"; target/release/polyserve "$@" --out "$dir" || failed=1; }

matrix() {
    polyserve bench matrix
    # Two server cores, which the client shares: only the listings. The pool size 1 is also at most the number of cores, so the
    # claims about pools up to the number of cores have enough cells for a verdict.
    local listings='["twin:entity-debug-printing","twin:entity-printing","peer:go/entity-rwmutex-printing"]'
    polyserve bench matrix --server-cores 0-1 --client-cores 0-1 --set "contestants=$listings" \
        --set 'sweep.workers=[1,2,4,8,16,32,64]' --name matrix-two-cores
}

stress() {
    polyserve bench stress # the listings, and our servers with bounded queues
    # The published channel was unbounded.
    polyserve bench stress --set 'contestants=["catalog:pool_classic/mpsc_pool/two_level"]' --set 'sweep.connection_use=["burst"]' \
        --queue 40000 --max-connections 40000 --name stress-unbounded
}

tasks() {
    polyserve bench tasks # as published
    polyserve bench tasks --set mode.task=200ms --name tasks-200ms
    # The listings test for convergence in each step: so do ours here. A few tasks are enough for the steps per second.
    polyserve bench tasks --set mode.check_convergence=true --set 'sweep.tasks=[1,2,3,4]' --set claim=[] --name tasks-check
    # The published text has another recurrence, which the listings lack.
    polyserve bench tasks --set mode.order=as_described --set 'sweep.tasks=[1,2,3,4]' --set claim=[] \
        --set baseline=executor:scoped_threads/std --set 'contestants=["executor:*","peer:go/goroutines"]' --name tasks-as-described
}

page() {
    polyserve bench page
    polyserve bench page-workers # with the servers that are no pools, which have one bound
}

ladder() {
    # The published differences are a few per cent, and thirty rounds leave most of them undecided.
    polyserve bench ladder --set rounds=100
    # These differences are large, so ten rounds are enough.
    local large=(--set claim=[] --set rounds=10)
    polyserve bench ladder "${large[@]}" --set 'sweep={connections=[1000],pipeline=[16]}' --set mode.slice=320ms --name ladder-16
    local flush='["peer:ladder/warp+lto+jemalloc","peer:ladder/warp+lto+jemalloc+pipeline-flush"]'
    polyserve bench ladder "${large[@]}" --set "contestants=$flush" --set controls=[] \
        --set 'sweep={connections=[64],pipeline=[1,2,4,8,16,32,64]}' --name ladder-depths
}

# A server of each kind.
kinds=sequential,thread_per_connection,leader_followers,pool_classic/mpsc_pool,pool_server/mpsc_pool
kinds+=,futures_pool,tokio_tcp,tokio_per_core,tokio_hyper,smol

growth() {
    polyserve bench connections --set 'sweep.connections=[10,30,100,300,1000,3000,10000]' --set mode.slice=500ms
    polyserve bench keys
    polyserve bench workers
    polyserve bench payload
    # The cost below saturation of all servers, including those of third parties.
    local all='["catalog:pool_server/sharded","catalog:*/sharded","peer:*"]'
    polyserve bench rates --set "contestants=$all"
    polyserve bench rates --set "contestants=$all" --set workload.close=true --name rates-close
}

capacity() { polyserve bench capacity --set mode.slice=200ms; }

seam() { polyserve bench seam; }

stores() {
    polyserve bench stores --name stores-workers
    polyserve bench stores --set 'sweep={workers=[1,2],operation=["read","50/50"],dist=["zipf:0.99","hot"]}' --name stores-skew
    local keys='sweep={keys=[1000,10000,100000,1000000]'
    local by_keys=(--set 'chart=[{x="keys",y="operations_per_s"}]')
    polyserve bench stores "${by_keys[@]}" --set "$keys,operation=[\"read\",\"50/50\",\"churn\"]}" --name stores-keys
    polyserve bench stores-typed
    polyserve bench stores-typed "${by_keys[@]}" --set "$keys,operation=[\"read\",\"50/50\"]}" --name stores-typed-keys
    # Filling a store takes a minute. Three rounds give an impression, and no verdict.
    local most='["repo:sharded","repo:packed","repo:dashmap","repo:papaya","repo:scc","repo:copy_on_write","bare:papaya","bare:scc"]'
    polyserve bench stores --set 'sweep={operation=["read","50/50"]}' --set "contestants=$most" --set 'chart=[]' \
        --set workload.keys=10000000 --set rounds=3 --set mode.limit=5m --name stores-ten-million
    polyserve bench stores --set 'sweep={payload=[15,256,4096,16384],operation=["read","50/50"]}' \
        --set 'chart=[{x="payload",y="operations_per_s"}]' --name stores-payload
    polyserve bench stores-memory
}

compare() {
    local servers=(--servers "$kinds" --repos sharded --rounds 20 --baseline pool_server/sharded)
    polyserve compare "${servers[@]}" --name servers-kept
    polyserve compare "${servers[@]}" --name servers-close --no-keepalive
    local pool=(--servers pool_server --repos two_level --workers 8 --rounds 10)
    polyserve compare "${pool[@]}" --name pool-kept
    polyserve compare "${pool[@]}" --name pool-close --no-keepalive
    local ours=(--servers tokio_per_core,tokio_tcp,smol,tokio_hyper --repos std_rwlock --workers 1 --rounds 12)
    ours+=(--baseline peer/hyper --peers all)
    polyserve compare "${ours[@]}" --name compare-get
    polyserve compare "${ours[@]}" --name compare-put --mix put=1
    polyserve compare "${ours[@]}" --name compare-pipeline --pipeline 16
    polyserve compare "${ours[@]}" --name compare-close --no-keepalive
}

crowd() {
    # The cost of idle connections on all servers, including those of third parties.
    polyserve bench crowd --set 'contestants=["catalog:*/sharded", "peer:*"]' --set rounds=12 --name crowd-idle
    polyserve bench crowd-slow --set mode.phase=3s
}

dispatch() { POLYSERVE_BENCH_OUT=$dir taskset -c 0 cargo bench -q --workspace --bench strategies -- dispatch || failed=1; }

benches() { POLYSERVE_BENCH_OUT=$dir cargo bench -q --workspace --bench strategies || failed=1; }

# Tests whether comparisons can be trusted: of a server with itself, and with a slowed copy.
trial() {
    polyserve bench trial-same
    polyserve bench trial-slowed
    # The same with comparisons that stop when they are sure. Each round takes half of the time, because equal servers
    # take all rounds.
    local sure=(--set mode.stops_when_sure=true --set mode.slice=100ms --set mode.warm_up=30ms)
    polyserve bench trial-same "${sure[@]}" --set mode.comparison_rounds=50 --name trial-sure-same
    polyserve bench trial-slowed "${sure[@]}" --set mode.slowed=10.0 --name trial-sure-slowed
}

# Measures the cost of the load generator, its agreement with independent tools, and whether it detects a stopped
# server. One known difference, which docs/METHODOLOGY.md explains, does not fail the recording.
instrument() {
    ci/instrument.sh wrk 10 stop sweep 3 | tee "$dir/instrument.txt" && return
    awk '/DIFFERS/ && $1 == 64 && $2 == 20000 {known = 1; next} /DIFFERS/ {other = 1} END {exit !known || other}' \
        "$dir/instrument.txt" || failed=1
}

# Makes the docs show the new records.
docs() {
    local file
    if [[ $dir == docs/* ]]; then
        for file in "$dir"/*.jsonl "$dir"/*.txt; do
            sed -i "s#results/[^ /]*/${file##*/}#${dir#docs/}/${file##*/}#g" README.md docs/*.md docs/decisions/*.md
        done
        # Links to the directory itself.
        sed -i -E "s#(\(|docs/)results/20[0-9-]{8}([\`\)])#\1${dir#docs/}\2#g" README.md docs/*.md
        [ ! -f "$dir/stores-workers.jsonl" ] ||
            sed -i -E "s#docs/charts/20[0-9-]{8}-stores-workers#docs/charts/${dir##*/}-stores-workers#g" README.md
        find docs/charts -name '20*.svg' -delete # all are drawn again
    fi
    target/release/polyserve report --splice docs/*.md || failed=1
}

for part in "${chosen[@]}"; do
    "$part"
done
exit "$failed"
