#!/usr/bin/env bash
# Configures a preset when that has not been done, and builds it. usage: tools/build.sh PRESET [TARGET... | --configure]
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

preset=$1
shift
dir=$(build_dir "$preset")

if [ ! -f "$dir/build.ninja" ]; then
  say "configuring $dir"
  mkdir -p "$dir"
  CXX=$(find_cxx) || die "no g++ 12, clang++ 14 or newer"
  export CXX
  cmake --preset "$preset" -DPython_EXECUTABLE="$(realpath -s "$VENV")/bin/python" > "$dir/configure.log" 2>&1 \
    || { cat "$dir/configure.log"; exit 1; }
  grep '^-- tapegrad' "$dir/configure.log" || true
fi
[ "${1:-}" != --configure ] || exit 0

build=(cmake --build "$dir" -j "${JOBS:-$(nproc)}")
[ $# = 0 ] || build+=(--target "$@")
if [ -t 1 ]; then
  "${build[@]}"
else  # not a terminal: write a log, and print only errors
  say "building $dir"
  "${build[@]}" > "$dir/build.log" 2>&1 || { grep -Ev '^\[[0-9]+/[0-9]+\] (Building|Linking)' "$dir/build.log" | head -150; exit 1; }
fi
