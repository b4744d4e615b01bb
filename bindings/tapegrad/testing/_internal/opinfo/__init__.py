"""Paths of PyTorch's database of operators: each has the names that tests import, from common_methods_invocations."""

import sys

from .. import common_methods_invocations

common_methods_invocations.__path__ = []  # so that there may be paths below one of it
for _name in ("core", "refs", "utils", "definitions", "definitions.sparse"):
    sys.modules[f"{__name__}.{_name}"] = common_methods_invocations
core = refs = utils = definitions = sparse = common_methods_invocations
