"""Versions that compare as versions and are texts: `torch.__version__ >= "2.0"`, `torch.__version__ >= (2, 0)`."""

import re

__all__ = ["TorchVersion"]

speaks = "2.13.0"  # the PyTorch whose public names and behaviour tapegrad has

_PARTS = re.compile(r"\s*v?(\d+(?:\.\d+)*)(?:[-_.]?(a|alpha|b|beta|c|rc|pre|preview)[-_.]?(\d*))?(?:[-_.]?(dev)[-_.]?(\d*))?", re.I)
_STAGES = {"a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1, "pre": -1, "preview": -1}


def _key(version) -> tuple:
    """What versions are compared by (PEP 440): the numbers without zeros at the end, the stage, what follows a plus."""
    if isinstance(version, (tuple, list)):
        version = ".".join(str(part) for part in version)
    found = _PARTS.match(str(version))
    if found is None:
        raise ValueError(f"TorchVersion: not a version: {version!r}")
    numbers = [int(part) for part in found[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    stage = (_STAGES[found[2].lower()], int(found[3] or 0)) if found[2] else (0, 0)
    dev = int(found[5] or 0) if found[4] else float("inf")
    if dev != float("inf") and not found[2]:
        stage = (-4, 0)
    return tuple(numbers), stage, dev, str(version).partition("+")[2]


class TorchVersion(str):
    """A version: a text that compares with texts, tuples of numbers and other versions by number, not by letter."""

    def _compared(self, other, how):
        try:
            return getattr(_key(str(self)), how)(_key(other))
        except ValueError:
            return getattr(str(self), how)(str(other))

    def __lt__(self, other):
        return self._compared(other, "__lt__")

    def __le__(self, other):
        return self._compared(other, "__le__")

    def __gt__(self, other):
        return self._compared(other, "__gt__")

    def __ge__(self, other):
        return self._compared(other, "__ge__")

    def __eq__(self, other):
        return self._compared(other, "__eq__")

    __hash__ = str.__hash__
