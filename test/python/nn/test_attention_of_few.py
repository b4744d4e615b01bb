"""Attention of few queries, as generation asks it: a cache of keys is read where it lies."""

import pytest
import tapegrad as tg

F = tg.nn.functional


@pytest.mark.parametrize("dtype", [tg.float32, tg.float64, tg.bfloat16, tg.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 3, 16, 17])
def test_part_of_a_cache_of_keys_is_read_where_it_lies(dtype, rows):
    """The bits of a copy in order; heads that share a key, masks and dropout with few queries."""
    q, cache_k, cache_v = tg.randn(2, 8, rows, 48).to(dtype), tg.randn(2, 2, 700, 48).to(dtype), tg.randn(2, 700, 2, 40).to(dtype).transpose(1, 2)
    for used in (1, 255, 513, 700):
        k, v = cache_k[:, :, :used], cache_v[:, :, :used]
        mask = tg.rand(2, 8, rows, used) > 0.2
        mask[0, 3] = False
        for options in ({}, {"is_causal": True}, {"attn_mask": mask}, {"attn_mask": tg.randn(8, rows, used).to(dtype)}):
            ours = F.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)
            assert tg.equal(ours, F.scaled_dot_product_attention(q, k.contiguous(), v.contiguous(), enable_gqa=True, **options))
            alone = F.scaled_dot_product_attention(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1), **options)
            assert tg.allclose(ours, alone, rtol=1e-2 if dtype.itemsize == 2 else 1e-4, atol=1e-2 if dtype.itemsize == 2 else 1e-5)
    tg.manual_seed(3)
    a = F.scaled_dot_product_attention(q, cache_k, cache_v, dropout_p=0.3, enable_gqa=True)
    tg.manual_seed(3)
    b = F.scaled_dot_product_attention(q, cache_k.repeat_interleave(4, 1), cache_v.repeat_interleave(4, 1), dropout_p=0.3)
    assert tg.allclose(a, b, rtol=1e-2 if dtype.itemsize == 2 else 1e-4, atol=1e-2 if dtype.itemsize == 2 else 1e-5)
