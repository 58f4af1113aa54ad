#!/usr/bin/env bash
# Runs the durable store on a disk of 160 MB, in a mount namespace of its own: 48 MB of entities, compactions under writes, a disk
# that another file fills, and a check on a read-only mount. Needs root, and the command `unshare`. If the disk cannot be
# mounted, it says so, and fails if TEST_ENGINES=required.
# ci/disk.sh [OPTION of cargo test]...      the profile is release by default
set -euo pipefail
trap 'exit 130' INT TERM # interrupted commands exit with success, so the script ends itself
cd "$(dirname "$0")/.."
. ci/setup.sh

disk=$(mktemp -d)
trap 'rmdir "$disk"' EXIT
mount='mount -t tmpfs -o size=160m none "$1"'
if ! why=$(unshare -m sh -c "$mount" sh "$disk" 2>&1); then
    echo "not run: disk: a tmpfs cannot be mounted in a mount namespace of its own: ${why//$'\n'/ }"
    [ "${TEST_ENGINES:-}" != required ] || exit 1
    exit 0
fi
[ $# -gt 0 ] || set -- --release
run=(cargo test -q "$@" -p polyserve-cli --test cli)
"${run[@]}" --no-run
POLYSERVE_SMALL_DISK=$disk unshare -m sh -c "$mount"' && shift && exec "$@"' sh "$disk" \
    "${run[@]}" -- --ignored --exact --nocapture durable::a_small_disk_stops_no_writes
