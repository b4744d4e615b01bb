#!/usr/bin/env bash
# `make gpu-check`: all checks that need a machine with a GPU. Builds with CUDA for the installed card, runs a few short
# programs, the C++ tests and the Python tests on the device, compute-sanitizer on a part, and benchmarks against the
# installed PyTorch.
#
# usage: tools/gpu_check.sh [--only PART[,PART]] [--pack FILE | --from FILE] [ARGS of pytest]
#   PART      build, smoke, cpp, python, sanitizer, bench
#   --pack    builds here, with nvcc and without a GPU, and writes FILE (tar.xz, about 30 MB) in parts of at most 16 MB
#             (FILE.00, FILE.01): the package, its libraries and those that it needs. $PYTHON must have the version of the
#             interpreter that will run it; TG_CUDA_ARCHITECTURES says for which card (90-real).
#   --from    runs what FILE or its parts hold, beside this checkout on the machine with the GPU: nothing is built or
#             installed there, and $PYTHON needs NumPy, pytest, pytest-xdist, pytest-timeout and NVIDIA's libraries.
#
# $PYTHON (python3) is the interpreter to start from: what it has (torch, NumPy, NVIDIA's libraries) is used, the rest goes
# into .venv-gpu. Results go to $OUT (benchmarks/results) as they come, of $ROUNDS (9) rounds. Where $OUT is given, what was
# built goes there, too (built.tar.xz.00, ...), so that a second visit begins with --from $OUT/built.tar.xz. With TAPEGRAD_CUDA_SIMULATE set, all of it runs on
# a simulated device from the CPU's build: a test of this script.
set -uo pipefail
cd "$(dirname "$0")/.."
VENV=${VENV:-.venv-gpu}
export VENV
. tools/common.sh

parts=build,smoke,cpp,python,sanitizer,bench
pack="" from=""
while [ $# -gt 0 ]; do
  case $1 in
    --only) parts=$2; shift 2 ;;
    --pack) pack=$(realpath -m "$2"); shift 2 ;;
    --from) from=$(realpath "$2"); shift 2 ;;
    -h | --help) sed -n '2,/^set -/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    *) break ;;
  esac
done
wanted() { case ",$parts," in *",$1,"*) ;; *) return 1 ;; esac; }
simulate=${TAPEGRAD_CUDA_SIMULATE:-}

# The venv sees what $PYTHON sees, also where that is a venv itself: its torch brings NVIDIA's libraries along.
make_venv() {
  [ -x "$VENV/bin/python" ] && return
  "$PYTHON" -m venv "$VENV" || die "no virtual environment could be made with $PYTHON (Debian: python3-venv)"
  "$PYTHON" -c 'import site; print("\n".join(site.getsitepackages()))' > "$(echo "$VENV"/lib/python3*/site-packages)/from-python.pth"
}

# pack_built BUILD FILE: what runs elsewhere without building, as FILE.00, FILE.01, ...
pack_built() {
  local work library name=libtapegrad_cuda.so rc=0
  [ -z "$simulate" ] || name=libtapegrad_cuda_sim.so
  work=$(mktemp -d)
  mkdir -p "$work"/tapegrad/{lib,python,gen/test,needed} "$(dirname "$2")" \
    && cp -rL "$1/python/tapegrad" "$work/tapegrad/python/" \
    && cp -L "$1/lib/libtapegrad.so.0.1" "$1/lib/$name" "$work/tapegrad/lib/" \
    && cp "$1/gen/test/op_records.json" "$work/tapegrad/gen/test/" || rc=1
  for library in fmt sleef dnnl; do
    cp -L "$(ldd "$1/lib/libtapegrad.so.0.1" | awk -v l="lib$library.so" 'index($1, l) == 1 {print $3}')" "$work/tapegrad/needed/" || rc=1
  done
  cp -L "$("$VENV/bin/python" -c 'import scipy_openblas32; print(scipy_openblas32.get_lib_dir())')"/*.so* "$work/tapegrad/needed/" || rc=1
  find "$work" -name __pycache__ -prune -exec rm -rf {} +
  find "$work" -name '*.so*' -exec strip --strip-unneeded {} +
  rm -f "$2" "$2".[0-9][0-9]
  if [ $rc = 0 ]; then tar -C "$work" -cf - tapegrad | xz -T0 -3 | split -b 16M -d - "$2." || rc=1; fi
  rm -rf "$work"
  [ $rc = 0 ] || return 1
  set -- "$2" "$2".[0-9][0-9]
  say "$(du -ch "${@:2}" | tail -1 | cut -f1) in $(($# - 1)) parts, $1.00 and so on: run  tools/gpu_check.sh --from $1  on the machine with the GPU"
}

if [ -n "$pack" ]; then
  make_venv
  tools/setup.sh build cuda-build || exit 1
  say "configuring build-cuda for $("$VENV/bin/python" --version)"
  CXX=$(find_cxx) cmake --fresh --preset cuda -DPython_EXECUTABLE="$(realpath -s "$VENV")/bin/python" \
    -DTG_CUDA_ARCHITECTURES="${TG_CUDA_ARCHITECTURES:-90-real}" > /tmp/configure-$$.log 2>&1 || { tail -30 /tmp/configure-$$.log; exit 1; }
  tools/build.sh cuda tapegrad_cuda _C || exit 1
  pack_built build-cuda "$pack" || exit 1
  exit 0
fi

failed=()
part() {  # part NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  if "$@"; then say "$name: ok, $((SECONDS - start)) s"; else say "$name: FAILED"; failed+=("$name"); return 1; fi
}

# --- the card ---
if [ -z "$simulate" ]; then
  card=$(nvidia-smi --query-gpu=name,compute_cap,driver_version,memory.total --format=csv,noheader 2> /dev/null | head -1)
  [ -n "$card" ] || die "no NVIDIA GPU: nvidia-smi finds none (TAPEGRAD_CUDA_SIMULATE=1 tries this script on a simulated one)"
  say "GPU: $card"
  driver=$(echo "$card" | cut -d, -f3 | tr -d ' ' | cut -d. -f1)
  [ "${driver:-0}" -ge 580 ] || die "the driver is $driver; CUDA 13 needs 580 or newer"
  TG_CUDA_ARCHITECTURES="$(echo "$card" | cut -d, -f2 | tr -d ' .')-real"
  preset=cuda
else
  say "a simulated device: the CPU's build, and small sizes"
  preset=cpu
fi
dir=$(build_dir $preset)

# --- what is needed ---
if [ -n "$from" ]; then
  parts=${parts/build/}
  parts=${parts/cpp/}
  archive=("$from")
  [ -f "$from" ] || archive=("$from".[0-9][0-9])
  [ -f "${archive[0]}" ] || die "there is no $from, nor $from.00"
  unpacked=${UNPACKED:-/tmp/tapegrad-$(cat "${archive[@]}" | cksum | cut -d' ' -f1)}
  if [ ! -d "$unpacked" ]; then
    rm -rf "$unpacked.part"
    mkdir -p "$unpacked.part" && cat "${archive[@]}" | tar -C "$unpacked.part" -xJf - && mv "$unpacked.part" "$unpacked" \
      || die "$from cannot be unpacked: a part is missing or damaged (${#archive[@]} are here)"
  fi
  dir=$unpacked/tapegrad
  python=$(command -v "$PYTHON")
  nvidia=$("$python" -c 'import importlib.util as u; s = u.find_spec("nvidia"); print(list(s.submodule_search_locations)[0] if s else "")')
  LD_LIBRARY_PATH=$dir/lib:$dir/needed:$(printf '%s:' "$nvidia"/*/lib)/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
else
  make_venv
  timeout 900 tools/setup.sh build test || say "not everything could be installed; going on with what is there"
  python=$(realpath -s "$VENV")/bin/python
  dir=$PWD/$dir
fi
python_has() { "$python" -c "import $1" 2> /dev/null; }
if wanted build; then
  cuda_folder() { "$python" -c "import importlib.util as u; print(list(u.find_spec('nvidia').submodule_search_locations)[0])" 2> /dev/null; }
  find_nvcc() {
    local c
    for c in "${CUDA_HOME:-/none}/bin/nvcc" nvcc /usr/local/cuda/bin/nvcc "$(cuda_folder)/cu13/bin/nvcc"; do
      "$c" --version 2> /dev/null | grep -q 'release 13\.' && { command -v "$c"; return; }
    done
    return 1
  }
  find_cublas() { ls "${CUDA_HOME:-/usr/local/cuda}/include/cublasLt.h" /usr/local/cuda/include/cublasLt.h "$(cuda_folder)/cu13/include/cublasLt.h" 2> /dev/null | head -1 | grep .; }
  if [ -z "$simulate" ] && { ! find_nvcc > /dev/null || ! find_cublas > /dev/null; }; then
    timeout 900 tools/setup.sh cuda-build || true
  fi

  missing=()
  need() { missing+=("$1"); }
  find_cxx > /dev/null || need "g++ 12 or clang++ 14 (Debian: g++)"
  has_header() { printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | "$(find_cxx || echo g++)" -x c++ -E - > /dev/null 2>&1; }
  has_header fmt/core.h || need "fmt 9 (Debian: libfmt-dev)"
  has_header nlohmann/json.hpp || need "JSON for Modern C++ 3.9 (Debian: nlohmann-json3-dev)"
  has_header xbyak/xbyak.h || need "xbyak 6 (Debian: libxbyak-dev)"
  has_header sleef.h || need "SLEEF 3.5 (Debian: libsleef-dev)"
  has_header zlib.h || need "zlib (Debian: zlib1g-dev)"
  has_header catch2/catch.hpp || has_header catch2/catch_all.hpp || need "Catch2 (Debian: catch2)"
  command -v cmake > /dev/null || need "CMake 3.24 (PyPI: cmake)"
  command -v ninja > /dev/null || need "Ninja (PyPI: ninja)"
  for module in numpy scipy_openblas32 pytest hypothesis; do python_has $module || need "Python's $module (PyPI)"; done
  "$python" -c "import importlib.metadata as m; m.version('onednn-devel-cpu-gomp')" 2> /dev/null || need "oneDNN 2023.2.0 (PyPI: onednn-cpu-gomp, onednn-devel-cpu-gomp)"
  if [ -z "$simulate" ]; then
    find_nvcc > /dev/null || need "nvcc of CUDA 13 (PyPI: nvidia-cuda-nvcc and what stands beside it in pyproject.toml's \"cuda-build\")"
    find_cublas > /dev/null || need "cublasLt.h of CUDA 13 (PyPI: nvidia-cublas; a torch made for CUDA 13 brings it)"
  fi
  if [ ${#missing[@]} != 0 ]; then
    printf 'missing: %s\n' "${missing[@]}" >&2
    die "install these, or build elsewhere with --pack for $("$PYTHON" --version)"
  fi
fi
python_has torch || say "no torch here: tapegrad is timed alone"

# --- build ---
if wanted build; then
  if [ -z "$simulate" ]; then
    CXX=$(find_cxx) CUDA_HOME=${CUDA_HOME:-$(dirname "$(dirname "$(find_nvcc)")")} tools/build.sh $preset --configure \
      && cmake "$dir" -DTG_CUDA_ARCHITECTURES="$TG_CUDA_ARCHITECTURES" > "$dir/configure.log" 2>&1 || { tail -30 "$dir/configure.log"; exit 1; }
  fi
  part "build" tools/build.sh $preset all ${simulate:+tapegrad_cuda_sim} || exit 1
  du -h "$dir"/lib/libtapegrad_cuda*.so
  if [ -n "${OUT:-}" ]; then part "packing what was built" pack_built "$dir" "$OUT/built.tar.xz"; fi
fi

# --- tests ---
export PYTHONPATH=$dir/python:$PWD/test:$PWD/test/python
[ -n "$simulate" ] || export TAPEGRAD_GPU=1
run_pytest() { "$python" -m pytest -q -p no:cacheprovider -n "$1" --max-worker-restart 200 --dist worksteal "${@:2}"; }
if [ -z "$simulate" ]; then
  "$python" - << 'PROGRAM' || exit 1
import tapegrad as tg
if not tg.cuda.is_available():
    raise SystemExit("error: tapegrad sees no device: " + tg._C._cuda_why_not())
print("==> ", tg.cuda.get_device_properties(0))
print("==>  libraries:", tg.cuda.library_versions())
PROGRAM
fi
if wanted smoke; then part "short programs" "$python" tools/gpu_smoke.py; fi
if wanted cpp; then part "C++ tests" tools/ctest.sh $preset; fi
if wanted python; then
  # What counts the device's memory runs alone; the rest in as many processes as the device's memory has place for.
  part "tests on the device" run_pytest "$([ -z "$simulate" ] && echo 8 || echo 2)" test/python/cuda/test_operators.py test/python/cuda/test_device_*.py \
    --ignore test/python/cuda/test_device_runtime.py "$@"
  part "allocator, streams and graphs" run_pytest 0 test/python/cuda/test_device_runtime.py "$@"
  if [ -z "$simulate$from" ]; then part "the rest of test/python/cuda" run_pytest 4 test/python/cuda --ignore-glob='*test_device_*' --ignore=test/python/cuda/test_operators.py "$@"; fi
fi
if wanted sanitizer; then
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda/compute-sanitizer/compute-sanitizer 2> /dev/null | head -1)
  if [ -n "$simulate" ]; then say "compute-sanitizer: not for a simulated device"
  elif [ -z "$sanitizer" ]; then say "compute-sanitizer is not here (PyPI: nvidia-cuda-sanitizer-api): left out"
  else
    TAPEGRAD_CUDA_ALLOC_CONF=backend:plain part "compute-sanitizer on a part" timeout 1200 "$sanitizer" --error-exitcode 9 --launch-timeout 120 \
      "$python" -m pytest -q -n 0 -p no:cacheprovider -p no:timeout test/python/cuda/test_operators.py -k "sum or softmax or index or add or gather or cat"
  fi
fi

# --- timing ---
if wanted bench; then
  results=${OUT:-benchmarks/results}
  [ -z "$simulate" ] || results=$dir/benchmarks
  part "benchmarks" "$python" -m benchmarks cuda --out "$results" --rounds "$([ -z "$simulate" ] && echo "${ROUNDS:-9}" || echo 1)"
  part "recorded steps" "$python" -m benchmarks.recorded_device --rounds "$([ -z "$simulate" ] && echo "${ROUNDS:-9}" || echo 1)"
fi

[ ${#failed[@]} = 0 ] || { printf 'FAILED: %s\n' "${failed[@]}" >&2; exit 1; }
say "all of it went well"
