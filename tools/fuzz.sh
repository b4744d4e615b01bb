#!/usr/bin/env bash
# Broken calls of every operator under AddressSanitizer and UBSan. usage: tools/fuzz.sh [--calls N] [--seed S] [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

tools/build.sh asan --configure
dir=$(build_dir asan)
cmake "$dir" -DTG_BUILD_PYTHON=ON > /dev/null
tools/build.sh asan _C
show_openblas

# The interpreter is not instrumented, so the runtime has to be there before it, and the memory that it keeps is not a leak of tapegrad.
preload=$(gcc -print-file-name=libasan.so):$(gcc -print-file-name=libubsan.so):$(gcc -print-file-name=libstdc++.so)
LD_PRELOAD=$preload ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=8192:handle_segv=1 \
  UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 PYTHONPATH="$dir/python" "$VENV/bin/python" test/fuzz "$@"
