"""Paths of PyTorch that other libraries import from, and what they do with what they find there."""

import subprocess
import sys

import pytest
from tapegrad.utils import _contextlib
from tapegrad.utils import data as d

IMPORTS = """
import torch.return_types, torch.utils._device
assert isinstance(torch.rand(3).topk(2), torch.return_types.topk)
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
assert isinstance(torch.ops.aten.add, OpOverloadPacket) and isinstance(torch.ops.aten.add.Tensor, OpOverload)
assert not isinstance(torch.add, (HigherOrderOperator, OpOverload))
from torch._utils import _get_available_device_type, _get_device_module
assert _get_available_device_type() == ("cuda" if torch.cuda.is_available() else None)
assert _get_device_module("cuda") is torch.cuda
from torch.onnx.symbolic_helper import _get_const, parse_args
assert parse_args("v", "i")(print) is print
from torch.onnx import symbolic_opset9
from torch.nn.attention.flex_attention import _mask_mod_signature, _score_mod_signature
from torch.optim.optimizer import _params_t
from torch.backends.cuda import SDPAParams, SDPBackend, can_use_cudnn_attention, can_use_efficient_attention, can_use_flash_attention, is_flash_attention_available
q = torch.ones(1, 1, 2, 8)
asked = SDPAParams(q, q, q, None, 0.0, True, False)
assert asked.key is q and hasattr(SDPAParams, "enable_gqa")
assert not (can_use_flash_attention(asked, True) or can_use_efficient_attention(asked) or can_use_cudnn_attention(asked))
assert is_flash_attention_available() == torch.cuda.is_available()
torch._functorch.config.enable_autograd_cache = False
with torch._functorch.config.patch(enable_autograd_cache=True):
    assert torch._functorch.config.enable_autograd_cache
assert not torch._functorch.config.enable_autograd_cache
from torch._dynamo.backends import debugging
from torch._dynamo.backends.registry import register_backend
assert register_backend(print) is print and register_backend(name="mine")(print) is print
from torch.serialization import normalize_storage_type
assert normalize_storage_type(torch.FloatStorage) is torch.FloatStorage
from torch.utils._contextlib import _DecoratorContextManager
from torch.utils._triton import has_triton
assert not has_triton()
from torch.utils._device import DeviceContext, set_device
with DeviceContext("meta"):
    assert torch.ones(2).is_meta
assert set_device("meta")(lambda: torch.ones(2))().is_meta
from torch.utils.data.dataloader import _DatasetKind
try:
    _get_const(1)
except NotImplementedError as error:
    assert "onnx.export" in str(error), error
else:
    raise AssertionError("_get_const")
try:
    _get_device_module("tpu")
except RuntimeError as error:
    assert "tpu" in str(error)
print("all found")
"""


def test_imports_of_libraries():
    done = subprocess.run([sys.executable, "-m", "tapegrad", "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert done.stdout == "all found\n", done.stderr


def test_kind_of_datasets():
    class Stream(d.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    assert d.DataLoader(range(3))._dataset_kind == 0 and d.DataLoader(Stream())._dataset_kind == 1


class Within(_contextlib._DecoratorContextManager):
    depth, made = 0, 0

    def __init__(self):
        Within.made += 1

    def __enter__(self):
        Within.depth += 1

    def __exit__(self, *error):
        Within.depth -= 1


@pytest.fixture
def within():
    Within.depth = Within.made = 0
    yield Within
    assert Within.depth == 0


def test_decorated_function_has_a_context_of_its_own_in_each_call(within):
    @within()
    def inner(n):
        """Its text."""
        return Within.depth if n == 0 else inner(n - 1)

    assert inner(2) == 3 and Within.made == 4 and inner.__doc__ == "Its text."


def test_generator_is_within_in_its_steps_only(within):
    @within()
    def steps():
        depths = [Within.depth]
        try:
            depths.append((yield Within.depth))
            yield Within.depth
        except KeyError:
            depths.append(Within.depth)
            yield "caught"
        finally:
            closed.append(Within.depth)
        return depths

    closed = []
    generator = steps()
    assert Within.depth == 0 and next(generator) == 1 and Within.depth == 0
    assert generator.send("given") == 1 and Within.depth == 0
    assert generator.throw(KeyError()) == "caught" and Within.depth == 0
    with pytest.raises(StopIteration) as end:
        next(generator)
    assert end.value.value == [1, "given", 1] and closed == [1]
    abandoned = steps()
    next(abandoned)
    abandoned.close()
    assert closed == [1, 1] and Within.depth == 0
    with pytest.raises(KeyboardInterrupt):
        again = steps()
        next(again)
        again.throw(KeyboardInterrupt())


def test_context_decorators_refuse_what_is_ambiguous(within):
    with pytest.raises(AssertionError, match="both callable and a context"):
        _contextlib.context_decorator(within(), print)
    with pytest.raises(RuntimeError, match="cannot decorate a class"):
        _contextlib.context_decorator(lambda: within(), int)
    with pytest.warns(FutureWarning, match="Decorating classes"):
        @within()
        class Counted:
            def __init__(self):
                self.depth = Within.depth
    assert Counted().depth == 1 and isinstance(Counted(), Counted)


def test_decorator_without_parentheses(within):
    class Plain(_contextlib._NoParamDecoratorContextManager):
        __enter__, __exit__ = Within.__enter__, Within.__exit__

    @Plain
    def depth():
        return Within.depth

    assert depth() == 1
    with Plain():
        assert Within.depth == 1
