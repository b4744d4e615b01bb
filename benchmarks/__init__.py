"""tapegrad against PyTorch and NumPy, in one run.

`python -m benchmarks` (or `make bench`) measures every group and writes a table and a plot. Each case runs the
libraries in turn (A B A B ...), so that a machine that slows down slows all of them, and reports medians and the
ratio. One file per group; `harness.py` times.
"""
