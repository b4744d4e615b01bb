"""Sizes that a recorded function reads of tensors (`x.shape`, `x.size(0)`, `x.numel()`). Where all that a function does with them is understood
(_flow.size_uses), the numbers are objects that know where they come from: what is computed from them is written down, and how they compare, so
that both are found again for other sizes without Python. All else that is asked of them makes them what they were: then a plan is for this
size alone."""

from __future__ import annotations

import operator

from .. import _C


class Followed(int):
    """An integer that follows from sizes."""

    def __new__(cls, value: int, symbol: int) -> Followed:
        made = int.__new__(cls, value)
        made.symbol = symbol
        return made

    def __reduce__(self):
        return int, (plain(self),)

    def __copy__(self):
        return plain(self)

    def __deepcopy__(self, _):
        return plain(self)


def plain(number: int) -> int:
    """An integer without a history, which must be the same for other sizes."""
    value = int.__int__(number)
    if type(number) is Followed:
        _C._followed_number("=", value, number.symbol, value, -1)
    return value


def _term(number) -> tuple[int, int]:
    return int.__int__(number), number.symbol if type(number) is Followed else -1


def _arithmetic(rule: str, compute, reflected: bool):
    def method(self, other):
        if type(other) is not Followed and type(other) is not int:
            value = plain(self)
            return compute(other, value) if reflected else compute(value, other)
        a, b = (other, self) if reflected else (self, other)
        (x, first), (y, second) = _term(a), _term(b)
        value = compute(x, y)  # raises where the program's would
        if type(value) is not int or not -2 ** 62 < value < 2 ** 62:
            return compute(plain(a), plain(b))
        symbol = _C._followed_number(rule, x, first, y, second)
        return Followed(value, symbol) if symbol >= 0 else value

    return method


def _comparison(rule: str, compare):
    def method(self, other):
        if type(other) is not Followed and type(other) is not int:
            return compare(plain(self), other)
        (x, first), (y, second) = _term(self), _term(other)
        if abs(y) >= 2 ** 62:
            return compare(plain(self), y)
        _C._followed_number(rule, x, first, y, second)
        return compare(x, y)

    return method


def _other(name: str):
    function = getattr(int, name)

    def method(self, *args):
        return function(plain(self), *(plain(a) if type(a) is Followed else a for a in args))

    return method


def _is_true(self) -> bool:
    _C._followed_number("!", *_term(self), 0, -1)
    return int.__int__(self) != 0


for _rule, _name in (("+", "add"), ("-", "sub"), ("*", "mul"), ("/", "floordiv"), ("%", "mod")):
    setattr(Followed, f"__{_name}__", _arithmetic(_rule, getattr(operator, _name), False))
    setattr(Followed, f"__r{_name}__", _arithmetic(_rule, getattr(operator, _name), True))
for _rule, _name in (("<", "lt"), ("l", "le"), ("=", "eq"), ("!", "ne"), (">", "gt"), ("g", "ge")):
    setattr(Followed, f"__{_name}__", _comparison(_rule, getattr(operator, _name)))
Followed.__neg__ = lambda self: self.__rsub__(0)
Followed.__bool__ = _is_true
for _name in ("truediv", "rtruediv", "pow", "rpow", "divmod", "rdivmod", "and", "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift", "rrshift",
              "pos", "abs", "invert", "int", "index", "float", "trunc", "floor", "ceil", "round", "hash", "repr", "format"):
    setattr(Followed, f"__{_name}__", _other(f"__{_name}__"))
Followed.__str__ = lambda self: str(plain(self))
_C._set_followed_type(Followed)
