#!/usr/bin/env bash
# Builds and runs the C++ tests of a preset, and with them the simulated CUDA device. usage: tools/ctest.sh PRESET
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

dir=$(build_dir "$1")
tools/build.sh "$1" tapegrad_tests
show_openblas
export UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$PWD/tools/sanitizers/lsan.supp:print_suppressions=0
export TSAN_OPTIONS=suppressions=$PWD/tools/sanitizers/tsan.supp
ctest --test-dir "$dir" -j "$(nproc)" --output-on-failure --no-tests=error > "$dir/ctest.log" 2>&1 \
  || { tail -200 "$dir/ctest.log"; exit 1; }
grep 'tests passed' "$dir/ctest.log"
