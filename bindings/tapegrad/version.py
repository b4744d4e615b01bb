"""The version, and what the package was built with."""

from ._C import __version__ as __version__

cuda = None
hip = None
rocm = None
xpu = None
debug = False
git_version = "unknown"
