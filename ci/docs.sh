#!/usr/bin/env bash
# Runs what the documentation shows:
# * examples: every example, except that of ci/clients.sh. All must succeed. An example is a server if its last comment has curl requests:
#   the server must give the answers in the comment. Then it is interrupted and must drain. An example with the URL of a database gets its
#   own database. Any other example runs to its end.
# * scratch: the project ci/scratch outside the workspace, with its own entity, service and store. It tests them with the kit and on a
#   server of each family. The programs in ci/scratch/wrong must not compile, and the error of each must have the texts after its `//~`.
# * readme: the code of the README, with exactly the dependencies that the README lists: built, started on a free port, and interrupted.
# * tutorial: docs/TUTORIAL.md, as a reader follows it.
#   A block with `file=PATH` is a file. A block with `append=PATH` is appended to a file.
#   In a `console` block, `$ ` begins a command. The next lines are the answer to a request, or lines that the command prints.
#   Other blocks are not run. Three things differ from the text: the port is free, builds are without --release, and measurements are
#   short, because only their success matters.
# ci/docs.sh [PART]...
# ci/docs.sh examples NAME
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/session.sh
root=$PWD

# The projects are packages of one workspace, so that they share what they build, with the versions and the profile of the tests.
projects=$root/target/docs
workspace() {
    rm -rf "$projects"
    mkdir -p "$projects"
    { printf '[workspace]\nresolver = "3"\nmembers = ["*"]\n\n'; sed -n '/^\[profile\.dev\.package\.rustls/,/^$/d; /^\[profile\.dev/,/^$/p' Cargo.toml; } >"$projects/Cargo.toml"
    cp Cargo.lock "$projects"
    export CARGO_TARGET_DIR=$root/target CARGO_PROFILE_DEV_DEBUG=0
}

# fail TEXT: prints the output of a program, and fails.
fail() { echo "$1. The output:" >&2; sed 's/^/    /' "$tmp/out" >&2; exit 1; }

# split FILE: splits a text. The first line and the content of its block N are in $tmp/N.head and $tmp/N.block. Sets $count.
split() {
    rm -f "$tmp"/*.head "$tmp"/*.block
    count=$(awk -v tmp="$tmp" '
        /^```/ { inside = !inside
                 if (inside) { printf "%s\n", substr($0, 4) >(tmp "/" ++count ".head"); printf "" >(tmp "/" count ".block") }
                 next }
        inside { print >(tmp "/" count ".block") }
        END { print count }
    ' "$1")
}

# content N: prints a block with the paths and the address of this run.
content() { sed "s|\"\.\./polyserve/|\"$root/|; s|127\.0\.0\.1:8001|127.0.0.1:0|" "$tmp/$1.block"; }

# answers NAME: starts an example on a free port, and compares its answers with its comment in $tmp/session.
answers() {
    local name=$1 args
    args=$(sed -n "s/^\$ cargo run --release --example $name\( --features [a-z]*\)\{0,1\} -- //p" "$tmp/session")
    case $args in
        postgres://*)
            # The engine ends when its input ends.
            coproc ENGINES { "$programs/polyserve-engines" postgres 2>"$tmp/out"; }
            read -r args <&"${ENGINES[0]}" || return 1
            args=${args#postgres:}
            ;;
    esac
    TCP_ADDRESS=127.0.0.1:0 start "$programs/examples/$name" $args && requests "$tmp/session" && stop || return 1
    if [ -n "${ENGINES_PID-}" ]; then
        local engines=$ENGINES_PID
        eval "exec ${ENGINES[1]}>&-"
        wait "$engines"
    fi
}

examples() {
    local only=${1-} file name found=0
    build_programs
    for file in examples/examples/*.rs examples/examples/*/main.rs; do
        name=$(basename "${file%/main.rs}" .rs)
        [ -z "$only" ] || [ "$name" = "$only" ] || continue
        [ "$name" != https_http2 ] || continue # ci/clients.sh runs it, with certificates and clients
        # The last comment.
        awk '/^\/\// { sub("^// ?", ""); text = text $0 "\n"; next } { text = "" } END { printf "%s", text }' "$file" >"$tmp/session"
        if grep -q '^\$ curl ' "$tmp/session"; then
            answers "$name" || fail "$name failed"
        else
            "$programs/examples/$name" >"$tmp/out" 2>&1 || fail "$name failed"
        fi
        echo "$name: ok"
        found=$((found + 1))
    done
    [ "$found" != 0 ] || { echo "there is no example $only" >&2; exit 1; }
}

scratch() {
    local program name text found=0
    cp -r ci/scratch "$projects/scratch"
    cd "$projects/scratch"
    sed "s|@ROOT@|$root|" Cargo.toml.in >Cargo.toml
    if cargo tree -q -e normal --prefix none | grep -E '^(tokio|hyper|clap|signal-hook|humantime) '; then
        echo "the enabled features do not need these" >&2
        exit 1
    fi
    cargo test -q
    mkdir examples
    for program in wrong/*.rs; do
        name=$(basename "$program" .rs)
        cp "$program" "examples/$name.rs"
        # Not `cargo check`, which would check each dependency that the tests have built.
        if cargo build -q --example "$name" 2>"$tmp/out"; then
            echo "$program compiles" >&2
            exit 1
        fi
        sed -n 's|^//~ ||p' "$program" | while IFS= read -r text; do
            grep -qF -- "$text" "$tmp/out" || fail "the error of $program does not say: $text"
        done
        found=$((found + 1))
    done
    echo "$found wrong programs have an error that names the way out"
    cd "$root"
}

# The README has as many blocks of dependencies as programs, and in the same order.
readme() {
    local n head programs_found=() dependencies=() k project
    split README.md
    for ((n = 1; n <= count; n++)); do
        head=$(<"$tmp/$n.head")
        case $head in
            rust*) programs_found+=("$n") ;;
            toml) dependencies+=("$n") ;;
        esac
    done
    [ "${#programs_found[@]} ${#dependencies[@]}" = "2 2" ] || { echo "the README has no longer 2 programs with their dependencies" >&2; exit 1; }
    for k in 0 1; do
        project=$projects/snippet-$k
        mkdir -p "$project/src"
        { printf '[package]\nname = "snippet-%d"\nversion = "0.0.0"\nedition = "2024"\n\n' "$k"; content "${dependencies[k]}"; } >"$project/Cargo.toml"
        content "${programs_found[k]}" >"$project/src/main.rs"
        grep '^polyserve' "$project/Cargo.toml"
        (cd "$project" && cargo build -q)
        start "$CARGO_TARGET_DIR/debug/snippet-$k" && stop || fail "the program failed"
        cat "$tmp/out"
    done
}

# run COMMAND: runs a command of the tutorial in its project. Its output goes to $tmp/out.
run() {
    local command=${1/ --release/} project=$projects/shop
    case $command in
        'cargo new shop') (cd "$projects" && cargo new -q shop) >"$tmp/out" 2>&1 ;;
        'cargo run') (cd "$project" && cargo build -q) && start "$CARGO_TARGET_DIR/debug/shop" ;;
        'cargo '*)
            case $command in
                *' compare '*) command=${command/ --rounds 10/}' --rounds 2 --slice 50ms --no-latency' ;;
                *' bench stores '*) command+=' --set rounds=2' ;;
                *' recommend '*) command=${command/ --time 90s/ --time 30s}' --rounds 1' ;;
            esac
            (cd "$project" && eval "$command") >"$tmp/out" 2>&1 ;;
        *) echo "not a command that this script runs" >&2; return 1 ;;
    esac
}

tutorial() {
    local n head line
    split docs/TUTORIAL.md
    for ((n = 1; n <= count; n++)); do
        head=$(<"$tmp/$n.head")
        case $head in
            *' file='*)
                mkdir -p "$(dirname "$projects/shop/${head##*=}")"
                content "$n" >"$projects/shop/${head##*=}" ;;
            *' append='*) content "$n" >>"$projects/shop/${head##*=}" ;;
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
                            run "${line#\$ }" </dev/null || fail "the command failed" ;;
                        *)
                            plain <"$tmp/out" >"$tmp/printed" # no pipe: grep ends early, which would make the pipe fail
                            grep -qxF -- "$line" "$tmp/printed" || fail "not printed: $line" ;;
                    esac
                done <"$tmp/$n.block" ;;
        esac
    done
    stop
    echo "$count blocks (after $SECONDS s)"
}

[ $# -gt 0 ] || set -- examples scratch readme tutorial
if [ "$1" = examples ] && [ $# = 2 ]; then
    examples "$2"
    exit
fi
[ "$*" = examples ] || workspace
for part in "$@"; do
    case $part in
        examples | scratch | readme | tutorial) "$part" ;;
        *) echo "usage: ci/docs.sh [examples|scratch|readme|tutorial]..." >&2; exit 2 ;;
    esac
done
