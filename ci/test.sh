#!/usr/bin/env bash
# ci/test.sh           tests everything that the README promises
# ci/test.sh quick     runs the unit tests of every crate, and the kit for some strategies
# ci/test.sh checked   tests everything, and runs ci/check.sh beside the tests, at a lower priority: most tests wait
# The last lines are those of the test runner.
set -euo pipefail
cd "$(dirname "$0")/.."
has_checks=no
case ${1-} in
    '') minutes=25 list=whole ;;
    quick) minutes=6 list=quick ;;
    checked) minutes=30 list=whole has_checks=yes ;;
    *) echo "usage: ci/test.sh [quick|checked]" >&2; exit 2 ;;
esac
# The steps run programs that others build, so all build with the same profile.
export CARGO_PROFILE_DEV_DEBUG=0
echo "About $minutes minutes on 2 cores with an empty target directory, less with a full one."
. ci/setup.sh
. ci/step.sh
. ci/programs.sh

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

# test_programs: prints the directory and the path of each program of tests, the longest first. It builds them.
test_programs() {
    cargo test --workspace --features "$features" --tests --no-run --message-format=json 2>/dev/null | python3 -c '
import json, os, sys

LONGEST = ["kit", "engines", "cli", "flaws", "polyserve_bench", "polyserve_durable"]
found = []
for message in map(json.loads, sys.stdin):
    if message.get("executable") and message["profile"]["test"]:
        name, package = message["target"]["name"], os.path.dirname(message["manifest_path"])
        place = LONGEST.index(name) if name in LONGEST else len(LONGEST)
        found.append((place, package, message["executable"]))
for _, package, program in sorted(found):
    print(package, program)
'
}

# What runs beside the steps: each in a process group of its own, so that all of it ends with this script, and in the same session, in which
# priorities count.
beside=()
trap 'for group in "${beside[@]}"; do kill -- "-$group" 2>/dev/null || true; done' EXIT

# The static checks have a directory of their own for what they build, so that the two do not wait for each other. They begin with what
# is built for the tests, except the lints, which are a step.
checks=
start_checks() {
    set -m
    LINTED=yes CARGO_TARGET_DIR=target/check nice -n 8 ci/check.sh >target/check.log 2>&1 </dev/null &
    checks=$!
    set +m
    beside+=("$checks")
}

# Waits for the static checks, and prints what they printed.
checked() {
    local passed=yes
    wait "$checks" || passed=
    cat target/check.log
    [ "$passed" ]
}

# run_tests: runs all programs of tests, and some of them at a time, because most tests wait. Each has a log.
run_tests() {
    local package program running=0
    while read -r package program; do
        if [ $running = $((1 + $(nproc))) ]; then
            wait -n || true
        else
            running=$((running + 1))
        fi
        { cd "$package" && "$program" >"$logs/${program##*/}.log" 2>&1 </dev/null || echo "$package $program" >>"$logs/failed"; } &
    done <"$logs/programs"
    wait
}

logs=$PWD/target/tests
tests=
# start_tests: starts the tests. The other steps run beside them, because most tests wait.
start_tests() {
    rm -rf "$logs"
    mkdir -p "$logs"
    test_programs >"$logs/programs"
    set -m
    TEST_ENGINES=required RUST_TEST_THREADS=$threads run_tests </dev/null &
    tests=$!
    set +m
    beside+=("$tests")
}

# Prints what the static checks printed, and then what the tests printed: the last lines are those of the tests. A test that fails is run
# again, alone: other work on a machine with few cores can make a correct server late. A test that fails twice fails, as do more than five
# tests, and all failures are printed.
tests() {
    wait "$tests"
    local passed=yes
    [ -z "$checks" ] || checked || passed=
    cat "$logs"/*.log
    [ "$passed" ] || { echo "ci/check.sh failed: see before the tests" >&2; return 1; }
    [ -e "$logs/failed" ] || return 0
    local package program name failed
    grep -hE '^test .* \.\.\. FAILED$' "$logs"/*.log >&2 || true
    [ "$(cat "$logs"/*.log | grep -cE '^test .* \.\.\. FAILED$')" -le 5 ] || return 1
    while read -r package program; do
        mapfile -t failed < <(sed -n 's/^test \(.*[^ ]\) *\.\.\. FAILED$/\1/p' "$logs/${program##*/}.log")
        [ ${#failed[@]} -gt 0 ] || { echo "$program ended without naming a test" >&2; return 1; }
        for name in "${failed[@]}"; do
            echo "failed among others, and runs again alone: $name"
            (cd "$package" && TEST_ENGINES=required "$program" --exact "$name") >"$logs/again" 2>&1 || { cat "$logs/again"; return 1; }
            grep -E '^test .* \.\.\. ok$' "$logs/again" || { echo "$name did not run" >&2; return 1; }
        done
    done <"$logs/failed"
}

# Builds the first command of the README beside the tests: one crate after the other, mostly.
start_first_command() {
    set -m
    cargo build -q --release --example threadpool_server </dev/null &
    beside+=("$!")
    set +m
}

# The first command of the README: in the release profile, with no other features.
first_command() (
    . ci/session.sh
    cargo build -q --release --example threadpool_server
    TCP_ADDRESS=127.0.0.1:0 start cargo run -q --release --example threadpool_server
    curl -sSf --max-time 20 -X PUT "$url/" -H 'Content-Type: application/json' -d '{"id":1,"description":"a first entity","value":60.750847}'
    curl -sSf --max-time 20 "$url/1"
    stop
)

# Most server tests wait for a timeout or a drain: half of the time with two tests for each core. So more run at a time.
threads=${RUST_TEST_THREADS:-$((3 * $(nproc)))}

whole() {
    step tools_installed
    step start_first_command
    # All programs, and all tests. With these features, the kit also runs over TLS, and polyserve-cluster tests its stores over etcd, Redis
    # Cluster and PostgreSQL, on loopback.
    step cargo test --workspace --features "$features" --no-run
    step start_tests
    [ "$has_checks" = no ] || step start_checks
    step first_command
    [ "$has_checks" = no ] || step ci/lints.sh
    FEATURES=$features step ci/conformance.sh --check
    step ci/docs.sh
    step "$programs/examples/custom_server" bench stress --set 'contestants=["catalog:custom/two_level"]' \
        --set 'sweep.connection_use=["close","keep-alive"]'
    step "$programs/examples/custom_server" check --server custom --ops 10000
    # Histories of concurrent clients must be linearizable: short ones for every pair, longer ones for every server and
    # every repo.
    step "$programs/polyserve" check --servers all --repos all --ops 1000
    step "$programs/polyserve" check --servers all --repo two_level --ops 10000
    step "$programs/polyserve" check --server tokio_tcp --repos all --ops 10000
    # A few rounds are too few to compare servers. They show that a server of another program is started, verified,
    # measured and listed.
    step "$programs/examples/custom_server" compare --servers custom,sequential,pool_server --repos two_level \
        --rounds 3 --connections 8 --no-latency
    step "$programs/polyserve" report --splice docs/*.md --check
    step cargo test -q --workspace --features "$features" --bench strategies
    step verdicts
    step model
    step ci/ab.sh 2000
    step ci/operating.sh
    step ci/openapi.sh
    step ci/clusters.sh
    step ci/browser.sh
    step ci/models.sh short
    step ci/registry.sh
    step cargo test --workspace --features "$features" --doc
    step tests
}

quick() {
    step cargo test --workspace --lib --bins --test kit --no-run
    RUST_TEST_THREADS=$threads step kit
    RUST_TEST_THREADS=$threads step cargo test --workspace --lib --bins --no-fail-fast
}

steps "$list"
