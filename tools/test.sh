#!/usr/bin/env bash
# Everything `make test` checks. Each part runs even when one before it failed; the Python tests come last, so that
# their closing line ends the output. Arguments go to pytest.
set -uo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

failed=()
part() {  # part NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  if "$@"; then
    say "$name: ok, $((SECONDS - start)) s"
  else
    say "$name: FAILED"
    failed+=("$name")
    return 1
  fi
}

start=$SECONDS
tools/build.sh cpu all tapegrad_tests || exit 1
say "build: ok, $((SECONDS - start)) s"
part "CUDA library, compiled and linked" tools/cuda_build.sh
part "C++ tests" tools/ctest.sh cpu
part "build with AddressSanitizer and UBSan" tools/build.sh asan all tapegrad_tests \
  && part "C++ tests under AddressSanitizer and UBSan" tools/ctest.sh asan
part "what threads and processes share, under ThreadSanitizer" tools/sanitizers/tsan.sh
part "budgets" "$VENV/bin/python" tools/meter.py --build build
say "Python tests"
"$VENV/bin/python" -m pytest -q -n "${JOBS:-$(nproc)}" --dist worksteal "$@" || failed+=("Python tests")

[ ${#failed[@]} = 0 ] || { printf 'FAILED: %s\n' "${failed[@]}" >&2; exit 1; }
