"""Run on PyTorch and under `python -m tapegrad`: what stood in the way of other people's programs and test suites, one function each. Prints
what each gives, or the class of its error, as JSON."""

import copy
import inspect
import io
import json
import typing
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

A = torch.arange(6.0).reshape(2, 3)
CLAUSES: list = []


def clause(function):
    CLAUSES.append(function)
    return function


def plain(value):
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return [str(value.layout), plain(value.to_dense())]
        data = value.detach()
        data = data.to(torch.complex64) if str(data.dtype) == "torch.complex32" else data.float() if data.dtype.is_floating_point and data.dtype.itemsize < 4 else data
        return [str(value.dtype), list(value.shape), list(value.stride()), str(np.round(data.numpy().astype("complex128"), 4).tolist())]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return round(value, 5) if isinstance(value, float) else value if isinstance(value, (int, str, bool, type(None))) else str(value)


def kind(function):
    """The class of the error, or "none"."""
    try:
        function()
    except Exception as error:
        return type(error).__name__
    return "none"


def warned(function):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = function()
    return [[w.category.__name__, str(w.message)[:40]] for w in seen], result


@clause
def names_of_the_test_library():
    from torch.testing._internal.common_cuda import TEST_CUDA, TEST_MULTIGPU  # noqa: F401
    from torch.testing._internal.common_device_type import (  # noqa: F401
        dtypes,
        instantiate_device_type_tests,
        onlyCPU,
        precisionOverride,
        toleranceOverride,
    )
    from torch.testing._internal.common_dtype import floating_types, get_all_dtypes, integral_types
    from torch.testing._internal.common_methods_invocations import DecorateInfo, OpInfo, SampleInput  # noqa: F401
    from torch.testing._internal.common_utils import (  # noqa: F401
        TestCase,
        freeze_rng_state,
        make_tensor,
        parametrize,
        run_tests,
        subtest,
    )

    return [str(floating_types()), str(integral_types()), len(get_all_dtypes()) > 5]


@clause
def map_location():
    from torch.serialization import MAP_LOCATION

    return typing.get_origin(MAP_LOCATION) is not None or str(MAP_LOCATION) != ""


@clause
def futures():
    future = torch.futures.Future()
    future.set_result(3)
    return str(typing.get_args(torch.futures.Future[int])), future.wait(), isinstance(future, torch.Future), torch.__name__


@clause
def divergences_of_foreign_classes():
    from torch.distributions import Distribution, Normal, kl_divergence, register_kl

    class Mine(Normal):
        pass

    class Foreign(Distribution):
        pass

    register_kl(Foreign, Mine)(lambda p, q: torch.tensor(3.0))
    return kl_divergence(Foreign(validate_args=False), Mine(0.0, 1.0)), kind(lambda: register_kl(int, Mine))


@clause
def signatures():
    layers = (nn.Linear(1, 1), nn.Conv2d(1, 1, 1), nn.LSTM(1, 1), nn.MultiheadAttention(2, 1), nn.EmbeddingBag(2, 2), nn.CrossEntropyLoss(), nn.Sequential(), nn.LazyConv1d(1, 1))
    return [[[p.name, p.default is p.empty] for p in inspect.signature(layer.forward).parameters.values()] for layer in layers]


@clause
def subscripts_in_a_list():
    return kind(lambda: A[[slice(0, 2), slice(0, 1)]]), plain(A[(slice(0, 2), slice(0, 1))])


@clause
def out_of_another_size():
    found = {}
    for name, call in {"add": lambda o: torch.add(A, 1, out=o), "mm": lambda o: torch.mm(A, A.T, out=o), "cat": lambda o: torch.cat([A, A], out=o),
                       "sum": lambda o: torch.sum(A, 0, out=o), "gather": lambda o: torch.gather(A, 0, torch.tensor([[0]]), out=o)}.items():  # fmt: skip
        out = torch.empty(7)
        found[name] = warned(lambda: call(out) is out), out
    return found, warned(lambda: torch.add(A, 1, out=torch.empty(0)))


@clause
def gradcheck_is_a_function():
    import torch.autograd.gradcheck

    return torch.autograd.gradcheck(torch.sin, (torch.ones(2, dtype=torch.double, requires_grad=True),))


@clause
def old_signatures():
    t, m = torch.ones(3), torch.eye(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [torch.ones(3).add_(2.0, t), torch.ones(3).addcmul_(2.0, t, t), torch.ones(3).addcdiv_(2.0, t, t), torch.add(t, 2.0, t), torch.sub(t, 2.0, t), t.add(2.0, t),
                torch.addcmul(t, 2.0, t, t), torch.addcdiv(t, 2.0, t, t), torch.eye(2).addmm(2.0, m, m), torch.eye(2).addmm_(2.0, 3.0, m, m), torch.addmm(2.0, m, 3.0, m, m),
                torch.zeros(2, 2).addr_(2.0, torch.ones(2), torch.ones(2)), torch.zeros(1, 2, 2).baddbmm_(2.0, m[None], m[None])]  # fmt: skip


@clause
def compressed_layouts():
    d = torch.tensor([[1.0, 0, 2, 0], [0, 3, 0, 0], [0, 0, 0, 0], [4.0, 5, 0, 6]])
    found = []
    for name in ("csr", "csc"):
        s = getattr(d, f"to_sparse_{name}")()
        found += [s, s @ d, s @ d[0], torch.sparse.mm(s, d), s.to_sparse(), s * 2, s.values()]
    for name in ("bsr", "bsc"):
        s = getattr(d, f"to_sparse_{name}")((2, 2))
        found += [s, s.values()]
    values, x = torch.tensor([1.0, 2.0], requires_grad=True), torch.ones(2, 2, requires_grad=True)
    (torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), values, (2, 2)) @ x).sum().backward()
    return [*found, values.grad, x.grad]


@clause
def narrow_dtypes():
    found = {}
    for name in ("uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
        dtype = getattr(torch, name)
        t = torch.tensor([1.0, 2.0, 3.0]).to(dtype)
        found[name] = [dtype.itemsize, dtype.is_floating_point, dtype.is_complex, t.view(torch.uint8), t.to(torch.complex64), torch.zeros(3, dtype=dtype).view(torch.uint8)]
    return found


@clause
def storages():
    s = torch.arange(4.0).untyped_storage()
    found = [s.nbytes(), len(s), list(s)[:4], torch.empty(0).set_(s, 1, (2,), (1,)), torch.empty(0).set_(torch.arange(3.0)), torch.empty(0).set_(), torch.empty(0).set_(s),
             torch.empty(0).set_(torch.arange(4.0), 1, (2,), (1,))]  # fmt: skip
    s.resize_(32)
    return [*found, s.nbytes(), torch.UntypedStorage([1, 2]).tolist(), kind(lambda: s[100]), kind(lambda: torch.empty(0, dtype=torch.double).set_(torch.FloatStorage([1.0])))]


@clause
def forward_mode_levels():
    import torch.autograd.forward_ad as forward

    found = [forward._current_level]
    with forward.dual_level():
        found.append(forward._current_level)
    return [*found, forward._current_level]


@clause
def segments_and_powers():
    data, x = torch.arange(6.0).requires_grad_(), torch.tensor([1.0, 2, 3])
    found = [torch.segment_reduce(data, m, lengths=torch.tensor([2, 1, 3])) for m in ("sum", "mean", "max", "min", "prod")]
    found[0].sum().backward()
    return [*found, data.grad, torch.vander(x), torch.vander(x, N=4, increasing=True), torch.linalg.vander(x, N=2), kind(lambda: torch.vander(A))]


@clause
def memory_formats():
    x = torch.empty(0).resize_as_(torch.empty(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), memory_format=torch.channels_last)
    y = torch.zeros(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d)
    module = nn.Conv3d(3, 4, 3).to(memory_format=torch.channels_last_3d)
    return [x.stride(), y.stride(), y.relu().stride(), torch.empty_like(y).stride(), torch.cat([y, y], 1).stride(), module.weight.stride(),
            y.is_contiguous(memory_format=torch.channels_last_3d), torch.empty(0).resize_(2, 3, 4, 5, 6, memory_format=torch.channels_last_3d).stride()]  # fmt: skip


@clause
def positional_arguments():
    x = torch.arange(32.0).reshape(1, 2, 4, 4)
    return torch.max_pool2d(x, 2, 2, 0, 1, False), F.max_pool2d(x, 2, 2, 0, 1, False, True), F.avg_pool2d(x, 2, 2, 0, False, True, 3), torch.roll(A, 1, None)


@clause
def index_copy_of_a_number():
    return torch.arange(3.0).index_copy(0, torch.tensor(1), torch.tensor(9.0)), torch.tensor(1.0).index_copy(0, torch.tensor([0]), torch.tensor([5.0]))


@clause
def products_with_sparse():
    s, w = torch.eye(3).to_sparse(), torch.arange(6.0).reshape(2, 3).requires_grad_()
    y = F.linear(s, w)
    y.sum().backward()
    return torch.dsmm(s, torch.ones(3, 2)), y, w.grad, F.linear(s, w, torch.ones(2)), F.linear(torch.eye(3).to_sparse_csr(), w.detach())


@clause
def weights_of_recurrent_layers():
    layer = nn.LSTM(2, 3)
    layer._flat_weights = [torch.zeros_like(w) for w in layer._flat_weights]
    return layer(torch.ones(1, 1, 2))[0], [name for name, _ in layer.named_parameters()], layer._flat_weights_names


@clause
def chains_over_iterators():
    from torch.utils.data.datapipes.iter import IterableWrapper

    return list(IterableWrapper(range(4)).map(lambda x: x * 2).filter(lambda x: x > 1)), list(IterableWrapper(range(4)).batch(2))


@clause
def lazy_layers_before_data():
    layer = nn.LazyLinear(3)
    state = layer.state_dict()
    other = nn.LazyLinear(3)
    loaded = str(other.load_state_dict(copy.copy(state)))
    return list(state), [type(v).__name__ for v in state.values()], loaded, list(other(torch.ones(2, 5)).shape), type(other).__name__, kind(lambda: layer.weight + 1)


@clause
def states_of_optimizers():
    found = {}
    for name in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"):
        parameter = nn.Parameter(torch.ones(2))
        optimizer = getattr(torch.optim, name)([parameter], lr=0.1)
        parameter.grad = torch.ones(2)
        optimizer.step()
        state = optimizer.state_dict()
        found[name] = [{k: str(v) for k, v in state["param_groups"][0].items()}, {k: list(v) for k, v in state["state"].items()}]
    return found


@clause
def places_that_are_not_there():
    w = torch.ones(4, 3)
    return [kind(lambda: F.embedding_bag(torch.tensor([[0, -1]]), w)), kind(lambda: F.embedding_bag(torch.tensor([[0, 4]]), w)), kind(lambda: F.embedding(torch.tensor([-1]), w)),
            F.embedding_bag(torch.tensor([[0, 3]]), w, padding_idx=-1)]  # fmt: skip


@clause
def exchange():
    x = torch.arange(3.0)
    return [type(x.__dlpack__(copy=None)).__name__, torch.from_dlpack(x, copy=True).data_ptr() != x.data_ptr(), torch.from_dlpack(x, copy=False).data_ptr() == x.data_ptr(),
            torch.from_dlpack(np.arange(3)), torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(torch.arange(3))),
            kind(lambda: torch.ones(1, requires_grad=True).__dlpack__()), kind(lambda: torch.from_dlpack(3)), kind(lambda: torch.from_dlpack([1.0]))]  # fmt: skip


@clause
def strings_of_devices():
    return [kind(lambda: torch.device(text)) for text in ("dummy", "cpu:x", "cpu:-1", "", "cuda:", "cuda:01", "cuda:1x", "cuda:0", "cpu")]


@clause
def errors_of_dtypes_and_overlap():
    x, y = torch.arange(6.0), torch.zeros(1).expand(3)
    whole, double = torch.tensor([1]), torch.ones(2).double()
    place = torch.tensor([0])
    return [kind(f) for f in (
        lambda: x.index_put((place,), whole), lambda: x.index_put_((place,), double[:1]), lambda: x.index_add(0, place, whole), lambda: x.scatter(0, place, whole),
        lambda: x.index_copy(0, place, whole), lambda: x[1:].copy_(x[:-1]), lambda: y.copy_(torch.ones(3)), lambda: y.add_(1), lambda: torch.add(x[:-1], 1, out=x[1:]),
        lambda: x[1:].add_(x[:-1]), lambda: y.scatter_(0, place, 1.0), lambda: y.cumsum_(0), lambda: torch.allclose(torch.ones(2), double),
        lambda: torch.isclose(torch.ones(2), double), lambda: torch.allclose(torch.ones(2), torch.ones(3)), lambda: torch.mm(A, A.T.double()), lambda: A.int().div_(2))]  # fmt: skip


@clause
def nested_checkpoints():
    from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    calls, found = [], []

    def inner(x):
        calls.append(1)
        return x.sin().cos()

    def middle(x):
        return checkpoint(inner, x, use_reentrant=False).exp()

    for early in (True, False):
        calls.clear()
        x = torch.tensor([0.5], requires_grad=True)
        with set_checkpoint_early_stop(early):
            y = checkpoint(lambda x: checkpoint(middle, x, use_reentrant=False), x, use_reentrant=False)
        y.sum().backward()
        found += [x.grad, len(calls)]
    return found


@clause
def old_sparse_classes():
    s = torch.sparse.FloatTensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 2.0]), torch.Size([2, 2]))
    return s, isinstance(s, torch.sparse.FloatTensor), s.type(), torch.sparse.DoubleTensor(2, 2), str(torch.sparse.HalfTensor), kind(lambda: torch.sparse.FloatTensor("x"))


@clause
def groups_of_tensors():
    from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

    groups = _group_tensors_by_device_and_dtype([[torch.ones(1), torch.ones(1).double(), torch.ones(2)]])
    return sorted([str(key), [[list(t.shape) for t in part] for part in parts]] for key, (parts, _) in groups.items())


@clause
def views_and_names():
    x = torch.ones(3)
    kinds = [type(x), nn.Linear, torch.optim.AdamW, torch.distributions.Normal, F.relu, torch.save]
    return [x._is_view(), x[1:]._is_view(), x[1:]._base is x, torch._C._log_api_usage_once("x"), [k.__module__ for k in kinds], str(type(x))]


@clause
def names_of_quantised_layers():
    import torch.ao.nn.intrinsic.qat
    import torch.ao.nn.qat.modules.linear
    import torch.ao.quantization.observer
    import torch.nn.qat  # noqa: F401

    return issubclass(torch.ao.nn.qat.Linear, nn.Linear), torch.ao.quantization.observer.MinMaxObserver.__name__


@clause
def whole_modules_without_the_variable():
    import os

    data = io.BytesIO()
    torch.save(nn.Linear(2, 1), data)
    found = []
    for value in (None, "1"):
        data.seek(0)
        os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
        if value:
            os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = value
        try:
            found.append(type(torch.load(data)).__name__)
        except Exception:
            found.append("refused")
    return found


class Space:
    def __init__(self, shape):
        self.shape, self.seen = shape, 0

    def __setstate__(self, state):
        self.__dict__.update(state, seen=state["seen"] + 1)


class Reduced:
    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return made, (self.value,), {"extra": 1}


class Numbered(dict):
    pass


def made(value):
    return Reduced(value)


@clause
def objects_with_states_of_their_own():
    space, numbered = Space((2,)), Numbered(a=1)
    found = []
    for allowed in ([], [Space, Reduced, made]):
        for value in (space, Reduced(torch.ones(2)), {"both": [space, space]}, made):
            data = io.BytesIO()
            torch.save(value, data)
            data.seek(0)
            try:
                with torch.serialization.safe_globals(allowed):
                    loaded = torch.load(data, weights_only=True)
            except Exception:
                found.append("refused")
                continue
            found.append(sorted(vars(loaded).items()) if hasattr(loaded, "__dict__") and loaded is not made else [type(loaded).__name__, loaded is made])
            if isinstance(loaded, dict):
                found.append([loaded["both"][0] is loaded["both"][1], loaded["both"][0].seen])
    torch.save(numbered, io.BytesIO())
    return [*found, kind(lambda: torch.save(lambda: 0, io.BytesIO())) != "none"]


@clause
def layouts_of_images():
    x, v, w = torch.ones(2, 3, 6, 7).to(memory_format=torch.channels_last), torch.ones(2, 4, 3, 4, 5).to(memory_format=torch.channels_last_3d), torch.ones(4, 3, 3, 3)
    y = x.clone().requires_grad_()
    F.conv2d(y, w).sum().backward()
    results = [F.conv2d(x, w), F.conv2d(x.contiguous(), w.to(memory_format=torch.channels_last)), F.conv2d(x, w[:3, :1], groups=3), F.conv_transpose2d(x, w[:3]), F.conv3d(v, torch.ones(2, 4, 2, 2, 2)),
               F.group_norm(x, 1), F.instance_norm(x), F.layer_norm(x, (7,)), F.dropout(x), F.pad(x, (1, 1)), F.pad(x, (1, 1, 1, 1), "reflect"), F.pad(v, (1, 0) * 3, "replicate"), F.max_pool2d(x, 2),
               F.batch_norm(x, None, None, training=True), F.relu(x), F.gelu(x), F.avg_pool2d(x.double(), 2), F.interpolate(x, scale_factor=2), nn.Conv2d(3, 2, 1)(x)]  # fmt: skip
    shuffled = F.pixel_shuffle(torch.ones(3, 18, 4, 4).to(memory_format=torch.channels_last), 3)
    empty = [kind(lambda m=m: F.pad(torch.zeros(3, 0, 4, 4), (1, 1, 1, 1), m)) for m in ("reflect", "replicate", "circular", "constant")]
    return [r.stride() for r in results], y.grad.stride(), shuffled.stride(), F.pixel_unshuffle(shuffled, 3).stride(), empty


@clause
def devices_of_others():
    names = ["mps", "mps:0", "xpu:1", "hpu", "meta:0", "privateuseone", "xla", "mtia", "vulkan"]
    devices = [torch.device(name) for name in names]
    found = [[str(d), repr(d), d.type, d.index, d == torch.device(str(d)), hash(d) == hash(copy.copy(d))] for d in devices]
    found += [repr(torch.device("mps", 0)), torch.device("xpu") == torch.device("xpu:0"), torch.device("mps") == torch.device("xpu"), str(torch.empty(1, device="meta:0").device)]
    for text in ("dummy", "npu", "MPS", "mps:", "mps:-1", "cpu:0"):
        try:
            torch.device(text, *([1] if text == "cpu:0" else []))
        except RuntimeError as error:
            found.append(str(error).removeprefix("device: ").splitlines()[0])
    return [*found, [kind(lambda d=d: torch.zeros(2, device=d)) != "none" for d in ("mps", "xpu", "hpu")], kind(lambda: nn.Linear(1, 1, device="mps"))]


@clause
def writes_to_expanded_tensors():
    found = []
    mask, places = torch.tensor([True, False, True]), torch.tensor([2, 0])

    def put(x, where, value):
        x[where] = value

    for shape, size in (((1,), (3,)), ((3, 1), (3, 3)), ((1, 3), (3, 3)), ((2, 1, 3), (2, 3, 3))):
        for write in (lambda x: put(x, mask if x.shape[0] == 3 else (slice(None), mask), 1.0), lambda x: put(x, (..., places), 2.0), lambda x: x.index_put_((torch.tensor([1, 1]),), torch.tensor(3.0), accumulate=True),
                      lambda x: put(x, (torch.tensor([0]), torch.tensor([-1])) if x.dim() > 1 else torch.tensor([-1]), torch.tensor([5.0]))):  # fmt: skip
            base = torch.zeros(shape)
            x = base.expand(size)
            seen, _ = warned(lambda x=x, write=write: write(x))
            found.append([seen[0][0], seen[0][1][:29], base])
    x = torch.zeros(1).expand(3)
    return [*found, kind(lambda: put(x, torch.tensor([3]), 1.0)), kind(lambda: x.scatter_(0, places, 1.0)), kind(lambda: x.index_add_(0, places, torch.ones(2)))]


@clause
def mixtures_of_dtypes():
    f, d, i, c = torch.rand(3, 2) + 0.1, torch.rand(3, 2).double(), torch.tensor([0, 1, 0], dtype=torch.int32), torch.tensor([0, 1, 0])
    return [kind(call) for call in (
        lambda: torch.cdist(f, d), lambda: F.binary_cross_entropy(f / 2, d), lambda: F.binary_cross_entropy(f / 2, f.long()), lambda: F.cross_entropy(f, i), lambda: F.cross_entropy(f, c.byte()),
        lambda: F.nll_loss(f, i), lambda: F.nll_loss(f, c), lambda: F.multi_margin_loss(f, i), lambda: F.multi_margin_loss(f, c, weight=d[0]), lambda: F.kl_div(f, f.long()), lambda: torch.heaviside(f, d),
        lambda: torch.addmv(d[:, 0], f, f[0]), lambda: torch.linalg.cross(torch.rand(3), torch.rand(3).double()), lambda: torch.linalg.vecdot(f, d), lambda: torch.lerp(f, f, d), lambda: torch.lerp(f, f, 0.5),
        lambda: torch.addcdiv(f, f.long(), f.long() + 1), lambda: torch.addcdiv(f, f.long(), f), lambda: f.index_copy(0, i, f), lambda: f.index_fill(0, i, 1.0), lambda: f.take(i), lambda: f.index_select(0, i),
        lambda: F.cosine_similarity(f, f.long()), lambda: F.cosine_similarity(f.long(), f.long()), lambda: F.rms_norm(f, (2,), d[0]),
        lambda: F.scaled_dot_product_attention(*[f[None].bfloat16()] * 3, torch.zeros(3, 3)), lambda: F.scaled_dot_product_attention(*[f[None]] * 3, torch.zeros(3, 3).double()))], F.rms_norm(f, (2,), d[0]).dtype


@clause
def parameters_of_functions_and_layers():
    def names(function):
        try:
            return [p.name for p in inspect.signature(function).parameters.values() if p.name not in ("args", "kwargs", "out", "return_indices")]
        except (ValueError, TypeError):
            return []

    layers = [c for _, c in sorted(vars(nn).items()) if isinstance(c, type) and issubclass(c, nn.Module)]
    functions = {name: names(f) for name, f in sorted(vars(F).items()) if inspect.isroutine(f) and not name.startswith("_") and getattr(f, "__module__", "").startswith("torch")}
    kept = [name for name in ("relu", "softmax", "dropout", "batch_norm", "embedding", "interpolate", "pad", "cross_entropy", "grid_sample", "multi_head_attention_forward")]
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    return [[[c.__name__, names(c.forward)] for c in layers], [functions.get(name) for name in kept], F.max_pool2d_with_indices(x, 2, 2, 0, 1, False, True), F.adaptive_max_pool2d_with_indices(x, 2, True),
            nn.PoissonNLLLoss()(log_input=torch.zeros(2), target=torch.ones(2))]  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for function in CLAUSES:
        try:
            value = plain(function())
        except Exception as error:
            value = f"{type(error).__name__}: {error}"
        print(json.dumps([function.__name__, value]))
