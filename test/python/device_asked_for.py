"""A test file that imports this is skipped where the environment asks for no CUDA device."""

import ctypes
import importlib.util
import os
from pathlib import Path

import pytest
import tapegrad

if not (os.environ.get("TAPEGRAD_CUDA_SIMULATE") or os.environ.get("TAPEGRAD_GPU")):
    pytest.skip("no device was asked for in the environment", allow_module_level=True)


def nvrtc():
    """The real NVRTC's file, which needs no card: of PyPI's package, or below what TAPEGRAD_NVIDIA names (site-packages/nvidia); None: it is not here."""
    spec = importlib.util.find_spec("nvidia")
    folders = [*(spec.submodule_search_locations or [] if spec else []), *os.environ.get("TAPEGRAD_NVIDIA", "").split(":")]
    for folder in filter(None, folders):
        for found in Path(folder).glob("*/lib/libnvrtc.so.13"):
            return str(found)
    return None


def simulated_library():
    folders = (Path(tapegrad._C.__file__).parent / "lib", Path(tapegrad._C.__file__).parents[2] / "lib")
    return ctypes.CDLL(str(next(f for f in folders if f.exists()) / "libtapegrad_cuda_sim.so"))
