"""Edge values as numbers that are arguments of a row: alpha, eps, p, bounds, margins. The operands are those of the row's samples, and of
elementwise rows some edge values, too (test/python/edges/__init__.py).
"""

import math

import tapegrad
from rows import map_tree, tensors_of

from edges import ELEMENTWISE, Case, few_edges, is_real, refused

# PyTorch itself crashes: of integers it cuts off the fraction of a step, and divides by it.
CRASHES_IN_TORCH = ("range",)
# Random between such bounds.
RANDOM = ("rrelu", "rrelu_")
RANDOM_NUMBERS = ("dropout_p",)
NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e300, math.inf, -math.inf, math.nan)


def is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def number_places(record, args, kwargs):
    """Where a call has, or may have, a number that is no count: positions and names of arguments."""
    kinds = {a[0]: a[1] for a in record.args if "Scalar" in a[1] or a[1].startswith("float")}
    if record.kind == "overload":  # positions belong to one of several lists of arguments
        places = [i for i, v in enumerate(args) if isinstance(v, float)]
    else:
        places = [i for i, v in enumerate(args) if i < len(record.args) and record.args[i][0] in kinds and (v is None or is_number(v))]
    given = {a[0] for a in record.args[:len(args)]} | set(kwargs)
    names = [n for n, v in kwargs.items() if n in kinds and (v is None or is_number(v))]
    absent = [n for n, kind in kinds.items() if n not in given and "[]" not in kind and record.kind != "overload"]
    return [p for p in places + names + absent if p not in RANDOM_NUMBERS]


def with_number(args, kwargs, place, value):
    args, kwargs = map_tree(lambda t: t.clone(), (args, kwargs))  # embeddings write to weights that are too long
    if isinstance(place, str):
        return args, {**kwargs, place: value}
    return tuple(value if i == place else v for i, v in enumerate(args)), kwargs


def number_cases(record):
    """Each number of the first samples that have one as each edge value."""
    seen = {}
    for n, (args, kwargs) in enumerate(record.make_samples(tapegrad.float64)):
        floats = [t for t in tensors_of([args, kwargs]) if is_real(t)]
        if sum(t.numel() for t in floats) > 4000:
            continue
        for place in number_places(record, args, kwargs):
            key = (place, len(floats), len(args), tuple(kwargs))
            seen[key] = seen.get(key, 0) + 1
            if seen[key] > 2:
                continue
            for value in NUMBERS:
                yield Case(f"number sample {n} {place}={value}", *with_number(args, kwargs, place, value))
        if (record.kind != "pointwise" and record.family not in ELEMENTWISE) or len(floats) != 1 or len(tensors_of([args, kwargs])) != 1:
            continue
        for place in number_places(record, args, kwargs):
            key = ("edges", place, len(args), tuple(kwargs))
            if key in seen:
                continue
            seen[key] = 1
            operand = tapegrad.tensor(few_edges(tapegrad.float64), dtype=tapegrad.float64)
            new = map_tree(lambda t: operand, (args, kwargs))
            for value in NUMBERS:
                case = with_number(*new, place, value)
                if not refused(record, *case):
                    yield Case(f"number edges {place}={value}", *case, [operand.numpy()])
