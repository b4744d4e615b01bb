#!/usr/bin/env bash
# Compiles and links the CUDA library beside libtapegrad in build/, not optimised and for one architecture: this much
# can be checked on machines without a GPU. Prints one line where there is no CUDA 13 compiler. usage: tools/cuda_build.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

has_target() { ninja -C build -t query tapegrad_cuda > /dev/null 2>&1; }

tools/build.sh cpu --configure
if ! has_target; then  # the compiler may have come after the build folder was made
  cmake build -DCUDA=CHECK > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
fi
if ! has_target; then
  say "the CUDA library is left out: $(sed -n 's/^-- tapegrad: building without CUDA: //p' build/configure.log)"
  exit 0
fi
exec tools/build.sh cpu tapegrad_cuda
