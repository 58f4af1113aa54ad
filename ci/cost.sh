#!/usr/bin/env bash
# Measures the processor time of servers, mostly below saturation. The server is pinned to core 0, the client to core 1.
# ci/cost.sh ab|rate|idle|full|close|put|pipeline [ROUNDS] 'SERVER[@BINARY] [FLAG...]'...
#   ab        a connection per request, `ab -n 40000 -c 100`: requests per millisecond of server CPU
#   rate      $RATE (20 000) requests a second over 64 kept-alive connections: microseconds of server CPU per request
#   idle      5 000 idle connections: milliseconds of server CPU per second
#   full      64 kept-alive connections, closed loop: requests per millisecond of server CPU
#   close     64 connections at a time, one per request, closed loop: requests per millisecond of server CPU
#   put       like full, with PUTs
#   pipeline  like full, with 16 requests at once
# BINARY is target/release/polyserve by default. A server `peer/NAME` is a peer (see benches/peers/rust): its default
# BINARY is target/peers/release/NAME. FLAGs are those of `polyserve serve`, as in 'pool_server --etags on'. `--workers N`
# among them takes the place of $WORKERS, which is 8 by default. A peer takes $WORKERS only.
#
# Every server runs once per round, in turn. The script prints each figure, then the medians and the medians of the ratios to
# the first server of the same round. A server may be given twice. Example: before and after a change, with a build of each.
#   ci/cost.sh pipeline 7 tokio_tcp@/tmp/before/polyserve tokio_tcp
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1 rounds=3
shift
case ${1-} in [0-9]*) rounds=$1; shift ;; esac
contestants=("$@")
workers=${WORKERS:-8}
load=${LOAD:-target/release/polyserve} # all servers have the same client
seconds=${SECONDS_EACH:-3}
tmp=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$tmp"' EXIT
entity='{"id":1,"description":"a1B2c3D4e5F6g7H","value":60.750847}'
printf %s "$entity" >"$tmp/body.json"

# cpu: prints the processor time that the server has used, in milliseconds. /proc/PID/stat includes threads that have
# ended, and has a resolution of one clock tick. An idle server uses less, so its figure is the sum of the times of its
# threads.
cpu() {
    if [ "$kind" = idle ]; then
        cat /proc/"$server"/task/*/schedstat | awk '{sum += $1} END {printf "%.3f", sum / 1e6}'
    else
        awk -v hz="$(getconf CLK_TCK)" '{sub(/.*\) /, ""); printf "%.3f", ($12 + $13) * 1000 / hz}' /proc/"$server"/stat
    fi
}

start() {
    local name=$1 binary=$2
    shift 2
    local command=("$binary" serve --server "$name" "$@")
    case " $* " in *" --workers "*) ;; *) command+=(--workers "$workers") ;; esac
    case $name in
        peer/*) command=("$binary" --workers "$workers") ;;
        null_* | sequential | thread_per_connection | leader_followers) # these have no workers
            command=("$binary" serve --server "$name" "$@")
            ;;
    esac
    : >"$tmp/serve"
    taskset -c 0 "${command[@]}" --listen 127.0.0.1:0 >"$tmp/serve" 2>"$tmp/err" &
    server=$! # taskset executes the server in its own process
    until grep -q '^listening on' "$tmp/serve"; do
        kill -0 "$server" || { cat "$tmp/err" >&2; exit 1; }
        sleep 0.02
    done
    url=$(sed -n 's/^listening on //p' "$tmp/serve")
    curl -s -X PUT -H 'Content-Type: application/json' -d "$entity" "$url/" >/dev/null
}

# measure: prints one figure.
measure() {
    local before after answered
    case $kind in
        ab)
            taskset -c 1 ab -q -n 2000 -c 100 "$url/1" >/dev/null 2>&1
            before=$(cpu)
            taskset -c 1 ab -q -n 40000 -c 100 "$url/1" >"$tmp/out" 2>&1
            after=$(cpu)
            grep -q '^Failed requests: *0$' "$tmp/out" || cat "$tmp/out" >&2
            awk -v b="$before" -v a="$after" 'BEGIN {printf "%.2f\n", 40000 / (a - b)}'
            ;;
        idle)
            taskset -c 1 python3 - "${url#http://}" "$server" <<'PY'
import glob, resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
host, port = sys.argv[1].rsplit(":", 1)
held = [socket.create_connection((host, int(port))) for _ in range(5000)]
def cpu():
    return sum(int(open(path).read().split()[0]) for path in glob.glob(f"/proc/{sys.argv[2]}/task/*/schedstat"))
time.sleep(2)
before = cpu()
time.sleep(10)
print(f"{(cpu() - before) / 1e6 / 10:.3f}")
PY
            ;;
        *)
            local flags=()
            case $kind in
                rate) flags=(--rate "${RATE:-20000}") ;;
                close) flags=(--no-keepalive) ;;
                put) flags=(--put "$tmp/body.json") ;;
                pipeline) flags=(--pipeline 16) ;;
            esac
            local path=1
            [ "$kind" != put ] || path=
            taskset -c 1 "$load" load "$url/$path" "${flags[@]}" --connections 64 --duration 500ms >/dev/null
            before=$(cpu)
            taskset -c 1 "$load" load "$url/$path" "${flags[@]}" --connections 64 --duration "${seconds}s" --json >"$tmp/out"
            after=$(cpu)
            answered=$(grep -oE '"answered":[0-9]+' "$tmp/out" | grep -oE '[0-9]+$')
            if [ "$kind" = rate ]; then
                awk -v b="$before" -v a="$after" -v n="$answered" 'BEGIN {printf "%.2f\n", (a - b) * 1000 / n}'
            else
                awk -v b="$before" -v a="$after" -v n="$answered" 'BEGIN {printf "%.2f\n", n / (a - b)}'
            fi
            ;;
    esac
}

for ((round = 1; round <= rounds; round++)); do
    for index in "${!contestants[@]}"; do
        contestant=${contestants[$index]}
        read -r server_at_binary flags <<<"$contestant"
        binary=${server_at_binary#*@}
        if [ "$binary" = "$server_at_binary" ]; then
            case $server_at_binary in
                peer/*) binary=target/peers/release/${server_at_binary#peer/} ;;
                *) binary=target/release/polyserve ;;
            esac
        fi
        # shellcheck disable=SC2086 # the flags are several words
        start "${server_at_binary%%@*}" "$binary" $flags
        figure=$(measure)
        printf '%s\t%s\n' "$contestant" "$figure"
        echo "$figure" >>"$tmp/figures.$index"
        kill -KILL "$server"
        wait 2>/dev/null || true
        server=
    done
done
median() { sort -n | awk '{x[NR] = $1} END {print x[int((NR + 1) / 2)]}'; }
echo "--- median, and median of the ratios to the first, $kind"
for index in "${!contestants[@]}"; do
    printf '%-60s %8.2f %6.3f\n' "${contestants[$index]}" "$(median <"$tmp/figures.$index")" \
        "$(paste "$tmp/figures.$index" "$tmp/figures.0" | awk '{print $1 / $2}' | median)"
done
