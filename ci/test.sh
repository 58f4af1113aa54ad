#!/usr/bin/env bash
# ci/test.sh         tests everything that the README promises
# ci/test.sh quick   runs the unit tests of every crate, and the kit for some strategies; no release build
# The last lines are those of the test runner.
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

# Each recorded published experiment must have its verdicts in a page. Without this, the check of the pages would pass
# for pages without tables.
verdicts() {
    local name
    for name in matrix tasks page page-workers ladder stress; do
        [ -z "$(find docs/results -name "$name.jsonl" -print -quit 2>/dev/null)" ] ||
            grep -qE "^<!-- claims of (.*[ /])?$name(-[a-z-]+)?\.jsonl" docs/EXPERIMENTS.md ||
            { echo "docs/results has a record of $name, and no page has its verdicts" >&2; return 1; }
    done
}

# The tables of the model in docs/SCALING.md must match the record that the page names.
model() {
    ci/engines.sh model "$(sed -n 's/^<!-- tables of \(.*\) -->$/\1/p' docs/SCALING.md)" --check
}

# Installs the tools of the steps below at once. A step whose tool is missing reports that it did not run: `ab` in
# ci/ab.sh, a browser in ci/browser.sh, strace in the tests that count system calls. The engines are required.
tools_installed() {
    local missing=()
    command -v ab >/dev/null || missing+=(apache2-utils)
    command -v strace >/dev/null || missing+=(strace)
    command -v chromium chromium-browser google-chrome >/dev/null || missing+=(chromium)
    command -v etcd >/dev/null || missing+=(etcd-server etcd-client)
    command -v redis-server >/dev/null || missing+=(redis-server)
    [ -n "$(find /usr/lib/postgresql -name initdb -print -quit 2>/dev/null)" ] || missing+=(postgresql)
    [ -x /usr/sbin/pgbouncer ] || missing+=(pgbouncer)
    command -v nft >/dev/null || missing+=(nftables)
    [ ${#missing[@]} = 0 ] || apt_install --no-install-recommends "${missing[@]}" ||
        echo "some of these cannot be installed: ${missing[*]}" >&2
}

# The kit for some strategies of each kind. `whole` runs it for all of them.
kit() {
    local filter
    for filter in repo::two_level:: repo::sharded:: server::pool_server/mpsc_pool:: server::tokio_tcp:: pair::tokio_tcp/; do
        cargo test -q --workspace --test kit -- "$filter"
    done
}

# The tests of these two programs take a third of the time, and they mostly wait.
beside=(engines flaws)

# others: prints the names of the other programs of tests, each once.
others() {
    cargo metadata --locked --format-version 1 --no-deps | python3 -c '
import json, sys

targets = [target for package in json.load(sys.stdin)["packages"] for target in package["targets"]]
names = {target["name"] for target in targets if "test" in target["kind"]}
print(*sorted(names - set(sys.argv[1:])), sep="\n")
' "${beside[@]}"
}

# Tests everything in the workspace. Two halves run at a time, and the examples of the documentation after them. A test that
# fails is run again, alone: other work on a machine with few cores can make a correct server late. A test that fails twice
# fails, as do more than five tests, and all failures are printed.
tests() {
    local output=target/tests.log second=target/tests-beside.log failures=0 name target ran
    local test=(cargo test --workspace --features "$features" --no-fail-fast) rest=()
    mkdir -p target
    mapfile -t rest < <(others)
    "${test[@]}" "${beside[@]/#/--test=}" >"$second" 2>&1 &
    "${test[@]}" --lib --bins --examples "${rest[@]/#/--test=}" 2>&1 | tee "$output" || failures=1
    wait $! || failures=1
    tee -a "$output" <"$second"
    "${test[@]}" --doc 2>&1 | tee -a "$output" || failures=1
    [ $failures = 1 ] || return 0
    local failed targets
    mapfile -t failed < <(sed -n 's/^test \(.*[^ ]\) *\.\.\. FAILED$/\1/p' "$output" | sort -u)
    mapfile -t targets < <(sed -n 's/^ *`-p [^ ]* \(--.*\)`$/\1/p' "$output" | sort -u)
    [ ${#failed[@]} -gt 0 ] && [ ${#failed[@]} -le 5 ] || return 1
    printf 'failed among others, and runs again alone: %s\n' "${failed[@]}"
    local -A has_run=()
    for name in "${failed[@]}"; do
        ran=
        for target in "${targets[@]}"; do
            # shellcheck disable=SC2086  # a target is an option and its value
            cargo test --workspace --features "$features" $target -- --exact "$name" >"$output" 2>&1 ||
                { cat "$output"; return 1; }
            ! grep -qE '^test .* \.\.\. ok$' "$output" || { ran=1 has_run[$target]=1; grep '^test ' "$output"; }
        done
        [ -n "$ran" ] || { echo "$name did not run" >&2; return 1; }
    done
    # A target that failed without a failed test was ended by a signal.
    [ ${#has_run[@]} = ${#targets[@]} ] || { echo "a program of tests ended without naming a test" >&2; return 1; }
}

# Most server tests wait for a timeout or a drain: half of the time with two tests for each core. So more run at a time.
threads=${RUST_TEST_THREADS:-$((4 * $(nproc)))}
features=polyserve/tls,polyserve-cluster/etcd,polyserve-cluster/redis,polyserve-cluster/postgres

whole() {
    step tools_installed
    # The steps below run these binaries directly, and the benches have the same features. With other features, dependencies
    # would be built again.
    step cargo build --release --workspace --examples --bins --features polyserve-cli/etcd,polyserve-examples/all
    step ci/scratch.sh
    step ci/tutorial.sh
    step ci/ab.sh
    step ci/operating.sh
    step ci/openapi.sh
    step cargo bench -q --workspace --bench strategies --features polyserve-cli/etcd,polyserve-examples/all -- --test
    step ci/examples.sh target/release/examples
    step target/release/examples/custom_server
    step target/release/examples/custom_event_loop
    step target/release/examples/custom_server bench stress --set 'contestants=["catalog:custom/two_level"]' \
        --set 'sweep.connection_use=["close","keep-alive"]'
    step target/release/examples/custom_server check --server custom --ops 20000
    # Histories of concurrent clients must be linearizable: short ones for every pair, longer ones for every server and
    # every repo.
    step target/release/polyserve check --servers all --repos all --ops 2000
    step target/release/polyserve check --servers all --repo two_level --ops 20000
    step target/release/polyserve check --server tokio_tcp --repos all --ops 20000
    # A few rounds are too few to compare servers. They show that a server of another program is started, verified,
    # measured and listed.
    step target/release/examples/custom_server compare --servers custom,sequential,pool_server --repos two_level \
        --rounds 3 --connections 8 --no-latency
    step target/release/polyserve report --splice docs/*.md --check
    step verdicts
    step model
    step ci/clusters.sh
    step ci/browser.sh
    step ci/models.sh short
    # With these features, the kit also runs over TLS, and polyserve-cluster tests its stores over etcd, Redis Cluster and
    # PostgreSQL, on loopback.
    step cargo test --workspace --features "$features" --no-run
    FEATURES=$features step ci/conformance.sh --check
    step ci/registry.sh
    TEST_ENGINES=required RUST_TEST_THREADS=$threads step tests
}

quick() {
    step cargo test --workspace --lib --bins --test kit --no-run
    RUST_TEST_THREADS=$threads step kit
    RUST_TEST_THREADS=$threads step cargo test --workspace --lib --bins --no-fail-fast
}

steps "$list"
