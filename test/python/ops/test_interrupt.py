"""Ctrl-C ends long calls, and the process lives on, or ends without a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import tapegrad as tg

SQUARE = tg.randn(1200, 1200, dtype=tg.float64)  # what an interrupt leaves behind is soon over
LONG = {  # each takes several seconds on one core
    "matmul": lambda: [SQUARE @ SQUARE for _ in range(1000)],
    "svd": lambda: [tg.linalg.svd(SQUARE) for _ in range(20)],
    "eigh": lambda: [tg.linalg.eigh(SQUARE) for _ in range(20)],
    "eig": lambda: [tg.linalg.eig(SQUARE) for _ in range(9)],
    "qr": lambda: [tg.linalg.qr(SQUARE) for _ in range(200)],
    "lstsq": lambda: [tg.linalg.lstsq(SQUARE, SQUARE, driver="gelsd") for _ in range(9)],
    "sort": lambda: tg.randn(1 << 27).sort(),
    "pooling one large plane": lambda: tg.nn.functional.adaptive_avg_pool2d(tg.ones(1, 1, 64, 64, dtype=tg.bfloat16), 40_000),
    "attention": lambda: tg.nn.functional.scaled_dot_product_attention(*[tg.randn(16, 8, 4096, 64)] * 3),
}
ROOM = 5.0  # seconds; 0.02 to 0.1 on an idle machine


@pytest.mark.parametrize("name", LONG)
def test_interrupt(name):
    sent = []

    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, send)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        LONG[name]()
    assert time.monotonic() - sent[0] < ROOM
    timer.join()
    assert (tg.ones(3) + 1).sum().item() == 6


def test_a_process_that_ends_after_an_interrupt():
    code = ("import os, signal, threading, tapegrad as tg\n"
            "a = tg.randn(1500, 1500, dtype=tg.float64)\n"
            "threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "try:\n    [tg.linalg.svd(a) for _ in range(9)]\n"
            "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n    raise SystemExit(7)\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(tg.__file__).parents[1])}
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert (child.returncode, child.stdout, child.stderr) == (7, "interrupted\n", "")
