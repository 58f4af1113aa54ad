#!/usr/bin/env bash
# Measures the load generator: its cost compared with wrk, its agreement with independent tools, and whether it detects
# a server that stops. Only `sweep` can fail. Needs Linux and two cores.
# ci/instrument.sh [wrk [ROUNDS]] [stop] [sweep [ROUNDS]]
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
command -v wrk >/dev/null || apt_install wrk
cargo build -q --release -p polyserve-cli
polyserve=target/release/polyserve
tmp=$(mktemp -d)
server=
stop_server() { if [ -n "$server" ]; then kill -CONT "$server" && kill -TERM "$server" && wait "$server"; fi; server=; }
trap 'stop_server || true; rm -rf "$tmp"' EXIT
cat >"$tmp/pipeline.lua" <<'LUA'
init = function() local all = {} for i = 1, 16 do all[i] = wrk.format(nil, "/1") end batch = table.concat(all) end
request = function() return batch end
LUA

# serve SERVER ARGS...: starts a server on the first core, and sets $url to its address.
serve() {
    : >"$tmp/serve"
    taskset -c 0 "$polyserve" serve --server "$@" --listen 127.0.0.1:0 >"$tmp/serve" &
    server=$!
    until grep -q '^listening on' "$tmp/serve"; do kill -0 "$server"; sleep 0.02; done
    url=$(sed -n 's/^listening on //p' "$tmp/serve")
}

# client COMMAND...: runs a client on the second core. Its output is in $tmp/out, and its CPU seconds are in $cpu.
client() {
    local TIMEFORMAT='%U %S'
    { time taskset -c 1 "$@" >"$tmp/out" 2>"$tmp/err"; } 2>"$tmp/time" || { cat "$tmp/err" >&2; exit 1; }
    cpu=$(awk '{print $1 + $2}' "$tmp/time")
}

# environment: prints the date, the commit, the machine and the version of wrk.
environment() {
    date -u +%FT%TZ
    echo "commit $(git rev-parse --short=12 HEAD)$(git diff --quiet HEAD || echo +)"
    sed -nE '0,/^model name/s/^model name[^:]*: *//p' /proc/cpuinfo
    awk '/^MemTotal:/ {printf "%.1f GiB\n", $2 / 1048576}' /proc/meminfo
    echo "kernel $(uname -r), $(nproc) cores"
    { command wrk -v 2>&1 || true; } | head -1
    echo
}

field() { grep -oE "\"$1\":[0-9.]+" "$tmp/out" | head -1 | cut -d: -f2; }

median() { sort -n | awk '{v[NR] = $1} END {printf "%.3f (from %.3f to %.3f, %d rounds)\n", (v[int((NR+1)/2)] + v[int(NR/2)+1]) / 2, v[1], v[NR], NR}'; }

# wrk [ROUNDS]: the CPU time per request as a share of the CPU time of wrk, in turn, with null_epoll on the other core.
wrk() {
    local rounds=${1:-10} mode ours theirs round
    serve null_epoll
    for mode in keep-alive pipeline-16; do
        for ((round = 0; round < rounds; round++)); do
            local -a script=() pipeline=()
            [ "$mode" = keep-alive ] || { script=(-s "$tmp/pipeline.lua"); pipeline=(--pipeline 16); }
            client wrk -t1 -c64 -d1 "${script[@]}" "$url/1"
            theirs=$(awk -v cpu="$cpu" '/requests in/ {printf "%.4f", cpu / $1 * 1e6}' "$tmp/out")
            client "$polyserve" load -c 64 -d 1s "${pipeline[@]}" --json "$url/1"
            ours=$(awk -v cpu="$cpu" -v n="$(field answered)" 'BEGIN {printf "%.4f", cpu / n * 1e6}')
            echo "$mode $ours $theirs" | tee -a "$tmp/costs" | awk '{printf "%s: %.2f us a request, wrk %.2f\n", $1, $2, $3}' >&2
        done
        printf '%s: CPU a request, as a share of wrk'"'"'s: ' "$mode"
        awk -v mode="$mode" '$1 == mode {print $2 / $3}' "$tmp/costs" | median
    done
    stop_server
}

# sweep [ROUNDS]: runs rates from 100 to 100 000 requests a second by an independent tool and by the load generator, in
# turn for 3 s each. Prints medians of the rounds. The tool is h2load on one connection, and oha on 64: h2load would send
# the requests of all connections at the same instants.
#
# The last columns are the p50 of the load generator if it does not spin before a request is due, and its lateness if it
# does.
#
# Fails if the throughput differs by more than 1 %, or the median latency by more than 10 % and 30 us. A rate that the
# tool did not keep is not compared. The latency is not compared if the tool used more than half of its core, because
# then requests wait in the tool.
sweep() {
    local rounds=${1:-3} seconds=3 connections rate round failed=0
    command -v h2load >/dev/null || apt_install nghttp2-client || { echo "not run: sweep: there is no h2load" >&2; return; }
    local oha=target/tools/bin/oha
    [ -x "$oha" ] || cargo install -q oha --locked --root target/tools || oha=
    [ -n "$oha" ] || echo "not run: sweep of 64 connections: oha cannot be installed" >&2
    h2load --version
    [ -z "$oha" ] || "$oha" --version
    serve tokio_tcp
    curl -sf -X PUT -H 'Content-Type: application/json' -d '{"id":1,"description":"a","value":1.5}' "$url/"
    printf '%11s %8s %8s %8s  %8s %8s  %8s %8s  %s\n' connections rate theirs ours 'p50 us' ours asleep lateness ''
    for connections in 1 64; do
        [ "$connections" = 1 ] || [ -n "$oha" ] || continue
        for rate in 100 1000 3000 10000 20000 50000 100000; do
            : >"$tmp/rounds"
            for ((round = 0; round < rounds; round++)); do
                sweep_round "$connections" "$rate" "$seconds" >"$tmp/round"
                paste -s -d ' ' "$tmp/round" >>"$tmp/rounds"
            done
            agreement "$connections" "$rate" "$seconds" || failed=1
        done
    done
    stop_server
    return "$failed"
}

# sweep_round CONNECTIONS RATE SECONDS: runs one rate. Prints the tool's rate, p50 in us and CPU seconds; our rate and p50;
# our p50 without spinning; and our lateness.
sweep_round() {
    local connections=$1 rate=$2 seconds=$3
    if [ "$connections" = 1 ]; then
        client h2load --h1 -c 1 -D "$seconds" --rps "$rate" --log-file="$tmp/log" "$url/1"
        sed -nE 's|^finished in .*, ([0-9.]+) req/s.*|\1|p' "$tmp/out"
        awk '{print $3}' "$tmp/log" | sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'
        rm "$tmp/log"
    else
        client "$oha" --no-tui -c "$connections" -z "${seconds}s" -q "$rate" --latency-correction --output-format json "$url/1"
        sed -nE 's/.*"requestsPerSec": *([0-9.]+).*/\1/p' "$tmp/out"
        sed -n '/"latencyPercentiles"/,/}/p' "$tmp/out" | sed -nE 's/.*"p50": *([0-9.e-]+).*/\1/p' | awk '{print $1 * 1e6}'
    fi
    echo "$cpu"
    local -a ours=("$polyserve" load -c "$connections" --rate "$rate" --arrivals even -d "${seconds}s" --json)
    client "${ours[@]}" "$url/1"
    local asleep
    asleep=$(field p50_ns)
    client "${ours[@]}" --cores 1 "$url/1"
    field requests_per_s
    {
        field p50_ns
        echo "$asleep"
        grep -oE '"lateness":\{[^}]*\}' "$tmp/out" | grep -oE '"p99_ns":[0-9]+' | cut -d: -f2
    } | awk '{print $1 / 1000}'
}

# agreement CONNECTIONS RATE SECONDS: prints a line of the sweep: medians of the rounds in $tmp/rounds, each of 7 figures.
agreement() {
    local column
    for column in 1 2 3 4 5 6 7; do
        cut -d ' ' -f "$column" "$tmp/rounds" | median | cut -d ' ' -f 1
    done | paste -s -d ' ' | awk -v c="$1" -v rate="$2" -v seconds="$3" '{
        t = $1; tp = $2; cpu = $3; o = $4; op = $5; asleep = $6; late = $7
        missed = t < 0.99 * rate || t > 1.01 * rate
        full = cpu > 0.5 * seconds
        d = op > tp ? op - tp : tp - op
        differs = !missed && (o < 0.99 * t || o > 1.01 * t || (!full && d > 30 && d > 0.1 * tp))
        word = missed ? "they did not keep the rate" : differs ? "DIFFERS" : full ? "rate agrees" : "agrees"
        if (late > 0.1 * op) word = word ", late"
        printf "%11d %8d %8.0f %8.0f  %8.0f %8.0f  %8.0f %8.0f  %s\n", c, rate, t, o, tp, op, asleep, late, word
        exit differs
    }'
}

# stop: measures a server that is stopped for 200 ms during 5 s.
stop() {
    serve pool_server --workers 8
    curl -sf -X PUT -H 'Content-Type: application/json' -d '{"id":1,"description":"a","value":1.5}' "$url/"
    (sleep 2; kill -STOP "$server"; sleep 0.2; kill -CONT "$server") &
    client "$polyserve" load -c 64 --rate 5000 -d 5s --cores 1 "$url/1"
    cat "$tmp/out"
    stop_server
}

environment
[ $# -gt 0 ] || set -- wrk stop sweep
while [ $# -gt 0 ]; do
    part=$1
    shift
    if [[ ${1:-} =~ ^[0-9]+$ ]]; then
        "$part" "$1"
        shift
    else
        "$part"
    fi
done
