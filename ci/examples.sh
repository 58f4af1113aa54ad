#!/usr/bin/env bash
# ci/examples.sh DIRECTORY        runs every example, built in DIRECTORY, such as target/release/examples
# ci/examples.sh DIRECTORY NAME   runs one of them
# An example with requests by curl in its last comment is a server: it gets these requests, and its answers must be those in the
# comment. Then it is interrupted and must drain. Any other example runs to its end. All must succeed.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "usage: ci/examples.sh DIRECTORY [NAME]" >&2; exit 2; }
directory=$1 only=${2-}
. ci/setup.sh
command -v curl >/dev/null || apt_install curl || { echo "curl is needed" >&2; exit 1; }
tmp=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$tmp"' EXIT

# fail NAME REASON
fail() { echo "$1: $2" >&2; sed 's/^/    /' "$tmp/out" >&2; exit 1; }

# session FILE: the last comment of an example: commands after `$ `, each followed by its output.
session() { awk '/^\/\// { sub("^// ?", ""); text = text $0 "\n"; next } { text = "" } END { printf "%s", text }' "$1"; }

# plain: without blank lines and what differs between two runs: the date and the port.
plain() { tr -d '\r' | sed -E '/^[Dd]ate: /d; /^$/d; s/127\.0\.0\.1:[0-9]+/127.0.0.1:8001/g'; }

# served NAME FILE: starts the example on a free port, and compares the answers.
served() {
    local name=$1 file=$2 args url= line command=
    args=$(sed -n "s/^\$ cargo run --release --example $name -- //p" "$tmp/session")
    TCP_ADDRESS=127.0.0.1:0 "$directory/$name" $args >"$tmp/out" 2>&1 &
    pid=$!
    for _ in $(seq 600); do
        url=$(grep -oEm1 'http://127\.0\.0\.1:[0-9]+' "$tmp/out" || true)
        [ -z "$url" ] || break
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    [ -n "$url" ] || fail "$name" "it prints no address"
    : >"$tmp/expected"; : >"$tmp/answers"
    while IFS= read -r line; do
        case $line in
            '$ curl '*)
                printf '%s\n' "$line" | tee -a "$tmp/expected" >>"$tmp/answers"
                command=${line#\$ curl }
                eval "curl -sS --max-time 20 ${command//http:\/\/127.0.0.1:8001/$url}" >>"$tmp/answers" 2>&1 || true
                echo >>"$tmp/answers" # an answer may end without a line break
                ;;
            '$ '*) command= ;;
            *) [ -z "$command" ] || printf '%s\n' "$line" >>"$tmp/expected" ;;
        esac
    done <"$tmp/session"
    diff -u <(plain <"$tmp/expected") <(plain <"$tmp/answers") || fail "$name" "its answers are not those in $file"
    kill -INT "$pid"
    wait "$pid" || fail "$name" "it fails after SIGINT"
    pid=
}

count=0
for file in examples/examples/*.rs examples/extended/examples/*.rs examples/extended/examples/*/main.rs; do
    name=$(basename "${file%/main.rs}" .rs)
    [ -z "$only" ] || [ "$name" = "$only" ] || continue
    session "$file" >"$tmp/session"
    if grep -q '^\$ curl ' "$tmp/session"; then
        served "$name" "$file"
    else
        "$directory/$name" >"$tmp/out" 2>&1 || fail "$name" "it fails"
    fi
    echo "$name: ok"
    count=$((count + 1))
done
[ "$count" != 0 ] || { echo "there is no example $only" >&2; exit 1; }
