"""tapegrad against PyTorch and NumPy, in one run.

`python -m benchmarks` (or `make bench`) measures every group and writes a table and a plot. Each case runs the
libraries in turn (A B A B ...), so that a machine that slows down slows all of them, and reports medians and the
ratio. One file per group; `harness.py` times.
"""

import os
import sys

# Variables such as OPENBLAS_CORETYPE make OpenBLAS take kernels for other processors. Programs of this package (python -m)
# drop them before anything is loaded; workers inherit what is left.
if sys.argv[0] == "-m":
    for name in [n for n in os.environ if n.startswith("OPENBLAS_")]:
        del os.environ[name]
