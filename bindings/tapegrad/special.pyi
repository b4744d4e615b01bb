"""Special functions."""

from ._stubs.special import *
