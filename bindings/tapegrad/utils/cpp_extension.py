"""PyTorch's builder of C++ extensions. Extensions written for PyTorch's C++ interface cannot be built: each name says so."""

from __future__ import annotations

import os

from .._absent import missing_class, missing_function

_WHY = ("extensions are written for PyTorch's C++ interface, which is not here\n"
        "programs in C++ include tapegrad/tapegrad.h; from Python, most extensions have an implementation in tensor operators, too")

CUDA_HOME = None
ROCM_HOME = None
IS_WINDOWS = False

load = missing_function("utils.cpp_extension.load", _WHY)
load_inline = missing_function("utils.cpp_extension.load_inline", _WHY)
CppExtension = missing_function("utils.cpp_extension.CppExtension", _WHY)
CUDAExtension = missing_function("utils.cpp_extension.CUDAExtension", _WHY)
SyclExtension = missing_function("utils.cpp_extension.SyclExtension", _WHY)
BuildExtension = missing_class("utils.cpp_extension.BuildExtension", _WHY)
__all__ = ["BuildExtension", "CUDAExtension", "CUDA_HOME", "CppExtension", "include_paths", "is_ninja_available", "load", "load_inline"]


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list:
    """The folder with tapegrad's headers, where it is installed with them."""
    folder = os.path.join(os.path.dirname(os.path.dirname(__file__)), "include")
    return [folder] if os.path.isdir(folder) else []


def is_ninja_available() -> bool:
    """Whether the program ninja is there."""
    import shutil

    return shutil.which("ninja") is not None
