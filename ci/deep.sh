#!/usr/bin/env bash
# Runs the tests that are too long for every change. They take hours on 2 cores:
# * the long form of every seeded test, 50 rounds of the drain test, and 100 restarts of a server of each kind under load;
# * the targets of fuzz/, with coverage as the guide: the codec for 20 minutes, each other one for 5. FUZZ_SECONDS changes the 20 minutes;
# * the stress scenario and a checked history with a million requests, for each server and repo;
# * the models with a deeper search, and with mistakes that they must catch;
# * the ring of io_uring, and its server, with the address sanitizer;
# * conditional increments while engines fail over, restart, and stand behind PgBouncer;
# * real clients over TLS, to a server of each kind;
# * a mixed load with hostile clients on each server for SOAK_SECONDS (1800), and slow attacks for SLOW_SECONDS (60) in each mode;
# * the image of a container, built and run;
# * third-party frameworks, and every package as users get it, built alone.
# ci/deep.sh [random] [fuzz] [durable] [disk] [drain] [handover] [ab] [jmeter] [models] [peers] [engines] [clusters] [faults] [pgbouncer] [ring] [stress]
#            [check] [clients] [soak] [slow] [container] [package]
set -euo pipefail
trap 'exit 130' INT TERM # an interrupted command ends by itself, so the script must too
cd "$(dirname "$0")/.."
. ci/setup.sh

random() {
    POLYSERVE_CASES=1000000 cargo test -q --release -p polyserve-serving --test random
    POLYSERVE_CASES=1000000 cargo test -q --release -p polyserve-conformance --lib brute
}

fuzz() {
    local seconds=${FUZZ_SECONDS:-1200} target
    ci/fuzz.sh session "$seconds"
    for target in chunked conditions entity log path tls; do
        ci/fuzz.sh "$target" $((seconds / 4))
    done
}

durable() {
    POLYSERVE_SEEDS=2000 cargo test -q --release -p polyserve-durable --lib
    POLYSERVE_CRASHES=200 cargo test -q --release -p polyserve-durable --test crash
}

disk() { TEST_ENGINES=required ci/disk.sh; }

drain() { POLYSERVE_DRAIN_ROUNDS=50 cargo test -q --release -p polyserve-cli --test cli drain; }

# Restarts by --handover under load, on a server with threads, a multiplexed one, one with a loop for each core, and others.
handover() { POLYSERVE_RESTARTS=100 cargo test -q --release -p polyserve-cli --test cli a_restart_loses_no_request -- --nocapture; }

ab() { PROFILE=release ci/ab.sh 100000; }

jmeter() { ci/jmeter.sh; }

models() {
    ci/models.sh deep
    ci/models.sh mistakes
}

peers() { ci/peers.sh; }

engines() { ci/engines.sh; }

# 40 000 requests to each server over the durable store and over each engine.
clusters() { PROFILE=release ci/clusters.sh 10000; }

# increments FAULTS TEST...: 8 clients increment over HTTP while an engine is disturbed. No increment may be lost, and no
# answer may be a 500.
increments() {
    local faults=$1 test
    shift
    for test in "$@"; do
        POLYSERVE_FAULTS=$faults TEST_ENGINES=required cargo test -q -p polyserve-cluster --features etcd,redis,postgres \
            --test engines -- "$test" --nocapture --test-threads 1
    done
}

# Failovers and restarts of etcd, Redis Cluster and PostgreSQL: 10 of each. Takes 7 minutes, after a build.
faults() { increments 10 increments::failover increments::restart; }

# PgBouncer in transaction mode, with 8 clients on 3 connections to PostgreSQL. Both are restarted. Takes a minute.
pgbouncer() {
    [ -x /usr/sbin/pgbouncer ] || apt_install --no-install-recommends pgbouncer
    increments 10 increments::pgbouncer
}

# The ring of io_uring, and the kit of its server, with the address sanitizer: no buffer is used that the kernel has. What a ring leaves
# behind on purpose is no leak. Needs the nightly toolchain.
ring() {
    local asan=(env RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 CARGO_TARGET_DIR=target/sanitizer)
    "${asan[@]}" cargo +nightly test -q -p polyserve-sys --lib --target x86_64-unknown-linux-gnu -- ring
    "${asan[@]}" cargo +nightly test -q -p polyserve --features percore,tls --test kit --target x86_64-unknown-linux-gnu -- io_uring \
        --skip memory_budget # the sanitizer takes memory of its own
}

# names KIND: prints the names of one kind in the catalog.
names() { target/release/polyserve list --json | grep -oE "\"$1\":\[[^]]*\]" | grep -oE '"name":"[^"]*"' | cut -d'"' -f4; }

stress() {
    cargo build -q --release -p polyserve-cli
    local repo
    for repo in $(names repos); do
        echo "-- every server over $repo"
        target/release/polyserve bench stress --set "contestants=['catalog:*/$repo']" --set mode.ids=250000 \
            --set 'sweep.connection_use=["close","keep-alive"]'
    done
}

# Checks that histories of a million operations are linearizable: of every repo without a server, and over HTTP with 8
# clients and 10 keys.
check() {
    cargo build -q --release -p polyserve-cli
    target/release/polyserve check --in-process --repos all --ops 1000000
    local server
    for server in $(names servers); do
        target/release/polyserve check --server "$server" --repos all --ops 1000000
    done
}

# curl, openssl, Python, Node, Go, Java and nginx. Takes a minute after a build.
clients() { PROFILE=release ci/clients.sh; }

# No growth in memory, descriptors or threads. Takes half an hour for each server.
soak() { PROFILE=release ci/soak.sh "${SOAK_SECONDS:-1800}"; }

# slowhttptest in all modes. Takes 4 minutes for each server.
slow() { PROFILE=release ci/slow.sh "${SLOW_SECONDS:-60}"; }

# The image of a container, with podman. Takes some minutes.
container() { ci/container.sh; }

# Takes 4 minutes if the dependencies are built.
package() { cargo package -q --workspace --allow-dirty; }

[ $# -gt 0 ] || set -- random fuzz durable disk drain handover ab jmeter models peers engines clusters faults pgbouncer ring stress check clients soak slow container package
for part in "$@"; do
    echo; echo "== $part"
    "$part"
done
