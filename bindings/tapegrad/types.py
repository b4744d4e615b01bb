"""Names for annotations."""

import builtins as _builtins
import os as _os
import typing as _typing
from collections.abc import Sequence as _Sequence

from ._C import Size, Tensor
from ._C import device as _device
from ._C import dtype as _dtype  # noqa: F401
from ._C import layout as _layout  # noqa: F401
from .storage import TypedStorage, UntypedStorage

__all__ = ["Device", "FileLike", "Number", "Storage"]

_bool, _int, _float, _complex = _builtins.bool, _builtins.int, _builtins.float, _builtins.complex
_symint = _builtins.int
Number = _typing.Union[int, float, bool]  # noqa: UP007  a name, also at run time
_Number = (_builtins.int, _builtins.float, _builtins.bool)
Device = _typing.Union[_device, str, int, None]  # noqa: UP007
FileLike = _typing.Union[str, _os.PathLike, _typing.IO[bytes]]  # noqa: UP007
_size = _typing.Union[Size, list, tuple]  # noqa: UP007
_dispatchkey = _typing.Union[str, None]  # noqa: UP007
_TensorOrTensors = _typing.Union[Tensor, _Sequence[Tensor]]  # noqa: UP007
_TensorOrTensorsOrGradEdge = _TensorOrTensors
_qscheme = object
Storage = _typing.Union[TypedStorage, UntypedStorage]  # noqa: UP007
