"""Linear algebra."""

from ._C import LinAlgError as LinAlgError
from ._stubs.linalg import *
