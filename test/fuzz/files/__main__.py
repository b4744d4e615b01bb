"""`python test/fuzz/files [--seconds 60] [--seed N] [TARGET...]`: damaged and hostile files for every reader, side by side."""

import argparse
import os
import random
import sys

sys.path.insert(0, os.path.dirname(__file__))

import pool  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python test/fuzz/files", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*pool.NAMES, []])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    outcome = pool.run(options.targets or pool.NAMES, options.seed, options.seconds)
    print(*outcome.done, *outcome.findings, f"{len(outcome.findings)} findings", sep="\n")
    return bool(outcome.findings)


if __name__ == "__main__":
    sys.exit(main())
