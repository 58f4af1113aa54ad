#!/usr/bin/env bash
# Static checks: formatting, lints, docs, features, and the dependencies between crates.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
. ci/step.sh
. ci/programs.sh

# No step links the command, so jemalloc is not compiled: that takes 150 seconds of processor time for each Rust. Its build script
# takes a library instead, which must be there.
mkdir -p "${CARGO_TARGET_DIR:-target}"
JEMALLOC_OVERRIDE=$(realpath "${CARGO_TARGET_DIR:-target}")/libjemalloc.so
: >"$JEMALLOC_OVERRIDE"
export JEMALLOC_OVERRIDE

# Build scripts and macros of other crates are those of the tests.
take_built "${CARGO_TARGET_DIR:-target}" || echo "some of what the tests have built cannot be taken" >&2

scripts_parse() {
    local script
    for script in .ci/run ci/*.sh; do bash -n "$script"; done
}
step scripts_parse
step cargo fmt --all --check
# The other checks of these two packages take minutes: ci/peers.sh.
step cargo fmt --check --manifest-path benches/peers/rust/Cargo.toml
step cargo fmt --check --manifest-path benches/twins/Cargo.toml
step cargo fmt --check --manifest-path benches/ladder/Cargo.toml
step cargo fmt --check --manifest-path benches/engines/Cargo.toml
step cargo fmt --check --manifest-path fuzz/Cargo.toml
# These packages are built with --locked: a new dependency of the workspace must be in their lock files too.
locked() { cargo metadata --locked --format-version 1 --manifest-path "$1/Cargo.toml" >/dev/null; }
step locked benches/peers/rust
step locked benches/twins
step locked benches/ladder
step locked benches/engines
step locked fuzz

# clippy looks at what the tests are built from.
[ -n "${LINTED-}" ] || step ci/lints.sh

# Everything that users build is checked with the minimum Rust: the libraries, the command and the examples. So are the docs, which need
# the same crates.
version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
minimum=()
if command -v rustup >/dev/null && timeout 300 rustup toolchain install "$version" --profile minimal --no-self-update >/dev/null 2>&1; then
    minimum=("+$version")
else
    echo "not run: checks with Rust $version: it cannot be installed" >&2
fi
step cargo "${minimum[@]}" check -q --workspace --lib --bins --examples --all-features
RUSTDOCFLAGS="-D warnings" step cargo "${minimum[@]}" doc -q --no-deps --workspace --all-features
step ci/msrv.sh
# 15 seconds. ci/deep.sh package also builds each package alone, which takes minutes.
step cargo package --workspace --no-verify --allow-dirty -q

# compiles ARGUMENTS...: checks packages, without a warning.
compiles() {
    local said
    said=$(cargo check -q "$@" 2>&1) && ! grep -q '^warning' <<<"$said" || { echo "$said" >&2; return 1; }
}
# Each feature alone, pairs that have code of their own, and the command with the allocator that it has not with all features.
for features in "" threadpool queue-waits memory copy-on-write dashmap packed papaya scc seqlock durable etcd redis postgres env signals metrics access access-log trace threadpool,dashmap tokio hyper http2 tower tokio,tower hyper,tower smol futures async percore tls tls,threadpool tls,hyper tls,async; do
    step compiles -p polyserve --no-default-features --features "$features"
done
step compiles -p polyserve-memory --no-default-features
step compiles -p polyserve-async --no-default-features
# Each engine alone is above; this is the crate without one, with its tests.
step compiles -p polyserve-cluster --all-targets --no-default-features
# Each example with the feature that it requires. Those that require none are checked together.
required() {
    cargo metadata --locked --format-version 1 --no-deps | python3 -c '
import json, sys

for package in json.load(sys.stdin)["packages"]:
    for target in package["targets"]:
        for feature in target.get("required-features", []) if target["kind"] == ["example"] else []:
            print(feature, target["name"])
'
}
required_features=$(required)
step compiles -p polyserve-examples --examples
for feature in $(cut -d' ' -f1 <<<"$required_features" | sort -u); do
    mapfile -t names < <(awk -v feature="$feature" '$1 == feature { print "--example=" $2 }' <<<"$required_features")
    step compiles -p polyserve-examples --features "$feature" "${names[@]}"
done
step compiles -p polyserve-cli --features mimalloc

# The bottom rung of the ladder.
step cargo check -q --locked --manifest-path benches/ladder/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}" --bin serve --features serve

# The fuzz targets, with the crates that were checked for the others. Nothing is linked, so libFuzzer is not compiled: any path will do for it.
CUSTOM_LIBFUZZER_PATH=none/libfuzzer.a step compiles --locked --manifest-path fuzz/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}"

# profile FILE: prints the settings of its release profile.
profile() { awk '/^\[/ { inside = $0 == "[profile.release]"; next } inside && NF' "$1" | grep -v '^#'; }
echo; echo "== peers and twins are built with the profile of the command"
for package in peers/rust twins; do
    diff <(profile Cargo.toml) <(profile benches/$package/Cargo.toml) || exit 1
done

# depends CRATE: prints every crate that CRATE is built from, one per line.
depends() { cargo tree -q -e normal --prefix none --format '{p}' "$@" | awk '{print $1}' | sort -u; }
# never CRATE PATTERN [ARGS]: fails if CRATE is built from a crate that matches.
never() {
    local crate=$1 pattern=$2 found
    shift 2
    found=$(depends -p "$crate" "$@" | grep -vx "$crate" | grep -xE "$pattern" || true)
    [ -z "$found" ] || { echo "$crate must not be built from: $found" >&2; exit 1; }
}

# The crates of the workspace that each crate is built from. A new arrow is a decision, which is written here first.
echo; echo "== the arrows between crates are these"
arrows() {
    cat <<'END'
polyserve: polyserve-async polyserve-cluster polyserve-core polyserve-durable polyserve-memory polyserve-percore polyserve-serving polyserve-sys polyserve-threadpool
polyserve-async: polyserve-core polyserve-serving
polyserve-bench: polyserve polyserve-conformance polyserve-load polyserve-sys
polyserve-benches: polyserve
polyserve-cli: polyserve polyserve-bench polyserve-conformance polyserve-load polyserve-sys
polyserve-cluster: polyserve-core
polyserve-conformance: polyserve-core polyserve-serving
polyserve-core:
polyserve-durable: polyserve-core
polyserve-engines: polyserve-sys
polyserve-examples: polyserve polyserve-cli polyserve-conformance
polyserve-load: polyserve-core
polyserve-memory: polyserve-core polyserve-sys
polyserve-percore: polyserve-core polyserve-serving polyserve-sys
polyserve-serving: polyserve-core polyserve-sys
polyserve-sys:
polyserve-threadpool: polyserve-core polyserve-serving
END
}
cargo metadata --locked --format-version 1 --no-deps | python3 -c '
import json, sys

for package in sorted(json.load(sys.stdin)["packages"], key=lambda package: package["name"]):
    used = {dependency["name"] for dependency in package["dependencies"] if dependency["kind"] != "dev"}
    print(" ".join([package["name"] + ":", *sorted(name for name in used if name.startswith("polyserve"))]))
' | diff <(arrows) - || { echo "the arrows differ: left as written in ci/check.sh, right as in the manifests" >&2; exit 1; }

echo; echo "== what a feature needs is not built without it"
never polyserve-core 'httparse|socket2|rustix|tokio|hyper|mio|rustls|ring'
never polyserve-serving 'tokio|hyper|mio|rustls|ring'
never polyserve-memory 'httparse|socket2|rustix|tokio|mio'
never polyserve-durable 'httparse|socket2|tokio|mio'
never polyserve-threadpool 'tokio|hyper'
never polyserve-async 'tokio|hyper|async-io|async-executor|futures-executor|tower-service' --no-default-features
never polyserve-async 'hyper|async-io|async-executor|futures-executor' --no-default-features --features tokio
never polyserve-async 'async-io|async-executor|futures-executor' --no-default-features --features http2
never polyserve-async 'tokio|hyper|async-io|async-executor|futures-executor' --no-default-features --features tower
never polyserve-async 'tokio|hyper|futures-executor' --no-default-features --features smol
never polyserve-async 'tokio|hyper|async-io|async-executor' --no-default-features --features futures
never polyserve-cluster 'etcd-client|redis|tokio-postgres' --no-default-features
never polyserve-cluster 'redis|tokio-postgres' --no-default-features --features etcd
never polyserve-cluster 'etcd-client|tokio-postgres' --no-default-features --features redis
never polyserve-cluster 'etcd-client|redis' --no-default-features --features postgres
never polyserve-load 'tokio|hyper|mio'
never polyserve-conformance 'tokio'
never polyserve 'polyserve-(async|memory|cluster|durable|percore|threadpool)|dashmap|papaya|scc|mio|humantime|signal-hook' --no-default-features
never polyserve 'polyserve-async|tokio|hyper|hdrhistogram' --no-default-features --features threadpool,dashmap
never polyserve 'clap|criterion' --all-features
# The build of the first command in the README.
never polyserve-examples 'polyserve-(async|cluster|durable|conformance|bench|load|cli)|tokio|hyper|axum|clap'

echo
echo "== a server on a thread pool needs at most 50 crates"
crates=$(cargo tree -q -p polyserve --no-default-features --features threadpool,memory,signals -e normal,build --prefix none | awk '{print $1}' | sort -u | wc -l)
[ "$crates" -le 50 ] || { echo "it needs $crates" >&2; exit 1; }

echo; echo "== no unsafe code outside polyserve-sys"
for lib in crates/*/src/lib.rs; do
    [ "$lib" = crates/polyserve-sys/src/lib.rs ] || grep -q '#!\[forbid(unsafe_code)\]' "$lib" ||
        { echo "$lib does not forbid unsafe code" >&2; exit 1; }
done

# An item of a library that users depend on has one path in its crate: a public module does not also export its items from the
# parent. sync/model.rs is built for model checkers only.
echo; echo "== an item has one path, and no public module is hidden"
paths=$(find crates/polyserve{,-async,-cluster,-conformance,-core,-durable,-engines,-load,-memory,-percore,-serving,-sys,-threadpool}/src -name '*.rs' ! -path '*/sync/model.rs' \
    -exec perl -0ne 'while (/^\s*pub mod (\w+)\s*[;{]/mg) { my $name = $1;
        print "$ARGV: the items of the public module $name are exported twice\n" if /^\s*pub use (?:self::|crate::)?$name(?:::|;)/m;
    }
    print "$ARGV: $1 is public and hidden\n" while /doc\(hidden\)\]\s*(?:#\[.*\]\s*)*(pub (?:mod|use|struct|enum|trait|const) \w+)/g' {} +)
[ -z "$paths" ] || { echo "$paths" >&2; exit 1; }

echo; echo "== the README and the front page name the minimum Rust of Cargo.toml"
grep -qF "Minimum Rust: $version." README.md || { echo "README.md does not name Rust $version" >&2; exit 1; }
grep -qF "minimum Rust: $version" crates/polyserve/src/lib.rs || { echo "polyserve/src/lib.rs does not name Rust $version" >&2; exit 1; }

# The last column of a table of SECURITY.md names tests.
echo; echo "== each test that SECURITY.md names exists"
sed -n 's/^|.*|\([^|]*\)|$/\1/p' SECURITY.md | grep -oE '`[a-z0-9_:]+`' | tr -d '`' | sed 's/.*:://' | sort -u | while read -r name; do
    grep -rqE "fn $name\b|^ +$name,$" crates --include='*.rs' || { echo "no test is called $name" >&2; exit 1; }
done

echo; echo "== names and phrases"
ci/language.sh
