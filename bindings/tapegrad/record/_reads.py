"""Numbers that a recorded function reads of tensors (`item`, `float`, `tolist`). Where it does no more with one than to return it and to
compare it with constants, as _flow finds out, a replay reads it anew; else it counts as what it was, which replays compare."""

from __future__ import annotations

import functools
import sys
import types

from .. import _C
from ._flow import calls_directly, size_uses, uses
from ._watch import _of_package

_TESTS = ("bits", "true", "<", "<=", "==", "!=", ">", ">=", "finite", "infinite", "nan")  # as record::Condition::Kind


def _is_transparent(function) -> bool:
    """Whether what is called is the function of the frame that runs, in wrappers of the package (no_grad) at most."""
    while isinstance(function, functools.partial):
        function = function.func
    return isinstance(function, (types.FunctionType, types.MethodType))


class Reads:
    """Asked by `item` and the like while a step is recorded (_C._set_reader). `found` has what results may be: (number, tensor) each."""

    def __init__(self, function, caller: types.CodeType, values: bool = True) -> None:
        self.found: list = []
        self.sizes = _C._Sizes()
        self._values = values
        self._caller = caller if _is_transparent(function) else None

    def __call__(self, tensor, what: str):
        frame = sys._getframe(1)
        flow = uses(frame, what) if self._values else None
        if flow is None or flow.returned and not self._gives_results(frame):
            return NotImplemented
        for test, other in flow.tests:
            _C._note_read(tensor, what, _TESTS.index(test), other)
        method = "item" if what == "float" else what
        if not flow.returned:
            return _C._peek(tensor, method)
        copy = _C._read_copy(tensor)
        number = _C._peek(copy, method)
        self.found.append((number, copy))
        return number

    def follows(self, frame: types.FrameType, several: bool):
        """Asked where sizes are read: see size_uses."""
        return size_uses(frame, several)

    def _gives_results(self, frame) -> bool:
        """Whether what the frame's function returns is what the step returns."""
        while (caller := frame.f_back) is not None and caller.f_code is not self._caller:
            flow = uses(caller, "")
            if flow is None or not flow.returned or not (_of_package(caller.f_code.co_filename) or calls_directly(caller, frame.f_code)):
                return False
            frame = caller
        return caller is not None
