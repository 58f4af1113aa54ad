#!/usr/bin/env bash
# What is too long for every change: the long form of every seeded test, 50 interrupts of 50, the stress scenario and a
# checked history, each a million requests for each server and repo; the models, searched further, and with mistakes that
# they must catch; other people's frameworks; and every package as users get it, built alone. Hours on 2 cores.
# ci/deep.sh [random] [durable] [drain] [ab] [jmeter] [models] [peers] [engines] [clusters] [stress] [check] [package]
set -euo pipefail
trap 'exit 130' INT TERM # the commands themselves end well where they are told to end early
cd "$(dirname "$0")/.."
. ci/setup.sh

random() {
    POLYSERVE_CASES=1000000 cargo test -q --release -p polyserve-core --test random
    POLYSERVE_CASES=1000000 cargo test -q --release -p polyserve-conformance --lib brute
}

durable() {
    POLYSERVE_SEEDS=2000 cargo test -q --release -p polyserve-durable --lib
    POLYSERVE_CRASHES=200 cargo test -q --release -p polyserve-durable --test crash
}

drain() { POLYSERVE_DRAIN_ROUNDS=50 cargo test -q --release -p polyserve-cli --test cli drain; }

ab() { ci/ab.sh 100000; }

jmeter() { ci/jmeter.sh; }

models() {
    ci/models.sh deep
    ci/models.sh mistakes
}

peers() { ci/peers.sh; }

engines() { ci/engines.sh; }

# 40 000 requests to each server over the durable store and over each engine.
clusters() { ci/clusters.sh 1; }

# names KIND: the catalog's names of a kind.
names() { target/release/polyserve list --json | grep -oE "\"$1\":\[[^]]*\]" | grep -oE '"name":"[^"]*"' | cut -d'"' -f4; }

stress() {
    cargo build -q --release --bin polyserve
    local server repo
    for server in $(names servers); do
        for repo in $(names repos); do
            echo "-- $server over $repo"
            target/release/polyserve stress --server "$server" --repo "$repo" --scale 25
        done
    done
}

# Histories of a million operations over HTTP, 8 clients of 10 keys, and of every repo without a server; linearizable.
check() {
    cargo build -q --release --bin polyserve
    target/release/polyserve check --in-process --repos all --ops 1000000
    local server
    for server in $(names servers); do
        target/release/polyserve check --server "$server" --repos all --ops 1000000
    done
}

# 4 minutes if the dependencies are built.
package() { cargo package -q --workspace --allow-dirty; }

[ $# -gt 0 ] || set -- random durable drain ab jmeter models peers engines clusters stress check package
for part in "$@"; do
    echo; echo "== $part"
    "$part"
done
