"""The loader of the package torchdata, which is a copy of PyTorch's inner modules there, by our DataLoader: `import torchdata.stateful_dataloader`
gives this module while PyTorch's names stand for tapegrad."""

from typing import Any, Protocol, runtime_checkable

from .collate import default_collate, default_convert
from .dataloader import DataLoader
from .worker import get_worker_info

__all__ = ["Stateful", "StatefulDataLoader", "default_collate", "default_convert", "get_worker_info"]


@runtime_checkable
class Stateful(Protocol):
    """What can be asked for its state and goes on by it."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class StatefulDataLoader(DataLoader):
    """A DataLoader; its state says where the loader is after every batch, so `snapshot_every_n_steps` changes nothing.

    A sampler's own `state_dict` is not asked: the samples before the state are drawn again, and not loaded.
    """

    def __init__(self, *args, snapshot_every_n_steps: int | None = 1, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.snapshot_every_n_steps = snapshot_every_n_steps

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The next pass goes on where the state was taken; an empty one changes nothing."""
        if state_dict:
            super().load_state_dict(state_dict)
