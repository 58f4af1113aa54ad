#!/usr/bin/env bash
# Runs all models under a model checker: the `models` modules of the crates, with loom and shuttle in place of the locks
# and threads of std. Prints the bound and the time of each model. docs/DESIGN.md, "Model checking", explains what this
# shows.
# ci/models.sh [short|deep|mistakes] [MODEL...]
#   short     a minute; runs in CI
#   deep      all executions if there are few enough, and otherwise more than short
#   mistakes  makes each mistake of ci/mistakes in a copy, one at a time: a model must catch it
# MODEL is a part of the path of a test; for mistakes, a part of "CRATE MODEL FILE". Exits with 1 if a model fails or
# has no verdict, and with 2 if there is no such model. $POLYSERVE_MODEL_LIMIT is the max time in seconds of a model
# with a mistake, 300 by default.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh

how=${1:-short}
[ $# -eq 0 ] || shift
root=$PWD
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target} RUST_BACKTRACE=0
case $CARGO_TARGET_DIR in /*) ;; *) CARGO_TARGET_DIR=$root/$CARGO_TARGET_DIR ;; esac

# Only the crates of the workspace are built for a checker. The others are those of the tests. A compiler of its own name keeps the builds
# for each checker apart.
rustcs=$CARGO_TARGET_DIR/models
mkdir -p "$rustcs"
for checker in loom shuttle; do
    printf '#!/bin/sh\nexec "$@" --cfg polyserve_%s\n' $checker >"$rustcs/$checker"
    chmod +x "$rustcs/$checker"
done

export CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_DEV_DEBUG=0
# A deep run is long enough for an optimised build to pay off.
[ "$how" != deep ] || export CARGO_PROFILE_TEST_OPT_LEVEL=2 CARGO_PROFILE_DEV_OPT_LEVEL=2

# The packages with models, for each checker. `models` refers to these arrays by name.
# shellcheck disable=SC2034
loom=(-p polyserve-core -p polyserve-threadpool -p polyserve-memory)
# shellcheck disable=SC2034
shuttle=(-p polyserve-threadpool -p polyserve-memory)

# models CHECKER [MODEL]: runs the models of a checker, and prints their results. Prints the whole log if one fails.
models() {
    local checker=$1 log said start=$SECONDS why=
    local -n packages=$checker
    log=$(mktemp)
    if ! RUSTC_WORKSPACE_WRAPPER=$rustcs/$checker cargo test -q "${packages[@]}" --no-default-features \
        --features polyserve-memory/copy-on-write,polyserve-memory/seqlock --lib -- --nocapture \
        "${2:-models::}" > "$log" 2>&1; then
        why="models failed, or do not build"
    elif grep -q '^warning' "$log"; then
        why="models are built with warnings"
    elif [ $# -eq 1 ] && grep -q '^running 0 tests' "$log"; then
        why="a crate has no models"
    fi
    if [ -n "$why" ]; then
        cat "$log"
        rm "$log"
        echo "$why, over $checker" >&2
        return 1
    fi
    said=$(grep -o 'model [a-z]* .*: bound .*' "$log" | sort || true)
    rm "$log"
    [ -n "$said" ] || { echo "-- over $checker: none is called ${2:-models::}"; return; }
    ran=$((ran + 1))
    echo "$said"
    echo "-- over $checker: $((SECONDS - start)) s, with the build"
}

limit=${POLYSERVE_MODEL_LIMIT:-300}

# judge CRATE CHECKER MODEL: prints the verdict as one word. $log has the whole output. The time limit is only for the
# run: a build ends by itself, and a failed build is a different verdict from a failed model.
judge() {
    local -x RUSTC_WORKSPACE_WRAPPER=$rustcs/$2
    local run=(cargo test -q -p "$1" --no-default-features --lib) status=0 start
    [ "$1" != polyserve-memory ] || run+=(--features copy-on-write,seqlock)
    "${run[@]}" --no-run > "$log" 2>&1 || { echo unbuilt; return; }
    start=$SECONDS
    timeout --kill-after=10 "$limit" "${run[@]}" "$3" > "$log" 2>&1 || status=$?
    # 124: the time limit. 137: killed, after the time limit or by another process.
    if [ $status = 124 ] || { [ $status = 137 ] && [ $((SECONDS - start)) -ge "$limit" ]; }; then echo timeout
    elif [ $status = 0 ] && grep -q '^test result: ok. 0 passed' "$log"; then echo none
    elif [ $status = 0 ] && grep -q '^test result: ok' "$log"; then echo passed
    elif grep -qE 'panicked at|^test result: FAILED|deadlock|SIGABRT' "$log"; then echo failed
    else echo broken
    fi
}

# explain WORD: explains an unexpected verdict, and prints the relevant part of $log.
explain() {
    case $1 in
        passed) echo "NOT CAUGHT" ;;
        failed) echo "fails"; grep -m 1 -A 3 'panicked at' "$log" || tail -n 15 "$log" ;;
        timeout) echo "TIMEOUT after $limit s: neither caught nor passed"; tail -n 5 "$log"; echo ;;
        unbuilt) echo "does not build"; { grep -m 1 -A 11 '^error' "$log" || tail -n 12 "$log"; } ;;
        none) echo "no such model" ;;
        unmade) echo "no such place, or no substitution" ;;
        *) echo "ended without a verdict"; tail -n 15 "$log"; echo ;;
    esac >&2
}

# change FILE CHANGE...: makes all changes. Fails if one of them does not match.
change() {
    local file=$1 change
    shift
    for change in "$@"; do
        cp "$file" "$file.before"
        perl -0pi -e "$change" "$file" || return
        ! cmp -s "$file" "$file.before" || return
    done
}

# mistake CRATE CHECKER MODEL FILE CHANGE...: makes a mistake, checks that MODEL fails, and reverts the mistake. Called
# by ci/mistakes. A timeout does not count as caught, because an endless model and a slow machine look the same.
mistake() {
    local crate=$1 checker=$2 model=$3 file=$4 said
    shift 4
    [[ "$crate $model $file" == *"$only"* ]] || return 0
    local name="$model over $checker: $file: $*"
    made=$((made + 1))
    # A model that fails without a mistake cannot catch one.
    if [ -z "${sound[$crate $checker $model]:-}" ]; then
        said=$(judge "$crate" "$checker" "$model")
        if [ "$said" != passed ]; then
            echo "without a mistake, $model of $crate over $checker:" >&2
            explain "$said"
            exit 1
        fi
        sound[$crate $checker $model]=yes
    fi
    cp "$file" "$file.right"
    if change "$file" "$@"; then said=$(judge "$crate" "$checker" "$model"); else said=unmade; fi
    mv "$file.right" "$file"
    touch "$file"
    if [ "$said" = failed ]; then echo "caught by $name"; return; fi
    uncaught=$((uncaught + 1))
    echo "by $name" >&2
    explain "$said"
}

case $how in
    short | deep)
        [ "$how" = short ] || export POLYSERVE_MODELS=deep
        ran=0
        if [ $# -eq 0 ]; then
            models loom
            models shuttle
            [ "$ran" = 2 ] || { echo "no model says what it ran" >&2; exit 1; }
        fi
        for model in "$@"; do
            ran=0
            models loom "$model"
            models shuttle "$model"
            [ "$ran" != 0 ] || { echo "no model is called $model" >&2; exit 2; }
        done
        ;;
    mistakes)
        # A separate target directory again: cargo takes a crate in the copy for the crate in this tree, and would mix
        # up their builds.
        CARGO_TARGET_DIR+=/models/mistakes
        tree=$CARGO_TARGET_DIR/tree
        rm -rf "$tree"
        mkdir -p "$tree"
        git ls-files -z -co --exclude-standard | tar c --null -T - | tar x -C "$tree"
        cd "$tree"
        log=$(mktemp) uncaught=0
        trap 'rm -f "$log"' EXIT
        declare -A sound
        for only in "${@:-}"; do
            made=0
            . ci/mistakes
            [ "$made" != 0 ] || { echo "no mistake is about $only: see ci/mistakes" >&2; exit 2; }
        done
        [ "$uncaught" = 0 ] || { echo "$uncaught not caught" >&2; exit 1; }
        ;;
    *) echo "ci/models.sh [short|deep|mistakes] [MODEL...]" >&2; exit 2 ;;
esac
