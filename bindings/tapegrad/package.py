"""Archives of code and models, which tapegrad neither writes nor reads: a file that holds code would run it."""

from ._absent import missing_class

__all__ = ["PackageExporter", "PackageImporter"]

_WHY = "archives of code are neither written nor read\nsave and load the state_dict, and keep the code"
PackageExporter = missing_class("package.PackageExporter", _WHY)
PackageImporter = missing_class("package.PackageImporter", _WHY)
