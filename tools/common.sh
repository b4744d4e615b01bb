# Shared by the scripts in this folder; sourced, never run.

PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}

say() { printf '==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# The compiler: $CXX, else the first g++ >= 12 or clang++ >= 14 on the path.
find_cxx() {
  if [ -n "${CXX:-}" ]; then echo "$CXX"; return; fi
  local c v least
  for c in g++ g++-14 g++-13 g++-12 clang++ clang++-18 clang++-16 clang++-14; do
    v=$("$c" -dumpversion 2> /dev/null | cut -d. -f1) || continue
    case $c in g++*) least=12 ;; *) least=14 ;; esac
    if [ "${v:-0}" -ge $least ]; then echo "$c"; return; fi
  done
  return 1
}

# Under a sanitizer dlopen is called from the sanitizer's library, whose run path does not lead to OpenBLAS.
show_openblas() {
  local folder
  folder=$("$VENV/bin/python" -c 'import scipy_openblas32; print(scipy_openblas32.get_lib_dir())')
  export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# Where a preset builds.
build_dir() { case $1 in cpu) echo build ;; *) echo "build-$1" ;; esac; }

# The venv's tools first: cmake and ninja come from PyPI where the system has none.
case $VENV in /*) PATH="$VENV/bin:$PATH" ;; *) PATH="$PWD/$VENV/bin:$PATH" ;; esac
export PATH
