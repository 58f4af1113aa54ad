#!/usr/bin/env bash
# Runs the published load on every server, unchanged. There must be 0 failed and 0 non-2xx answers.
# ci/ab.sh [REQUESTS]   10000 by default; PROFILE=release for optimised servers
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
requests=${1:-10000}

command -v ab >/dev/null || apt_install apache2-utils || {
    echo "not run: ab.sh: ApacheBench is not here and cannot be installed" >&2
    exit 0
}
. ci/programs.sh
build_programs
polyserve=$programs/polyserve
tmp=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$tmp"' EXIT
printf '{"id":1,"description":"a1B2c3D4e5F6g7H","value":60.750847}' >"$tmp/body.json"

# load NAME ARGS...: runs ab once and prints the counts. Fails if a request failed.
load() {
    local name=$1
    shift
    ab -q "$@" >"$tmp/out" 2>&1 || { cat "$tmp/out" >&2; exit 1; }
    local done_ failed
    done_=$(awk '/^Complete requests:/ {print $3}' "$tmp/out")
    failed=$(awk '/^Failed requests:|^Non-2xx responses:/ {sum += $3} END {print sum + 0}' "$tmp/out")
    printf '%-32s %-6s %8s requests, %s failed\n' "$server_name" "$name" "$done_" "$failed"
    [ "$failed" = 0 ] || { cat "$tmp/out" >&2; exit 1; }
}

for server_name in $("$polyserve" list --json | grep -oE '"servers":\[[^]]*\]' | grep -oE '"name":"[^"]*"' | cut -d'"' -f4); do
    : >"$tmp/serve" # the loop below must not find the line of the last server
    "$polyserve" serve --server "$server_name" --repo two_level --listen 127.0.0.1:0 >"$tmp/serve" &
    server=$!
    until grep -q '^listening on' "$tmp/serve"; do kill -0 "$server"; sleep 0.02; done
    url=$(sed -n 's/^listening on //p' "$tmp/serve")
    ab -q -n 1 -T application/json -u "$tmp/body.json" "$url/" >/dev/null
    load put -n "$requests" -c 100 -T application/json -u "$tmp/body.json" "$url/"
    load get -n "$requests" -c 100 "$url/1"
    # It serves one connection at a time, so the hundred kept-alive connections would wait for each other.
    [ "$server_name" = sequential ] || load get-k -n "$requests" -c 100 -k "$url/1"
    kill -TERM "$server"
    wait "$server"
    server=
done
