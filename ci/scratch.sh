#!/usr/bin/env bash
# A project outside the workspace depends on polyserve by path, writes its own repo, serves it and runs the kit on it.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
root=$PWD
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp -r ci/scratch/. "$tmp"
sed "s|@ROOT@|$root|" ci/scratch/Cargo.toml.in >"$tmp/Cargo.toml"
rm "$tmp/Cargo.toml.in"
export CARGO_TARGET_DIR=$root/target/scratch
cd "$tmp"
if cargo tree -q -e normal --prefix none | grep -E '^(tokio|hyper|clap|signal-hook|humantime) '; then
    echo "the features asked for do not need these" >&2
    exit 1
fi
cargo run -q
cargo test -q
