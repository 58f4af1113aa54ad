#!/usr/bin/env bash
# Other people's frameworks in Rust and the servers in Go: their sources are vetted and tested, and each takes part in a
# comparison, nginx too where it is. What is not installed is named. And some rungs of the ladder are built and measured. Some
# minutes, and the network the first time.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
manifest=benches/peers/rust/Cargo.toml

if command -v go >/dev/null; then
    unformatted=$(gofmt -l benches/peers/go)
    [ -z "$unformatted" ] || { echo "gofmt: $unformatted" >&2; exit 1; }
    go vet -C benches/peers/go ./...
    # The race detector needs a C compiler.
    race=
    if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "$(go env CC)" >/dev/null; then race=-race; fi
    [ -n "$race" ] || echo "not run: the race detector: there is no C compiler" >&2
    go test -C benches/peers/go $race ./...
else
    echo "not run: go vet, go test, the servers in Go: go is not installed" >&2
fi

cargo fmt --check --manifest-path "$manifest"
cargo clippy -q --locked --manifest-path "$manifest" --target-dir target/peers --all-targets -- -D warnings
cargo test -q --locked --manifest-path "$manifest" --target-dir target/peers
# Three rounds decide nothing; they show that every peer is built, started, verified and listed. It fails where one does not;
# whoever is not installed is listed as not run.
cargo run -q --release --bin polyserve -- compare --peers all --servers pool_server --repos two_level --rounds 3 --no-latency
# The same for the twins of the page server, among them Node, Deno and Java.
cargo run -q --release --bin polyserve -- page --parts twins --rounds 1 --page-wait 20ms

manifest=benches/ladder/Cargo.toml
cargo fmt --check --manifest-path "$manifest"
cargo clippy -q --locked --manifest-path "$manifest" --target-dir target/ladder/clippy --all-targets --features all,warp,mimalloc -- -D warnings
# What the rung below is built without.
RUSTFLAGS='--cfg polyserve_without="pipeline_flush" --cfg polyserve_without="date_cache"' \
    cargo test -q --target-dir target/ladder/without -p polyserve-core --test without
cargo run -q --release --bin polyserve -- ladder --rungs pipeline-flush,waker-array,header-hash,clock-reads --rounds 3 --connections 8
