#!/usr/bin/env bash
# Runs a JMeter plan on every server: PUTs, GETs and updates at once, as in the published plan, with fewer threads and
# requests: 4 000 PUTs, 1 000 GETs and 8 000 updates (published: 10 000, 1 000 and 20 000, with a thread for each). There
# must be 0 errors after the entities are stored. JMeter 5.6 comes from Maven Central.
# ci/jmeter.sh [SERVER...]   every server by default
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
# need PROGRAM PACKAGE: installs the package if the program is missing. Fails if this is not possible.
need() {
    command -v "$1" >/dev/null || apt_install --no-install-recommends "$2" ||
        { echo "jmeter.sh needs $1 (the Debian package $2), which is not installed and cannot be installed" >&2; exit 1; }
}
need java default-jre-headless
need mvn maven
need unzip unzip
polyserve=${POLYSERVE:-target/release/polyserve}
[ -n "${POLYSERVE:-}" ] || cargo build -q --release -p polyserve-cli

# Creates JMeter's directory layout from its artifacts.
jmeter=$PWD/target/jmeter
if [ ! -f "$jmeter/bin/jmeter.properties" ]; then
    rm -rf "$jmeter"
    mvn -q -B -f ci/jmeter/pom.xml dependency:copy-dependencies -DoutputDirectory="$jmeter/lib"
    mkdir -p "$jmeter/bin" "$jmeter/lib/ext"
    mv "$jmeter"/lib/ApacheJMeter-*.jar "$jmeter/bin/ApacheJMeter.jar"
    mv "$jmeter"/lib/ApacheJMeter_*.jar "$jmeter/lib/ext/"
    (cd "$jmeter" && unzip -qo lib/ext/ApacheJMeter_config-*.jar 'bin/*')
fi

tmp=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$tmp"' EXIT
[ $# -gt 0 ] || set -- $("$polyserve" list --json | grep -oE '"servers":\[[^]]*\]' | grep -oE '"name":"[^"]*"' | cut -d'"' -f4)
for name in "$@"; do
    : >"$tmp/serve"
    "$polyserve" serve --server "$name" --repo two_level --listen 127.0.0.1:0 >"$tmp/serve" &
    server=$!
    until grep -q '^listening on' "$tmp/serve"; do kill -0 "$server"; sleep 0.02; done
    port=$(sed -nE 's/^listening on .*:([0-9]+)$/\1/p' "$tmp/serve")
    # The contract allows `sequential` to close an idle connection while a client waits. JMeter does not resend a
    # request that is lost by this.
    keepalive=true
    [ "$name" != sequential ] || keepalive=false
    rm -f "$tmp/samples"
    java -Xmx512m -jar "$jmeter/bin/ApacheJMeter.jar" -n -t ci/jmeter/plan.jmx -l "$tmp/samples" -j "$tmp/log" -Jport="$port" \
        -Jkeepalive="$keepalive" -Jjmeter.save.saveservice.output_format=csv >"$tmp/out" 2>&1 || { cat "$tmp/out" >&2; exit 1; }
    # Columns: timeStamp,elapsed,label,responseCode,responseMessage,threadName,dataType,success,...
    awk -F, -v name="$name" '
        NR > 1 { count[$3]++; if ($8 != "true" && !($0 ~ /,true,/)) { wrong++; if (wrong <= 3) print > "/dev/stderr" } }
        END {
            printf "%-32s put %d, get %d, update %d: %d errors\n", name, count["put"], count["get"], count["update"], wrong
            exit wrong > 0 || count["put"] != 4000 || count["get"] != 1000 || count["update"] != 8000
        }' "$tmp/samples"
    kill -TERM "$server"
    wait "$server"
    server=
done
