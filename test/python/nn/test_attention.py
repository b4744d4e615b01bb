"""Attention with functions for scores and masks (nn.attention.flex_attention), and causal masks, against PyTorch."""

import math

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")
from tapegrad.nn.attention import bias  # noqa: E402
from tapegrad.nn.attention import flex_attention as flex  # noqa: E402
from torch.nn.attention import bias as torch_bias  # noqa: E402
from torch.nn.attention import flex_attention as torch_flex  # noqa: E402


def tensors(t, q=(2, 4, 6, 8), kv=(2, 4, 5, 8), dtype="float64"):
    rng = np.random.default_rng(0)
    return [t.tensor(rng.standard_normal(shape), dtype=getattr(t, dtype), requires_grad=True) for shape in (q, kv, kv)]


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def window(b, h, q_idx, kv_idx):
    return (q_idx - kv_idx).abs() <= 1


def by_head(b, h, q_idx, kv_idx):
    return (q_idx + h) % 3 != kv_idx % 3


def score_mods(t):
    table = t.tensor(np.random.default_rng(3).standard_normal((4, 6, 5)))
    slopes = t.tensor([0.5, 0.25, 0.125, 0.0625], dtype=t.float64)
    return {
        "none": None,
        "relative": lambda score, b, h, q, k: score + (q - k),
        "alibi": lambda score, b, h, q, k: score + slopes[h] * (k - q),
        "table": lambda score, b, h, q, k: score + table[h, q, k],
        "softcap": lambda score, b, h, q, k: t.tanh(score / 2) * 2,
        "causal": lambda score, b, h, q, k: t.where(q >= k, score, -float("inf")),
    }


def reference(t, q, k, v, mod, mask, scale=None):
    """Each score on its own."""
    scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    rows = []
    for b in range(scores.shape[0]):
        for h in range(scores.shape[1]):
            for i in range(scores.shape[2]):
                for j in range(scores.shape[3]):
                    at = [t.tensor(n) for n in (b, h, i, j)]
                    score = scores[b, h, i, j]
                    score = score if mod is None else mod(score, *at)
                    rows.append(score if mask is None or bool(mask(*at)) else t.full_like(score, -float("inf")))
    full = t.stack(rows).reshape(scores.shape)
    blind = t.isneginf(full).all(-1, keepdim=True)
    weights = full.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    return weights @ v


@pytest.mark.parametrize("name", score_mods(tg))
@pytest.mark.parametrize("mask", [None, causal, window, by_head], ids=["all", "causal", "window", "by_head"])
def test_against_each_score_on_its_own(name, mask):
    q, k, v = tensors(tg, (2, 4, 6, 3), (2, 4, 5, 3))
    mod = score_mods(tg)[name]
    block_mask = None if mask is None else flex.create_block_mask(mask, 2, 4, 6, 5, BLOCK_SIZE=2)
    result = flex.flex_attention(q, k, v, mod, block_mask)
    a, b, c = (torch.tensor(x.detach().numpy(), requires_grad=True) for x in (q, k, v))
    expected = reference(torch, a, b, c, score_mods(torch)[name], mask)
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    result.square().sum().backward()
    expected.square().sum().backward()
    for x, y in ((q, a), (k, b), (v, c)):
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-8, atol=1e-10)


def test_extra_results_groups_of_heads_and_blind_queries():
    q, k, v = tensors(tg, (2, 4, 6, 8), (2, 2, 5, 8))
    mask = flex.create_block_mask(lambda b, h, i, j: i > j, None, None, 6, 5, BLOCK_SIZE=(2, 3))
    result, aux = flex.flex_attention(q, k, v, block_mask=mask, enable_gqa=True, scale=0.3,
                                      return_aux=flex.AuxRequest(lse=True, max_scores=True))
    seen = tg.tril(tg.ones(6, 5, dtype=tg.bool), -1)
    scores = (q @ k.repeat_interleave(2, 1).transpose(-2, -1) * 0.3).masked_fill(~seen, -math.inf)
    np.testing.assert_allclose(aux.lse.detach()[:, :, 1:].numpy(), scores.logsumexp(-1)[:, :, 1:].detach().numpy(), rtol=1e-9)
    np.testing.assert_allclose(aux.max_scores.detach()[:, :, 1:].numpy(), scores.amax(-1)[:, :, 1:].detach().numpy(), rtol=1e-9)
    assert aux.lse[:, :, 0].isneginf().all()
    assert (result[:, :, 0] == 0).all()
    result.sum().backward()
    assert q.grad.isfinite().all()
    _, lse = flex.flex_attention(q, k, v, block_mask=mask, enable_gqa=True, scale=0.3, return_lse=True)
    assert tg.equal(lse, aux.lse)
    half = [x.detach().bfloat16() for x in tensors(tg)]
    assert flex.flex_attention(*half).dtype == tg.bfloat16


@pytest.mark.parametrize("mask", [causal, window, by_head])
@pytest.mark.parametrize(("shape", "size"), [((2, 3, 9, 7), 4), ((None, None, 300, 260), 128), ((1, 2, 8, 8), (2, 4))])
def test_block_masks(mask, shape, size):
    mine = flex.create_block_mask(mask, *shape, device="cpu", BLOCK_SIZE=size)
    theirs = torch_flex.create_block_mask(mask, *shape, device="cpu", BLOCK_SIZE=size)
    for field in flex._FIELDS:
        assert getattr(mine, field).tolist() == getattr(theirs, field).tolist(), field
        assert str(getattr(mine, field).dtype).split(".")[1] == str(getattr(theirs, field).dtype).split(".")[1]
    assert mine.shape == theirs.shape
    assert mine.numel() == theirs.numel()
    assert mine.sparsity() == theirs.sparsity()
    assert mine.to_dense().tolist() == theirs.to_dense().tolist()
    assert str(mine) == str(theirs)
    assert repr(mine).replace("tapegrad", "torch") == repr(theirs)
    assert len(mine.as_tuple()) == len(theirs.as_tuple())
    assert mine.as_tuple(flatten=False)[0] == theirs.as_tuple(flatten=False)[0]
    assert mine[0, 0].kv_indices.tolist() == theirs[0, 0].kv_indices.tolist()
    assert mine[:, 0:1, tg.tensor([1])].full_q_num_blocks.tolist() == theirs[:, 0:1, torch.tensor([1])].full_q_num_blocks.tolist()
    assert flex.create_mask(mask, *shape).tolist() == torch_flex.create_mask(mask, *shape, device="cpu").tolist()
    together = [f.create_block_mask(mask, *shape, device="cpu", BLOCK_SIZE=size, separate_full_blocks=False) for f in (flex, torch_flex)]
    assert together[0].kv_num_blocks.tolist() == together[1].kv_num_blocks.tolist()
    assert together[0].full_kv_indices is together[1].full_kv_indices is None


def test_masks_are_combined_cut_and_made_of_blocks():
    both, either = flex.and_masks(causal, window), flex.or_masks(causal, window)
    shape = (1, 1, 5, 5)
    a, b = flex.create_mask(causal, *shape), flex.create_mask(window, *shape)
    assert tg.equal(flex.create_mask(both, *shape), a & b)
    assert tg.equal(flex.create_mask(either, *shape), a | b)
    cut = flex.create_block_mask(causal, 1, 1, 16, 16, BLOCK_SIZE=4)._adjust(7, 6)
    assert cut.shape == (1, 1, 7, 6)
    q, k, v = tensors(tg, (1, 1, 7, 4), (1, 1, 6, 4))
    direct = flex.flex_attention(q, k, v, block_mask=flex.create_block_mask(causal, 1, 1, 7, 6, BLOCK_SIZE=4))
    np.testing.assert_allclose(flex.flex_attention(q, k, v, block_mask=cut).detach().numpy(), direct.detach().numpy())
    blocks = flex.BlockMask.from_kv_blocks(tg.tensor([[[1, 1]]], dtype=tg.int32), tg.tensor([[[[1, 0], [0, 1]]]], dtype=tg.int32), BLOCK_SIZE=2)
    assert blocks.to_dense().tolist() == [[[[0, 1], [1, 0]]]]
    q, k, v = tensors(tg, (1, 1, 4, 4), (1, 1, 4, 4))
    seen = tg.tensor([[0, 0, 1, 1]] * 2 + [[1, 1, 0, 0]] * 2).bool()
    expected = tg.nn.functional.scaled_dot_product_attention(q, k, v, seen)
    np.testing.assert_allclose(flex.flex_attention(q, k, v, block_mask=blocks).detach().numpy(), expected.detach().numpy(), rtol=1e-9)


def test_mistakes():
    f = flex
    q, k, v = tensors(tg)
    mask, small = (f.create_block_mask(causal, 2, 4, n, n, BLOCK_SIZE=4) for n in (16, 4))
    for error, text, call in (
            (NotImplementedError, "must be 4D tensors", lambda: f.flex_attention(q[0], k, v)),
            (TypeError, "expected a tensor as key: got int", lambda: f.flex_attention(q, 3, v)),
            (ValueError, "got Hq=4 and Hkv=2. Try setting enable_gqa", lambda: f.flex_attention(q, k[:, :2], v[:, :2])),
            (ValueError, "or non-none block_mask, but got", lambda: f.flex_attention(q, k[:1], v[:1])),
            (ValueError, "was created for a larger length", lambda: f.flex_attention(q, k, v, block_mask=mask)),
            (ValueError, "was created for a smaller length", lambda: f.flex_attention(q, k, v, block_mask=small)),
            (RuntimeError, "Cannot use mask_mod from a sliced BlockMask", lambda: f.flex_attention(q, k, v, block_mask=mask[0])),
            (ValueError, "multiple of kv heads for GQA", lambda: f.flex_attention(q[:, :3], k[:, :2], v[:, :2], enable_gqa=True)),
            (ValueError, "to have the same dtype", lambda: f.flex_attention(q, k.float(), v)),
            (ValueError, "Cannot specify both", lambda: f.flex_attention(q, k, v, return_lse=True, return_aux=f.AuxRequest())),
            (AssertionError, "Expected 4 or 5 positional args, got 2", lambda: f.create_block_mask(lambda q, k: q, 1, 1, 4, 4)),
            (AssertionError, "requires a mask_mod", lambda: f.create_block_mask(lambda s, b, h, q, k: q, 1, 1, 4, 4)),
            (RuntimeError, "should be callable mask_mods", lambda: f.and_masks(causal, 3)),
            (RuntimeError, "at least 2 dimensions", lambda: f.BlockMask.from_kv_blocks(tg.ones(1), tg.ones(1)))):
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize("name", ["causal_upper_left", "causal_lower_right"])
def test_causal_bias(name):
    q, k, v = tensors(tg, (1, 2, 4, 8), (1, 2, 7, 8))
    mask = getattr(bias, name)(4, 7)
    result = tg.nn.functional.scaled_dot_product_attention(q, k, v, mask)
    a, b, c = tensors(torch, (1, 2, 4, 8), (1, 2, 7, 8))
    expected = torch.nn.functional.scaled_dot_product_attention(a, b, c, getattr(torch_bias, name)(4, 7))
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-9)
    assert (mask.variant.name, mask.seq_len_q, mask.seq_len_kv) == (name[7:].upper(), 4, 7)
    with pytest.raises(AssertionError, match="only supports 2D tensors"):
        getattr(bias, name)(1, 2, 3)
    with pytest.warns(UserWarning, match="Lower right causal bias will produce NaNs"):
        bias.causal_lower_right(3, 2)


def test_a_block_mask_is_a_container_of_its_tensors():
    from tapegrad.nn.attention import flex_attention as flex
    from tapegrad.utils import _pytree

    mask = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256)
    leaves, spec = _pytree.tree_flatten(mask)
    assert any(leaf is mask.kv_indices for leaf in leaves) and not any(leaf is mask.mask_mod for leaf in leaves)
    again = _pytree.tree_unflatten(leaves, spec)
    assert vars(again).keys() == vars(mask).keys() and again.mask_mod is mask.mask_mod and str(again) == str(mask)
    step = tg.record(lambda x: flex.create_block_mask(_causal, None, None, 256, 256).to_dense() + x)
    whole = tg.record(lambda x: (flex.create_block_mask(_causal, None, None, 256, 256), x + 1))
    for i in range(6):
        x = tg.full((1,), float(i))
        assert tg.equal(whole(x)[0].to_dense(), mask.to_dense()) and tg.equal(step(x), mask.to_dense() + x)
    assert whole._replays.count > 2 and step._replays.count > 2


def _causal(b, h, q, k):
    return q >= k
