"""The version, and what the package was built with."""

from ._C import __version__

cuda = None
hip = None
debug = False
