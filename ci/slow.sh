#!/usr/bin/env bash
# Attacks each server with slowhttptest, in its four modes: slow heads, slow bodies, ranges, and slow reads of a large answer. Meanwhile a good
# client must get each answer within 10 seconds, over a new connection each time.
# A server that holds a thread for each connection and has a fixed number of them is reported as not run: clients that have begun a request
# keep their threads until their timeouts.
# ci/slow.sh [SECONDS] [SERVER...]: each mode for this number of seconds (60)
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/session.sh
seconds=60
case ${1-} in [0-9]*) seconds=$1; shift ;; esac
command -v slowhttptest >/dev/null || apt_install slowhttptest || { echo "slowhttptest: not run: it cannot be installed"; exit 0; }
build_program
[ $# -gt 0 ] || set -- "${every_server[@]}"
printf '{"id":2,"description":"%s","value":1.5}' "$(head -c 1000000 /dev/zero | tr '\0' x)" >"$tmp/large"

fail() { echo "$server: $*" >&2; cat "$tmp/out" >&2 || true; exit 1; }

# beside NAME FLAG...: runs slowhttptest with the flags, and the good client beside it.
beside() {
    local name=$1 answered=0 until=$((SECONDS + seconds))
    shift
    slowhttptest -c 1000 -r 500 -l "$seconds" -p 5 "$@" >"$tmp/attack" 2>&1 &
    other=$!
    while [ "$SECONDS" -lt "$until" ]; do
        curl -sS -f -o /dev/null --max-time 10 "$url/1" || fail "$name: the good client is not answered"
        answered=$((answered + 1))
        sleep 0.1
    done
    wait "$other" || true # its status tells whether it could open all connections
    other=
    grep -q 'Exit status' "$tmp/attack" || { cat "$tmp/attack" >&2; fail "$name: slowhttptest has not run"; }
    kill -0 "$pid" 2>/dev/null || fail "$name: it has ended"
    echo "$server: $name: ok, $answered answers"
}

for server in "$@"; do
    case $server in sequential | pool_classic/* | leader_followers | futures_pool) echo "$server: not run: it holds one of few threads for each connection" && continue ;; esac
    start "$program" serve --server "$server" --listen 127.0.0.1:0
    curl -sS -f -o /dev/null -X PUT "$url/" -d '{"id":1,"description":"a","value":1.5}'
    curl -sS -f -o /dev/null -X PUT "$url/" -d @"$tmp/large"
    beside heads -H -i 2 -x 24 -u "$url/1"
    beside bodies -B -i 2 -s 8192 -x 10 -u "$url/"
    beside ranges -R -a 1 -b 3000 -u "$url/2"
    beside reads -X -i 2 -n 2 -w 512 -y 1024 -z 32 -k 3 -u "$url/2"
    stop
done
