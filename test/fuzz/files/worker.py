"""Feeds changed files to one target in one process: `worker.py TARGET SEED SECONDS [FILE]`.

Prints FINDING lines, each with the path of a file that repeats it, and at last DONE with the number of inputs and of outcomes. Dies as
the program under test dies; the input is then in the file whose path was printed first.
"""

import hashlib
import mmap
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

MEMORY = 768 << 20  # bytes of address space above what the process has when it begins
HANG_S = 10  # of the processor's time: a busy machine is no finding. Who waits for ever is seen by pool.py
FORBIDDEN = ("exec", "compile", "os.", "subprocess.", "socket.", "pickle.find_class", "shutil.", "ctypes.", "webbrowser.", "import", "code.", "builtins.input",
             "pty.", "urllib.", "ftplib.", "http.", "smtplib.", "winreg.", "glob.", "tempfile.")
HARMLESS = ("os.fspath", "ctypes.addressof")


class Hang(BaseException):
    """An input took too long."""


class Watch:
    """Sees what Python reports to its audit hooks while an input is read."""

    def __init__(self, scratch: str) -> None:
        self.on, self.seen, self.scratch = False, [], scratch
        sys.addaudithook(self.hook)

    def hook(self, event: str, args) -> None:
        if not self.on:
            return
        if event == "open" and str(args[0]) != self.scratch or event.startswith(FORBIDDEN) and not event.startswith(HARMLESS):
            self.seen.append(f"{event} {str(args)[:100]}")


def outcome_of(target, data: bytes, path: str, allowed, watch: Watch) -> tuple[str, str | None]:
    """A name of the outcome, and what is wrong with it."""
    watch.seen.clear()
    watch.on, begin = True, time.process_time()
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    try:
        target(data, path)
        outcome, finding = "read", None
    except allowed as error:
        outcome, finding = f"{type(error).__name__} {error}", None
        if "MemoryError" in str(error) or "OutOfMemory" in type(error).__name__:
            finding = f"memory: {error}"
        elif not str(error):
            finding = f"{type(error).__name__} without a message"
    except Hang:
        outcome, finding = "hang", f"longer than {HANG_S} s"
    except BaseException as error:  # noqa: BLE001
        outcome = finding = f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        watch.on = False
    if watch.seen and finding is None:
        finding = f"forbidden: {watch.seen[0]}"
    if time.process_time() - begin > HANG_S / 2 and finding is None:
        finding = f"slow: {time.process_time() - begin:.1f} s"
    return re.sub(r"[0-9]+|'[^']*'", "#", outcome)[:80], finding


def main() -> None:
    name, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    warnings.simplefilter("ignore")
    import tapegrad as tg
    import targets
    from child import limit_memory

    corpus, change, ways = targets.TARGETS[name]
    seeds = [p.read_bytes() for p in sorted((HERE / "corpus" / corpus).iterdir())]
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=targets.scratch()) as folder:
        path = os.path.join(folder, "input")
        signal.signal(signal.SIGPROF, lambda *_: (_ for _ in ()).throw(Hang()))
        watch = Watch(path)
        for encoding in ("cp437", "raw_unicode_escape", "utf-16", "latin1"):  # Python imports these when it first needs them
            b"aa".decode(encoding)
        for data in seeds:  # what is imported when it is first used is imported now
            for way in ways:
                outcome_of(way, data, path, (Exception,), watch)
        tg.set_num_threads(1)
        limit_memory(MEMORY)
        if len(sys.argv) > 4:
            data = Path(sys.argv[4]).read_bytes()
            for way in dict.fromkeys(ways):
                print(way.__name__, *outcome_of(way, data, path, targets.ALLOWED, watch))
            return
        last = os.path.join(tempfile.gettempdir(), f"tapegrad-fuzz-{name}-{os.getpid()}")
        print("LAST", last, flush=True)
        with open(last, "w+b") as file:
            file.truncate(8 + (1 << 22))
            shown = mmap.mmap(file.fileno(), 0)
        pool, known, findings, count, end = list(seeds), set(), {}, 0, time.monotonic() + seconds
        while time.monotonic() < end:
            data = change(rng.choice(pool if rng.random() < 0.7 else seeds), rng, rng.choice(seeds))[:1 << 22]
            shown[:8 + len(data)] = len(data).to_bytes(8, "little") + data
            way = rng.choice(ways)
            outcome, finding = outcome_of(way, data, path, targets.ALLOWED, watch)
            count += 1
            if outcome not in known:
                known.add(outcome)
                if len(data) < 1 << 16:
                    pool.append(data)
            if finding is not None and re.sub(r"[0-9]+", "#", finding) not in findings:
                kept = os.path.join(tempfile.gettempdir(), f"tapegrad-fuzz-{name}-{hashlib.sha1(data).hexdigest()[:12]}")
                Path(kept).write_bytes(data)
                findings[re.sub(r"[0-9]+", "#", finding)] = kept
                print(f"FINDING {name} {way.__name__} {kept}: {finding}", flush=True)
        os.unlink(last)
        print(f"DONE {name} {count} inputs, {len(known)} outcomes, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB", flush=True)


if __name__ == "__main__":
    main()
