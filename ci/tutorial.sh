#!/usr/bin/env bash
# Runs the code of docs/TUTORIAL.md in a scratch project: writes its files, runs its commands, and sends its requests.
# * A block with `file=PATH` is a file. A block with `append=PATH` is appended to a file.
# * In a `console` block, `$ ` begins a command. The next lines are the answer to a request, or lines that the command
#   prints.
# * Other blocks are not run.
# Three things differ from the text: the port is free, builds are without --release, and measurements are short, because
# only their success matters.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/session.sh
root=$PWD
# Dependencies that are built for the tests of the workspace are used here too: like there, they are without debug information.
export CARGO_TARGET_DIR=$root/target CARGO_PROFILE_DEV_DEBUG=0
project=$tmp/shop

# Splits the text: the first line and the content of block N are in $tmp/N.head and $tmp/N.block.
count=$(awk -v tmp="$tmp" '
    /^```/ { inside = !inside
             if (inside) { printf "%s\n", substr($0, 4) >(tmp "/" ++count ".head"); printf "" >(tmp "/" count ".block") }
             next }
    inside { print >(tmp "/" count ".block") }
    END { print count }
' docs/TUTORIAL.md)

# content N: prints a block with the paths and the address of this run.
content() { sed "s|\"\.\./polyserve/|\"$root/|; s|127\.0\.0\.1:8001|127.0.0.1:0|" "$tmp/$1.block"; }

# run COMMAND: runs a command of the text in the project. Its output goes to $tmp/out.
run() {
    local command=${1/ --release/}
    case $command in
        'cargo new shop') (cd "$tmp" && cargo new -q shop && cp "$root/Cargo.lock" shop) >"$tmp/out" 2>&1 ;;
        'cargo run') (cd "$project" && cargo build -q) && start "$CARGO_TARGET_DIR/debug/shop" ;;
        'cargo '*)
            case $command in
                *' compare '*) command=${command/ --rounds 10/}' --rounds 3 --no-latency' ;;
                *' recommend '*) command=${command/ --time 90s/ --time 30s}' --rounds 1' ;;
            esac
            (cd "$project" && eval "$command") >"$tmp/out" 2>&1 ;;
        *) echo "not a command that this script runs" >&2; return 1 ;;
    esac
}

for ((n = 1; n <= count; n++)); do
    head=$(<"$tmp/$n.head")
    case $head in
        *' file='*)
            mkdir -p "$(dirname "$project/${head##*=}")"
            content "$n" >"$project/${head##*=}" ;;
        *' append='*) content "$n" >>"$project/${head##*=}" ;;
        console)
            if grep -q '^\$ curl ' "$tmp/$n.block"; then
                requests "$tmp/$n.block"
                continue
            fi
            stop
            while IFS= read -r line; do
                case $line in
                    '$ '*)
                        echo "$line (after $SECONDS s)"
                        run "${line#\$ }" </dev/null || { cat "$tmp/out" >&2; exit 1; } ;;
                    *)
                        plain <"$tmp/out" >"$tmp/printed" # no pipe: grep ends early, which would make the pipe fail
                        grep -qxF -- "$line" "$tmp/printed" || { cat "$tmp/out" >&2; echo "not printed: $line" >&2; exit 1; } ;;
                esac
            done <"$tmp/$n.block" ;;
    esac
done
stop
echo "$count blocks (after $SECONDS s)"
