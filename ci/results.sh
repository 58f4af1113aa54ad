#!/usr/bin/env bash
# Records the runs behind the tables of the docs, in eight hours.
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

# The parts in order: minutes on two cores, and the definitions that are recorded, with their flags. A part without definitions is a
# function.
parts=(
    'matrix 70|matrix|matrix-ours|matrix-two-cores --server-cores 0-1 --client-cores 0-1'
    'stress 8|stress|stress-unbounded --queue 40000 --max-connections 40000'
    'tasks 46|tasks|tasks-200ms|tasks-check|tasks-as-described'
    'page 40|page|page-others|page-workers'
    # The published differences are a few per cent, and thirty rounds leave most of them undecided.
    'ladder 40|ladder --set rounds=60|ladder-16|ladder-depths'
    'growth 11|connections --set sweep.connections=[10,100,1000,3000,10000]|keys|workers|payload'
    'rates 25|rates-all --name rates|rates-close --set sweep.rate_percent=[10,50]'
    'capacity 10|capacity --set sweep.goal_us=[1000] --set mode.slice=200ms'
    'seam 9|seam'
    'stores 61|stores --name stores-workers|stores-skew|stores-keys|stores-ordered|stores-typed|stores-typed-keys|stores-ten-million|stores-payload|stores-memory'
    'compare 5|servers-kept|servers-close|pool-kept --workers 8|pool-close --workers 8'
    'peers 14|compare-get --workers 1|compare-best --workers 1|compare-put --workers 1|compare-pipeline --workers 1|compare-close --workers 1'
    'percore 16|percore|percore-put|percore-rate|percore-low|percore-close --defer-accept|percore-hold'
    'tls 5|tls|tls-handshakes'
    'overload 14|overload-sleep'
    'crowd 25|crowd-idle|crowd-slow --set contestants=["catalog:pool_server/sharded","catalog:tokio_tcp/sharded","catalog:tokio_hyper/sharded"] --head-timeout 2s --body-timeout 2s --set mode.phase=3s'
    'dispatch 5'
    'benches 8'
    'trial 61|trial-same|trial-slowed|trial-sure-same --set rounds=20|trial-sure-slowed'
    'instrument 6'
    'docs 1'
)

dir=${1:?a directory to record in}
dir=${dir%/}
shift
for part in "$@"; do
    printf '%s\n' "${parts[@]%% *}" | grep -qxF -- "$part" || { echo "there is no part $part: they are ${parts[*]%% *}" >&2; exit 2; }
done
chosen=()
minutes=0
for part in "${parts[@]}"; do
    name=${part%% *} time=${part%%|*}
    if [ $# = 0 ] || printf '%s\n' "$@" | grep -qxF -- "$name"; then
        chosen+=("$part")
        minutes=$((minutes + ${time##* }))
        printf '%-10s about %3d min\n' "$name" "${time##* }"
    fi
done
printf '%-10s about %d h %02d min, with the builds of the ladder\n' "in all" $((minutes / 60)) $((minutes % 60))

cargo build --release --workspace --bins || exit
failed=0

dispatch() { POLYSERVE_BENCH_OUT=$dir taskset -c 0 cargo bench -q --workspace --bench strategies -- dispatch || failed=1; }

benches() { POLYSERVE_BENCH_OUT=$dir cargo bench -q --workspace --bench strategies || failed=1; }

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
    IFS='|' read -r -a definitions <<<"${part#"${part%%|*}"}"
    if [ ${#definitions[@]} = 0 ]; then
        "${part%% *}"
        continue
    fi
    # A definition that fails prints its error, and the script continues.
    for definition in "${definitions[@]:1}"; do
        echo
        echo "== polyserve bench $definition (after $((SECONDS / 60)) min)"
        read -r -a words <<<"$definition"
        target/release/polyserve bench "${words[@]}" --out "$dir" || failed=1
    done
done
exit "$failed"
