"""`python -m benchmarks [GROUP ...] [--only PATTERN] [--rounds N] [--out FOLDER]`; without GROUP all of them."""

import argparse
import datetime
import fnmatch
import importlib
import sys
import time
from pathlib import Path

from . import (
    cuda,
    digits,
    distributed,
    files,
    harness,
    importing,
    memory,
    overhead,
    processes,
    profiling,
    promises,
    recorded,
    recorded_memory,
    report,
    rows,
)
from .harness import duration, measure
from .operators import convolution, families, few_rows, fourier, layers, linalg, matmul, quantized, transforms

GROUPS = {"overhead": overhead, "memory": memory, "matmul": matmul, "convolution": convolution, "layers": layers, "linalg": linalg,
          "fft": fourier, "digits": digits, "families": families, "rows": rows, "files": files, "processes": processes, "vmap": transforms,
          "distributed": distributed, "few_rows": few_rows, "quantized": quantized, "record": recorded}


def libraries() -> dict:
    found = {}
    for name in ("tapegrad", "torch", "numpy"):
        try:
            found[name] = importlib.import_module(name)
        except ImportError:
            print(f"{name} is not installed: left out")
    return found


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, "import", "promises", "profiler", "cuda", []], help="which groups; default all but cuda")
    parser.add_argument("--only", default="*", help='only the cases whose "group: name" matches, such as "*: sum*"; nothing is written')
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--best", action="store_true", help="the least time of the rounds instead of the median, on a machine that does other things, too")
    parser.add_argument("--processor-time", action="store_true", help="of one thread (TAPEGRAD_NUM_THREADS=1 OMP_NUM_THREADS=1): others lengthen it through the caches only")
    parser.add_argument("--name", default="", help="goes into the names of the files")
    parser.add_argument("--resume", action="store_true", help="of the group cuda: keep what today's file has and measure the rest")
    options = parser.parse_args()
    harness.BEST = options.best
    harness.CLOCK = time.process_time if options.processor_time else time.perf_counter
    libs = libraries()
    if options.groups == ["cuda"]:  # another device, another table
        cuda.main(libs, options.rounds, options.out, lambda text: fnmatch.fnmatchcase(text, options.only), options.name, options.resume)
        return
    done = []
    for name, module in GROUPS.items():
        if options.groups and name not in options.groups:
            continue
        for case in module.cases(libs):
            if not fnmatch.fnmatchcase(f"{case.group}: {case.name}", options.only):
                continue
            done.append(measure(case, options.rounds))
            ratios = "  ".join(f"{p} {case.ratio(p):.2f}x" for p in case.seconds if p != "tapegrad")
            print(f"{case.group:28} {case.name:56} {duration(case.median('tapegrad')):>9}  {ratios}", flush=True)
    if options.only != "*":
        return
    if not options.groups or "import" in options.groups:
        done += importing.measure_imports(libs)
    kept = promises.measure_promises(libs, options.rounds) if not options.groups or "promises" in options.groups else []
    profiled = list(profiling.measure_profiler(options.rounds)) if not options.groups or "profiler" in options.groups else []
    versions = {n: getattr(lib, "__version__", "") for n, lib in libs.items()}
    others = {"eager": "(tapegrad without recording)", "torch.compile": "(the same)"}
    versions |= {n: others.get(n, "") for case in done for n in case.seconds if n not in versions}
    text = report.table(done, versions, libs["tapegrad"].get_num_threads()) + (promises.table(kept) if kept else "")
    text += profiling.table(profiled) if profiled else ""
    if not options.groups or "record" in options.groups:
        text += recorded_memory.table(libs["tapegrad"], options.rounds)
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / "-".join([datetime.date.today().isoformat(), "cpu", *filter(None, [options.name])])
    if not options.groups or "distributed" in options.groups:
        text += distributed.appendix(libs, stem)
    command = " ".join(["python -m benchmarks", *sys.argv[1:]])
    stem.with_suffix(".md").write_text(f"# Benchmarks of {datetime.date.today().isoformat()}\n\n`{command}` (`make bench` without arguments)\n\n" + text)
    if "torch" in libs and 0 < len(done) <= 300:  # more bars than that are no picture
        report.plot([c for c in done if "memory (" not in c.name], "torch", stem.with_suffix(".png"))
    print(text)
    print(f"written: {stem}.md")


if __name__ == "__main__":
    main()
