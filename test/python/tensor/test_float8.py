"""Dtypes of 8 bits and complex32: stored, converted, moved and compared, with PyTorch's bits."""

import io
import math
import pickle

import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")

FLOAT8 = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
NARROW = [*FLOAT8, "complex32"]
SOURCES = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
           "complex64", "complex128", *NARROW]  # fmt: skip


def same_bits(ours, theirs):
    kinds = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2] and ours.shape == tuple(theirs.shape)
    if ours.is_complex():
        ours, theirs = tg.view_as_real(ours), torch.view_as_real(theirs)
    name = kinds[ours.element_size()]
    return ours.contiguous().view(getattr(tg, name)).tolist() == theirs.contiguous().view(getattr(torch, name)).tolist()


def all_codes(name):
    """A tensor of all 256 bytes (of 256 pairs of halves) in both libraries."""
    if name == "complex32":
        halves = [float(x) for x in range(-256, 256)]
        return (tg.view_as_complex(tg.tensor(halves, dtype=tg.float16).view(256, 2)),
                torch.view_as_complex(torch.tensor(halves, dtype=torch.float16).view(256, 2)))  # fmt: skip
    return tg.arange(256).to(tg.uint8).view(getattr(tg, name)), torch.arange(256).to(torch.uint8).view(getattr(torch, name))


def values():
    """Floats in both libraries: every half and its neighbours, powers of two and half-way numbers between, limits, specials."""
    halves = torch.arange(-32768, 32768).to(torch.int16).view(torch.float16).float()
    halves = halves[halves == halves]
    powers = torch.tensor([s * m * 2.0**e for s in (1, -1) for e in range(-149, 128) for m in (1, 1.25, 1.5, 1.5000001, 1.75, 1.9999999)])
    x = torch.cat([halves, torch.nextafter(halves, torch.tensor(math.inf)), torch.nextafter(halves, torch.tensor(-math.inf)), powers,
                   torch.tensor([math.inf, -math.inf, math.nan, -math.nan, 0.0, -0.0])])  # fmt: skip
    return tg.from_numpy(x.numpy()), x


@pytest.mark.parametrize("name", FLOAT8)
def test_every_code_and_every_rounding_is_torch_s(name):
    ours, theirs = all_codes(name)
    wide, expected = ours.float(), theirs.float()
    assert tg.equal(wide.isnan(), tg.from_numpy(expected.isnan().numpy())) and same_bits(wide.nan_to_num(), expected.nan_to_num())
    x, y = values()
    assert same_bits(x.to(ours.dtype), y.to(theirs.dtype))
    assert same_bits(x.double().to(ours.dtype), y.double().to(theirs.dtype))


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("other", SOURCES)
def test_conversions_from_and_to_every_dtype(name, other):
    """Dense, strided, expanded and one by one; numbers that every format here holds."""
    for transposed in (False, True):
        ours, theirs = tg.tensor([[0, 1, 2], [4, 8, 16]] * 400), torch.tensor([[0, 1, 2], [4, 8, 16]] * 400)
        ours, theirs = ours.to(getattr(tg, other)), theirs.to(getattr(torch, other))
        if transposed:
            ours, theirs = ours.t(), theirs.t()
        here, there = ours.to(getattr(tg, name)), theirs.to(getattr(torch, name))
        assert same_bits(here, there)
        if not (here.is_complex() and not ours.is_complex()):
            assert same_bits(here.to(ours.dtype), there.to(theirs.dtype))
        row, other_row = (ours[:, :1], theirs[:, :1]) if transposed else (ours[:1], theirs[:1])
        filled, other_filled = tg.zeros_like(here), torch.zeros_like(there)
        assert same_bits(filled.copy_(row), other_filled.copy_(other_row))
    assert (here[0, 0].item() == there[0, 0].item()) or name == "float8_e8m0fnu"


@pytest.mark.parametrize("name", NARROW)
def test_what_torch_does_with_them_is_the_same(name):
    x = torch.tensor([[0.5, 1, 2], [4, 8, 1]])
    for f in (lambda m, t: m.cat([t, t]), lambda m, t: m.stack([t, t]), lambda m, t: t[[1, 0]], lambda m, t: t.index_select(1, m.tensor([2, 0])),
              lambda m, t: t.flip(0), lambda m, t: t.roll(1), lambda m, t: t.repeat(2, 1), lambda m, t: t.t().contiguous(), lambda m, t: t.clone(),
              lambda m, t: m.where(m.tensor([[True], [False]]), t, t.flip(0)), lambda m, t: m.zeros_like(t), lambda m, t: m.ones_like(t),
              lambda m, t: m.full_like(t, 2), lambda m, t: t.clone().fill_(4.0), lambda m, t: t[m.tensor([[True, False, True]] * 2)],
              lambda m, t: t.expand(2, 2, 3).reshape(-1), lambda m, t: t[:, 1:], lambda m, t: m.nn.functional.embedding(m.tensor([1, 1]), t),
              lambda m, t: t == t.flip(0), lambda m, t: t != t.flip(0), lambda m, t: t.isnan(), lambda m, t: t.any(), lambda m, t: t.real,
              lambda m, t: m.tensor([1.0, 2.0], dtype=t.dtype), lambda m, t: m.empty(0, dtype=t.dtype)):  # fmt: skip
        ours, theirs = tg.from_numpy(x.numpy()).to(getattr(tg, name)), x.to(getattr(torch, name))
        assert same_bits(f(tg, ours), f(torch, theirs))
    ours, theirs = tg.from_numpy(x.numpy()).to(getattr(tg, name)), x.to(getattr(torch, name))
    assert repr(ours).replace("tapegrad.", "torch.") == repr(theirs) and ours.tolist() == theirs.tolist()
    assert ours.type().rpartition(".")[2] == theirs.type().rpartition(".")[2] and ours.dtype.itemsize == theirs.dtype.itemsize
    for question in ("is_floating_point", "is_complex", "is_signed"):
        assert getattr(ours, question)() == getattr(theirs, question)() and getattr(ours.dtype, question) == getattr(theirs.dtype, question)
    assert ours.requires_grad_().requires_grad and ours.detach().dtype == ours.dtype
    a = tg.tensor([1.0, 2.0], requires_grad=True)
    a.to(ours.dtype).float().sum().backward() if name != "complex32" else a.to(ours.dtype).to(tg.complex64).real.sum().backward()
    assert a.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", NARROW)
def test_files_exchange_and_pickles(name, tmp_path):
    ours, theirs = all_codes(name)
    file = io.BytesIO()
    torch.save({"x": theirs, "part": theirs[3:9]}, file)
    file.seek(0)
    back = tg.load(file)
    assert same_bits(back["x"], theirs) and same_bits(back["part"], theirs[3:9])
    tg.save({"x": ours, "part": ours[3:9]}, tmp_path / "a.tg")
    back = tg.load(tmp_path / "a.tg")
    assert same_bits(back["x"], theirs) and same_bits(back["part"], theirs[3:9])
    tg.save({"x": ours}, tmp_path / "a.pt", format="torch")
    assert same_bits(ours, torch.load(tmp_path / "a.pt")["x"])
    assert pickle.loads(pickle.dumps(ours.dtype)) is ours.dtype
    if name != "complex32":
        from safetensors.torch import load_file, save_file

        save_file({"x": theirs}, tmp_path / "b.safetensors")
        assert same_bits(tg.load(tmp_path / "b.safetensors")["x"], theirs)
        tg.serialization.save_file({"x": ours}, tmp_path / "c.safetensors")
        assert same_bits(ours, load_file(tmp_path / "c.safetensors")["x"])


@pytest.mark.parametrize("name", FLOAT8)
def test_dlpack_both_ways(name):
    ours, theirs = all_codes(name)
    assert same_bits(tg.from_dlpack(theirs), theirs)
    assert same_bits(ours, torch.from_dlpack(ours))


def test_promotion_is_torch_s():
    for a in NARROW:
        for b in SOURCES:
            try:
                expected = str(torch.promote_types(getattr(torch, a), getattr(torch, b)))
            except RuntimeError:
                with pytest.raises(RuntimeError, match="float8|with floating dtypes only"):
                    tg.promote_types(getattr(tg, a), getattr(tg, b))
            else:
                assert str(tg.promote_types(getattr(tg, a), getattr(tg, b))).replace("tapegrad", "torch") == expected, (a, b)
    x = tg.tensor([1.0, 2.0], dtype=tg.float8_e5m2)
    assert (x * 2).dtype == tg.float8_e5m2 and (x * 2).tolist() == [2.0, 4.0]
    with pytest.raises(RuntimeError, match="float8"):
        x + tg.ones(2)


def test_arithmetic_rounds_to_the_format_and_what_has_no_kernel_says_so():
    x = tg.tensor([3.0, 104.0, -448.0], dtype=tg.float8_e4m3fn)
    assert (x + x).tolist() == [6.0, 208.0, -448.0] and (-x).tolist() == [-3.0, -104.0, 448.0]
    assert x.sum().dtype == x.dtype and x.abs().tolist() == [3.0, 104.0, 448.0] and (x > 0).tolist() == [True, True, False]
    z = tg.tensor([1 + 2j, 3 - 1j], dtype=tg.complex32)
    assert (z * z).tolist() == [-3 + 4j, 8 - 6j] and z.conj().tolist() == [1 - 2j, 3 + 1j] and z.imag.tolist() == [2.0, -1.0]
    for call in (lambda: x @ x, lambda: x.sort(), lambda: x.cumsum(0), lambda: tg.randn(3, dtype=x.dtype), lambda: tg.arange(3, dtype=x.dtype),
                 lambda: x.nonzero(), lambda: x.unique(), lambda: tg.nn.functional.softmax(x, 0), lambda: tg.fft.fft(z), lambda: z @ z,
                 lambda: tg.linalg.inv(z.expand(2, 2)), lambda: tg.randint(0, 3, (2,), dtype=x.dtype), lambda: x.median(),
                 lambda: tg.nn.functional.conv1d(x[None, None], x[None, None]), lambda: tg.nn.functional.layer_norm(x, (3,))):  # fmt: skip
        with pytest.raises((NotImplementedError, RuntimeError)):
            call()
    with pytest.raises(RuntimeError, match="without overflow"):
        tg.full((2,), 1e6, dtype=tg.float8_e4m3fn)
    with pytest.raises(TypeError, match="complex"):
        tg.tensor([1j], dtype=tg.float8_e5m2)
    with pytest.raises(TypeError, match="float8"):
        x.numpy()
    tg.testing.assert_close(x, x.clone())
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 3"):
        tg.testing.assert_close(x, tg.tensor([3.0, 104.0, 448.0], dtype=tg.float8_e4m3fn))
    assert tg.testing.make_tensor(50, dtype=tg.float8_e4m3fn, device="cpu").float().abs().max() <= 9
