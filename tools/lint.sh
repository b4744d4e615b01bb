#!/usr/bin/env bash
# clang-format and ruff on everything, clang-tidy on the C++ files that differ from main. usage: tools/lint.sh [--fix]
set -uo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

status=0
mapfile -t cpp < <(git ls-files --cached --others --exclude-standard '*.h' '*.cpp' '*.cu')
if [ "${1:-}" = --fix ]; then
  clang-format -i "${cpp[@]}"
  ruff check -q --fix .
  exit
fi
clang-format --dry-run -Werror "${cpp[@]}" || status=1
ruff check . || status=1

base=$(git merge-base HEAD "${BASE:-main}" 2> /dev/null || git rev-parse HEAD)
mapfile -t changed < <(git diff --name-only --diff-filter=d "$base" -- '*.cpp'; git ls-files --others --exclude-standard '*.cpp')
if [ ${#changed[@]} -gt 0 ]; then
  tools/build.sh cpu --configure
  clang-tidy -p build --quiet --extra-arg=-Wno-unknown-warning-option "${changed[@]}" || status=1
fi
exit $status
