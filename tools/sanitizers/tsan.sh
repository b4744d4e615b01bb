#!/usr/bin/env bash
# Builds the lowest layers (c10, multiprocessing) and the engines of one machine with ThreadSanitizer and runs their tests: the allocator,
# the thread pool, the arenas and ledgers that processes share, collectives and messages. usage: tools/sanitizers/tsan.sh [arguments of the tests]
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/common.sh

tools/build.sh tsan tapegrad_shared_tests
tests=$(build_dir tsan)/tapegrad_shared_tests
export TSAN_OPTIONS="suppressions=$PWD/tools/sanitizers/tsan.supp halt_on_error=1"
# Where the system places memory too much at random, ThreadSanitizer does not start.
run=()
"$tests" --help > /dev/null 2>&1 || run=(setarch "$(uname -m)" -R)
"${run[@]}" "$tests" "$@"
