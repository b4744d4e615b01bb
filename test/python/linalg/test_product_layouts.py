"""Products of matrices by what a library chooses for this processor, against sums that no library has a hand in."""

import pytest
import tapegrad as tg


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", [tg.float32, tg.float64, tg.complex64], ids=str)
def test_products_of_every_layout(dtype):
    for m, k, n in ((256, 2, 32), (32, 256, 2), (1, 256, 32), (64, 64, 64), (33, 17, 5), (100, 300, 50)):
        a, b = tg.randn(m, k).to(dtype), tg.randn(k, n).to(dtype)
        exact = (a.to(tg.complex128).unsqueeze(2) * b.to(tg.complex128).unsqueeze(0)).sum(1)
        for left in (a, a.t().contiguous().t()):
            for right in (b, b.t().contiguous().t()):
                assert (left @ right - exact).abs().max() < 1e-3, (m, k, n, left.stride(), right.stride())
