"""Anomaly mode: an error or a NaN in backward names the line of the forward call."""

from .._C import _autograd
from .._warn import warn

__all__ = ["detect_anomaly", "set_detect_anomaly"]


class set_detect_anomaly:
    """Turns anomaly mode on or off, at once; as a context manager, until its end. `check_nan`: NaN raises, too."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.prev = (_autograd.is_anomaly_enabled(), _autograd.is_anomaly_check_nan_enabled())
        _autograd.set_anomaly(bool(mode), bool(check_nan))

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception) -> None:
        _autograd.set_anomaly(*self.prev)


class detect_anomaly:
    """A context manager: inside, an error in backward and a NaN that it returns name the forward line."""

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        warn("Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled "
             "for debugging.")

    def __enter__(self) -> None:
        self._scope = set_detect_anomaly(True, self.check_nan)

    def __exit__(self, *exception) -> None:
        self._scope.__exit__()
