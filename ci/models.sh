#!/usr/bin/env bash
# Everything that a model checker runs: the crates' `models` modules, over loom and over shuttle in place of std's locks and
# threads. Prints each model's bound and how long it took. docs/DESIGN.md, "Model checking", says what this shows.
# ci/models.sh [short|deep|mistakes] [MODEL...]
#   short     a minute; what CI runs
#   deep      all executions where there are few enough, and more of the others
#   mistakes  makes each of the mistakes in ci/mistakes, one at a time, in a copy: a model must catch it
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh

how=${1:-short}
[ $# -eq 0 ] || shift
root=$PWD
# Its own: the flags are different for every crate, and would throw the other builds away.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/models" RUST_BACKTRACE=0
case $CARGO_TARGET_DIR in /*) ;; *) CARGO_TARGET_DIR=$root/$CARGO_TARGET_DIR ;; esac

export CARGO_PROFILE_TEST_DEBUG=0 CARGO_PROFILE_DEV_DEBUG=0
# A deep run is long enough to be worth a slower build.
[ "$how" != deep ] || export CARGO_PROFILE_TEST_OPT_LEVEL=2 CARGO_PROFILE_DEV_OPT_LEVEL=2

# What there is to model, and with what.
loom=(-p polyserve-core -p polyserve-threadpool -p polyserve-memory)
shuttle=(-p polyserve-threadpool -p polyserve-memory)

# models CHECKER MODEL...: runs those that the checker is for, and prints what they say; everything, where one fails.
models() {
    local checker=$1 log start=$SECONDS
    local -n packages=$checker
    shift
    log=$(mktemp)
    if ! RUSTFLAGS="--cfg polyserve_$checker" cargo test -q "${packages[@]}" --no-default-features --lib -- --nocapture "$@" \
        > "$log" 2>&1 || grep -q '^warning' "$log"; then
        cat "$log"
        rm "$log"
        echo "models failed over $checker" >&2
        return 1
    fi
    grep -o 'model [a-z]* .*: bound .*' "$log" | sort
    rm "$log"
    echo "-- over $checker: $((SECONDS - start)) s, with the build"
}

# mistake CRATE CHECKER MODEL FILE CHANGE: makes it, wants to see MODEL fail, and takes it back. To be called by ci/mistakes.
mistake() {
    local crate=$1 checker=$2 model=$3 file=$4 change=$5 log
    [[ -z $only || "$crate $model $file" == *$only* ]] || return 0
    cp "$file" "$file.right"
    perl -0pi -e "$change" "$file"
    if cmp -s "$file" "$file.right"; then echo "no such place in $file: $change" >&2; return 1; fi
    log=$(mktemp)
    if RUSTFLAGS="--cfg polyserve_$checker" timeout 300 cargo test -q -p "$crate" --no-default-features --lib "$model" > "$log" 2>&1; then
        echo "NOT CAUGHT by $model over $checker: $file: $change" >&2
        missed=$((missed + 1))
    elif ! grep -qE 'panicked at|FAILED|deadlock|SIGABRT' "$log"; then
        cat "$log"
        echo "it does not build: $file: $change" >&2
        return 1
    else
        echo "caught by $model over $checker: $(basename "$file"): $change"
    fi
    mv "$file.right" "$file"
    touch "$file"
    rm "$log"
}

case $how in
    short | deep)
        [ "$how" = short ] || export POLYSERVE_MODELS=deep
        models loom "${@:-models::}"
        models shuttle "${@:-models::}"
        ;;
    mistakes)
        only=${1:-} missed=0
        # Another again: cargo takes a crate at another place for the same, and the mistake for the crate as it is.
        CARGO_TARGET_DIR+=/mistakes
        tree=$CARGO_TARGET_DIR/tree
        rm -rf "$tree"
        mkdir -p "$tree"
        git ls-files -z -co --exclude-standard | xargs -0 tar c | tar x -C "$tree"
        cd "$tree"
        . ci/mistakes
        [ "$missed" = 0 ] || { echo "$missed not caught" >&2; exit 1; }
        ;;
    *) echo "ci/models.sh [short|deep|mistakes] [MODEL...]" >&2; exit 2 ;;
esac
