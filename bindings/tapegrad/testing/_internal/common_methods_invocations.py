"""Names of PyTorch's database of operators that tests import: its decorators are here, the database is not.

PyTorch's own file says what an operator gives by its reference implementations (`torch._refs`, `torch._prims`), which register themselves with its
dispatcher, so that it cannot be loaded here; `make conformance` runs its samples through both libraries instead. The lists are empty,
and `ops` of an empty list is a test that is skipped.
"""

import enum
import sys

from ._switches import _never  # noqa: F401
from .common_utils import freeze_rng_state

_tg = sys.modules[__package__.partition(".")[0]]
op_db: list = []
unary_ufuncs, binary_ufuncs, binary_ufuncs_and_refs, reduction_ops, shape_funcs, spectral_funcs, sparse_unary_ufuncs, sparse_csr_unary_ufuncs, \
    sparse_masked_reduction_ops, foreach_unary_op_db, foreach_binary_op_db, foreach_pointwise_op_db, foreach_reduce_op_db, foreach_other_op_db, \
    reference_masked_ops, python_ref_db, ops_and_refs = ([] for _ in range(17))  # fmt: skip


class DecorateInfo:
    """A decorator, or several, of those tests of an entry that it names by class, test, device, dtype and arguments."""

    def __init__(self, decorators, cls_name=None, test_name=None, *, device_type=None, dtypes=None, active_if=True):
        self.decorators = list(decorators) if isinstance(decorators, (list, tuple)) else [decorators]
        self.cls_name, self.test_name, self.device_type, self.dtypes, self.active_if = cls_name, test_name, device_type, dtypes, active_if

    def is_active(self, cls_name, test_name, device_type, dtype, param_kwargs) -> bool:
        pairs = ((self.cls_name, cls_name), (self.test_name, test_name), (self.device_type, device_type))
        return (self.active_if and all(wanted is None or wanted == is_ for wanted, is_ in pairs) and (self.dtypes is None or dtype in self.dtypes)
                and (not callable(self.active_if) or self.active_if(param_kwargs)))


class SampleInput:
    """The arguments of one call."""

    def __init__(self, input, *var_args, args=None, kwargs=None, output_process_fn_grad=None, broadcasts_input=False, name="", **var_kwargs):
        self.input, self.args, self.kwargs = input, tuple(args if args is not None else var_args), kwargs if kwargs is not None else var_kwargs
        self.output_process_fn_grad = output_process_fn_grad or (lambda x: x)
        self.broadcasts_input, self.name = broadcasts_input, name


class ErrorInput:
    """The arguments of a call, and the error that it raises."""

    def __init__(self, sample_input, *, error_type=RuntimeError, error_regex=""):
        self.sample_input, self.error_type, self.error_regex = sample_input, error_type, error_regex


class OpInfo:
    """An entry of the database; none is made here."""

    def __init__(self, name, *args, **kwargs):
        raise NotImplementedError(f"OpInfo: entries of PyTorch's database of operators are not made here: {name}")


def _kinds(base, names: str):
    """Classes of entries, which are as their base."""
    return (type(name, (base,), {"__module__": __name__}) for name in names.split())


UnaryUfuncInfo, BinaryUfuncInfo, ReductionOpInfo, ShapeFuncInfo, SpectralFuncInfo, PythonRefInfo = _kinds(
    OpInfo, "UnaryUfuncInfo BinaryUfuncInfo ReductionOpInfo ShapeFuncInfo SpectralFuncInfo PythonRefInfo")
ReductionPythonRefInfo, ElementwiseBinaryPythonRefInfo = _kinds(PythonRefInfo, "ReductionPythonRefInfo ElementwiseBinaryPythonRefInfo")
SpectralFuncType = enum.Enum("SpectralFuncType", "OneD TwoD ND")


def __getattr__(name: str):
    if name.startswith(("generate_elementwise_", "sample_inputs_", "validate_sample_input")):

        def absent(op=None, *args, **kwargs):
            raise NotImplementedError(f"{name}: samples of PyTorch's database of operators are not made here")

        return absent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def mask_not_all_zeros(shape):
    """A random mask with at least one element that is true."""
    if not _tg.Size(shape).numel():
        raise AssertionError(f"mask_not_all_zeros: the mask has no elements: {shape}")
    while True:
        mask = _tg.randn(shape).gt(0)
        if mask.any():
            return mask


def wrapper_set_seed(op, *args, **kwargs):
    """The operator's result with the seed 42; the generators are as they were afterwards."""
    with freeze_rng_state():
        _tg.manual_seed(42)
        return op(*args, **kwargs)
