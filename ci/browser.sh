#!/usr/bin/env bash
# Opens the page of a report in a browser: no error, nothing wider than the window, and every table sorts by every column.
# It also opens a page whose script was broken, because a test that cannot fail shows nothing.
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

records=("$@")
[ $# -gt 0 ] || records=(crates/polyserve-cli/tests/fixtures/records)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. ci/programs.sh
build_programs
"$programs/polyserve" report "${records[@]}" --html "$tmp/report.html" >/dev/null

# The check runs in the page. Its policy must permit only the page's own script, so the check has that script's nonce.
nonce=$(grep -o 'script nonce="[0-9a-f]*"' "$tmp/report.html" | cut -d'"' -f2)
cat >"$tmp/check.js" <<'END'
const faults = [];
addEventListener("error", ({ message }) => faults.push(message));
document.addEventListener("securitypolicyviolation", ({ violatedDirective }) => faults.push(violatedDirective));
for (const details of document.querySelectorAll("details")) details.open = true;
let columns = 0;
for (const table of document.querySelectorAll("table")) {
  for (const head of table.tHead.rows[0].cells) {
    for (const isDescending of [false, true]) {
      head.querySelector("button").click();
      const cells = [...table.tBodies[0].rows].map((row) => row.cells[head.cellIndex]?.textContent ?? "");
      const filled = cells.filter((cell) => cell !== "" && cell !== "-");
      if (filled.some((cell, place) => cell !== cells[place])) faults.push(`empty cells are not last: ${head.textContent}`);
      const plain = filled.filter((cell) => /^-?[\d,.]+$/.test(cell)).map((cell) => Number(cell.replaceAll(",", "")));
      if (isDescending) plain.reverse();
      if (plain.some((figure, place) => figure < plain[place - 1])) faults.push(`not in order: ${head.textContent}`);
    }
    columns += 1;
  }
}
if (document.documentElement.scrollWidth > innerWidth) faults.push("wider than the window");
const charts = document.querySelectorAll(".chart svg").length;
document.title = `RESULT ${JSON.stringify({ charts, columns, faults: faults.slice(0, 5) })}`;
END

# result FILE: prints what the check found.
result() {
    sed "s#</body>#<script nonce=\"$nonce\">$(sed 's/[&\\#]/\\&/g; s/$/\\/' "$tmp/check.js")
</script></body>#" "$1" >"$tmp/opened.html"
    timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$tmp/profile" \
        --window-size="$2",900 --virtual-time-budget=60000 --dump-dom "file://$tmp/opened.html" 2>"$tmp/log" |
        sed -n 's/.*<title>RESULT \(.*\)<\/title>.*/\1/p'
}

sed 's/isDescending) filled.reverse/false) filled.reverse/' "$tmp/report.html" >"$tmp/broken.html"
! cmp -s "$tmp/report.html" "$tmp/broken.html"
for width in 1280 500; do
    found=$(result "$tmp/report.html" "$width")
    echo "$width pixels wide: $found"
    grep -qE '"charts":[1-9][0-9]+,"columns":[1-9][0-9]+,"faults":\[\]' <<<"$found" || { tail -n 20 "$tmp/log"; exit 1; }
done
found=$(result "$tmp/broken.html" 1280)
grep -q 'not in order' <<<"$found" || { echo "a script that does not sort is not noticed: $found"; exit 1; }
