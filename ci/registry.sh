#!/usr/bin/env bash
# A new strategy changes three files: its own, the list of its crate, and the catalog. This script adds a store and a
# server to a copy of the tree in this way. It checks that both are in `polyserve list`, `check`, `compare` and
# `recommend`, and in the tests of the conformance kit. It also compiles the Rust code that the catalog has for each
# strategy.
#
# The copy starts with what is built of the tree, so that only what the two strategies change is built again.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
. ci/programs.sh
root=$PWD
copy=$root/target/registry/source
export CARGO_TARGET_DIR=$root/target/registry/target
bin=$CARGO_TARGET_DIR/debug

step() { echo "-- $*"; }
# finds TEXT COMMAND...: runs the command, and fails if its output lacks the text.
finds() {
    local text=$1 output
    shift
    output=$("$@") || { echo "failed: $*" >&2; return 1; }
    grep -qF -- "$text" <<<"$output" || { echo "$text is not in the output of: $*" >&2; echo "$output" >&2; return 1; }
}

step "copy the tree"
# The copy keeps modification times, so that the next run builds only changed files.
rm -rf "$copy"
mkdir -p "$copy"
git ls-files -z --cached --others --exclude-standard -- . ':!docs/results' ':!docs/charts' |
    while IFS= read -r -d '' file; do [ ! -f "$file" ] && [ ! -L "$file" ] || printf '%s\0' "$file"; done |
    tar --null --files-from=- --create | tar --extract --directory "$copy"
cd "$copy"

step "add a store: its file, the list of its crate, the catalog"
memory=crates/polyserve-memory/src
catalog=crates/polyserve/src/catalog/builtin.rs
sed 's/StdMutex/DummyStore/g; s/std_mutex/dummy_store/g' $memory/std_mutex.rs >$memory/dummy_store.rs
printf '\nmod dummy_store;\npub use self::dummy_store::DummyStore;\n' >>$memory/lib.rs
sed -i 's#^repos! {$#&\
    "dummy_store", "a store of this test", REPO, polyserve::memory::DummyStore\
        => .with_rule(RepoRule { when: |_| true, why: "a test", overhead: 0, usual: true });#' $catalog

step "add a server: its file, the list of its crate, the catalog"
servers=crates/polyserve-threadpool/src/servers
sed 's/Sequential/DummyServer/g; s/sequential/dummy_server/g' $servers/sequential.rs >$servers/dummy_server.rs
printf '\nmod dummy_server;\npub use dummy_server::DummyServer;\n' >>$servers/mod.rs
sed -i '0,/^        \.with_server(server!(/s||        .with_server(server!(\
            "dummy_server",\
            "a server of this test",\
            \&[Promise::LaterHoldsWorker, Promise::Drains],\
            None,\
            polyserve::threadpool::DummyServer\
        ))\
        .with_server(server!(|' $catalog
changed=$(diff -rq "$root/crates" crates || true)
[ "$(wc -l <<<"$changed")" = 5 ] || { echo "not two files, two lists and the catalog:"; echo "$changed"; exit 1; } >&2

step "build"
# A separate target directory, because cargo takes the crates of the copy for those of the tree.
[ -d "$bin" ] || (cd "$root" && take_built "$CARGO_TARGET_DIR" ours)
# The build has the features of the tests in ci/test.sh, so that their dependencies are not built again. Other crates also
# have tests with the name `kit`; the kit over the catalog is in `polyserve`.
kit=$(cargo build -q --workspace --features "$features" --bin polyserve --test kit --message-format=json |
    grep -F 'crates/polyserve/tests/kit.rs"' | grep -o '"executable":"[^"]*"' | cut -d'"' -f4)
[ -x "$kit" ] || { echo "not one executable of the kit's tests: $kit" >&2; exit 1; }

step "polyserve list"
for name in dummy_store dummy_server; do
    finds "$name" "$bin/polyserve" list
    finds "$name" "$bin/polyserve" recommend --help
done

step "the kit's tests"
"$kit" --list >"$CARGO_TARGET_DIR/tests"
grep -q '^repo::dummy_store::linearizable: test' "$CARGO_TARGET_DIR/tests"
grep -q '^server::dummy_server::linearizable_over_http: test' "$CARGO_TARGET_DIR/tests"
finds '; 0 failed;' "$kit" repo::dummy_store::
finds '; 0 failed;' "$kit" server::dummy_server::put

step "polyserve check"
"$bin/polyserve" check --server dummy_server --repo dummy_store --ops 2000

step "polyserve compare --quick, with the store by its rule"
# The run is too short to compare them. Only the list of the contestants matters.
finds dummy_server/dummy_store "$bin/polyserve" compare --quick --servers dummy_server --rounds 3 --slice 50ms \
    --connections 1 --no-latency

step "polyserve recommend"
finds dummy_server/dummy_store "$bin/polyserve" recommend --defaults --servers dummy_server,tokio_tcp \
    --repos dummy_store --connections 1 --rounds 3 --time 10s

step "the code of every strategy compiles"
test=crates/polyserve/tests/printed_code.rs
"$bin/polyserve" list --json | grep -o '"expression": *"[^"]*"' | cut -d'"' -f4 >"$CARGO_TARGET_DIR/code"
[ "$(wc -l <"$CARGO_TARGET_DIR/code")" -ge 30 ] || { echo "the catalog has less code than strategies" >&2; exit 1; }
# The code of an executor reads the configuration from the variable c.
awk '{ if (NR == 1) print "//! The code of every strategy."; printf "#[allow(dead_code, unused_variables)]\nfn strategy_%d(c: &polyserve::ServerConfig) -> Result<(), Box<dyn std::error::Error>> {\n", NR
       printf "    use polyserve::prelude::*;\n    drop(%s);\n    Ok(())\n}\n", $0 }' "$CARGO_TARGET_DIR/code" >$test
cargo test -q --workspace --features "$features" --test printed_code --no-run
echo "== a new store and a new server changed three files each, and take part everywhere (after $SECONDS s)"
