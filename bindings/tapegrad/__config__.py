"""What the package was built with, as text."""

__all__ = ["parallel_info", "show"]


def show() -> str:
    """The version and the compiler's settings."""
    from . import _C
    from .backends import mkldnn

    functions = _C._functions[""]
    libraries = "OpenBLAS, oneDNN, SLEEF" if mkldnn.is_available() else "OpenBLAS, SLEEF"
    return f"tapegrad {_C.__version__}\n  - C++20, CPU kernels for {functions['_cpu_capability']()}\n  - {libraries}\n  - CUDA: not built in\n"


def parallel_info() -> str:
    """The number of threads."""
    from . import _C

    return f"tapegrad's own thread pool\n\tget_num_threads() : {_C._functions['']['get_num_threads']()}\n"
