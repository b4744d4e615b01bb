#!/usr/bin/env bash
# torch is needed only for comparisons in tests and benchmarks. A build that requires gigabytes of GPU packages is not
# installed; then, and where no build is available, one line says that the comparisons are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

wanted=$("$VENV/bin/python" tools/requirements.py torch)
skipped() { say "torch: $1; comparisons with it are skipped ($wanted, a CPU build, in $VENV turns them on)"; exit 0; }

if "$VENV/bin/python" -c "import importlib.metadata as m; raise SystemExit(m.version('torch').split('+')[0] not in '$wanted')" \
  2> /dev/null; then
  exit 0
fi
plan=$(mktemp)
trap 'rm -f "$plan"' EXIT
pip() { "$VENV/bin/python" -m pip install -q --disable-pip-version-check "$@"; }
pip --dry-run --report "$plan" "$wanted" > /dev/null 2>&1 || skipped "not to be had here"
if grep -q '"name": "nvidia-' "$plan"; then skipped "the build found here needs the CUDA packages"; fi
say "installing $wanted for the comparisons"
pip "$wanted" || skipped "its installation failed"
