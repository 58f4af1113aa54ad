#!/usr/bin/env bash
# Checks the minimum Rust version, with all features on Linux. No normal or build dependency of a published crate may
# declare a newer `rust-version` than the workspace. At least one must declare the same version: `rust-version` is the
# oldest version that the dependencies allow. The clippy lint `incompatible_msrv` checks the use of the standard
# library.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
cargo metadata --locked --format-version 1 --all-features --filter-platform x86_64-unknown-linux-gnu | python3 -c '
import json, sys

metadata = json.load(sys.stdin)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
own = [id for id in metadata["workspace_members"] if packages[id]["publish"] is None]
used_by = dict.fromkeys(own)
queue = list(own)
while queue:
    user = queue.pop()
    for dependency in nodes[user]:
        normal = any(kind["kind"] in (None, "build") for kind in dependency["dep_kinds"])
        if normal and dependency["pkg"] not in used_by:
            used_by[dependency["pkg"]] = user
            queue.append(dependency["pkg"])

def version(id):
    numbers = (packages[id]["rust_version"] or "1.0").split(".")
    return tuple(int(number) for number in (numbers + ["0"])[:3])

ours = max(version(id) for id in own)
foreign = [id for id in used_by if id not in own]
newer = [id for id in foreign if version(id) > ours]
for id in newer:
    package, user = packages[id], packages[used_by[id]]
    print("%s %s needs Rust %s; %s uses it" % (package["name"], package["version"], package["rust_version"], user["name"]))
oldest = max(map(version, foreign))
if oldest < ours:
    print("rust-version could be %d.%d: the dependencies need no more" % oldest[:2])
sys.exit(bool(newer) or oldest < ours)
'
