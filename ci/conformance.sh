#!/usr/bin/env bash
# Writes docs/CONFORMANCE.md from a run of the kit: a row for each property, a column for each server. About four minutes on 2 cores.
# ci/conformance.sh [LOG]     takes the results from LOG, which the kit has written with --logfile, and runs nothing
# ci/conformance.sh --check   runs nothing, and fails if the page lacks a property of the kit, or has one that the kit has not
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh
case ${1-} in
    # With the features of the other tests, so that nothing is built anew for it.
    --check) mode=check log=$(mktemp) && cargo test -q --workspace --features "${FEATURES-polyserve/tls}" --test kit -- --list >"$log" ;;
    '') mode=write log=$(mktemp) && cargo test -q -p polyserve --features tls,async,percore --test kit -- --logfile "$log" >/dev/null ;;
    *) mode=write log=$(realpath "$1") ;;
esac
python3 - "$mode" "$log" <<'PY'
import collections, pathlib, re, sys

PAGE = pathlib.Path("docs/CONFORMANCE.md")
SOURCES = pathlib.Path("crates/polyserve-conformance/src/server")
mode, log = sys.argv[1:]
line = re.compile(r"(?:test )?(server|server_over_tls|tls)::(\S+?)::(\w+)(?:: test|\s+\.\.\. (ok|ignored|FAILED)(?: \((.*)\))?)$")

# results[kind][property][family][server] is "" if it held, or why it was not run.
results = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(dict)))
for text in open(log):
    match = line.match(text.strip())
    if match:
        kind, server, name, outcome, why = match.groups()
        if outcome == "FAILED":
            sys.exit(f"{kind}::{server}::{name} failed")
        results[kind][name][server.split("/")[0]][server] = why or ("" if outcome != "ignored" else "not run")

if mode == "check":
    shown = set(re.findall(r"^\| `(\w+)`", PAGE.read_text(), re.M))
    known = set(results["server"]) | set(results["tls"])
    if shown != known:
        print(*(f"not in the page: {name}" for name in sorted(known - shown)), sep="\n", file=sys.stderr)
        print(*(f"not in the kit: {name}" for name in sorted(shown - known)), sep="\n", file=sys.stderr)
        sys.exit("docs/CONFORMANCE.md is old: run ci/conformance.sh")
    sys.exit()

# The modules in the order of the kit, with their properties; and the first sentence about each property.
kit = (SOURCES / "mod.rs").read_text()
modules = re.findall(r"^        (\w+) \{\n((?:            \w+,\n)+)        \}", kit, re.M)
modules = [(module, re.findall(r"\w+", names)) for module, names in modules]
about = {}
def describe(name, comment):
    text = " ".join(re.sub(r"^ *(///|#) ?", "", one) for one in comment.splitlines())
    about.setdefault(name, re.match(r"(?:`[^`]*`|[^`])+?(?=[.:] |[.:]?$)", text)[0].replace("|", "\\|"))

for path in SOURCES.rglob("*.rs"):
    for comment, name in re.findall(r"((?:^ *///.*\n)+)(?: *#\[.*\]\n)*^ *(?:pub(?:\([a-z]+\))? )?fn (\w+)\(", path.read_text(), re.M):
        describe(name, comment)
corpus = (SOURCES.parent / "wire/corpus.txt").read_text()
for name, comment in re.findall(r'^["<\[](\w+)[">\]]\n((?:# .*\n)+)', corpus, re.M):
    describe(name, comment)

families = list(dict.fromkeys(family for row in results["server"].values() for family in row))
reasons = []

def cell(servers):
    """The outcome on the servers of a family: yes, or the numbers of the reasons why it was not run."""
    notes = sorted({why for why in servers.values() if why})
    for why in notes:
        if why not in reasons:
            reasons.append(why)
    if not servers:
        return ""
    return "yes" if not notes else ", ".join(f"[{reasons.index(why) + 1}]" for why in notes)

def table(kind, rows, out):
    over = results["server_over_tls"] if kind == "server" else {}
    columns = families + (["over TLS"] if over else [])
    out.append("| property | " + " | ".join(columns) + " |")
    out.append("|---" * (len(columns) + 1) + "|")
    for name in rows:
        row = results[kind][name]
        cells = [cell(row[family]) for family in families]
        if over:
            cells.append(cell({server: why for family in over[name].values() for server, why in family.items()}))
        out.append(f"| `{name}` {about.get(name, '')} | " + " | ".join(cells) + " |")
    out.append("")

body = []
placed = set()
for module, names in modules:
    names = [name for name in names if name in results["server"]]
    if names:
        body.append(f"### {module.replace('_', ' ')}\n")
        table("server", names, body)
        placed |= set(names)
rest = [name for name in results["server"] if name not in placed]
if rest:
    body.append("### bytes in, status out\n")
    table("server", rest, body)
body.append("## TLS\n")
table("tls", list(results["tls"]), body)

count = lambda family: len({server for row in results["server"].values() for server in row[family]})
several = [f"`{family}` with {count(family)} executors" for family in families if count(family) > 1]
over = sorted({server for row in results["server_over_tls"].values() for family in row.values() for server in family})
head = f"""# Conformance

What each server of the catalog was seen to do by the conformance kit: {len(results['server'])} properties of a server and {len(results['tls'])} of TLS. `ci/conformance.sh` runs
the kit and writes this page; `cargo test -p polyserve --features tls,async,percore --test kit` runs it alone. **yes**: it held, on every server of the
column. A number: it was not run, for the reason below. A property that fails fails CI, so no cell says no. *Over TLS* is empty if TLS
cannot change the property: `crates/polyserve/tests/kit.rs` says why.

A column is a server, or {' and '.join(several)}. *Over TLS*: {', '.join(f'`{server}`' for server in over)}.
What `tokio_hyper` answers otherwise than the codec is declared, and the kit tests what is declared:
[decision 7](decisions/007-tokio-hyper.md).

## Servers
"""
foot = ["## Not run\n", *(f"{number}. {why}" for number, why in enumerate(reasons, 1))]
PAGE.write_text(head + "\n" + "\n".join(body + foot) + "\n")
print(f"{PAGE}: {len(results['server'])} properties of {len(families)} columns, {len(results['tls'])} of TLS")
PY
