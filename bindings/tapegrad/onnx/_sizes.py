"""Integers that depend on dynamic sizes: sums of products of these."""

from __future__ import annotations

from ._errors import Refused


class Size:
    """A sum of products: `terms` has, for each set of symbols (bits), the factor of their product; None where the size is known only
    when the model runs. Arithmetic with what is unknown, and what no such sum can say, raises Refused."""

    __slots__ = ("terms",)

    def __init__(self, terms: dict[int, int] | None) -> None:
        self.terms = None if terms is None else {bits: factor for bits, factor in terms.items() if factor}

    @staticmethod
    def of(x) -> Size:
        return x if isinstance(x, Size) else Size({0: int(x)})

    def _known(self) -> dict[int, int]:
        if self.terms is None:
            raise Refused("it needs a size that is known only when the model runs")
        return self.terms

    def plain(self):
        """The integer where it depends on nothing, else itself."""
        if self.terms is None or any(self.terms):
            return self
        return self.terms.get(0, 0)

    def __add__(self, other):
        made = dict(self._known())
        for bits, factor in Size.of(other)._known().items():
            made[bits] = made.get(bits, 0) + factor
        return Size(made).plain()

    def __mul__(self, other):
        made: dict[int, int] = {}
        for a, x in self._known().items():
            for b, y in Size.of(other)._known().items():
                if a & b:
                    raise Refused("it needs the square of a size that may change")
                made[a | b] = made.get(a | b, 0) + x * y
        return Size(made).plain()

    def __sub__(self, other):
        return self + Size.of(other) * -1

    def __rsub__(self, other):
        return Size.of(other) + self * -1

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other) -> bool:
        return isinstance(other, Size) and self.terms is not None and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset((self.terms or {}).items()))

    def _refuse(self, *_):
        raise Refused("it depends on a size that may change")

    __lt__ = __le__ = __gt__ = __ge__ = __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __int__ = __index__ = __float__ = __bool__ = _refuse

    def at(self, sizes: list[int]) -> int:
        """Its value for these sizes of the symbols."""
        total = 0
        for bits, factor in self._known().items():
            for k, size in enumerate(sizes):
                factor *= size if bits >> k & 1 else 1
            total += factor
        return total


def unknown(x) -> bool:
    """Whether it is a size that is known only when the model runs; two of them are equal where they are one object."""
    return isinstance(x, Size) and x.terms is None


def fixed(*numbers) -> None:
    """Raises Refused where one of the numbers, or of the lists of them, may change."""
    for n in numbers:
        for item in n if isinstance(n, (list, tuple)) else (n,):
            if isinstance(item, Size):
                item._refuse()


def from_samples(values: list[int], recorded: list[int]):
    """The sum whose value is `values[i]` where the symbols of the set i (bits) are one larger than recorded; the next value is a check, with all
    of them three larger. None where it fails."""
    count = 1 << len(recorded)
    size = around(differences(values[:count]), recorded)
    return size if at(size, [n + 3 for n in recorded]) == values[count] else None


def differences(values: list[int]) -> dict[int, int]:
    """What each set of symbols adds, without what its own subsets add."""
    made: dict[int, int] = {}
    for bits, value in enumerate(values):
        made[bits] = value - sum(factor for part, factor in made.items() if part & bits == part)
    return made


def around(terms: dict[int, int], recorded: list[int]):
    """A sum of products of how much sizes differ from the recorded ones."""
    total = 0
    for bits, factor in terms.items():
        product = Size({0: factor})
        for k, size in enumerate(recorded):
            if bits >> k & 1:
                product = Size.of(product) * (Size({1 << k: 1}) - size)
        total = Size.of(product) + total
    return total


def at(size, sizes: list[int]) -> int:
    """The value of a number or a Size."""
    return size.at(sizes) if isinstance(size, Size) else int(size)
