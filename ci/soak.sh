#!/usr/bin/env bash
# Serves a mixed load on each server: a client that verifies each answer, and clients that reset, stall, stop to read, close half, pipeline,
# flood, and send nonsense (ci/hostile.py), with TLS and without. After each of 6 rounds all clients leave, and the memory, the descriptors
# and the threads of the server are counted. They must not grow after the second round, and no answer may be wrong.
# ci/soak.sh [SECONDS] [SERVER...]: for each server this number of seconds (1800), half of it over TLS.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/session.sh
rounds=6
seconds=1800
case ${1-} in [0-9]*) seconds=$1; shift ;; esac
build_program
[ $# -gt 0 ] || set -- "${every_server[@]}"
certificate server

fail() { echo "$server: $*" >&2; cat "$tmp/out" "$tmp/hostile" >&2 || true; exit 1; }

# is_evicted: whether the good client failed only because its connection was closed for another one, as a server does that holds a thread for
# each connection, and has few. Over TLS, its connection may be idle before its first request.
is_evicted() {
    case $server in sequential | pool_classic/* | leader_followers | futures_pool) ;; *) return 1 ;; esac
    grep -qE '"answered":[1-9].*"failed":\{"wrong":0,"status":\{\},"timeouts":0,' "$tmp/load"
}

# count: waits until no connection is open. Prints the resident memory in KiB, the descriptors and the threads of the server.
count() {
    local open=1
    for _ in $(seq 300); do
        open=$(curl -sS "$admin/metrics" | sed -n 's/^http_server_open_connections{.*} //p')
        [ "$open" = 0 ] && break
        sleep 0.1
    done
    [ "$open" = 0 ] || fail "$open connections stay open"
    sleep 1 # connections that linger
    echo "$(sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$pid/status") $(ls "/proc/$pid/fd" | wc -l) $(ls "/proc/$pid/task" | wc -l)"
}

# soak SECONDS [FLAG...]: the rounds on one server.
soak() {
    local each=$(($1 / rounds)) round counted limit_memory=0 limit_fds=0 limit_threads=0 memory fds threads load=()
    shift
    # Short timeouts, so that connections that stall end within a round.
    start "$program" serve --server "$server" --listen 127.0.0.1:0 --admin 127.0.0.1:0 --head-timeout 2s --body-timeout 2s --write-timeout 2s \
        --first-byte-timeout 2s --idle-timeout 5s --memory 64MiB "$@"
    admin_address
    [ $# -eq 0 ] || load=(--ca "$tmp/ca.pem")
    curl -sS --cacert "$tmp/ca.pem" -o /dev/null -X PUT "$url/" -d '{"id":100000,"description":"of the good client","value":1.5}'
    [ "$each" -ge 2 ] || each=2
    for round in $(seq $rounds); do
        python3 ci/hostile.py 127.0.0.1 "${url##*:}" "$each" ${load[@]:+"$tmp/ca.pem"} >"$tmp/hostile" 2>&1 &
        other=$!
        "$program" load "$url/100000" "${load[@]}" --connections 4 --duration "${each}s" --json >"$tmp/load" 2>"$tmp/load-errors" ||
            is_evicted || { cat "$tmp/load" "$tmp/load-errors" >&2; fail "a good client failed"; }
        wait "$other" || fail "the hostile clients failed"
        other=
        kill -0 "$pid" 2>/dev/null || fail "it has ended"
        counted=$(count)
        read -r memory fds threads <<<"$counted"
        echo "$server $* round $round: $memory KiB, $fds descriptors, $threads threads"
        if [ "$round" -le 2 ]; then
            # A tenth and 4 MiB: an allocator keeps what it has once used, in pieces that other threads cannot use.
            limit_memory=$((memory + memory / 10 + 4096)) limit_fds=$fds limit_threads=$threads
        elif [ "$memory" -gt "$limit_memory" ] || [ "$fds" -gt "$limit_fds" ] || [ "$threads" -gt "$limit_threads" ]; then
            fail "it grows: above $limit_memory KiB, $limit_fds descriptors, or $limit_threads threads"
        fi
    done
    curl -sS "$admin/metrics" | grep -E '^polyserve_service_panics_total\{.*\} 0$' >/dev/null || fail "a panic"
    stop
}

for server in "$@"; do
    soak $((seconds / 2))
    soak $((seconds / 2)) --tls-cert "$tmp/cert.pem" --tls-key "$tmp/key.pem"
    echo "$server: ok"
done
