#!/usr/bin/env bash
# Opens the page of a report in a browser, as users do: from a file, on a desktop and on a phone, light and dark.
#
# The page tests itself if its address ends with #self-test (assets/report/selftest.js): every chart has marks, every
# table sorts by every column in both directions, nothing is wider than the window, and there are no errors. This script
# checks the results, and that all charts of the test records are drawn. It also checks pages that were broken on
# purpose, because a test that cannot fail shows nothing.
# ci/browser.sh [RECORDS...]   the directories of the records; by default the recorded runs of the command's tests
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh

browser=
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then browser=$name; break; fi
done
if [ -z "$browser" ] && apt_install --no-install-recommends chromium; then browser=chromium; fi
[ "$browser" ] || { echo "not run: the report in a browser: chromium is not installed"; exit 0; }

given=$#
records=("$@")
[ $# -gt 0 ] || records=(crates/polyserve-cli/tests/fixtures/records)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# Users choose the names, and a record may come from an experiment of another program.
mkdir "$tmp/odd"
name='<\/script><img src=x onerror=nobody()><script>nobody()<\/script>|\u2028'
sed -e "s#\"server\":\"tokio_tcp\"#\"server\":\"$name\"#" crates/polyserve-cli/tests/fixtures/records/page.jsonl >"$tmp/odd/page.jsonl"
printf '%s\n' "{\"kind\":\"environment\",\"experiment\":\"$name\",\"command\":[\"$name\"]}" "{\"kind\":\"$name\",\"$name\":1}" >"$tmp/odd/another.jsonl"
grep -qF onerror "$tmp/odd/page.jsonl"

cargo build -q --release --workspace --examples --bins --features polyserve-cli/etcd,polyserve-examples/all # the same build as in ci/test.sh, so that nothing is rebuilt
target/release/polyserve report "${records[@]}" "$tmp/odd" --html "$tmp/report.html" --json >"$tmp/said.json"
count=$(grep -o '"file":' "$tmp/said.json" | wc -l)

# look NAME SCHEME WIDTH:PAGE...: opens each page in a frame of this width, and writes the result of its self-test into
# $tmp/NAME.said, one line per page. The window of a headless browser is at least 500 wide, so the phone is a frame.
look() {
    local name=$tmp/$1 scheme=$2 place=0 one
    shift 2
    {
        echo '<!doctype html><style>body { margin: 0 } iframe { border: 0; height: 900px; display: block }</style><pre id="said"></pre><script>'
        echo 'const said = []; addEventListener("message", ({ source, data }) => {'
        echo '  const frames = [...document.querySelectorAll("iframe")];'
        echo '  said[frames.findIndex((frame) => frame.contentWindow === source)] = `SAID ${data}\n`;'
        echo '  document.getElementById("said").textContent = frames.map((_, place) => said[place] ?? "SAID nothing\n").join(""); });</script>'
        for one; do echo "<iframe width=\"${one%%:*}\" src=\"${one#*:}#self-test\"></iframe>"; done
    } >"$name.html"
    timeout 300 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$name.profile" \
        --window-size=1600,900 --blink-settings="preferredColorScheme=$([ "$scheme" = dark ] && echo 0 || echo 1)" \
        --virtual-time-budget=60000 --dump-dom "file://$name.html" >"$name.dom" 2>"$name.log" || true
    sed -n 's/.*SAID //p' "$name.dom" | sed -e 's/&lt;/</g' -e 's/&gt;/>/g' -e 's/&amp;/\&/g' | sed -n "1,$#p" >"$name.said"
    for one; do
        place=$((place + 1))
        [ -n "$(sed -n "${place}p" "$name.said")" ] || { echo "FAILED: $one said nothing"; tail -n 20 "$name.log"; exit 1; }
    done
}

failed=
# has PATTERN: whether $said contains the text. number NAME: prints a figure from $said.
has() { grep -qF -- "$1" <<<"$said"; }
number() { grep -oE "\"$1\":[0-9]+" <<<"$said" | head -n 1 | cut -d: -f2; }

# The charts of the recorded runs of the command's tests: the experiment, the chart, and its required parts.
charts=$(cat <<'END'
capacity: The max rate for a latency
compare: CPU and memory
compare: Latency by percentile
compare: Throughput and cost against the baseline
crowd: A good client during a slow crowd
crowd: A good client during an idle crowd
crowd: CPU and memory
ladder: Against Go's servers
ladder: CPU and memory
ladder: How the rungs add up
ladder: How the rungs add up: references
ladder: The published ladder
ladder: The published ladder: references
ladder: What each rung adds
matrix: Against the pool's size
matrix: Pool size x connections
matrix: Pool size x connections, published
page: Against the published figures
page: CPU
page: Latency by percentile
page: Requests a second against the pool's size
page: Requests a second against the pool's size: bound
ranking: Capacity
ranking: Servers
ranking: Stores
recommend: Against the choice
recommend: CPU and memory
recommend: Latency by percentile
scale: Along connections
scale: Along connections: growth
scale: Along keys
scale: Along keys: growth
scale: Along payload
scale: Along payload: growth
scale: Along workers
scale: Along workers: growth
seam: Time against the bare map
stores: Along keys
stores: Along workers
stores: Against the baseline
stores: Latency by percentile
stores: Memory
stress: The stress scenario
tasks: Cost and profit
tasks: Durations against the number of tasks
tasks: Schedule
tasks: Threads
tasks: Working and waiting
END
)
# drawn: prints the charts that $said lists. lost: prints the difference from the list above. Other records have other
# charts.
drawn() { grep -oE '"drawn":\[[^]]*\]' <<<"$said" | sed 's/^"drawn"://' | grep -oE '"[^"]+"' | tr -d '"' | LC_ALL=C sort; }
lost() { [ "$given" -gt 0 ] || diff <(LC_ALL=C sort <<<"$charts") <(drawn) || true; }

# good LINE WIDTH SCHEME: the page must have passed, with all records and charts.
good() {
    local dark=false
    [ "$3" = light ] || dark=true
    said=$(sed -n "$1p" "$tmp/$3.said")
    if has '"passed":true' && has "\"width\":$2," && has "\"dark\":$dark," && has "\"records\":$count," &&
        [ "$(number charts)" -ge 1 ] && [ "$(number tables)" -ge "$count" ] && [ -z "$(lost)" ]; then
        echo "ok: $2 wide, $3: $count records, $(number charts) charts, $(number marks) marks, $(number tables) tables"
    else
        failed=1
        lost
        echo "FAILED: $2 wide, $3: ${said:0:4000}"
    fi
}

# Pages with a mistake: its description, the edit that makes it, and the expected message. "- " means that the text
# after it must not be in the list of drawn charts.
mistakes=(
    'a chart without marks|s/Plot\.barX)(filled,/Plot.barX)([],/|has no marks'
    'a table that does not sort|s/return descending ? -by : by;/return 0;/|is not ascending'
    'an error|s/^draw();$/draw(); setTimeout(() => nobody(), 0);/|nobody is not defined'
    'an error of a drawing|s/^drawings\.[a-z]* = (record, section) => {$/&nobody();/|nobody is not defined'
    'something wider than the window|s/^<body>$/<body><div style="width:3000px">wide<\/div>/|wide in a window of'
    'a request|s/^<\/body>$/<img alt="" src="https:\/\/localhost\/x.png"><\/body>/|policy: img-src'
    'a text that cannot be read|s/--warn: light-dark([^)]*)/--warn: light-dark(#ddd, #333)/|warn on warn-surface has a contrast'
    'a ranking below the records|s/h("main", {}, ranking, parts.map(({ part }) => part),/h("main", {}, parts.map(({ part }) => part), ranking,/|the ranking is not the first section'
    'a chart that is gone|s/^  gantt(section, cells);$//|- tasks: Schedule'
    'a curve that is gone|s/^    under: \[Plot\.line(formula, .*$//|- page: Requests a second against the pool.s size: bound'
)
# seen SIGN: whether $said shows the mistake.
seen() {
    case $1 in
        '- '*) [ "$(drawn)" ] && ! grep -qx -- "${1#- }" <<<"$(drawn)" ;;
        *) has '"passed":false' && has "$1" ;;
    esac
}
pages=()
for place in "${!mistakes[@]}"; do
    IFS='|' read -r what edit _ <<<"${mistakes[$place]}"
    sed "$edit" "$tmp/report.html" >"$tmp/mistake$place.html"
    ! cmp -s "$tmp/report.html" "$tmp/mistake$place.html" || { echo "FAILED: $what could not be made"; exit 1; }
    pages+=("1280:mistake$place.html")
done

# A browser runs all pages of files on one thread, so there are several.
half=$((${#pages[@]} / 2))
looks=()
look dark dark 1280:report.html 390:report.html & looks+=($!)
look light light 1280:report.html 390:report.html & looks+=($!)
look first light "${pages[@]:0:half}" & looks+=($!)
look second light "${pages[@]:half}" & looks+=($!)
for look in "${looks[@]}"; do wait "$look"; done
for scheme in dark light; do
    good 1 1280 $scheme
    good 2 390 $scheme
done
cat "$tmp/first.said" "$tmp/second.said" >"$tmp/mistakes.said"
for place in "${!mistakes[@]}"; do
    IFS='|' read -r what _ sign <<<"${mistakes[$place]}"
    said=$(sed -n "$((place + 1))p" "$tmp/mistakes.said")
    if seen "$sign"; then
        echo "ok: $what is seen"
    else
        failed=1
        echo "FAILED: $what is not seen: ${said:0:1000}"
    fi
done
[ -z "$failed" ]
