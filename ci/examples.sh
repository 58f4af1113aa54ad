#!/usr/bin/env bash
# ci/examples.sh          runs every example, except that of ci/clients.sh
# ci/examples.sh [NAME]   runs one of them
# All examples must succeed. An example is a server if its last comment has curl requests: the server must give the
# answers in the comment. Then it is interrupted and must drain. An example with the URL of a database gets its own
# database. Any other example runs to its end.
set -euo pipefail
cd "$(dirname "$0")/.."
only=${1-}
. ci/session.sh
build_programs
directory=$programs/examples

# fail NAME: prints the output of an example, and fails.
fail() { echo "$1: failed. Its output:" >&2; sed 's/^/    /' "$tmp/out" >&2; exit 1; }

# session FILE: prints the last comment of an example: commands after `$ `, each followed by its output.
session() { awk '/^\/\// { sub("^// ?", ""); text = text $0 "\n"; next } { text = "" } END { printf "%s", text }' "$1"; }

# served NAME: starts the example on a free port, and compares its answers with the comment.
served() {
    local name=$1 args
    args=$(sed -n "s/^\$ cargo run --release --example $name\( --features [a-z]*\)\{0,1\} -- //p" "$tmp/session")
    case $args in
        postgres://*)
            # The engine ends when its input ends.
            coproc ENGINES { "$directory/../polyserve-engines" postgres 2>"$tmp/out"; }
            read -r args <&"${ENGINES[0]}" || return 1
            args=${args#postgres:}
            ;;
    esac
    TCP_ADDRESS=127.0.0.1:0 start "$directory/$name" $args && requests "$tmp/session" && stop || return 1
    if [ -n "${ENGINES_PID-}" ]; then
        local engines=$ENGINES_PID
        eval "exec ${ENGINES[1]}>&-"
        wait "$engines"
    fi
}

count=0
for file in examples/examples/*.rs examples/examples/*/main.rs; do
    name=$(basename "${file%/main.rs}" .rs)
    [ -z "$only" ] || [ "$name" = "$only" ] || continue
    [ "$name" != https_http2 ] || continue # ci/clients.sh runs it, with certificates and clients
    session "$file" >"$tmp/session"
    if grep -q '^\$ curl ' "$tmp/session"; then
        served "$name" || fail "$name"
    else
        "$directory/$name" >"$tmp/out" 2>&1 || fail "$name"
    fi
    echo "$name: ok"
    count=$((count + 1))
done
[ "$count" != 0 ] || { echo "there is no example $only" >&2; exit 1; }
