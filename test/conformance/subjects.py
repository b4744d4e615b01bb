"""What is run: the entries of PyTorch's three databases, by kind and name."""

import tapegrad
import torch

from . import modules, operators, optimizers

QUICK_SAMPLES = 2  # per operator and dtype in the quick part
KINDS = {
    "operator": (operators.database, operators.Operator),
    "module": (modules.database, modules.Module),
    "optimizer": (optimizers.database, optimizers.Optimizer),
}


def all_tasks(kinds=None) -> list:
    return [(kind, name) for kind, (database, _) in KINDS.items() if not kinds or kind in kinds for name in database()]


def make(kind: str, name: str):
    torch.set_num_threads(1)
    tapegrad.set_num_threads(1)
    return KINDS[kind][1](name)
