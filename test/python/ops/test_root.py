"""Functions of the root module that are not rows: against PyTorch where it is there."""

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def both(*shape):
    values = np.random.default_rng(sum(shape)).uniform(0.1, 1, shape)
    return tg.tensor(values), torch.tensor(values)


def same(ours, theirs):
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            same(a, b)
        return
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-12)


CASES = {
    "dropout": lambda t, x: t.dropout(x(3, 4), 0.5, False),
    "alpha_dropout": lambda t, x: t.alpha_dropout(x(3, 4), 0.5, False),
    "feature_dropout": lambda t, x: t.feature_dropout(x(2, 3, 4), 0.5, False),
    "rrelu": lambda t, x: t.rrelu(x(3, 4) - 0.5),
    "embedding": lambda t, x: t.embedding(x(5, 3), t.tensor([1, 4, 1])),
    "batch_norm": lambda t, x: t.batch_norm(x(4, 3), x(3), x(3), None, None, True, 0.1, 1e-5, False),
    "instance_norm": lambda t, x: t.instance_norm(x(2, 3, 5), None, None, None, None, True, 0.1, 1e-5, False),
    "binary_cross_entropy_with_logits": lambda t, x: t.binary_cross_entropy_with_logits(x(3, 4), x(3, 4), None, None, 2),
    "cosine_embedding_loss": lambda t, x: t.cosine_embedding_loss(x(3, 4), x(3, 4) * 2 - 1, t.tensor([1, -1, 1]), 0.1),
    "hinge_embedding_loss": lambda t, x: t.hinge_embedding_loss(x(3), t.tensor([1, -1, 1]), 1.0, 0),
    "kl_div": lambda t, x: t.kl_div(x(3, 4).log(), x(3, 4), 2),
    "margin_ranking_loss": lambda t, x: t.margin_ranking_loss(x(3), x(4)[:3], t.tensor([1, -1, 1]), 0.5),
    "poisson_nll_loss": lambda t, x: t.poisson_nll_loss(x(3), x(3), True, False, 1e-8, 1),
    "triplet_margin_loss": lambda t, x: t.triplet_margin_loss(x(3, 4), x(4, 3).t(), x(3, 4) * 2),
    "grid_sampler": lambda t, x: t.grid_sampler(x(1, 2, 4, 4), x(1, 3, 3, 2) * 2 - 1, 0, 0, False),
    "adaptive_max_pool1d": lambda t, x: t.adaptive_max_pool1d(x(2, 3, 8), 3),
    "convolution": lambda t, x: t.convolution(x(1, 2, 6), x(3, 2, 3), None, [1], [1], [1], False, [0], 1),
    "convolution transposed": lambda t, x: t.convolution(x(1, 2, 5, 5), x(2, 3, 3, 3), x(3), [2, 2], [1, 1], [1, 1], True, [1, 1], 1),
    "conv_tbc": lambda t, x: t.conv_tbc(x(6, 2, 3), x(3, 3, 4), x(4), 1),
    "norm_except_dim": lambda t, x: t.norm_except_dim(x(3, 4, 2), 2, 1),
    "view_copy": lambda t, x: t.view_copy(x(3, 4), (12,)),
    "split_copy": lambda t, x: t.split_copy(x(5, 2), 2),
    "unbind_copy": lambda t, x: t.unbind_copy(x(3, 2), 1),
    "transpose_copy": lambda t, x: t.transpose_copy(x(3, 2), 0, 1),
    "detach": lambda t, x: t.detach(x(3)),
    "fill_": lambda t, x: t.fill_(x(3), 2),
    "histogramdd": lambda t, x: (lambda r: (r.hist, *r.bin_edges))(t.histogramdd(x(9, 2), [3, 4])),
    "histogramdd range": lambda t, x: (lambda r: (r.hist, *r.bin_edges))(t.histogramdd(x(9, 2), 3, range=(0.0, 1.0, 0.2, 0.8), density=True)),
    "histogramdd of nothing": lambda t, x: (t.histogramdd(x(9, 0), []).hist, t.histogramdd(x(9, 0), 4, density=True).hist),
    "_aminmax": lambda t, x: t._aminmax(x(4)),
    "_aminmax dim": lambda t, x: t._aminmax(x(4, 3), 1, True),
    "triplet_margin_with_distance_loss": lambda t, x: t.nn.functional.triplet_margin_with_distance_loss(
        x(3, 4), x(4, 3).t(), x(3, 4) * 2, distance_function=lambda a, b: (a - b).abs().sum(-1), swap=True, reduction="none"),
}


@pytest.mark.parametrize("name", CASES)
def test_root_function(name):
    case = CASES[name]
    same(case(tg, lambda *s: both(*s)[0]), case(torch, lambda *s: both(*s)[1]))


def test_copies_do_not_share_memory():
    x = tg.zeros(3, 4)
    tg.view_copy(x, (12,)).fill_(1)
    tg.t_copy(x).fill_(1)
    assert x.sum().item() == 0


@pytest.mark.parametrize("shapes", [((2, 3), (3,)), ((4, 1), (1, 5), (1,)), ((), (2,)), (3, (2, 1)), ()])
def test_broadcast_shapes(shapes):
    assert tuple(tg.broadcast_shapes(*shapes)) == tuple(torch.broadcast_shapes(*shapes))


def test_broadcast_shapes_that_do_not():
    with pytest.raises(RuntimeError, match=r"broadcast_shapes: shapes do not broadcast: got \(2, 3\), \(4,\)"):
        tg.broadcast_shapes((2, 3), (4,))


def test_elementwise_python_functions():
    x = tg.arange(4.0).reshape(2, 2).t()
    x.apply_(lambda v: v * 2)
    assert x.tolist() == [[0, 4], [2, 6]]
    x.map_(tg.ones(2), lambda a, b: a + b)
    assert x.tolist() == [[1, 5], [3, 7]]
    x.map2_(tg.ones(2, 2), tg.ones(()), lambda a, b, c: a + b + c)
    assert x.tolist() == [[3, 7], [5, 9]]
    with pytest.raises(RuntimeError, match="apply_: a Python function has no gradient"):
        tg.ones(2, requires_grad=True).apply_(abs)


def test_switches_of_backends():
    assert tg.backends.cudnn.benchmark is False
    tg.backends.cudnn.benchmark = True
    with tg.backends.cudnn.flags(enabled=False, benchmark=False):
        assert tg.backends.cudnn.benchmark is False and tg.backends.cudnn.enabled is False
    assert tg.backends.cudnn.benchmark is True and tg.backends.cudnn.enabled is True
    tg.backends.cudnn.benchmark = False
    with tg.backends.cudnn.flags(enabled=True, fp32_precision="tf32"):
        assert tg.backends.cudnn.allow_tf32 is True and tg.backends.cudnn.conv.fp32_precision == "tf32"
    assert tg.backends.cudnn.allow_tf32 is False and tg.backends.cudnn.fp32_precision == "none"
    with pytest.raises(RuntimeError, match="backends.cudnn.deterministic: expected a bool: got 1"):
        tg.backends.cudnn.deterministic = 1
    assert not tg.backends.cudnn.is_acceptable(tg.ones(2))  # of the CPU
    if tg.backends.cudnn.is_available():
        assert tg.backends.cudnn.version() == tg.cuda.library_versions()["cudnn"]["version"] >= 90000
    else:
        assert tg.backends.cudnn.version() is None
    tg.backends.cuda.matmul.allow_tf32 = True
    assert not tg.backends.mps.is_available() and tg.backends.mkldnn.is_available() == ("oneDNN" in tg.__config__.show())
    assert tg.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")
    with tg.backends.cuda.sdp_kernel(enable_flash=False):
        assert not tg.backends.cuda.flash_sdp_enabled()
    assert tg.backends.cuda.flash_sdp_enabled()


def test_tf32_is_asked_for_by_any_of_its_names():
    matmul = tg.backends.cuda.matmul

    def is_(allowed, name, precision):
        assert (matmul.allow_tf32, matmul.fp32_precision, tg.get_float32_matmul_precision()) == (allowed, name, precision)

    try:
        matmul.allow_tf32 = True
        is_(True, "tf32", "high")
        matmul.allow_tf32 = False
        is_(False, "ieee", "highest")
        tg.set_float32_matmul_precision("high")
        is_(True, "tf32", "high")
        tg.set_float32_matmul_precision("medium")
        matmul.allow_tf32 = True
        is_(True, "tf32", "medium")
        tg.set_float32_matmul_precision("highest")
        is_(False, "ieee", "highest")
        matmul.fp32_precision = "tf32"
        is_(True, "tf32", "high")
        for wrong in ("bf16x9", 3):
            with pytest.raises(RuntimeError, match="expected none, ieee or tf32"):
                matmul.fp32_precision = wrong
        with pytest.raises(RuntimeError, match="expected a bool: got str"):
            matmul.allow_tf32 = "yes"
        with pytest.raises(AttributeError):
            matmul.allow_tf23 = True
        is_(True, "tf32", "high")
    finally:
        matmul.fp32_precision = "none"
    is_(False, "none", "highest")


def test_compiler_names():
    @tg.compiler.disable
    def f():
        return tg.compiler.is_compiling()

    assert f() is False and tg.compile(f, disable=True) is f and tg.compile(f)() is False
    with tg.compiler.set_stance("force_eager"):
        assert tg.compiler.list_backends() == []


def test_attributes_of_old_scripts():
    x = tg.ones(2)
    assert not (x.is_xla or x.is_xpu or x.is_ipu or x.is_vulkan or x.is_distributed())
    assert x.__rdiv__(2).tolist() == [2, 2] and x[0].is_nonzero() and x.dense_dim() == 1 and x.sparse_dim() == 0
    x.record_stream(None)
    tg.set_deterministic_debug_mode("warn")
    assert tg.get_deterministic_debug_mode() == 1
    tg.set_deterministic_debug_mode(0)
    assert not isinstance(3, (tg.SymInt, tg.SymFloat, tg.SymBool)) and tg.legacy_contiguous_format is tg.contiguous_format


def test_storages_from_buffers():
    data = np.arange(3, dtype="<f4").tobytes()
    storage = tg.FloatStorage.from_buffer(data, "little")
    assert storage.tolist() == [0, 1, 2] and isinstance(storage, tg.FloatStorage) and not isinstance(storage, tg.ByteStorage)
    assert tg.FloatStorage.from_buffer(np.arange(3, dtype=">f4").tobytes(), "big").tolist() == [0, 1, 2]
    assert tg.ByteTensor(tg.ByteStorage.from_buffer(b"abc")).tolist() == [97, 98, 99]
    assert tg.LongStorage([4, 5]).tolist() == [4, 5] and tg.IntStorage(2).size() == 2
    with pytest.raises(ValueError, match="from_buffer: expected a multiple of 4 bytes behind offset 0: got 3"):
        tg.FloatStorage.from_buffer(b"abc", "native")


def test_a_number_may_come_first():
    torch = pytest.importorskip("torch")
    for name in ("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "floor_divide", "remainder"):
        for number in (3, 2.5):
            for values in ([2.0, 3.0], [2, 3]):
                want = getattr(torch, name)(number, torch.tensor(values))
                got = getattr(tg, name)(number, tg.tensor(values))
                assert str(got.dtype).split(".")[1] == str(want.dtype).split(".")[1] and got.tolist() == want.tolist(), (name, number, values)
    x = tg.tensor([2.0, 4.0], requires_grad=True)
    tg.div(1.0, x).sum().backward()
    assert x.grad.tolist() == [-0.25, -0.0625]
    with pytest.raises(TypeError, match="must be Tensor, not float"):
        tg.exp(1.0)
