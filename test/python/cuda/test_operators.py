"""Every operator of the table on CUDA against the CPU: values, dtypes, shapes, strides and gradients over the table's samples.

The CUDA library is loaded once per process, so this file runs where the environment asks for a device: TAPEGRAD_CUDA_SIMULATE
for the simulated one, on which the same kernels run as C++ (test_simulated.py starts it so), or TAPEGRAD_GPU for a real one.
"""

import os

import device_asked_for  # noqa: F401
import pytest
import rows
import tapegrad
from devices import LAST
from rows import assert_equal, map_tree, tensors_of

RECORDS = [r for r in rows.load_records() if r.samples and r.kind != "overload"]
# Rows that give uninitialised memory: shapes and dtypes are compared.
EMPTY = [r.name for r in RECORDS if r.test.get("values") is False]
# What the devices are not asked to agree on, and why.
HOST_ONLY = {
    "from_file": "memory of a file is memory of the host",
    "_tensor_split_tensor": "takes its places from a tensor of the host, as PyTorch's tensor_split does",
    "pin_memory": "pinned memory is memory of the host",
    "is_pinned": "pinned memory is memory of the host",
    "is_shared": "shared memory is memory of the host",
    "share_memory_": "shared memory is memory of the host",
}


def svd_product(U, S, Vh):
    k = S.shape[-1]
    return (U[..., :k] * S.unsqueeze(-2)) @ Vh[..., :k, :]


# Vectors are unique up to a sign or phase: what they multiply to is compared (test_device_spectral.py asks for more).
UP_TO_PHASES = {
    "_linalg_svd": svd_product,
    "linalg_svd": svd_product,
    "svd": lambda U, S, V: svd_product(U, S, V.mH),
    "linalg_eigh": lambda w, V: (V * w.unsqueeze(-2)) @ V.mH,
    "linalg_eig": lambda w, V: (V * w.unsqueeze(-2)) @ tapegrad.linalg.inv(V),
}
# Bytes are interpolated in fixed point and in two passes on the host, as PyTorch does; on a device float32's result is rounded.
BYTES_BY_FLOAT = ("interpolate",)
# Their order is arbitrary.
IN_ANY_ORDER = ("linalg_eig", "linalg_eigvals")


def in_order(w):
    """Of each matrix by real and then imaginary parts, which are equal in conjugate pairs."""
    rows_ = [sorted(row, key=lambda x: (round(x.real, 3), x.imag)) for row in w.cpu().reshape(-1, max(w.shape[-1], 1)).tolist()]
    return tapegrad.tensor(rows_, dtype=w.dtype, device=w.device).reshape(w.shape)


def available():
    try:
        tapegrad.empty(1, device="cuda")
    except RuntimeError:
        return False
    return True


pytestmark = pytest.mark.skipif(not available(), reason="no CUDA device and no simulated one")


def on_device(value):
    return map_tree(lambda t: t.detach().to("cuda"), value)


def to_host(value):
    return map_tree(lambda t: t.detach().to("cpu"), value)


def is_random(record):
    return record.kind == "random" or record.test.get("random")


def compare(got, expected, where, rtol, strides=True):
    for g in tensors_of(got):
        assert g.device.type == "cuda", f"{where}: a result on {g.device}"
    for g, e in zip(tensors_of(got), tensors_of(expected)):
        if strides and e.numel() > 1:
            assert g.stride() == e.stride(), f"{where}: strides {g.stride()}, expected {e.stride()}"
    assert_equal(to_host(got), to_host(expected), where, rtol)


def call(record, sample):
    tapegrad.manual_seed(7)
    args, kwargs = sample
    return record.function(*args, **kwargs)


def same_call(record, sample, where):
    """The results of the host and of the device, or None where the host refuses the sample (a tensor of this dtype)."""
    try:
        expected = call(record, sample)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return None
    device_sample = on_device(sample)
    if not tensors_of(list(sample)):  # a factory
        device_sample = (sample[0], {**sample[1], "device": "cuda"})
    return call(record, device_sample), expected


@pytest.mark.parametrize("record", [r for r in RECORDS if r.name not in HOST_ONLY and (r.modules or r.method)], ids=lambda r: r.name)
def test_values(record):
    for dtype in record.test.get("dtypes") or ["float32", "float64", "bfloat16"]:
        try:
            samples = record.make_samples(getattr(tapegrad, dtype))
        except (KeyError, RuntimeError, NotImplementedError):
            continue
        for n, sample in enumerate(samples):
            where = f"{record.name} sample {n} {dtype}"
            if not tensors_of(list(sample)) and "device" not in [a[0] for a in record.args]:
                continue
            results = same_call(record, sample, where)
            if results is None:
                continue
            got, expected = results
            if record.name in EMPTY:
                continue
            half = rows.TOLERANCE["bfloat16"] if dtype == "bfloat16" else None
            if record.name.startswith("fft_") and dtype == "float32" and "TAPEGRAD_GPU" in os.environ:
                half = 1e-4  # of sums of thousands, which cuFFT makes in another order
            # A tensor with gaps has none on the device, so views and what keeps strides differ by that.
            dense = all(there.stride() == here.stride() for here, there in zip(tensors_of(list(sample)), tensors_of(list(on_device(sample)))))
            if record.name in UP_TO_PHASES:
                product = UP_TO_PHASES[record.name]
                assert [(t.shape, t.stride(), t.dtype) for t in got] == [(t.shape, t.stride(), t.dtype) for t in expected], where
                values = [i for i, t in enumerate(expected) if t.ndim < expected[-1].ndim]
                got, expected = (product(*got), *(got[i] for i in values)), (product(*expected), *(expected[i] for i in values))
                dense = False
            if record.name in IN_ANY_ORDER:
                got, expected = ((r[0], in_order(r[1])) if isinstance(r, tuple) else in_order(r) for r in (got, expected))
            if record.name in BYTES_BY_FLOAT and expected.dtype == tapegrad.uint8:
                exact = call(record, map_tree(lambda t: t.float(), sample)).clamp(0, 255)
                assert (got.device.type, got.dtype, got.stride()) == ("cuda", tapegrad.uint8, expected.stride()), where
                assert (to_host(got).float() - exact).abs().max() <= 0.501, where
                continue
            compare(got, expected, where, record.test.get("rtol") or half, dense)


def gradient(record, args, kwargs):
    leaves = []

    def leaf(t):
        if not t.dtype.is_floating_point:
            return t
        leaves.append(t.detach().requires_grad_(True))
        return leaves[-1]

    args, kwargs = map_tree(leaf, args), map_tree(leaf, kwargs)
    results = [t for t in tensors_of(call(record, (args, kwargs))) if t.requires_grad]
    if not results or not leaves:
        return None
    weights = [rows.Make(tapegrad.float64, 5 + i)(tuple(r.shape), dtype=r.dtype).to(r.device) for i, r in enumerate(results)]
    return tapegrad.autograd.grad(results, leaves, weights, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("record", [r for r in RECORDS if r.differentiable and r.test.get("grad", True) and not r.writes
                                    and r.name not in HOST_ONLY and (r.modules or r.method)], ids=lambda r: r.name)
def test_gradients(record):
    for n, (args, kwargs) in enumerate(record.make_samples(tapegrad.float64, seed=2)):
        if not tensors_of([args, kwargs]):
            continue
        try:
            expected = gradient(record, args, kwargs)
        except NotImplementedError:
            continue  # an argument without a derivative
        if expected is None:
            continue
        got = gradient(record, *on_device((args, kwargs)))
        for g, e in zip(got, expected):
            assert g.device.type == "cuda"
            assert_equal(to_host(g), e, f"gradient of {record.name} sample {n}", 1e-6)


def test_integer_division_by_zero_is_raised_at_the_next_value():
    a = tapegrad.tensor([6, 8], device="cuda")
    quotient = a // tapegrad.tensor([3, 0], device="cuda")
    with pytest.raises(RuntimeError, match="divided by zero"):
        quotient.tolist()
    assert (a // 2).tolist() == [3, 4]  # raised once, and nothing is broken


def test_index_out_of_bounds_is_raised_at_the_next_value():
    table = tapegrad.arange(12.0, device="cuda").reshape(4, 3)
    rows_ = table[tapegrad.tensor([1, 9], device="cuda")]
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 4"):
        rows_.sum().item()
    assert table[tapegrad.tensor([1, -1], device="cuda")].sum().item() == 12 + 30
    with pytest.raises(IndexError, match="target 7 is out of bounds for 5 classes"):
        tapegrad.nn.functional.cross_entropy(tapegrad.zeros(2, 5, device="cuda"), tapegrad.tensor([1, 7], device="cuda")).item()


@pytest.mark.parametrize("shape, make", [
    ((7, 33, 65), lambda t: t), ((64, 70), lambda t: t.t()), ((5, 6, 7, 8), lambda t: t.permute(3, 1, 0, 2)[:, ::2]),
    ((1000,), lambda t: t[1:]), ((3, 1, 5), lambda t: t.expand(3, 4, 5)), ((40, 30), lambda t: t.flip(0)[:, 3:]),
])
def test_strides_and_offsets(shape, make):
    x = rows.Make(tapegrad.float32, 3)(shape)
    host, device = make(x), make(x.to("cuda"))
    for f in (lambda t: t + 1, lambda t: t.exp() * t, lambda t: t.to(tapegrad.float16), lambda t: t.to(tapegrad.int32), lambda t: t.contiguous(),
              lambda t: t.clone(), lambda t: t.sum(), lambda t: t.sum(0), lambda t: t.mean(-1), lambda t: t.amax(0), lambda t: t.var(-1)):
        compare(f(device), f(host), str(shape), 1e-5)


@pytest.mark.parametrize("shape, dim", [((3, 5000), 1), ((5000, 3), 0), ((300000,), 0), ((70, 90, 4), (0, 2)), ((2, 40000, 2), 1), ((128, 9), 1)])
def test_reductions_of_all_sizes(shape, dim):
    x = rows.Make(tapegrad.float32, 4)(shape)
    y = x.to("cuda")
    for f in (tapegrad.sum, tapegrad.mean, tapegrad.amax, tapegrad.var, tapegrad.linalg.vector_norm):
        compare(f(y, dim=dim), f(x, dim=dim), f"{f.__name__} {shape}", 1e-5)
        assert f(y, dim=dim).tolist() == f(y, dim=dim).tolist()


def test_random_numbers_are_those_of_the_cpu():
    for make in (lambda d: tapegrad.rand(1001, device=d), lambda d: tapegrad.randn(1001, device=d), lambda d: tapegrad.randint(0, 1000, (1001,), device=d),
                 lambda d: tapegrad.empty(77, device=d, dtype=tapegrad.float64).normal_(2, 3), lambda d: tapegrad.rand(1001, device=d, dtype=tapegrad.float64),
                 lambda d: tapegrad.empty(999, device=d).bernoulli_(0.3), lambda d: tapegrad.nn.functional.dropout(tapegrad.ones(777, device=d), 0.4)):
        tapegrad.manual_seed(11)
        host = make("cpu")
        tapegrad.manual_seed(11)
        assert make("cuda").tolist() == host.tolist()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "complex64", "complex128", "bool", "int64"])
def test_triangles_and_masks_in_packs_and_without(dtype):
    """Rows of whole packs of 16 bytes and others, and tensors that do not begin where one does."""
    kind = getattr(tapegrad, dtype)
    for columns in (1, 16, 17, 48):
        x = (tapegrad.randn(3, 5, columns) * 3).to(kind)
        flat = tapegrad.cat([x.flatten(), x.flatten()[:1]])
        for host, device in ((x, x.to("cuda")), (flat[1:].view(3, 5, columns), flat.to("cuda")[1:].view(3, 5, columns))):
            for diagonal in (-70, -5, -1, 0, 1, 3, 15, 47, 2**62, -(2**62)):
                for f in (tapegrad.tril, tapegrad.triu):
                    assert f(device, diagonal).tolist() == f(host, diagonal).tolist(), (columns, diagonal)
            if kind.is_floating_point or kind.is_complex:
                leaf = device.detach().clone() if device.storage_offset() == 0 else device.detach()
                tapegrad.manual_seed(3)
                leaf.requires_grad_()
                kept = tapegrad.nn.functional.dropout(leaf, 0.25)
                grad = tapegrad.autograd.grad(kept, leaf, device)[0]  # the gradient of a dropout scales what the mask kept
                expected = tapegrad.where(kept.cpu() != 0, host.double() / 0.75 if not kind.is_complex else host.to(tapegrad.complex128) / 0.75, 0)
                given = host != 0  # where nothing was given, the mask is not seen
                assert_equal((grad.cpu() * given).to(expected.dtype), expected * given, f"{columns} columns", 1e-2 if kind == tapegrad.bfloat16 else 1e-6)


def test_sums_at_repeated_places_are_deterministic():
    index = tapegrad.randint(0, 7, (4000,))
    source = tapegrad.randn(4000, 5)
    host = tapegrad.zeros(7, 5).index_add(0, index, source)
    device = [tapegrad.zeros(7, 5, device="cuda").index_add(0, index.to("cuda"), source.to("cuda")) for _ in range(2)]
    assert device[0].tolist() == device[1].tolist()
    assert_equal(device[0].cpu(), host, "index_add", 1e-5)


def test_copies_between_devices():
    x = rows.Make(tapegrad.float32, 5)((6, 7))
    for first in (x, x.t(), x[::2, 1:]):
        there = first.to("cuda:0")
        assert_equal(there.to(LAST).cpu(), first, f"cuda:0 to {LAST}")
        assert there.to(LAST).device == tapegrad.device(LAST)
        target = tapegrad.zeros(first.shape, device="cuda", dtype=tapegrad.float64)
        target.copy_(first)
        assert_equal(target.cpu(), first.double(), "copy_ with conversion")
        back = tapegrad.empty(first.shape[::-1]).t()
        back.copy_(there)
        assert_equal(back, first, "copy_ to a transposed tensor of the host")
