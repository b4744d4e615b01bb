"""What belongs to PyTorch's compilers: functions and modules come back as they are, programs for elsewhere are refused."""

from __future__ import annotations

import copy
import pickle
import threading
import types
import warnings

import numpy as np
import pytest
import tapegrad as tg
from interpreter.programs import run
from tapegrad import nn


def test_compile_gives_the_same_results():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    x = tg.randn(2, 3)
    assert tg.compile(model, mode="reduce-overhead", dynamic=True)(x).equal(model(x))

    @tg.compile(fullgraph=True)
    def double(x):
        return 2 * x

    assert double(x).equal(2 * x)
    tg._dynamo.reset()
    tg._dynamo.config.suppress_errors = True
    tg._inductor.config.coordinate_descent_tuning = True
    tg._dynamo.mark_static_address(tg.ones(1))
    tg._dynamo.mark_static(tg.ones(1))
    assert not isinstance(tg.compile(tg.nn.Linear(1, 1)), tg._dynamo.OptimizedModule) and not tg._dynamo.eval_frame.is_dynamo_supported()
    assert tg._dynamo.optimize("inductor")(double) is double and not tg._dynamo.is_compiling()


def test_script_and_trace_run_eagerly_and_say_so_once(monkeypatch):
    monkeypatch.setattr(tg.jit, "_said", False)
    model, x = nn.Linear(3, 2), tg.randn(4, 3)
    with pytest.warns(UserWarning, match="^jit.script: tapegrad runs eagerly, functions and modules come back as they are$"):
        assert tg.jit.script(model) is model
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tg.jit.trace(model, (x,))(x).equal(model(x)) and tg.jit.trace(model, x) is model

        @tg.jit.script
        def f(x, n: int):
            return x * n

        assert f(x, 2).equal(x * 2)
    with pytest.raises(RuntimeError):  # the example is tried, as PyTorch does
        tg.jit.trace(model, tg.randn(4, 5))


def test_script_modules_are_modules():
    class Net(tg.jit.ScriptModule):
        __constants__ = ["n"]

        def __init__(self):
            super().__init__()
            self.n: tg.jit.Final[int] = 2
            self.names = tg.jit.Attribute(["a"], tg.jit.annotations.List[str])
            self.layer = nn.Linear(3, 3)

        @tg.jit.script_method
        def forward(self, x):
            return self.helper(self.layer(x)) * self.n

        @tg.jit.ignore
        def helper(self, x):
            return x if not tg.jit.is_scripting() else None

        @tg.jit.unused
        def never(self):
            raise AssertionError

        @tg.jit.export
        def size(self):
            return tg.jit.annotate(int, len(self.names))

    net = Net()
    assert isinstance(net, nn.Module) and net(tg.ones(1, 3)).shape == (1, 3) and net.size() == 1
    assert tg.jit.freeze(net.eval()) is net and tg.jit.wait(tg.jit.fork(net.size)) == 1
    assert tg.jit.isinstance([1], tg.jit.annotations.List[int]) and not tg.jit.isinstance({}, list)
    for refused in (lambda: net.save("x"), lambda: tg.jit.save(net, "x")):
        with pytest.raises(NotImplementedError, match="^jit.save: a program is what a model does with an example"):
            refused()


def test_traced_modules_are_saved_as_programs(tmp_path):
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    traced = tg.jit.trace(model, tg.randn(4, 3))
    traced.save(str(tmp_path / "model.pt"))
    loaded = tg.jit.load(str(tmp_path / "model.pt")).eval()
    for rows in (4, 1, 7):
        x = tg.randn(rows, 3)
        assert loaded(x).equal(model(x)) and [n for n, _ in loaded.named_parameters()] == [n for n, _ in model.named_parameters()]
    other = copy.deepcopy(model)
    with tg.no_grad():
        other[0].weight.zero_()
    other.save(tmp_path / "other.pt")  # the copy, and not what it was copied from
    assert tg.jit.load(tmp_path / "other.pt").state_dict()["0.weight"].sum() == 0 and model[0].weight.abs().sum() > 0
    pickle.loads(pickle.dumps(other)).save(tmp_path / "again.pt")
    loaded.save(tmp_path / "once_more.pt")
    assert tg.jit.load(tmp_path / "once_more.pt")(x).equal(model(x))
    function = tg.jit.trace(lambda a, b: a @ b, (tg.randn(2, 3), tg.randn(3, 4)))
    function.save(tmp_path / "function.pt")  # its first sizes are of two kinds
    a, b = tg.randn(2, 3), tg.randn(3, 4)
    assert tg.jit.load(tmp_path / "function.pt")(a, b).equal(a @ b)
    (tmp_path / "archive.pt").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(RuntimeError, match="is an archive of code for PyTorch"):
        tg.jit.load(tmp_path / "archive.pt")


def test_onnx_export_without_its_package():
    program = "import sys; sys.modules['onnx'] = None\nimport tapegrad as tg\ntry:\n    tg.onnx.export(tg.nn.ReLU(), (tg.ones(2),))\nexcept ImportError as e:\n    print(e)"
    assert run(program) == "onnx.export: the package onnx writes the files\npip install 'tapegrad[onnx]'\n"


def test_graphs_are_refused_with_a_sentence(tmp_path):
    class Tracer(tg.fx.Tracer):
        pass

    for refused, text in [(lambda: tg.onnx.dynamo_export(nn.ReLU()), "^onnx.dynamo_export: this way of exporting to ONNX is not there\n"),
                          (lambda: tg.fx.symbolic_trace(nn.ReLU()), "^fx.symbolic_trace: programs are not recorded as graphs"),
                          (Tracer, "^fx.Tracer: "),
                          (lambda: tg.ao.quantization.prepare(nn.ReLU()), "^ao.quantization.prepare: quantised"),
                          (lambda: tg.quantization.convert(nn.ReLU()), "^ao.quantization.convert: quantised"),
                          (lambda: tg.package.PackageImporter("x"), "^package.PackageImporter: archives of code")]:
        with pytest.raises(NotImplementedError, match=text):
            refused()
    assert tg.fx.wrap("len") == "len" and not tg.onnx.is_in_onnx_export() and tg.onnx.TrainingMode.EVAL.value == 0
    x = tg.randn(2)
    assert tg.ao.quantization.DeQuantStub()(tg.ao.quantization.QuantStub()(x)) is x
    with pytest.raises(OSError, match="^ops.load_library: "):
        tg.ops.load_library("x.so")


def test_futures():
    Future = tg.futures.Future
    first, second = Future(), Future()
    both = tg.futures.collect_all([first, second])
    after = first.then(lambda f: f.value() + 1)
    threading.Timer(0.05, lambda: (first.set_result(1), second.set_result(2))).start()
    assert both.wait() == [first, second] and after.wait() == 2 and tg.futures.wait_all([first, second]) == [1, 2]
    with pytest.raises(RuntimeError, match="only be marked completed once"):
        first.set_result(3)
    failed = Future()
    failed.set_exception(ValueError("no"))
    with pytest.raises(RuntimeError, match="^Got the following error when running the callback: ValueError: no$"):
        failed.then(lambda f: f.wait()).wait()
    with pytest.raises(RuntimeError, match="no value yet"):
        Future().value()


def test_custom_operators():
    @tg.library.custom_op("compat_test::scale", mutates_args=())
    def scale(x: tg.Tensor, factor: float = 2.0) -> tg.Tensor:
        return tg.tensor(x.detach().numpy() * factor)

    scale.register_autograd(lambda ctx, grad: (grad * ctx.factor, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]))
    x = tg.randn(3, requires_grad=True)
    tg.ops.compat_test.scale(x, 3.0).sum().backward()
    assert x.grad.equal(tg.full((3,), 3.0)) and scale(x.detach()).equal(2 * x.detach())
    scale.register_fake(lambda x, factor=2.0: tg.empty_like(x))
    assert scale(tg.empty(4, device="meta")).is_meta

    lib = tg.library.Library("compat_test", "FRAGMENT")
    assert lib.define("plus_one(Tensor x) -> Tensor") == "plus_one"
    with pytest.raises(NotImplementedError, match="^compat_test::plus_one: there is no function for tensors on cpu"):
        tg.ops.compat_test.plus_one(x)
    lib.impl("plus_one", lambda x: x + 1, "CPU")
    assert tg.ops.compat_test.plus_one.default(x.detach()).equal(x.detach() + 1)
    assert tg.ops.aten.add.Tensor(x, 1).equal(x + 1) and tg.ops.aten.add is tg.ops.aten.add
    with pytest.raises(AttributeError, match="'_OpNamespace' 'aten' object has no attribute 'zzzz'"):
        tg.ops.aten.zzzz  # noqa: B018
    with pytest.raises(ValueError, match="a name is written namespace::name"):
        tg.library.custom_op("plain", mutates_args=())(lambda x: x)
    lib._destroy()
    with pytest.raises(AttributeError):
        tg.ops.compat_test.plus_one  # noqa: B018


FOREACH = ["add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow"]


@pytest.mark.parametrize("name", FOREACH)
def test_foreach_of_two(name):
    torch = pytest.importorskip("torch")
    theirs = [torch.rand(3) + 0.5, torch.rand(2, 2) + 0.5]
    for other in (2.0, [2.0, 3.0], [torch.rand(3), torch.rand(2, 2)]):
        def ours(values):
            return [tg.tensor(v.numpy().copy()) if isinstance(v, torch.Tensor) else v for v in values] if isinstance(values, list) else values

        want, got = getattr(torch, f"_foreach_{name}")(theirs, other), getattr(tg, f"_foreach_{name}")(ours(theirs), ours(other))
        inplace = ours(theirs)
        assert getattr(tg, f"_foreach_{name}_")(inplace, ours(other)) is None
        for w, g, i in zip(want, got, inplace):
            torch.testing.assert_close(torch.tensor(g.numpy()), w)
            assert i.equal(g)


@pytest.mark.parametrize("name, arguments", [("add_", ("z", )), ("add_", (2, )), ("sub_", ("z", )), ("mul_", ("z", )), ("div_", ([2.0, 4], )), ("sqrt_", ()), ("neg_", ()),
                                             ("lerp_", ("z", 0.25)), ("addcmul_", ("z", "z", 0.5)), ("addcmul_", ("z", "z", [0.5, 2.0])), ("addcdiv_", ("z", "z"))])  # fmt: skip
def test_foreach_writes_where_the_tensors_lie(name, arguments):
    """PyTorch's results, by one operator each, of lists that name a tensor twice, too; a tensor that does not fit leaves all as they were."""
    torch = pytest.importorskip("torch")
    found = {}
    for lib in (torch, tg):
        xs = [lib.arange(1, 7.0).reshape(2, 3), lib.full((4,), 9.0)]
        zs = [lib.full((2, 3), 0.5), lib.arange(1, 5.0)]
        getattr(lib, f"_foreach_{name}")(xs, *(zs if a == "z" else a for a in arguments))
        found[lib] = [x.numpy() for x in xs]
    for want, got in zip(*found.values()):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    x = tg.ones(3)
    tg._foreach_add_([x, x], 1)
    assert x.tolist() == [3, 3, 3]
    with pytest.raises(RuntimeError, match="size"):
        tg._foreach_add_([x, tg.ones(4)], [tg.ones(3), tg.ones(5)])
    assert x.tolist() == [3, 3, 3]
    leaf = tg.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        tg._foreach_neg_([leaf])
    with tg.no_grad():
        tg._foreach_neg_([leaf])
    assert leaf.tolist() == [-1, -1, -1]
    tg._foreach_add_([y := tg.zeros(3)], [leaf])
    assert y.requires_grad


def test_foreach_of_one_and_of_three():
    torch = pytest.importorskip("torch")
    theirs = [torch.rand(3) + 0.5, torch.rand(2, 2) + 0.5]
    ours = [tg.tensor(t.numpy().copy()) for t in theirs]
    for name, arguments in [("sqrt", ()), ("neg", ()), ("reciprocal", ()), ("exp", ()), ("norm", (2,)), ("addcmul", ("x", "x", 0.5)),
                            ("addcdiv", ("x", "x", [0.5, 2.0])), ("lerp", ("x", 0.25)), ("rsqrt", ()), ("max", ())]:
        want = getattr(torch, f"_foreach_{name}")(theirs, *(theirs if a == "x" else a for a in arguments))
        got = getattr(tg, f"_foreach_{name}")(ours, *(ours if a == "x" else a for a in arguments))
        for w, g in zip(want, got):
            torch.testing.assert_close(torch.tensor(g.numpy()), w)
    tg._foreach_zero_(ours)
    assert all((t == 0).all() for t in ours)
    tg._foreach_copy_(ours, [tg.ones(3), tg.ones(2, 2)])
    assert all((t == 1).all() for t in ours)
    with pytest.raises(RuntimeError, match="same number of tensors, got 2 and 1"):
        tg._foreach_add(ours, [1.0])
    with pytest.raises(AttributeError):
        tg._foreach_zzzz  # noqa: B018


def test_rare_names_of_the_root():
    assert tg.cond(tg.tensor(True), lambda x: x + 1, lambda x: x - 1, (tg.tensor(1),)) == 2
    assert tg.while_loop(lambda n: n < 5, lambda n: n + 2, (0,)) == 6
    a, b = tg.eye(3), tg.randn(3, 2)
    assert tg.spmm(a, b).equal(b) and tg.spmm(a.to_sparse(), b).equal(b) and tg.dsmm(a.to_sparse(), b).equal(b)
    assert {tg.qint8: 1}[tg.qint8] == 1 and tg.qint8.itemsize == 1 and str(tg.qint8) == "torch.qint8"
    with pytest.raises(TypeError):
        a.to(tg.qint8)
    assert tg.Tag.pointwise != tg.Tag.core and {"Event", "_dynamo", "jit"} <= {*dir(tg)} | {"Event"}
    with pytest.raises(RuntimeError, match="no accelerator"):
        tg.Stream()
    flat = tg._utils._flatten_dense_tensors([a, b])
    back = tg._utils._unflatten_dense_tensors(flat, [a, b])
    assert back[0].equal(a) and back[1].equal(b)
    assert tg.__config__.show().startswith("tapegrad ") and tg.types.Number


def test_names_of_private_paths():
    from tapegrad.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX, _IncompatibleKeys
    from tapegrad.nn.modules.transformer import _get_activation_fn
    from tapegrad.nn.modules.utils import (
        _list_with_default,
        _pair,
        _reverse_repeat_tuple,
        consume_prefix_in_state_dict_if_present,
    )

    assert _pair(3) == (3, 3) and _pair([1, 2]) == (1, 2) and _reverse_repeat_tuple((1, 2), 2) == (2, 2, 1, 1)
    assert _list_with_default((None, 5), [2, 3, 4]) == [3, 5] and _EXTRA_STATE_KEY_SUFFIX == "_extra_state"
    assert _get_activation_fn("relu") is nn.functional.relu and not _IncompatibleKeys([], []).missing_keys
    state = nn.DataParallel(nn.Linear(1, 1)).state_dict()
    consume_prefix_in_state_dict_if_present(state, "module.")
    assert list(state) == ["weight", "bias"]
    nn.Linear(1, 1).load_state_dict(state)
    assert issubclass(nn.LazyLinear, nn.modules.lazy.LazyModuleMixin)
    from tapegrad._tensor_str import PRINT_OPTS, _add_suffixes, _tensor_str
    from tapegrad.distributed.rpc.api import _require_initialized

    assert PRINT_OPTS.threshold == 1000 and _tensor_str(tg.ones(2), 0) == "[1., 1.]" and _add_suffixes("x(1", ["a=2"], 0, False) == "x(1, a=2)"
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        _require_initialized(lambda: 1)()


def test_limits_of_rare_dtypes_are_torch_s():
    torch = pytest.importorskip("torch")
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"):
        ours, theirs = tg.finfo(getattr(tg, name)), torch.finfo(getattr(torch, name))
        assert all(getattr(ours, a) == getattr(theirs, a) for a in ("bits", "eps", "max", "tiny", "dtype", "resolution"))
    for name in ("uint16", "uint32", "uint64"):
        assert str(tg.iinfo(getattr(tg, name))) == str(torch.iinfo(getattr(torch, name)))


def test_removed_and_deprecated_methods():
    x = tg.arange(6.0)
    with pytest.warns(UserWarning, match="non-inplace resize is deprecated"):
        assert x.resize(2, 3).shape == x.resize((2, 3)).shape == x.resize_as(tg.ones(2, 3)).shape == (2, 3)
        with pytest.raises(RuntimeError, match="^requested resize to 7 \\(7 elements in total\\), but the given tensor has a size of 6"):
            x.resize(7)
    for name in ("solve", "lstsq", "symeig", "eig"):
        for call in (getattr(tg, name), getattr(tg.Tensor, name)):
            with pytest.raises(RuntimeError, match=f"^{name}: This function was deprecated since version 1.9 and is now removed: use linalg"):
                call(x, x)
    with pytest.raises(RuntimeError, match="^xpu: Intel's GPUs are not supported"):
        x.xpu()
    assert x.to_sparse_coo().is_sparse
    assert tg.sym_int(2.5) == 2 and tg.sym_max(1, 2.0) == 2.0 and tg.sym_not(0) and tg.sym_min(1, 2) == 1 and tg.sym_sum([1, 2]) == 3
    tg._check(True)
    with pytest.raises(ValueError, match="^no$"):
        tg._check_value(False, lambda: "no")


def test_the_method_split_knows_its_own_name():
    x = tg.arange(6)
    assert [t.tolist() for t in x.split(split_size=[1, 5], dim=0)] == [[0], [1, 2, 3, 4, 5]]
    assert [t.tolist() for t in x.split(split_size=4)] == [t.tolist() for t in x.split(4)] == [[0, 1, 2, 3], [4, 5]]
    with pytest.raises(TypeError):
        x.split(4, split_size=4)


def test_dicts_flatten_with_keys():
    from tapegrad.utils import _pytree

    entries, context = _pytree._dict_flatten_with_keys({"a": 1, "b": 2})
    assert [(k.key, str(k), v) for k, v in entries] == [("a", "['a']", 1), ("b", "['b']", 2)] and context == ["a", "b"]
    assert _pytree._dict_unflatten([3, 4], context) == {"a": 3, "b": 4} and entries[0][0].get({"a": 5}) == 5


def test_names_that_libraries_import():
    import tapegrad.fx.experimental.symbolic_shapes as shapes
    from tapegrad._subclasses.fake_tensor import FakeTensor, is_fake
    from tapegrad.distributed._tensor.experimental import implicit_replication
    from tapegrad.distributed.checkpoint.format_utils import _EmptyStateDictLoadPlanner
    from tapegrad.distributed.fsdp import OptimStateKeyType
    from tapegrad.optim.optimizer import _default_to_fused_or_foreach, _use_grad_for_differentiable

    assert not is_fake(tg.ones(1)) and not isinstance(tg.ones(1), FakeTensor) and shapes.guard_or_false(3 > 2)
    assert OptimStateKeyType.PARAM_NAME is not OptimStateKeyType.PARAM_ID and _default_to_fused_or_foreach([], False) == (False, False)
    with implicit_replication():
        pass
    for refused in _EmptyStateDictLoadPlanner, tg.PyTorchFileReader, tg.ops.aten._pin_memory:
        with pytest.raises(NotImplementedError):
            refused()

    class Sgd(tg.optim.Optimizer):
        @_use_grad_for_differentiable
        def step(self):
            return tg.is_grad_enabled()

    assert [Sgd([tg.ones(1, requires_grad=True)], {"differentiable": d}).step() for d in (True, False)] == [True, False]
    before = tg._dynamo.config.suppress_errors
    with tg._dynamo.config.patch(suppress_errors=not before, made_up=1):
        assert tg._dynamo.config.suppress_errors is not before and tg._dynamo.config.made_up == 1
    assert tg._dynamo.config.suppress_errors is before and not hasattr(tg._dynamo.config, "made_up")


def test_operators_that_python_writes_otherwise():
    x, aten = tg.arange(12.0).view(3, 4), tg.ops.aten
    assert aten.slice.Tensor(x, 1, 1, 3).equal(x[:, 1:3]) and aten.index.Tensor(x, [None, tg.tensor([0, 2])]).equal(x[:, [0, 2]])
    assert aten._to_copy.default(x, dtype=tg.int64).dtype == tg.int64 and aten._to_copy(x).data_ptr() != x.data_ptr()
    assert aten.view.default(x, [4, 3]).shape == (4, 3) and aten.sym_size.int(x, 1) == 4 and aten.alias(x).data_ptr() == x.data_ptr()
    with pytest.raises(AttributeError, match="no attribute 'no_such_operator'"):
        aten.no_such_operator  # noqa: B018


def test_assert_async():
    tg._assert_async(tg.tensor(True))
    with pytest.raises(RuntimeError, match="^Expected Tensor with single nonzero value, but got zero$"):
        tg._assert_async(tg.tensor(0))
    with pytest.raises(RuntimeError, match="^said$"):
        tg._assert_async(tg.tensor(False), "said")
    with pytest.raises(RuntimeError, match="ambiguous"):
        tg._assert_async(tg.ones(2))


def test_trees_by_what_makes_them():
    from collections import namedtuple

    from tapegrad.utils import _pytree

    pair = namedtuple("pair", "a b")
    kind = _pytree.SUPPORTED_NODES[_pytree._get_node_type(pair(1, 2))]
    children, context = kind.flatten_fn(pair(1, 2))
    assert children == [1, 2] and kind.unflatten_fn([3, 4], context) == pair(3, 4)
    assert _pytree._get_node_type({}) is dict and _pytree._get_node_type(3) not in _pytree.SUPPORTED_NODES


def test_chains_over_iterators_by_name():
    from tapegrad.serialization import check_module_version_greater_or_equal

    data = tg.utils.data
    wrapper = data.datapipes.iter.IterableWrapper
    rows = [[1, 2], [3, 4]]
    chain = wrapper(rows)
    for row in chain:
        row.append(0)
    assert rows == [[1, 2], [3, 4]] and len(chain) == 2 and isinstance(chain, data.IterDataPipe) and issubclass(data.IterDataPipe, data.IterableDataset)
    assert issubclass(data.MapDataPipe, data.Dataset)
    assert [batch.tolist() for batch in data.DataLoader(wrapper(range(3)), batch_size=2)] == [[0, 1], [2]]
    assert list(wrapper(i for i in range(2))) == [0, 1]  # cannot be copied
    version = types.SimpleNamespace(__name__="it", __version__="1.2.dev0")
    assert check_module_version_greater_or_equal(version, (1, 2)) and not check_module_version_greater_or_equal(version, (1, 3))
    with pytest.raises(RuntimeError, match="^'it' module version string is malformed '1.2.dev0'"):
        check_module_version_greater_or_equal(version, (1, 2, 0))
    with pytest.warns(UserWarning, match="assuming that requirement is met"):
        assert check_module_version_greater_or_equal(version, (1, 2, 0), error_if_malformed=False)
