"""Sobol's sequences: points of the unit cube that fill it more evenly than random ones.

I. M. Sobol' (1967) with the direction numbers of S. Joe and F. Y. Kuo (2008), a table of 21,201 dimensions that SciPy carries and that is read
from there; scrambling after J. Matoušek (1998): a random lower triangular matrix of bits and a random shift per dimension.
"""

from __future__ import annotations

import functools

import numpy as np

from . import _C

__all__ = ["SobolEngine"]

_ops = _C._functions[""]


@functools.cache
def _table() -> tuple:
    """(primitive polynomials, first direction numbers) of all dimensions."""
    import importlib.util
    import os

    spec = importlib.util.find_spec("scipy")
    path = os.path.join(spec.submodule_search_locations[0], "stats", "_sobol_direction_numbers.npz") if spec else ""
    if not os.path.isfile(path):
        raise ImportError("quasirandom: the direction numbers of Sobol's sequence are read from SciPy, which is not installed\npip install scipy")
    with np.load(path) as file:
        return file["poly"].astype(np.int64), file["vinit"].astype(np.int64)


def _directions(dimension: int, bits: int) -> np.ndarray:
    """The direction numbers, (dimension, bits), as integers below 2**bits; O(dimension * bits * degree)."""
    polynomials, first = _table()
    found = np.ones((dimension, bits), np.int64)  # dimension 0: all are 1
    for d in range(1, dimension):
        polynomial = int(polynomials[d])
        degree = polynomial.bit_length() - 1
        row = [int(v) for v in first[d, :degree]][:bits]
        for j in range(len(row), bits):
            value = row[j - degree]
            for k in range(degree):
                if polynomial >> (degree - 1 - k) & 1:
                    value ^= row[j - k - 1] << (k + 1)
            row.append(value)
        found[d] = row
    return found << np.arange(bits - 1, -1, -1)


class SobolEngine:
    """The points of a sequence, one after the other: `draw` gives the next ones, `fast_forward` leaves some out, `reset` begins again.

    `scramble` makes them random, by `seed` if one is given; the numbers of a seed are other ones than in PyTorch. Raises ValueError for a
    dimension out of [1, 21201], ImportError without SciPy.
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None):
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.num_generated = 0
        self._numbers = _directions(dimension, self.MAXBIT)
        self._shift = np.zeros(dimension, np.int64)
        if scramble:
            self._scramble()

    def _scramble(self) -> None:
        generator = None
        if self.seed is not None:
            generator = _C.Generator()
            generator.manual_seed(self.seed)
        bits = self.MAXBIT

        def coins(*shape):
            return _ops["randint"](0, 2, shape, dtype=_C.int64, device="cpu", generator=generator).numpy()

        self._shift = coins(self.dimension, bits) @ (1 << np.arange(bits))
        matrix = np.tril(coins(self.dimension, bits, bits), -1) + np.eye(bits, dtype=np.int64)
        places = np.arange(bits - 1, -1, -1)
        digits = self._numbers[:, :, None] >> places & 1  # (dimension, number, digit), the highest first
        self._numbers = np.einsum("dik,djk->dji", matrix, digits) % 2 @ (1 << places)

    def _points(self, start: int, n: int) -> np.ndarray:
        """Points start to start + n: each is the exclusive or of the numbers that the Gray code of its place names."""
        place = np.arange(start, start + n, dtype=np.int64)
        code = place ^ place >> 1
        points = np.tile(self._shift, (n, 1))
        for bit in range(int(code.max(initial=0)).bit_length()):
            points ^= (code >> bit & 1)[:, None] * self._numbers[:, bit]
        return points

    def draw(self, n: int = 1, out=None, dtype=None):
        """The next n points, (n, dimension), of the default dtype unless one is given. `out` is resized."""
        if self.num_generated + n > 1 << self.MAXBIT:
            raise ValueError(f"draw: a sequence has 2**{self.MAXBIT} points: got {self.num_generated} + {n}")
        values = self._points(self.num_generated, n) / (1 << self.MAXBIT)
        self.num_generated += n
        result = _ops["from_numpy"](values).to(dtype or _ops["get_default_dtype"]())
        return result if out is None else out.resize_as_(result).copy_(result)

    def draw_base2(self, m: int, out=None, dtype=None):
        """The next 2**m points, where all points together are then a power of 2, which keeps them balanced; else ValueError."""
        n, total = 1 << m, self.num_generated + (1 << m)
        if total & (total - 1):
            raise ValueError(f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points have been previously "
                             f"generated, then: n={self.num_generated}+2**{m}={total}. If you still want to do this, please use 'SobolEngine.draw()' instead.")
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Begins again, with the same scrambling."""
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leaves out n points; O(1)."""
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}", *(["scramble=True"] if self.scramble else []), *([f"seed={self.seed}"] if self.seed is not None else [])]
        return f"{type(self).__name__}({', '.join(parts)})"
