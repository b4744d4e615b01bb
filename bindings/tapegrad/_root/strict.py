"""tapegrad.strict: mistakes that are only slow or silent otherwise, as errors."""

from __future__ import annotations

__all__ = ["strict"]

_CHECKS = ("sync",)
_RAISES = 2


class strict:
    """Makes the named checks raise: as a call, from then on; as `with strict("sync"):`, for the block.

    The checks:
        "sync": An operator that makes the host wait for a value of a GPU (`item()`, a copy to memory that is not pinned, a result whose
            size depends on values) raises RuntimeError with the line that asked.
            synchronize() and the like, which wait on purpose, do not. Without a GPU nothing waits.

    Args:
        checks: Names; all of them where none is given.

    Raises ValueError for a name that is no check.
    """

    def __init__(self, *checks: str):
        for check in checks:
            if check not in _CHECKS:
                raise ValueError(f"strict: expected one of {', '.join(_CHECKS)}: got {check!r}")
        from .. import cuda

        self._before = None
        if cuda.is_available():
            self._before = cuda.get_sync_debug_mode()
            cuda.set_sync_debug_mode(_RAISES)

    def __enter__(self) -> strict:
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def close(self) -> None:
        """Ends the checks that this call began."""
        if self._before is not None:
            from .. import cuda

            cuda.set_sync_debug_mode(self._before)
            self._before = None
