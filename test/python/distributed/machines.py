"""Two network namespaces with a link between them, as two machines have."""

import contextlib
import functools
import os
import shutil
import subprocess

import pytest


def run(*args) -> None:
    subprocess.run(args, check=True, capture_output=True)


@contextlib.contextmanager
def two_machines(link: str, net: str):
    """The names of the two; their addresses are `net`.1 and .2, and `link` is the interface's name in both. Each test has names of its own,
    since several may run at once."""
    spaces = [f"{link}{i}" for i in range(2)]
    try:
        for name in spaces:
            run("ip", "netns", "add", name)
        run("ip", "link", "add", link, "netns", spaces[0], "type", "veth", "peer", "name", link, "netns", spaces[1])
        for i, name in enumerate(spaces):
            run("ip", "-n", name, "addr", "add", f"{net}.{i + 1}/24", "dev", link)
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", link, "up")
        yield spaces
    finally:
        for name in spaces:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@functools.cache
def _why_no_namespaces() -> str:
    if os.geteuid() or not shutil.which("ip"):
        return "network namespaces need root and `ip`"
    made = subprocess.run(["ip", "netns", "add", "tapegradprobe"], capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "del", "tapegradprobe"], capture_output=True, check=False)
    return "" if made else "network namespaces cannot be made here"


needs_namespaces = pytest.mark.skipif(bool(_why_no_namespaces()), reason=_why_no_namespaces())
