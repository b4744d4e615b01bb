"""`python test/fuzz [--calls N] [--seed S] [--jobs J] [NAME...]`: broken calls of every operator; see README.md."""

import argparse
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "python")]

import pool  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python test/fuzz", description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000, help="calls per operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("names", nargs="*", help="operators; all when none is given")
    options = parser.parse_args()
    known = pool.operators()
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"these are no operators that users call: {', '.join(unknown)}")
    names = options.names or known

    shown = 0

    def progress(total):
        nonlocal shown
        for finding in total.findings[shown:]:
            print(finding, flush=True)
        shown = len(total.findings)
        print(f"\r{total.calls} of {options.calls * len(names)} calls, {len(total.findings)} findings", end="", file=sys.stderr)

    total = pool.run(options.seed, options.calls, names, options.jobs, seconds=120 + options.calls * 0.5, progress=progress)
    print(file=sys.stderr)
    print(f"{len(names)} operators, {total.calls} calls, {len(total.findings)} findings (seed {options.seed})")
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())
