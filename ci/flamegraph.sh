#!/usr/bin/env bash
# Draws flame graphs of warp on the lowest and on the highest rung of the ladder. Writes docs/charts/flame-bottom.svg
# and docs/charts/flame-top.svg. Needs perf, with samples by the CPU clock, because virtual machines often have no
# hardware counters. Installs inferno into target/tools. The first builds take some minutes.
# ci/flamegraph.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh

seconds=${1:-10}
command -v perf >/dev/null || apt_install linux-perf || { echo "not run: flame graphs: perf is not installed" >&2; exit 1; }
perf record -q -e cpu-clock -o /dev/null -- true 2>/dev/null || { echo "not run: flame graphs: perf cannot record here" >&2; exit 1; }
[ -x target/tools/bin/inferno-flamegraph ] || cargo install -q --locked --root target/tools inferno

# Frame pointers let perf follow the calls. `warp` is not stripped, so functions have names.
build() { # NAME FEATURES: builds warp; the profile settings come from the environment
    RUSTFLAGS="-C force-frame-pointers=yes" cargo build -q --release --locked --manifest-path benches/ladder/Cargo.toml \
        --bin warp --features "$2" --target-dir "target/flamegraph/$1"
}
build bottom warp
CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 build top warp,jemalloc
cargo build -q --release -p polyserve-cli

work=$(mktemp -d)
server=
finish() { [ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"; }
trap finish EXIT

graph() { # NAME TITLE FLAG...: records and draws a flame graph
    local name=$1 title=$2
    shift 2
    taskset -c 0 "target/flamegraph/$name/release/warp" --listen=127.0.0.1:0 "$@" >"$work/$name" &
    server=$!
    until grep -qs "listening on " "$work/$name"; do sleep 0.1; done
    local url
    url=$(sed -n "s/.*listening on //p" "$work/$name")
    taskset -c 1 target/release/polyserve load "$url/" --connections 1000 --duration "$((seconds + 4))s" >/dev/null &
    local load=$!
    sleep 2 # all connections are open after that
    perf record -q -e cpu-clock -F 997 -g -p "$server" -o "$work/data" -- sleep "$seconds"
    wait "$load"
    kill "$server"
    wait "$server" || true
    server=
    perf script -i "$work/data" 2>/dev/null | target/tools/bin/inferno-collapse-perf -q >"$work/folded"
    target/tools/bin/inferno-flamegraph -q --minwidth 0.3 --title "$title" "$work/folded" >"docs/charts/flame-$name.svg"
    echo "docs/charts/flame-$name.svg: $(stat -c %s "docs/charts/flame-$name.svg") bytes"
}
graph bottom "warp, lowest rung: share of CPU time by function, 1 000 connections" --without=pipeline_flush
graph top "warp, all rungs (fat LTO, jemalloc, pipeline flush): share of CPU time by function, 1 000 connections"
