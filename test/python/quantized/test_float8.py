"""Products of float8 whose scales belong to blocks, and groups of them, against the same in float32."""

import re

import numpy as np
import pytest
import tapegrad as tg

f = tg.nn.functional
KIND, FAST = f.ScalingType, f.SwizzleType.SWIZZLE_32_4_4
M, K, N = 200, 300, 144


def factors(m=M, k=K, n=N):
    return (tg.randn(m, k) * 3).to(tg.float8_e4m3fn), (tg.randn(n, k) * 3).to(tg.float8_e5m2).t()


def spread(scale, part, lines, terms):
    """One number for each element of lines x terms."""
    rows = scale if scale.shape[0] == lines else scale.repeat_interleave(128, 0)[:lines]
    return rows.repeat_interleave(part, 1)[:, :terms]


def laid(scale, recipe):
    """Lines x parts as PyTorch takes them."""
    if recipe == "BlockWise128x128":
        whole = tg.zeros(-(-scale.shape[1] // 4) * 4, scale.shape[0])
        whole[:scale.shape[1]] = scale.t()
        return whole
    if recipe == "BlockWise1x32":
        rows, columns = -(-scale.shape[0] // 128) * 128, -(-scale.shape[1] // 4) * 4
        flat = tg.zeros(rows * columns).to(tg.float8_e8m0fnu)
        for i in range(scale.shape[0]):  # cuBLAS, "1D block scaling factors layout"
            for j in range(scale.shape[1]):
                at = (i // 128 * (columns // 4) + j // 4) * 512 + i % 32 * 16 + i % 128 // 32 * 4 + j % 4
                flat[at] = scale[i, j]
        return flat
    return scale.t().contiguous().t()


@pytest.mark.parametrize("a_kind, b_kind", [("BlockWise1x128", "BlockWise1x128"), ("BlockWise1x128", "BlockWise128x128"), ("BlockWise128x128", "BlockWise1x128"),
                                            ("BlockWise1x32", "BlockWise1x32"), ("TensorWise", "BlockWise1x128")])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_scales_of_blocks(a_kind, b_kind, device):
    a, b = factors(m=40) if "32" in a_kind.split("x") else factors()
    m = a.shape[0]
    scales, wide = [], []
    for kind, lines in ((a_kind, m), (b_kind, N)):
        part = 32 if kind == "BlockWise1x32" else 128
        if kind == "TensorWise":
            scales.append(tg.tensor(0.5))
            wide.append(tg.tensor(0.5))
            continue
        s = tg.rand(-(-lines // 128) if kind == "BlockWise128x128" else lines, -(-K // part)) + 0.1
        if part == 32:
            s = s.to(tg.float8_e8m0fnu).float()
        wide.append(spread(s, part, lines, K))
        scales.append(laid(s, kind))
    swizzles = [FAST if kind == "BlockWise1x32" else f.SwizzleType.NO_SWIZZLE for kind in (a_kind, b_kind)]
    got = f.scaled_mm(a.to(device), b.to(device), scales[0].to(device), KIND[a_kind], scales[1].to(device), KIND[b_kind], *swizzles, output_dtype=tg.float32)
    assert got.shape == (m, N) and got.dtype == tg.float32
    if device == "cpu":
        tg.testing.assert_close(got, (a.float() * wide[0]) @ (b.float() * wide[1].t()), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("sizes, scales", [((5, 40), ((5, 1), (1, 6))), ((200, 40), ((2, 1), (1, 1))), ((5, 300), ((5, 3), (3, 6))), ((5, 300), ((1, 3), (10, 1))), ((0, 40), ((0, 1), (1, 6)))])
def test_scales_of_the_operator(sizes, scales):
    a, b = factors(*sizes, 6)
    a_scale, b_scale = (tg.rand(*s) + 0.1 for s in scales)
    part = [-(-sizes[1] // 32) if s.shape[d] > 3 else -(-sizes[1] // 128) for s, d in ((a_scale, 1), (b_scale, 0))]
    wide = [s.repeat_interleave(32 if p > 3 else 128, d).narrow(d, 0, sizes[1]) if s.shape[d] == p and p > 1 else s for s, p, d in ((a_scale, part[0], 1), (b_scale, part[1], 0))]
    if scales[0][0] == 2:
        wide[0] = wide[0].repeat_interleave(128, 0)[:sizes[0]]
    got = tg._scaled_mm(a, b, a_scale, b_scale, out_dtype=tg.float32)
    tg.testing.assert_close(got, (a.float() * wide[0]) @ (b.float() * wide[1]), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("sizes", [(0, 4, 4), (4, 4, 0), (4, 0, 4), (0, 0, 0)])
@pytest.mark.parametrize("kind", ["TensorWise", "RowWise", "BlockWise1x128"])
def test_empty_products(sizes, kind):
    m, k, n = sizes
    a, b = tg.ones(m, k).to(tg.float8_e4m3fn), tg.ones(n, k).to(tg.float8_e4m3fn).t()
    scales = {"TensorWise": (tg.ones(1), tg.ones(1)), "RowWise": (tg.ones(m, 1), tg.ones(1, n)), "BlockWise1x128": (tg.ones(m, -(-k // 128)), tg.ones(n, -(-k // 128)))}[kind]
    got = f.scaled_mm(a, b, scales[0], KIND[kind], scales[1], KIND[kind], output_dtype=tg.float32)
    assert tg.equal(got, tg.zeros(m, n))


def test_results_of_float8_saturate_and_are_scaled():
    a, b, one = tg.ones(4, 16).to(tg.float8_e4m3fn), tg.ones(16, 8).to(tg.float8_e4m3fn), tg.tensor(1.0)
    assert tg._scaled_mm(a, b, one, one).dtype == tg.float8_e4m3fn
    assert (tg._scaled_mm(a, b, tg.tensor(100.0), one).float() == 448).all() and (tg._scaled_mm(a, b, tg.tensor(-100.0), one).float() == -448).all()
    assert (tg._scaled_mm(a, b, one, one, scale_result=tg.tensor(2.0)).float() == 32).all()
    assert tg._scaled_mm(a, b, one, tg.tensor(float("nan"))).float().isnan().all()
    out = tg.empty(4, 8, dtype=tg.bfloat16)
    assert tg._scaled_mm(a, b, one, one, tg.arange(8.0), out_dtype=tg.bfloat16, out=out) is out and out[3].tolist() == [16.0 + i for i in range(8)]


def test_refusals():
    a, b, one = factors(5, 300, 6)[0], factors(5, 300, 6)[1], tg.tensor(1.0)
    for text, call in (("expected matrices of float8: got float32 of shape [5, 300]", lambda: tg._scaled_mm(a.float(), b, one, one)),
                       ("shapes [5, 300] and [299, 6] cannot be multiplied: inner sizes are 300 and 299", lambda: tg._scaled_mm(a, b[:299], one, one)),
                       ("scale_a must be float32 or float8_e8m0fnu: got float64", lambda: tg._scaled_mm(a, b, one.double(), one)),
                       ("scale_a of shape [5, 4] does not fit 5 rows of 300 terms\n", lambda: tg._scaled_mm(a, b, tg.ones(5, 4), one)),
                       ("scale_b of shape [6] does not fit 6 columns of 300 terms\n", lambda: tg._scaled_mm(a, b, one, tg.ones(6))),
                       ("bias must be a vector of 6 elements: got shape [5]", lambda: tg._scaled_mm(a, b, one, one, tg.ones(5))),
                       ("out_dtype must be a floating dtype: got int32", lambda: tg._scaled_mm(a, b, one, one, out_dtype=tg.int32)),
                       ("scale_result must be one number of float32: got float32 of shape [2]", lambda: tg._scaled_mm(a, b, one, one, scale_result=tg.ones(2)))):
        with pytest.raises(RuntimeError, match="^_scaled_mm: " + re.escape(text)):
            call()


@pytest.mark.parametrize("a_sizes, b_sizes", [((12, 16), (3, 16, 8)), ((3, 5, 16), (16, 12)), ((5, 12), (12, 8)), ((3, 5, 16), (3, 16, 8))])
def test_groups(a_sizes, b_sizes):
    a, b = tg.randn(*a_sizes).to(tg.float8_e4m3fn), tg.randn(*b_sizes).to(tg.float8_e4m3fn)
    flat = len(a_sizes) == 2, len(b_sizes) == 2
    ends = None if flat == (False, False) else tg.tensor([4, 4, 11], dtype=tg.int32)
    m, n = a_sizes[-2], b_sizes[-1]
    both = flat == (True, True)
    scales = [tg.rand(3 * m) if both else tg.rand(m) if flat[0] else tg.rand(3, m), tg.rand(3 * n) if both else tg.rand(n) if flat[1] else tg.rand(3, n)]
    got = f.scaled_grouped_mm(a, b, scales[0], KIND.RowWise, scales[1], KIND.RowWise, offs=ends, output_dtype=tg.float32)
    plain = f.grouped_mm(a.float(), b.float(), offs=ends)
    if both:
        factor = scales[0].reshape(3, m, 1) * scales[1].reshape(3, 1, n)
    elif flat == (False, False):
        factor = scales[0].unsqueeze(2) * scales[1].unsqueeze(1)
    else:
        per = np.repeat(np.arange(3), [4, 0, 8])
        rows = scales[0].unsqueeze(1) if flat[0] else scales[0][tg.from_numpy(per)].t()
        columns = scales[1].unsqueeze(0) if flat[1] else scales[1][tg.from_numpy(per)]
        factor = rows * columns
    assert got.shape == plain.shape
    tg.testing.assert_close(got, plain * factor, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="^scaled_grouped_mm: scale_b must be float32, "):
        f.scaled_grouped_mm(a, b, scales[0], KIND.RowWise, scales[1][:1], KIND.RowWise, offs=ends)
