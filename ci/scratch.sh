#!/usr/bin/env bash
# Builds and runs projects outside the workspace. `ci/scratch` has its own entity, service and store, and tests them
# with the kit and on a server of each family. The programs in `ci/scratch/wrong` must not compile, and the error of each
# must have the texts after its `//~`. The other projects are the snippets of the README, with exactly the
# dependencies that the README lists. They are built, started on a free port, and interrupted.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/session.sh
root=$PWD
# Dependencies that are built for the tests of the workspace are used here too: like there, they are without debug information.
export CARGO_TARGET_DIR=$root/target CARGO_PROFILE_DEV_DEBUG=0

cp -r ci/scratch "$tmp/repo"
sed "s|@ROOT@|$root|" ci/scratch/Cargo.toml.in >"$tmp/repo/Cargo.toml"
rm "$tmp/repo/Cargo.toml.in"
cd "$tmp/repo"
if cargo tree -q -e normal --prefix none | grep -E '^(tokio|hyper|clap|signal-hook|humantime) '; then
    echo "the enabled features do not need these" >&2
    exit 1
fi
cargo test -q

mkdir examples
count=0
for program in wrong/*.rs; do
    name=$(basename "$program" .rs)
    cp "$program" "examples/$name.rs"
    if cargo check -q --example "$name" 2>"$tmp/error"; then
        echo "$program compiles" >&2
        exit 1
    fi
    sed -n 's|^//~ ||p' "$program" | while IFS= read -r text; do
        grep -qF -- "$text" "$tmp/error" || { echo "the error of $program does not say: $text" >&2; cat "$tmp/error" >&2; exit 1; }
    done
    count=$((count + 1))
done
echo "$count wrong programs have an error that names the way out"

# Splits the README. Snippet N is in $tmp/snippet-N, with the last TOML block before its Rust block, or else the next
# one.
awk -v tmp="$tmp" '
    function manifest() {
        printf "[package]\nname = \"snippet-%d\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n%s\n[workspace]\n", count, toml >(dir "/Cargo.toml")
        close(dir "/Cargo.toml")
        needs_toml = 0
    }
    /^```/ { if (block == "rust") { close(dir "/src/main.rs") }
             if (block == "toml" && needs_toml) manifest()
             block = block == "" ? substr($0, 4) : ""
             sub(/,no_run$/, "", block)
             if (block == "toml") toml = ""
             if (block == "rust") {
                 dir = tmp "/snippet-" ++count
                 system("mkdir -p " dir "/src")
                 needs_toml = 1
                 if (toml != "") manifest()
             }
             next }
    block == "toml" { toml = toml $0 "\n" }
    block == "rust" { print >(dir "/src/main.rs") }
' "$root/README.md"
count=0
for dir in "$tmp"/snippet-*; do
    sed -i "s|\"../polyserve/|\"$root/|" "$dir/Cargo.toml"
    sed -i "s|127.0.0.1:8001|127.0.0.1:0|" "$dir/src/main.rs"
    grep '^polyserve' "$dir/Cargo.toml"
    (cd "$dir" && cargo build -q)
    start "$CARGO_TARGET_DIR/debug/${dir##*/}" && stop || { cat "$tmp/out" >&2; exit 1; }
    cat "$tmp/out"
    count=$((count + 1))
done
[ "$count" = 2 ] || { echo "the README has 2 snippets, and $count were found" >&2; exit 1; }
