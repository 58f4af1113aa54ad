#!/usr/bin/env bash
# ci/test.sh         everything that the README promises, tested
# ci/test.sh quick   every crate's unit tests, and the conformance kit for some strategies; no release build
# Ends with the test runner's own lines.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1-} in
    '') minutes=30 list=whole ;;
    quick) minutes=6 list=quick ;;
    *) echo "usage: ci/test.sh [quick]" >&2; exit 2 ;;
esac
echo "About $minutes minutes on 2 cores with an empty target directory, less with a full one."
. ci/setup.sh
. ci/step.sh

# A check of pages without any tables shows nothing: each published experiment that is recorded has its verdicts in a page.
verdicts() {
    local name
    for name in matrix tasks page ladder stress; do
        [ -z "$(find docs/results -name "$name.jsonl" -print -quit 2>/dev/null)" ] ||
            grep -qE "^<!-- claims of (.*/)?$name\.jsonl" docs/EXPERIMENTS.md docs/results/*/*.md ||
            { echo "docs/results has a record of $name, and no page has its verdicts" >&2; return 1; }
    done
}

# The model's tables in docs/SCALING.md are those of the record that the page names.
model() {
    ci/engines.sh model "$(sed -n 's/^<!-- tables of \(.*\) -->$/\1/p' docs/SCALING.md)" --check
}

# The tools of the steps below, in one go. A step whose tool is missing says that it did not run: `ab` in ci/ab.sh, a browser in
# ci/browser.sh, strace in the tests that count system calls. The engines are required.
tools_installed() {
    local missing=()
    command -v ab >/dev/null || missing+=(apache2-utils)
    command -v strace >/dev/null || missing+=(strace)
    command -v chromium chromium-browser google-chrome >/dev/null || missing+=(chromium)
    command -v etcd >/dev/null || missing+=(etcd-server etcd-client)
    command -v redis-server >/dev/null || missing+=(redis-server)
    [ -n "$(find /usr/lib/postgresql -name initdb -print -quit 2>/dev/null)" ] || missing+=(postgresql)
    command -v nft >/dev/null || missing+=(nftables)
    [ ${#missing[@]} = 0 ] || apt_install --no-install-recommends "${missing[@]}" ||
        echo "some of these cannot be installed: ${missing[*]}" >&2
}

# The kit for strategies of each kind. The whole of it runs in `whole`.
kit() {
    local filter
    for filter in repo::two_level:: repo::sharded:: server::pool_server/mpsc_pool:: server::tokio_tcp:: pair::tokio_tcp/; do
        cargo test -q --workspace --test kit -- "$filter"
    done
}

# The stores over etcd, Redis Cluster and PostgreSQL, with the engines on loopback. About two minutes.
engines() {
    POLYSERVE_ENGINES=required RUST_TEST_THREADS=$threads cargo test -q -p polyserve-cluster --all-features
}

# Most server tests wait for a timeout or a drain, so more tests run at a time than there are cores.
threads=${RUST_TEST_THREADS:-$((2 * $(nproc)))}

whole() {
    step tools_installed
    # Run below as built here: `cargo run` of one package has other features of the dependencies, and builds them all again.
    step cargo build --release --examples --bins --features polyserve-cli/etcd
    step ci/scratch.sh
    step ci/tutorial.sh
    step ci/ab.sh
    step cargo bench -q -- --test
    step ci/examples.sh target/release/examples
    step target/release/examples/custom_server
    step target/release/examples/custom_server stress --server custom
    step target/release/examples/custom_server check --server custom --ops 20000
    # What concurrent clients see is linearizable: of every pair shortly, of every server and of every repo for longer.
    step target/release/polyserve check --servers all --repos all --ops 2000
    step target/release/polyserve check --servers all --repo two_level --ops 20000
    step target/release/polyserve check --server tokio_tcp --repos all --ops 20000
    # A few rounds decide nothing; they show that an outsider's server is started, verified, measured and listed.
    step target/release/examples/custom_server compare --servers custom,sequential,pool_server --repos two_level \
        --rounds 3 --connections 8 --no-latency
    step target/release/polyserve report --splice docs/*.md docs/results/*/*.md --check
    step verdicts
    step model
    step ci/clusters.sh
    step ci/browser.sh
    step ci/models.sh short
    step cargo test --workspace --no-run
    step ci/registry.sh
    # polyserve-cluster is tested with its engines.
    RUST_TEST_THREADS=$threads step cargo test --workspace --exclude polyserve-cluster --no-fail-fast
    step engines
}

quick() {
    step cargo test --workspace --lib --bins --test kit --no-run
    RUST_TEST_THREADS=$threads step kit
    RUST_TEST_THREADS=$threads step cargo test --workspace --lib --bins --no-fail-fast
}

steps "$list"
