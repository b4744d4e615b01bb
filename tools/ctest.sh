#!/usr/bin/env bash
# Runs the C++ tests of a build folder. usage: tools/ctest.sh PRESET
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

dir=$(build_dir "$1")
show_openblas
export UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$PWD/tools/lsan.supp:print_suppressions=0
export TSAN_OPTIONS=suppressions=$PWD/tools/tsan.supp
ctest --test-dir "$dir" -j "$(nproc)" --output-on-failure --no-tests=error > "$dir/ctest.log" 2>&1 \
  || { tail -200 "$dir/ctest.log"; exit 1; }
grep 'tests passed' "$dir/ctest.log"
