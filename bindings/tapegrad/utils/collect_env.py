"""What bug reports should say of a machine: python -m tapegrad.utils.collect_env"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections import namedtuple

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "main"]


SystemEnv = namedtuple("SystemEnv", "tapegrad_version is_debug_build cuda_available python_version python_platform os libc_version cpu threads memory "
                                    "libraries")  # one text per question


def _first(path: str, pattern: str) -> str:
    """What a group of a pattern holds in the first line of a file that fits."""
    try:
        with open(path) as file:
            found = re.search(pattern, file.read(), re.M)
    except OSError:
        found = None
    return found.group(1).strip() if found else "unknown"


def _libraries() -> str:
    from importlib.metadata import PackageNotFoundError, version

    lines = []
    for name in ("numpy", "scipy-openblas32", "onednn-cpu-gomp", "torch", "torchvision", "safetensors", "tensorboard"):
        try:
            lines.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            continue
    return "\n".join(lines)


def get_env_info() -> SystemEnv:
    """The answers."""
    import tapegrad

    memory = _first("/proc/meminfo", r"^MemTotal:\s*(\d+) kB")
    return SystemEnv(
        tapegrad_version=tapegrad.__version__, is_debug_build=str(tapegrad.version.debug), cuda_available=str(tapegrad.cuda.is_available()),
        python_version=f"{sys.version.split()[0]} ({sys.maxsize.bit_length() + 1}-bit runtime)", python_platform=platform.platform(),
        os=_first("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)'), libc_version="-".join(platform.libc_ver()),
        cpu=f"{_first('/proc/cpuinfo', r'^model name[^:]*:(.*)$')}, {os.cpu_count()} processors", threads=str(tapegrad.get_num_threads()),
        memory=f"{int(memory) / (1 << 20):.1f} GiB" if memory.isdigit() else memory, libraries=_libraries())


def get_pretty_env_info() -> str:
    """The answers as text."""
    e = get_env_info()
    return "\n".join([
        f"tapegrad version: {e.tapegrad_version}", f"Is debug build: {e.is_debug_build}", f"Is CUDA available: {e.cuda_available}", "",
        f"OS: {e.os}", f"Libc version: {e.libc_version}", f"Python version: {e.python_version}", f"Python platform: {e.python_platform}", "",
        f"CPU: {e.cpu}", f"Memory: {e.memory}", f"Threads: {e.threads}", "", "Versions of relevant libraries:", e.libraries])


def main() -> None:
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
