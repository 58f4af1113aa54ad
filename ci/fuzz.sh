#!/usr/bin/env bash
# Fuzzes a target of fuzz/ with libFuzzer, guided by coverage, from the committed seeds. It needs a C++ compiler, and no unstable
# option of rustc. A failure is written to fuzz/artifacts; the same command with that file as an argument runs it again.
# ci/fuzz.sh TARGET [SECONDS] [FILE...]
# 10^8 executions: ci/fuzz.sh session 0 -runs=100000000 fuzz/corpus/session fuzz/seeds/session
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/setup.sh

target=${1:?usage: ci/fuzz.sh TARGET [SECONDS] [FILE...]} seconds=${2:-60}
shift; shift || true
host=$(rustc -vV | sed -n 's/^host: //p')
# What `cargo fuzz --sanitizer none` passes. With --target, build scripts are not instrumented.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
cargo build -q --locked --release --manifest-path fuzz/Cargo.toml --target "$host" --bin "$target"
mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
if [ $# -gt 0 ]; then
    exec "fuzz/target/$host/release/$target" "$@"
fi
exec "fuzz/target/$host/release/$target" -max_total_time="$seconds" -max_len=4096 -print_final_stats=1 \
    -artifact_prefix="fuzz/artifacts/$target/" "fuzz/corpus/$target" "fuzz/seeds/$target"
