"""Processes with fewer inputs than others. Of one process nobody has fewer."""

from __future__ import annotations

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a process does that has no input left."""

    def main_hook(self) -> None:
        """While others work on."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """When all are done."""


class Joinable:
    """Something that takes part in uneven inputs."""

    def join_hook(self, **kwargs) -> JoinHook:
        """What it does without input."""
        return JoinHook()


class Join:
    """A context in which processes may have different numbers of inputs."""

    def __init__(self, joinables, enable: bool = True, throw_on_early_termination: bool = False, **kwargs):
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables] if enable else []

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            for hook in self._hooks:
                hook.post_hook(True)

    @staticmethod
    def notify_join_context(joinable) -> None:
        """Says that this process has work: there is nobody to tell."""
