#!/usr/bin/env bash
# Builds the image of docs/OPERATING.md by the commands there, and runs it: as its user, with its health check, on a file system that it
# cannot write, and with a stop under load that loses nothing. All that podman makes is in a directory of its own, which is removed.
# ci/container.sh [PROGRAM]
# PROGRAM is a program that needs no libraries, in place of a build of one, which takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
given=${1:+$(realpath "$1")}
command -v podman >/dev/null && command -v runc >/dev/null && command -v musl-gcc >/dev/null ||
    apt_install --no-install-recommends podman runc musl-tools || { echo "not run: podman cannot be installed"; exit 0; }
tmp=$(mktemp -d)
load=
# podman: with a store of its own.
podman() {
    command podman --root "$tmp/storage" --runroot "$tmp/run" --storage-driver vfs --cgroup-manager cgroupfs --runtime runc "$@"
}
# run: starts the container, with limits that any user may set.
run() {
    podman run -d --name polyserve --network host --ulimit nofile="$(ulimit -Sn):$(ulimit -Hn)" --ulimit nproc=1024:1024 \
        --read-only --cap-drop all -v polyserve:/data polyserve >/dev/null
}
trap '[ -z "$load" ] || kill "$load" 2>/dev/null || true; podman rm -f polyserve >/dev/null 2>&1 || true; rm -rf "$tmp"' EXIT
fail() { echo "$*" >&2; podman logs polyserve >&2 || true; exit 1; }

# block FILE: prints the block of the page with this file name.
block() { awk -v head="file=$1" '/^```/ { inside = index($0, head); next } inside' docs/OPERATING.md; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

port=$(free_port) admin=$(free_port) target=${CARGO_TARGET_DIR:-target}
url=http://127.0.0.1:$port
block Containerfile | sed "s/0\.0\.0\.0/127.0.0.1/g; s/\b8001\b/$port/g; s/\b9001\b/$admin/g" >"$tmp/Containerfile"
block image.sh | sed "s#target/x86#$target/x86#; s#\bimage/#$tmp/image/#g; s#Containerfile image#$tmp/Containerfile $tmp/image#" >"$tmp/image.sh"
[ -z "$given" ] || sed -i "/^rustup\|^cargo/d; s#^cp [^ ]*#cp $given#" "$tmp/image.sh"
. "$tmp/image.sh"
program=$tmp/image/polyserve

# answers: waits until the container answers.
answers() {
    for _ in $(seq 100); do
        ! curl -fsS -o /dev/null "http://127.0.0.1:$admin/readyz" 2>/dev/null || return 0
        sleep 0.1
    done
    fail "the container does not answer"
}
run
answers
user=$(awk '/^Uid:/ { print $2 }' "/proc/$(podman inspect -f '{{.State.Pid}}' polyserve)/status")
[ "$user" = 65532 ] || fail "it runs as the user $user"
podman healthcheck run polyserve >/dev/null || fail "the health check fails"
entity='{"id":1,"description":"in a container","value":1.5}'
[ "$(curl -sS -o /dev/null -w '%{http_code}' -X PUT "$url/" -d "$entity")" = 201 ] || fail "the PUT is no 201"

# A stop under load: each answer is right and whole. Afterwards nothing listens, and no connection can be made.
"$program" load "$url/1" --rate 2000 --duration 4s --json >"$tmp/load" 2>&1 &
load=$!
sleep 1
start=$(date +%s)
podman stop -t 10 polyserve >/dev/null
took=$(($(date +%s) - start))
wait "$load" 2>/dev/null || true
load=
grep -q '"answered":[1-9].*"wrong":0,"status":{},"timeouts":0,.*"broken":0' "$tmp/load" || fail "not each answer is right: $(cat "$tmp/load")"
status=$(podman inspect -f '{{.State.ExitCode}}' polyserve)
[ "$status" = 0 ] && [ "$took" -le 8 ] || fail "the stop took $took s, and the exit code is $status"
podman logs polyserve 2>&1 | grep -q '^answered [1-9][0-9]*, cut 0, stuck 0$' || fail "it did not drain"
podman rm polyserve >/dev/null
run
answers
[ "$(curl -sS "$url/1")" = "$entity" ] || fail "the entity is lost"
podman stop -t 10 polyserve >/dev/null
echo "container: ok ($(du -m "$program" | cut -f1) MiB, stopped under load within $took s)"
