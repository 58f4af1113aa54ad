#!/usr/bin/env bash
# Checks and tests the twins of the published listings, the third-party frameworks in Rust and the servers in Go. The
# frameworks and servers take part in a comparison, and so does nginx if it is installed. Missing programs are reported.
# Also builds and measures some rungs of the ladder. Takes some minutes, and needs the network the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh

if command -v go >/dev/null; then
    # The race detector needs a C compiler.
    race=
    if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "$(go env CC)" >/dev/null; then race=-race; fi
    [ -n "$race" ] || echo "not run: the race detector: there is no C compiler" >&2
    for module in benches/peers/go benches/twins/go; do
        unformatted=$(gofmt -l $module)
        [ -z "$unformatted" ] || { echo "gofmt: $unformatted" >&2; exit 1; }
        go vet -C $module ./...
        go test -C $module $race ./...
    done
else
    echo "not run: go vet, go test, the servers in Go: go is not installed" >&2
fi

for package in peers/rust twins; do
    paths=(--manifest-path "benches/$package/Cargo.toml" --target-dir "target/${package%/rust}")
    cargo fmt --check "${paths[@]:0:2}"
    cargo clippy -q --locked "${paths[@]}" --all-targets -- -D warnings
    cargo test -q --locked "${paths[@]}"
done
# Three rounds are too few to compare servers. They show that every peer is built, started, verified and listed. The
# command fails if a peer fails; a peer that is not installed is listed as not run.
cargo run -q --release -p polyserve-cli -- compare --peers all --servers pool_server --repos two_level --rounds 3 --no-latency
# The same for the twins of the page server, including Node, Deno and Java.
cargo run -q --release -p polyserve-cli -- bench page --only twin --set rounds=1 --set mode.wait=20ms --set 'sweep.source=["file"]'
# The listings of the entity server in the published runs: quiet, and as they were run then.
cargo run -q --release -p polyserve-cli -- bench stress --set 'contestants=["twin:entity"]' --set mode.ids=1000 \
    --set 'sweep.connection_use=["close"]'
listings='"twin:entity-debug-printing"'
if command -v go >/dev/null; then listings+=',"peer:go/entity-rwmutex-printing"'; fi
cargo run -q --release -p polyserve-cli -- bench matrix --set "contestants=[$listings]" --set baseline=twin:entity-debug-printing \
    --set claim=[] --set 'sweep={workers=[8],connections=[10],method=["get","put"]}' --set mode.requests=1000 --set rounds=1
# The listings of the CPU tasks: their last terms are those of our contestants, bit for bit.
listings='"twin:crossbeam_scope"'
if command -v go >/dev/null; then listings+=',"peer:go/listing"'; fi
cargo run -q --release -p polyserve-cli -- bench tasks --set mode.task=5ms --set 'sweep.tasks=[1,2]' --set 'sweep.series=[0]' \
    --set claim=[] --set "contestants=[\"executor:scoped_threads/std\",$listings]"

manifest=benches/ladder/Cargo.toml
cargo fmt --check --manifest-path "$manifest"
cargo clippy -q --locked --manifest-path "$manifest" --target-dir target/ladder/clippy --all-targets --features serve,warp,mimalloc -- -D warnings
# A rung of each kind of patch, on a build without link-time optimisation.
rungs='"peer:ladder/listing","peer:ladder/warp","peer:ladder/pool_server","peer:ladder/tokio_per_core"'
cargo run -q --release -p polyserve-cli -- bench ladder --set "contestants=[$rungs]" --set claim=[] --set rounds=3 \
    --set 'sweep={connections=[8]}'
for patch in pipeline-flush waker-array header-hash clock-reads; do
    benches/ladder/build.sh "$PWD/target/ladder/$patch" welcome
done
benches/ladder/build.sh "$PWD/target/ladder/pipeline-flush" serve
# Each optimisation of our codec has its effect in our sources, and in the patched copies that the rungs were built from.
for copy in . target/ladder/patched/without-{pipeline-flush+without-date-cache,date-cache}; do
    cargo test -q --locked --manifest-path "$copy/$manifest" --target-dir target/ladder/clippy --test codec
done
