#!/usr/bin/env bash
# Installs what is missing on this machine. usage: tools/setup.sh GROUP...
# A group is "build" (compiler, libraries, what a build needs from PyPI), "aarch64" (a compiler for it, and qemu) or an extra of
# pyproject.toml.
# System packages are installed with apt where that is possible without a password; else the command is printed.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

missing_packages() {
  local cxx
  cxx=$(find_cxx) || echo g++
  has_header() { printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | "${cxx:-false}" -x c++ -E - > /dev/null 2>&1; }
  has_header fmt/core.h || echo libfmt-dev
  has_header nlohmann/json.hpp || echo nlohmann-json3-dev
  has_header sleef.h || echo libsleef-dev
  has_header xbyak/xbyak.h || echo libxbyak-dev
  has_header zlib.h || echo zlib1g-dev
  has_header gloo/config.h || echo libgloo-dev
  has_header catch2/catch.hpp || has_header catch2/catch_all.hpp || echo catch2
  # A virtual environment and Python's headers: only the system's own Python keeps them in packages of their own.
  "$PYTHON" -c 'import ensurepip, venv' 2> /dev/null || echo python3-venv
  [ -e "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] || echo python3-dev
  case " $* " in *" aarch64 "*)
    command -v aarch64-linux-gnu-g++ > /dev/null || echo g++-aarch64-linux-gnu
    command -v qemu-aarch64-static > /dev/null || echo qemu-user-static ;;
  esac
}

install_system() {  # the groups asked for
  local missing root="" helpful="ccache mold"
  missing=$(missing_packages "$@" | tr '\n' ' ')
  # The engine over MPI is built and tested where one is there; programs need none.
  case " $* " in *" test "*) command -v mpirun > /dev/null || helpful="$helpful libopenmpi-dev openmpi-bin" ;; esac
  [ -n "$missing" ] || [ "$helpful" != "ccache mold" ] || return 0
  if [ -z "$missing" ]; then  # what is only helpful is left out where it would need a password
    command -v apt-get > /dev/null || return 0
    [ "$(id -u)" = 0 ] || sudo -n true 2> /dev/null || return 0
  fi
  command -v apt-get > /dev/null || die "missing: $missing(Debian's names); install them and run again"
  if [ "$(id -u)" != 0 ]; then
    root="sudo -n"
    sudo -n true 2> /dev/null || die "some system packages are missing. Type this, then run again:
  sudo apt-get update && sudo apt-get install -y --no-install-recommends $missing$helpful"
  fi
  say "installing system packages: $missing$helpful"
  $root apt-get update -qq || say "apt-get update failed; trying with the lists that are there"
  local get="$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends"
  # shellcheck disable=SC2086
  $get $missing $helpful > /dev/null || [ -z "$missing" ] || $get $missing > /dev/null || die "apt could not install: $missing"
}

install_python() {
  if [ ! -x "$VENV/bin/python" ]; then
    say "creating $VENV"
    "$PYTHON" -m venv "$VENV"
  fi
  local group stamp key
  for group in "$@"; do
    [ "$group" != aarch64 ] || continue  # nothing of PyPI's
    stamp="$VENV/.stamp-$group"
    key=$(cksum < pyproject.toml)
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ]; then continue; fi
    if [ "$group" = torch ]; then
      tools/setup-torch.sh
    else
      say "installing the Python packages of \"$group\" into $VENV"
      "$VENV/bin/python" tools/requirements.py "$group" > "$VENV/.requirements-$group"
      "$VENV/bin/python" -m pip install -q --disable-pip-version-check -r "$VENV/.requirements-$group"
    fi
    echo "$key" > "$stamp"
  done
}

command -v "$PYTHON" > /dev/null || die "no $PYTHON; install Python 3.10 or newer or set PYTHON=/path/to/one"
"$PYTHON" -c 'import sys; raise SystemExit(sys.version_info < (3, 10))' \
  || die "$PYTHON is $("$PYTHON" --version); 3.10 or newer is needed (set PYTHON=/path/to/one)"
install_system "$@"
install_python "$@"
