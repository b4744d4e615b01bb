"""python -m conformance: run, report, store."""

import argparse
import dataclasses
import fnmatch
import json
import os
import sys
import warnings
from pathlib import Path


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument("only", nargs="*", help="names or patterns of operators, modules or optimizers; default: all")
    parser.add_argument("--kind", action="append", choices=["operator", "module", "optimizer"], help="only these databases")
    parser.add_argument("--quick", action="store_true", help="the part that continuous integration runs")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="worker processes")
    parser.add_argument("--show", action="store_true", help="print each failure")
    parser.add_argument("--json", type=Path, help="write all results there")
    parser.add_argument("--report", type=Path, help="write the page there (docs/conformance.md)")
    parser.add_argument("--check", action="store_true", help="exit 1 when a number fell below baseline.json (with --quick)")
    parser.add_argument("--baseline", action="store_true", help="store the quick part's numbers in baseline.json")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    try:
        from . import pool, subjects, summary
    except ModuleNotFoundError as error:
        parser.error(f"the samples are PyTorch's: {error}")

    tasks = subjects.all_tasks(options.kind)
    if options.only:
        tasks = [t for t in tasks if any(fnmatch.fnmatchcase(t[1], p) for p in options.only)]
    done = 0

    def progress(result):
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            print(f"\r{done}/{len(tasks)} {result.name[:60]:60}", end="", file=sys.stderr, flush=True)

    results = pool.run(tasks, subjects.make, options.jobs, subjects.QUICK_SAMPLES if options.quick else None, progress)
    summary.apply_deviations(results)
    if options.show:
        for result in results:
            for check, message in result.crashes + result.failures:
                print(f"{result.name} {check}: {message}")
    print(summary.text(results))
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(r) for r in results]))
    if options.report:
        options.report.write_text(summary.page(results))
    if options.baseline:
        if not options.quick:
            parser.error("the baseline holds the quick part: give --quick, too")
        summary.store_baseline(results)
    worse = summary.regressions(results) if options.check else []
    print("".join(f"worse: {line}\n" for line in worse), end="")
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
