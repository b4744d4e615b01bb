"""The complete state of a training run in one file, saved and resumed by one call.

`save` and `load` write and read the state of models, optimizers, schedulers, scalers, loaders and all random generators;
`Checkpoints` does it every N steps or seconds in a folder, keeps the last files and the best one, and resumes from the newest that is
whole. A run that was killed at any moment and resumes computes the same bits as one that was not.

(Giving up activations to compute them again, which PyTorch calls checkpointing, too, is `tapegrad.utils.checkpoint`.)
"""

from .folder import Checkpoints
from .state import load, save

__all__ = ["Checkpoints", "load", "save"]
