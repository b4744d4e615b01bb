"""A module's copies for several devices."""

from __future__ import annotations

__all__ = ["replicate"]


def replicate(network, devices, detach: bool = False) -> list:
    """The module for the one device; more need more devices. NotImplementedError for those."""
    if len(devices) > 1:
        raise NotImplementedError(f"replicate: one device can be used: got {list(devices)}")
    return [network]
