"""Optimizers and schedules of the learning rate."""

from . import lr_scheduler
from ._adafactor import Adafactor
from ._muon import Muon
from ._stateless import swap_in_optimizer_params_and_state
from .adadelta import Adadelta
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .adamax import Adamax
from .asgd import ASGD
from .lbfgs import LBFGS
from .nadam import NAdam
from .optimizer import Optimizer
from .radam import RAdam
from .rmsprop import RMSprop
from .rprop import Rprop
from .sgd import SGD
from .sparse_adam import SparseAdam

TYPE_CHECKING = False  # known to type checkers by its name
if TYPE_CHECKING:
    from . import swa_utils
else:  # they would take any name for one that is there
    def __getattr__(name: str):
        if name == "swa_utils":  # stands on nn
            from .._lazy import load

            return load(f"{__name__}.swa_utils")
        from .._hints import no_attribute

        raise no_attribute(__name__, name, __all__)


__all__ = ["ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer",
           "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils", "swap_in_optimizer_params_and_state"]
