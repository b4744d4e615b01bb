#!/usr/bin/env bash
# `make gpu-check`: all checks that need a machine with a GPU. Builds with CUDA for the installed card, runs the C++
# tests and the Python tests on the device, compute-sanitizer on a part, and benchmarks against the installed PyTorch.
#
# usage: tools/gpu_check.sh [--only PART[,PART]] [--bring FOLDER] [ARGS of pytest]
#   PART       build, cpp, python, sanitizer, bench
#   --bring    downloads what a machine without a network needs into FOLDER, and stops; take it along beside the checkout.
#              There, a folder "brought" in the checkout, or $TAPEGRAD_BROUGHT, is installed from.
#
# $PYTHON (python3) is the interpreter to start from: what it has (torch, NumPy, NVIDIA's libraries) is used, the rest goes
# into .venv-gpu. With TAPEGRAD_CUDA_SIMULATE set, all of it runs on a simulated device from the CPU's build: a test of this
# script.
set -uo pipefail
cd "$(dirname "$0")/.."
VENV=${VENV:-.venv-gpu}
export VENV
. tools/common.sh

parts=build,cpp,python,sanitizer,bench
bring=""
while [ $# -gt 0 ]; do
  case $1 in
    --only) parts=$2; shift 2 ;;
    --bring) bring=$2; shift 2 ;;
    -h | --help) sed -n '2,/^set -/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 0 ;;
    *) break ;;
  esac
done
wanted() { case ",$parts," in *",$1,"*) ;; *) return 1 ;; esac; }
simulate=${TAPEGRAD_CUDA_SIMULATE:-}
debs="g++ make libfmt-dev libsleef-dev zlib1g-dev catch2 python3-venv python3-dev"

if [ -n "$bring" ]; then
  mkdir -p "$bring/wheels" "$bring/debs"
  for group in build test cuda cuda-build; do "$PYTHON" tools/requirements.py --all "$group"; done | sort -u > "$bring/requirements.txt"
  "$PYTHON" -m pip download -q --disable-pip-version-check -d "$bring/wheels" -r "$bring/requirements.txt" || die "pip could not download everything"
  if command -v apt-get > /dev/null; then
    # shellcheck disable=SC2086
    (cd "$bring/debs" && apt-get download -qq $debs libfmt9 libsleef3 2> /dev/null) || say "some of Debian's packages could not be downloaded: $debs"
  fi
  say "$bring holds $(du -sh "$bring" | cut -f1): take it along as the folder \"brought\" of the checkout"
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
brought=${TAPEGRAD_BROUGHT:-brought}
if [ -d "$brought" ]; then
  brought=$(cd "$brought" && pwd)
  say "installing from $brought"
  export PIP_NO_INDEX=1 PIP_FIND_LINKS="$brought/wheels"
  if [ "$(id -u)" = 0 ] && ls "$brought"/debs/*.deb > /dev/null 2>&1; then dpkg -i --skip-same-version "$brought"/debs/*.deb > /dev/null 2>&1 || say "dpkg could not install all of $brought/debs"; fi
fi
if [ ! -x "$VENV/bin/python" ]; then
  # With the packages of the interpreter that it comes from: its torch brings NVIDIA's libraries along.
  "$PYTHON" -m venv --system-site-packages "$VENV" || die "no virtual environment could be made with $PYTHON (Debian: python3-venv)"
fi
timeout 900 tools/setup.sh build test || say "not everything could be installed; going on with what is there"

python_has() { "$VENV/bin/python" -c "import $1" 2> /dev/null; }
cuda_folder() { "$VENV/bin/python" -c "import importlib.util as u; print(list(u.find_spec('nvidia').submodule_search_locations)[0])" 2> /dev/null; }
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
has_header sleef.h || need "SLEEF 3.5 (Debian: libsleef-dev)"
has_header zlib.h || need "zlib (Debian: zlib1g-dev)"
has_header catch2/catch.hpp || has_header catch2/catch_all.hpp || need "Catch2 (Debian: catch2)"
command -v cmake > /dev/null || need "CMake 3.24 (PyPI: cmake)"
command -v ninja > /dev/null || need "Ninja (PyPI: ninja)"
for module in numpy scipy_openblas32 pytest hypothesis; do python_has $module || need "Python's $module (PyPI)"; done
"$VENV/bin/python" -c "import importlib.metadata as m; m.version('onednn-devel-cpu-gomp')" 2> /dev/null || need "oneDNN 2023.2.0 (PyPI: onednn-cpu-gomp, onednn-devel-cpu-gomp)"
if [ -z "$simulate" ]; then
  find_nvcc > /dev/null || need "nvcc of CUDA 13 (PyPI: nvidia-cuda-nvcc and what stands beside it in pyproject.toml's \"cuda-build\")"
  find_cublas > /dev/null || need "cublasLt.h of CUDA 13 (PyPI: nvidia-cublas; a torch made for CUDA 13 brings it)"
fi
if [ ${#missing[@]} != 0 ]; then
  printf 'missing: %s\n' "${missing[@]}" >&2
  die "bring these along: tools/gpu_check.sh --bring brought, on a machine with a network and this Python ($("$PYTHON" --version)), downloads them"
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
fi

# --- tests ---
export PYTHONPATH=$PWD/$dir/python:$PWD/test:$PWD/test/python
[ -n "$simulate" ] || export TAPEGRAD_GPU=1
run_pytest() { "$VENV/bin/python" -m pytest -q -p no:cacheprovider -n "$1" "${@:2}"; }
if [ -z "$simulate" ]; then
  "$VENV/bin/python" - << 'PROGRAM' || exit 1
import tapegrad as tg
if not tg.cuda.is_available():
    raise SystemExit("error: tapegrad sees no device: " + tg._C._cuda_why_not())
print("==> ", tg.cuda.get_device_properties(0))
print("==>  libraries:", tg.cuda.library_versions())
PROGRAM
fi
if wanted cpp; then part "C++ tests" tools/ctest.sh $preset; fi
if wanted python; then
  # The device's own files each in a process of its own: the library is loaded once, and an error of the device stays there.
  for file in test/python/cuda/test_operators.py test/python/cuda/test_device_*.py; do
    part "$file" run_pytest 0 "$file" "$@"
  done
  if [ -z "$simulate" ]; then part "the rest of test/python/cuda" run_pytest 4 test/python/cuda --ignore-glob='*test_device_*' --ignore=test/python/cuda/test_operators.py "$@"; fi
fi
if wanted sanitizer; then
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda/compute-sanitizer/compute-sanitizer 2> /dev/null | head -1)
  if [ -n "$simulate" ]; then say "compute-sanitizer: not for a simulated device"
  elif [ -z "$sanitizer" ]; then say "compute-sanitizer is not here (PyPI: nvidia-cuda-sanitizer-api): left out"
  else
    TAPEGRAD_CUDA_ALLOC_CONF=backend:plain part "compute-sanitizer on a part" timeout 1200 "$sanitizer" --error-exitcode 9 --launch-timeout 120 \
      "$VENV/bin/python" -m pytest -q -n 0 -p no:cacheprovider -p no:timeout test/python/cuda/test_operators.py -k "sum or softmax or index or add or gather or cat"
  fi
fi

# --- timing ---
if wanted bench; then
  results=benchmarks/results
  [ -z "$simulate" ] || results=$dir/benchmarks
  part "benchmarks" "$VENV/bin/python" -m benchmarks cuda --out "$results" --rounds "$([ -z "$simulate" ] && echo 9 || echo 1)"
fi

[ ${#failed[@]} = 0 ] || { printf 'FAILED: %s\n' "${failed[@]}" >&2; exit 1; }
say "all of it went well"
