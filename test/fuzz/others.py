"""Calls that take tensors and have no row of the op table: indexing, constructors, conversions, gradients, and what is
put together in Python. Each has right calls, like a row, to be broken."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import rows
import tapegrad as tg


@dataclass
class Other:
    """What the worker asks of a row."""

    name: str
    function: Callable
    samples: Callable = field(repr=False)
    args: tuple = ()
    outputs: tuple = ()
    refusals: tuple = ()  # exceptions besides the usual ones, where PyTorch raises them
    method = inplace = out = False

    def make_samples(self, dtype):
        return self.samples(rows.Make(dtype))


OTHERS: dict[str, Other] = {}


def other(name: str, function: Callable, **more):
    """Registers a function under a name; what is decorated makes its right calls."""

    def add(samples):
        OTHERS[name] = Other(name, function, samples, **more)
        return samples

    return add


def _keys(make):
    mask = make((4, 5)) > 0
    return [1, -1, slice(1, 3), slice(None, None, 2), (0, slice(None)), (None, Ellipsis, slice(0, 3, 2)), mask, (slice(None), mask[0]), [0, 2], tg.tensor([3, 0]), (tg.tensor([[1], [2]]), tg.tensor([0, 4])),
            (slice(1, 3), None, tg.tensor([0, 4])), (tg.tensor(2), 1), True, (), Ellipsis, (np.array([0, 3]), [1, 2])]


@other("__getitem__", lambda x, key: x[key])
def _(make):
    return [((make((4, 5)), key), {}) for key in _keys(make)] + [((make((5, 4)).t(), key), {}) for key in _keys(make)[:9]]


def _set(x, key, value):
    written = x.clone()
    written[key] = value
    return written


@other("__setitem__", _set)
def _(make):
    values = [lambda x: x * 2, lambda x: 1.5, lambda x: make(())]
    return [((make((4, 5)), key, values[n % 3](make((4, 5))[key])), {}) for n, key in enumerate(_keys(make))]


def _nested(make):
    return [([[1, 2], [3, 4]],), ([1.5, True, 2],), (np.arange(6.0).reshape(2, 3)[:, ::2],), (3,), ([],), ([1j, 2.0],), ([make(()), 2.0],), (np.float32(1.5),)]


@other("tensor", tg.tensor)
def _(make):
    return [(args, {}) for args in _nested(make)] + [(args, {"dtype": make.dtype, "requires_grad": True}) for args in _nested(make)[:4]]


@other("as_tensor", tg.as_tensor)
def _(make):
    return [(args, {}) for args in _nested(make)] + [((make((2, 3)),), {"dtype": tg.int32})]


@other("asarray", tg.asarray)
def _(make):
    return [(args, {}) for args in _nested(make)] + [((make((2, 3)),), {"dtype": tg.float16, "copy": True}), ((b"abcdefgh",), {"dtype": tg.int16})]


@other("from_numpy", tg.from_numpy)
def _(make):
    return [((np.arange(6.0).reshape(2, 3)[::-1].copy(),), {}), ((np.ones((2, 0), "i4"),), {}), ((np.arange(8)[::2],), {})]


@other("frombuffer", tg.frombuffer)
def _(make):
    return [((bytearray(range(32)),), {"dtype": make.dtype}), ((bytearray(32),), {"dtype": tg.int16, "count": 3, "offset": 4})]


@other("new_tensor", tg.Tensor.new_tensor)
def _(make):
    return [((make((2,)), *args), {}) for args in _nested(make)[:5]]


@other("Tensor", tg.Tensor)
def _(make):
    return [((2, 3), {}), (([1.0, 2.0],), {}), ((make((2,), dtype=tg.float32),), {})]


@other("Tensor.to", tg.Tensor.to)
def _(make):
    x = make((2, 3))
    return [((x, tg.float16), {}), ((x, "cpu", tg.int64), {}), ((x, make((1,), dtype=tg.int32)), {}), ((x.t(),), {"dtype": tg.complex64, "copy": True}),
            ((make((1, 2, 3, 3)),), {"memory_format": tg.channels_last}), ((x, tg.device("meta")), {})]


@other("Tensor.type", tg.Tensor.type)
def _(make):
    return [((make((2, 3)), tg.int32), {}), ((make((2, 3)), "torch.DoubleTensor"), {}), ((make(()),), {})]


@other("Tensor.tolist", tg.Tensor.tolist)
def _(make):
    return [((make((2, 3)),), {}), ((make(()),), {})]


@other("Tensor.item", tg.Tensor.item)
def _(make):
    return [((make(()),), {}), ((make((1, 1)),), {})]


@other("Tensor.numpy", tg.Tensor.numpy)
def _(make):
    return [((make((2, 3)),), {}), ((make((3, 2)).t(),), {"force": True})]


@other("Tensor.size", tg.Tensor.size)
def _(make):
    return [((make((2, 3)),), {}), ((make((2, 3)), -1), {})]


@other("Tensor.stride", tg.Tensor.stride)
def _(make):
    return [((make((2, 3)),), {}), ((make((2, 3)), 1), {})]


@other("Tensor.apply_", lambda x, f: x.clone().apply_(f))
def _(make):
    return [((make((2, 3)), abs), {}), ((make((3, 2)).t(), lambda v: v + 1), {})]


@other("Tensor.map_", lambda x, y, f: x.clone().map_(y, f))
def _(make):
    return [((make((2, 3)), make((2, 3)), max), {})]


@other("Tensor.backward", lambda x, *args, **kwargs: (x * x).backward(*args, **kwargs))
def _(make):
    return [((make((), requires_grad=True),), {}), ((make((2, 3), requires_grad=True), make((2, 3))), {}), ((make((2,), requires_grad=True), make((2,))), {"retain_graph": True, "create_graph": True})]


@other("autograd.grad", lambda x, weight, *args, **kwargs: tg.autograd.grad(x.exp() * 2, [x], weight, *args, **kwargs))
def _(make):
    x = make((2, 3), requires_grad=True)
    return [((x, make((2, 3))), {}), ((x, [make((2, 3))]), {"create_graph": True}), ((x, make((2, 3))), {"allow_unused": True, "materialize_grads": True}),
            ((x, make((4, 2, 3))), {"is_grads_batched": True})]


@other("sparse_coo_tensor", lambda *args, **kwargs: tg.sparse_coo_tensor(*args, **kwargs).coalesce().to_dense())
def _(make):
    places = tg.tensor([[0, 1, 1], [2, 0, 0]])
    return [((places, make((3,)), (2, 3)), {}), ((places, make((3, 4)), (2, 3, 4)), {}), (([[0, 2]], [1.0, 2.0]), {}), ((tg.zeros(2, 0, dtype=tg.int64), make((0,)), (2, 3)), {})]


@other("sparse.mm", lambda i, v, size, dense: tg.sparse.mm(tg.sparse_coo_tensor(i, v, size), dense))
def _(make):
    return [((tg.tensor([[0, 1, 1], [2, 0, 0]]), make((3,)), (2, 3), make((3, 4))), {})]


@other("unique", tg.unique)
def _(make):
    return [((make((9,), low=-2, high=2).round(),), {}), ((make((3, 4)).round(),), {"return_inverse": True, "return_counts": True}), ((make((3, 2)).round(),), {"dim": 0})]


@other("unique_consecutive", tg.unique_consecutive)
def _(make):
    return [((make((9,), low=-2, high=2).round(),), {}), ((make((3, 4)).round(),), {"return_inverse": True, "return_counts": True, "dim": 1})]


@other("histogramdd", tg.histogramdd)
def _(make):
    return [((make((7, 2)), [3, 2]), {}), ((make((7, 1)), [make((4,)).sort()[0]]), {}), ((make((7, 2)), 3), {"range": [-1.0, 1.0, -2.0, 2.0], "weight": make((7,), low=0.0)})]


@other("fractional_max_pool2d", tg.nn.functional.fractional_max_pool2d)
def _(make):
    return [((make((2, 3, 6, 7)), 2), {"output_size": (3, 4)}), ((make((3, 8, 8)), (3, 2)), {"output_ratio": 0.5, "return_indices": True})]


@other("gumbel_softmax", tg.nn.functional.gumbel_softmax)
def _(make):
    return [((make((2, 3)),), {}), ((make((2, 3)), 0.5, True), {"dim": 0})]


@other("multi_head_attention_forward", tg.nn.functional.multi_head_attention_forward, refusals=(AssertionError,))
def _(make):
    q = make((3, 2, 4))
    weights = (4, 2, make((12, 4)), make((12,)), None, None, False, 0.0, make((4, 4)), make((4,)))
    return [((q, q, q, *weights), {}), ((q, make((5, 2, 4)), make((5, 2, 4)), *weights), {"need_weights": False, "key_padding_mask": make((2, 5)) > 0.9})]


@other("grid_sampler", tg.grid_sampler)
def _(make):
    return [((make((1, 2, 3, 4)), make((1, 2, 5, 2)), 0, 1, True), {}), ((make((1, 2, 3, 4, 2)), make((1, 2, 5, 2, 3)), 0, 0, False), {})]


@other("convolution", tg.convolution)
def _(make):
    return [((make((1, 4, 7)), make((6, 2, 3)), make((6,)), [2], [1], [1], False, [0], 2), {}), ((make((1, 4, 5, 5)), make((4, 3, 3, 3)), None, [2, 1], [1, 1], [1, 1], True, [1, 0], 1), {})]


@other("svd_lowrank", tg.svd_lowrank)
def _(make):
    return [((make((6, 4)),), {"q": 3}), ((make((2, 5, 4)), 2, 1), {})]


@other("clip_grad_norm_", lambda grads, *args, **kwargs: tg.nn.utils.clip_grads_with_norm_([tg.nn.Parameter(g) for g in grads], *args, **kwargs))
def _(make):
    return [(([make((2, 3)), make((3,))], 0.1, make((), low=0.1)), {}), (([make((2, 3))], 1.0, make((), low=0.1)), {"foreach": False})]


@other("get_total_norm", tg.nn.utils.get_total_norm)
def _(make):
    return [(([make((2, 3)), make((3,))],), {}), (([make((2, 3))], float("inf")), {"error_if_nonfinite": True})]


@other("vector_to_parameters", lambda vector, *shapes: tg.nn.utils.vector_to_parameters(vector, [tg.nn.Parameter(tg.empty(s)) for s in shapes]))
def _(make):
    return [((make((11,)), (2, 3), (5,)), {})]


@other("result_type", tg.result_type)
def _(make):
    return [((make((2,)), 1.5), {}), ((2, make((), dtype=tg.int32)), {})]


@other("broadcast_shapes", tg.broadcast_shapes)
def _(make):
    return [(((2, 1), (3,)), {}), (((), (4, 1, 2), 2), {})]


@other("set_rng_state", tg.set_rng_state)
def _(make):
    return [((tg.get_rng_state(),), {})]


@other("vmap", lambda x, y, **kwargs: tg.vmap(lambda a, b: (a * b).sum(-1), **kwargs)(x, y))
def _(make):
    return [((make((3, 4)), make((3, 4))), {}), ((make((3, 4)), make((4,))), {"in_dims": (0, None)}), ((make((3, 4)), make((4, 3))), {"in_dims": (0, 1), "out_dims": 0}), ((make((5, 2)), make((5, 2))), {"chunk_size": 2})]


def _with(x, name, value):
    """What assigning to a property leaves."""
    changed = x.detach().clone()
    setattr(changed, name, value)
    return changed, changed.grad


@other("Tensor.data=", lambda x, value: _with(x, "data", value))
def _(make):
    return [((make((2, 3)), make((4,))), {}), ((make((2, 3)), make((3, 2)).t()), {})]


@other("Tensor.grad=", lambda x, value: _with(x, "grad", value))
def _(make):
    return [((make((2, 3)), make((2, 3))), {}), ((make((2, 3)), None), {})]


@other("Tensor.requires_grad=", lambda x, value: _with(x, "requires_grad", value))
def _(make):
    return [((make((2, 3)), True), {}), ((make((2, 3)), False), {})]


@other("from_dlpack", lambda x: tg.from_dlpack(x))
def _(make):
    return [((make((2, 3)),), {}), ((np.ones((2, 3)),), {}), ((make((2, 3)).__dlpack__(),), {})]


@other("UntypedStorage", tg.UntypedStorage)
def _(make):
    return [((16,), {}), (([1, 2, 3],), {})]


def _resized(x, size):
    """A tensor whose storage became another size, and one of a part of it."""
    whole = x.clone()
    whole.untyped_storage().resize_(size)
    return whole, whole[..., :1], whole * 2


@other("UntypedStorage.resize_", _resized)
def _(make):
    return [((make((2, 3)), 1000), {}), ((make((2, 3)), make((2, 3)).nbytes), {})]


@other("UntypedStorage.copy_", lambda x, y, *args: x.clone().untyped_storage().copy_(y.untyped_storage(), *args))
def _(make):
    return [((make((2, 3)), make((2, 3))), {})]


def _set_byte(x, at, value):
    storage = x.clone().untyped_storage()
    storage[at] = value
    return storage[at]


@other("UntypedStorage.__setitem__", _set_byte)
def _(make):
    return [((make((2, 3)), 5, 255), {}), ((make((2, 3)), -1, 0), {}), ((make((2, 3)), slice(1, 4), 7), {})]


@other("Generator.set_state", lambda state: tg.Generator().set_state(state))
def _(make):
    return [((tg.Generator().get_state(),), {})]


@other("Generator.manual_seed", lambda seed: tg.Generator().manual_seed(seed))
def _(make):
    return [((7,), {}), ((-1,), {})]


def _steps(kind, x, gradient, **kwargs):
    """Two steps, the second with a gradient of as many zeros."""
    parameter = tg.nn.Parameter(x.detach().clone())
    optimizer = kind([parameter], **kwargs)
    for value in (gradient, tg.zeros_like(parameter)):
        parameter.grad = value
        optimizer.step()
    return parameter


@other("SGD", lambda *args, **kwargs: _steps(tg.optim.SGD, *args, **kwargs))
def _(make):
    return [((make((2, 3)), make((2, 3))), {"lr": 0.1, "momentum": 0.9, "nesterov": True}), ((make((3, 2)).t(), make((2, 3))), {"lr": 0.1, "weight_decay": 0.1, "foreach": True})]


@other("Adam", lambda *args, **kwargs: _steps(tg.optim.Adam, *args, **kwargs))
def _(make):
    return [((make((2, 3)), make((2, 3))), {"betas": (0.9, 0.99), "amsgrad": True}), ((make((2, 3)), make((3, 2)).t()), {"lr": 0.1, "fused": True})]


@other("Adagrad", lambda *args, **kwargs: _steps(tg.optim.Adagrad, *args, **kwargs))
def _(make):
    return [((make((2, 3)), make((2, 3))), {"lr_decay": 0.1})]


@other("Adagrad.rows", lambda x, rows, values: _steps(tg.optim.Adagrad, x, tg.sparse_coo_tensor(rows, values, x.shape)))
def _(make):
    return [((make((5, 3)), [[1, 4]], make((2, 3))), {}), ((make((5, 3)), tg.tensor([[1, 1]]), make((2, 3))), {})]


def records() -> dict[str, Other]:
    """Those whose names no row has."""
    taken = {r.name for r in rows.load_records() if r.samples}
    return {name: record for name, record in OTHERS.items() if name not in taken}
