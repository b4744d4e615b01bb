"""Optimizers and schedules of the learning rate."""

from . import lr_scheduler
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .sgd import SGD
from .sparse_adam import SparseAdam


def __getattr__(name: str):
    from .._hints import no_attribute

    raise no_attribute(__name__, name, __all__)


__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "SparseAdam", "lr_scheduler"]
