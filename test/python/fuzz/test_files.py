"""Damaged and hostile files for every reader (test/fuzz/files does the work): no crash, no code run, no hang, bounded memory."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "fuzz" / "files"


def load(name: str):
    """Modules of that folder under names of their own: test/fuzz has some of the same names."""
    spec = importlib.util.spec_from_file_location(f"fuzz_files_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(600)
def test_damaged_files():
    pool = load("pool")
    outcome = pool.run(seed=7, seconds=float(os.environ.get("TAPEGRAD_FUZZ_SECONDS", "5")))
    assert not outcome.findings, "\n".join(outcome.findings)
    assert len(outcome.done) == len(pool.NAMES)
    for line in outcome.done:
        assert int(line.split()[1]) > 20, line


def test_the_corpus_itself_is_read():
    import tapegrad as tg

    for folder in ("container", "safetensors", "archive", "streams", "tar"):
        files = sorted((FOLDER / "corpus" / folder).iterdir())
        assert files
        for path in files:
            tg.load(path, weights_only=False)


def test_the_watch_sees_what_it_should(tmp_path):
    """The fuzzer finds what is planted: a target that runs code, one that opens files, one that hangs on to memory."""
    import subprocess

    code = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import signal, worker
worker.HANG_S = 0.5
signal.signal(signal.SIGPROF, lambda *_: (_ for _ in ()).throw(worker.Hang()))
watch = worker.Watch("/x")
def run(target):
    print(worker.outcome_of(target, b"", "/x", (RuntimeError,), watch)[1], flush=True)
def bad(data, path): raise KeyError("k")
def spin(data, path):
    while True: pass
def full(data, path): raise RuntimeError("MemoryError")
run(lambda data, path: __import__("os").system("true"))
run(lambda data, path: open("/etc/hostname"))
run(lambda data, path: eval("1"))
run(bad); run(spin); run(full); run(lambda data, path: None)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[0] for line in out] == ["forbidden:", "forbidden:", "forbidden:", "KeyError:", "longer", "memory:", "None"]
