"""python -m suites: runs suites on PyTorch and on tapegrad, and prints what passes on PyTorch alone, by cause."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from . import compare, page, run


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m suites", description=__doc__)
    parser.add_argument("only", nargs="*", help="names of suites in suites.toml; default: all that the folder has")
    parser.add_argument("--folder", type=Path, required=True, help="holds a checkout per suite (docs/compat.md says from where)")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch and what the suites need")
    parser.add_argument("--package", type=Path, help="the folder that holds tapegrad (default: where this process finds it)")
    parser.add_argument("--results", type=Path, default=Path("build/suites"), help="results are kept there")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="worker processes")
    parser.add_argument("--fresh", action="store_true", help="run PyTorch's side again, too (else its kept results are used)")
    parser.add_argument("--again", action="store_true", help="run on tapegrad only what was lost before; the kept results are brought up to date")
    parser.add_argument("--seeds", type=int, default=0, help="run what is lost on PyTorch with so many other seeds, and name what fails there, too")
    parser.add_argument("--select", help="an expression for pytest -k; such results are not kept")
    parser.add_argument("--show", type=int, default=15, help="so many causes are printed; each with up to three tests")
    parser.add_argument("--report", type=Path, help="write the table there (docs/compat.md)")
    options = parser.parse_args(argv)

    suites = run.suites()
    unknown = [name for name in options.only if name not in suites]
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(suites)}")
    chosen = {n: s for n, s in suites.items() if (n in options.only) or (not options.only and s.root(options.folder).is_dir())}
    if not chosen:
        parser.error(f"{options.folder} holds none of the suites: {', '.join(suites)}")
    lost = 0
    for name, suite in chosen.items():
        if not suite.root(options.folder).is_dir():
            parser.error(f"no checkout of {name}: {suite.root(options.folder)}; it comes from {suite.source}")
        both = [run.outcomes(suite, library, options) for library in run.LIBRARIES]
        result = compare.difference(suite, *both)
        lost += result.lost
        print(compare.text(result, options.show), flush=True)
        if options.seeds and result.lost:
            print(compare.seeds(suite, result, options), flush=True)
    if options.report:
        page.write(options.report, options.results, suites)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
