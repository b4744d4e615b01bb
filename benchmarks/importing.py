"""Import time beyond NumPy's and resident memory after import, each in a fresh process."""

import subprocess
import sys
import time

from .harness import Case

# VmRSS of the process itself: the peak that getrusage tells is inherited from the process that started it.
PROBE = """
import numpy, time
t = time.perf_counter()
{}
print(time.perf_counter() - t)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")))
"""


def probe(module: str) -> tuple[float, float]:
    """Seconds that `import module` takes behind `import numpy`, and the process's resident memory in MB."""
    statement = f"import {module}" if module != "numpy" else ""
    out = subprocess.run([sys.executable, "-c", PROBE.format(statement)], capture_output=True, text=True, check=True).stdout.split()
    return float(out[0]), float(out[1]) / 1024



def measure_imports(libraries, rounds: int = 5):
    time_case = Case("import", "seconds beyond numpy", {})
    memory_case = Case("import", "resident memory (MB)", {})
    for case in (time_case, memory_case):
        case.seconds = {name: [] for name in libraries if name != "numpy"}
    for _ in range(rounds):
        for name in time_case.seconds:
            seconds, megabytes = probe(name)
            time_case.seconds[name].append(seconds)
            memory_case.seconds[name].append(megabytes)
        time.sleep(0)
    return [time_case, memory_case]
