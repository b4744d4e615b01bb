"""Other people's test suites, unmodified: on PyTorch and on tapegrad, and what differs.

    make suites ARGS="--folder CHECKOUTS [--python PYTHON] [NAME ...]"

suites.toml says where each suite comes from. Nothing is fetched: CHECKOUTS holds a folder per suite, PYTHON (by default the
checkout's own) has torch and what the suite needs. run.py runs one suite with one library, chosen.py is a plugin of pytest that runs
some tests alone, compare.py finds what passes on PyTorch alone and why, page.py writes the table of docs/compat.md.
"""
