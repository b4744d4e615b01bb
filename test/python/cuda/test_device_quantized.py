"""Products with factors of 8 bits on CUDA against the CPU, and what is there on the CPU only.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""

import os

import pytest
import tapegrad as tg

if not (os.environ.get("TAPEGRAD_CUDA_SIMULATE") or os.environ.get("TAPEGRAD_GPU")):
    pytest.skip("no device was asked for in the environment", allow_module_level=True)


def numbers(*sizes):
    return tg.randint(-128, 128, sizes).to(tg.int8)


@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (5, 33, 17), (20, 64, 40), (0, 4, 3), (3, 0, 4)])
def test_products(m, k, n):
    a, b, x, scales = numbers(m, k), numbers(n, k), tg.randn(m, k), tg.rand(n)
    assert tg._int_mm(a.cuda(), b.cuda().t()).cpu().equal(tg._int_mm(a, b.t()))
    unsigned = a.view(tg.uint8)
    assert tg._int_mm(unsigned.cuda(), b.cuda().t()).cpu().equal(tg._int_mm(unsigned, b.t()))
    for dtype, tolerance in ((tg.float32, 1e-5), (tg.bfloat16, 2e-2)):
        got = tg._weight_int8pack_mm(x.to(dtype).cuda(), b.cuda(), scales.to(dtype).cuda())
        assert got.device.type == "cuda" and got.dtype == dtype
        tg.testing.assert_close(got.cpu(), tg._weight_int8pack_mm(x.to(dtype), b, scales.to(dtype)), rtol=tolerance, atol=tolerance * 128)


def test_what_is_on_the_cpu_only():
    layer = tg.ao.quantization.quantize_dynamic(tg.nn.Sequential(tg.nn.Linear(4, 3))).cuda()
    assert layer[0]._packed_params.scale.device.type == "cuda"
    with pytest.raises(NotImplementedError, match="^dynamic quantized linear: only on the CPU\n"):
        layer(tg.ones(2, 4, device="cuda"))
    with pytest.raises(NotImplementedError, match="^_convert_weight_to_int4pack_for_cpu: only on the CPU$"):
        tg._convert_weight_to_int4pack_for_cpu(tg.zeros(16, 2, dtype=tg.int32, device="cuda"), 2)
    with pytest.raises(NotImplementedError, match="^_weight_int4pack_mm_for_cpu: only on the CPU$"):
        tg._weight_int4pack_mm_for_cpu(tg.ones(2, 32, device="cuda"), tg.zeros(16, 16, dtype=tg.uint8, device="cuda"), 32, tg.ones(1, 16, 2, device="cuda"))
    with pytest.raises(RuntimeError, match="^int_mm: expected all tensors on one device: got cuda:0 and cpu$"):
        tg._int_mm(numbers(2, 3).cuda(), numbers(3, 2))


@pytest.mark.parametrize("recipe", ["TensorWise", "RowWise"])
def test_products_of_float8_with_scales(recipe):
    f = tg.nn.functional
    a, b, kind = tg.randn(20, 48).to(tg.float8_e4m3fn), tg.randn(40, 48).to(tg.float8_e5m2), f.ScalingType[recipe]
    scales = (tg.rand(20, 1), tg.rand(1, 40)) if recipe == "RowWise" else (tg.tensor(0.3), tg.tensor(1.7))
    bias = tg.randn(40)
    got = f.scaled_mm(a.cuda(), b.cuda().t(), scales[0].cuda(), kind, scales[1].cuda(), kind, bias=bias.cuda(), output_dtype=tg.float32)
    assert got.device.type == "cuda"
    tg.testing.assert_close(got.cpu(), f.scaled_mm(a, b.t(), scales[0], kind, scales[1], kind, bias=bias, output_dtype=tg.float32), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("a_sizes, b_sizes", [((20, 3), (3, 40)), ((20, 3), (3, 1)), ((1, 3), (3, 40)), ((20, 10), (10, 40)), ((), (3, 40))])
def test_products_of_float8_with_scales_of_blocks(a_sizes, b_sizes):
    a, b = tg.randn(20, 300).to(tg.float8_e4m3fn), tg.randn(40, 300).to(tg.float8_e4m3fn).t()
    scales = [tg.rand(sizes) + 0.1 for sizes in (a_sizes, b_sizes)]
    for out in (tg.float32, tg.bfloat16, tg.float8_e5m2):
        got = tg._scaled_mm(a.cuda(), b.cuda(), *(s.cuda() for s in scales), out_dtype=out)
        assert got.device.type == "cuda" and got.dtype == out
        tg.testing.assert_close(got.cpu().float(), tg._scaled_mm(a, b, *scales, out_dtype=out).float(), rtol={4: 1e-5, 2: 2e-2, 1: 0.3}[out.itemsize], atol=1e-3)
    with pytest.raises(RuntimeError, match="^scaled_mm: expected all tensors on one device: got cuda:0 and cpu$"):
        tg._scaled_mm(a.cuda(), b.cuda(), *scales)


E8, E5 = tg.float8_e4m3fn, tg.float8_e5m2


@pytest.mark.parametrize("kinds", [(E8, E8), (E8, E5), (E5, E8)], ids=str)
@pytest.mark.parametrize("scales", ["one", "lines", "parts", "tiles"])
def test_products_of_float8_in_sizes_that_cublaslt_takes(kinds, scales):
    """Against float64: a wrong layout of scales is far off."""
    for m, k, n in ((64, 256, 128), (256, 1024, 512)):
        a, b = tg.randn(m, k).to(kinds[0]), tg.randn(n, k).to(kinds[1])
        shapes = {"one": ((), ()), "lines": ((m, 1), (1, n)), "parts": ((m, k // 128), (k // 128, n)), "tiles": ((m, k // 128), (k // 128, n // 128))}[scales]
        given = [tg.rand(shape) + 0.1 for shape in shapes]
        x, y, (left, right) = a.double(), b.double().t(), (s.double() for s in given)
        if scales in ("parts", "tiles"):
            left, right = left.repeat_interleave(128, 1), right.repeat_interleave(128, 0)
            right = right.repeat_interleave(128, 1) if scales == "tiles" else right
            expected = (x * left) @ (y * right)
        else:
            expected = (x @ y) * left * right
        for out, tolerance in ((tg.float32, 2e-3), (tg.bfloat16, 8e-3), (tg.float16, 4e-3)):
            got = tg._scaled_mm(a.cuda(), b.cuda().t(), *(s.cuda() for s in given), out_dtype=out)
            assert (got.double().cpu() - expected).abs().max() <= tolerance * expected.abs().max(), (m, out)


@pytest.mark.parametrize("dtype, tolerance", [(tg.float32, 1e-5), (tg.bfloat16, 1e-2), (tg.float16, 1e-2)], ids=str)
@pytest.mark.parametrize("rows", [16, 512])
def test_gradients_of_linear_layers_in_sizes_that_cublaslt_takes(dtype, tolerance, rows):
    """The bias's is an epilogue of the product for the weight's."""
    values = [tg.randn(sizes, dtype=dtype) for sizes in ((rows, 256), (128, 256), (128,), (rows, 128))]
    found = []
    for place in ("cuda", tg.float64):
        x, w, b, g = (v.to(place).detach().requires_grad_() for v in values)
        tg.nn.functional.linear(x, w, b).backward(g)
        found.append([t.grad.double().cpu() for t in (x, w, b)])
    for mine, exact in zip(*found, strict=True):
        assert (mine - exact).abs().max() <= tolerance * exact.abs().max()
