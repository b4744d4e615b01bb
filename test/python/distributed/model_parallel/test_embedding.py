"""Tables that are cut among ranks, and losses over a sample of the classes."""

import math

import pytest
import tapegrad as tg
from distributed.ranks import results, run_ranks
from tapegrad import nn
from tapegrad.nn import functional as F
from tapegrad.nn.sampled import log_uniform_candidates, nce_loss, sampled_softmax_loss


def batch(i: int):
    g = tg.Generator().manual_seed(i)
    return tg.randint(0, 11, (6, 3), generator=g), tg.randint(0, 11, (6,), generator=g)


def train(rank: int, n: int, folder: str):
    """A table in and a table out, sampled softmax; each rank takes its part of the batch, some nothing of it."""
    import tapegrad.distributed as dist
    from tapegrad.distributed import checkpoint
    from tapegrad.distributed.embedding import ShardedEmbedding

    tg.manual_seed(1)
    if n == 1:
        dist.init_process_group(rank=0, world_size=1, store=dist.HashStore())
    tables = nn.ModuleList([ShardedEmbedding(11, 4, dtype=tg.float64), ShardedEmbedding(11, 4, dtype=tg.float64)])
    optimizer = tg.optim.Adam(tables.parameters(), lr=0.1)
    losses = []
    for i in range(4):
        x, y = batch(i)
        part = slice(rank * 6 // n, (rank + 1) * 6 // n) if i != 2 else slice(0, 6 if rank == 0 else 0)  # once rank 0 has all
        candidates = log_uniform_candidates(y, 5, 11, generator=tg.Generator().manual_seed(i))
        own = (candidates[0], candidates[1][part], candidates[2])
        hidden = tables[0](x[part]).sum(1)
        loss = sampled_softmax_loss(tables[1], None, hidden, y[part], own, reduction="sum") * n / 6
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(tables.parameters(), 0.5)
        optimizer.step()
        whole = loss.detach() / n
        dist.all_reduce(whole)
        losses.append(whole.item())
    checkpoint.save({"tables": checkpoint.get_model_state_dict(tables)}, checkpoint_id=folder)
    assert tg.equal(tables[0](tg.arange(11)), tables[0].weight.full_tensor())
    with pytest.raises(IndexError, match="between 0 and 10: got -1 to 11"):
        tables[0](tg.tensor([-1, 11]))
    whole = [t.weight.full_tensor().tolist() for t in tables]
    if n == 1:
        dist.destroy_process_group()
    return losses, whole, [len(t.weight.to_local()) for t in tables]


def test_a_table_that_is_cut_trains_as_a_whole_one(tmp_path):
    losses, tables, _ = train(0, 1, str(tmp_path / "1"))
    for n in (2, 3):
        for found, whole, rows in results(run_ranks(n, train, str(tmp_path / str(n)), start="fork")):
            tg.testing.assert_close(found, losses, rtol=1e-12, atol=1e-12)
            tg.testing.assert_close(tg.tensor(whole), tg.tensor(tables), rtol=1e-6, atol=1e-6)
            assert max(rows) <= math.ceil(11 / n)
    from tapegrad.distributed import checkpoint

    plain = {"tables": {f"{i}.weight": tg.zeros(11, 4, dtype=tg.float64) for i in range(2)}}
    checkpoint.load(plain, checkpoint_id=tmp_path / "3")  # into whole tensors of one process
    tg.testing.assert_close([t.tolist() for t in plain["tables"].values()], tables, rtol=1e-9, atol=1e-9)


def test_a_sample_of_all_classes_is_the_softmax():
    tg.manual_seed(0)
    weight, bias, x = (tg.randn(*size, dtype=tg.float64, requires_grad=True) for size in ((7, 4), (7,), (5, 4)))
    y = tg.tensor([0, 6, 3, 3, 1])
    for sparse in (False, True):
        loss = sampled_softmax_loss(weight, bias, x, y, log_uniform_candidates(y, 7, 7), sparse=sparse)
        full = F.cross_entropy(x @ weight.t() + bias, y)
        tg.testing.assert_close(loss, full)
        got, expected = (tg.autograd.grad(value, (weight, bias, x)) for value in (loss, full))
        for a, b in zip(got, expected, strict=True):
            tg.testing.assert_close(a.to_dense() if a.is_sparse else a, b)


def test_formulas():
    weight, x, y = tg.tensor([[1.0], [2.0], [4.0]]), tg.tensor([[0.5]]), tg.tensor([1])
    candidates = (tg.tensor([2, 1]), tg.tensor([0.5]), tg.tensor([0.25, 0.5]))
    own, other, hit = 1 - math.log(0.5), 2 - math.log(0.25), 1 - math.log(0.5)
    soft = math.log(math.exp(own) + math.exp(other)) - own
    assert sampled_softmax_loss(weight, None, x, y, candidates).item() == pytest.approx(soft)
    softplus = lambda v: math.log1p(math.exp(v))  # noqa: E731
    assert nce_loss(weight, None, x, y, candidates).item() == pytest.approx(softplus(-own) + softplus(other) + softplus(hit))
    weight.requires_grad_()
    loss = nce_loss(weight, None, x, y, candidates, remove_hits=True, reduction="sum")
    assert loss.item() == pytest.approx(softplus(-own) + softplus(other))
    loss.backward()
    assert weight.grad.isfinite().all()


def test_candidates():
    tg.manual_seed(0)
    y = tg.tensor([0, 5, 999])
    sampled, of_labels, of_sampled = log_uniform_candidates(y, 200, 1000)
    assert len(set(sampled.tolist())) == 200 and 0 <= min(sampled.tolist()) and max(sampled.tolist()) < 1000
    assert 0 < of_labels[2] < of_labels[1] < of_labels[0] <= 1 and ((of_sampled > 0) & (of_sampled <= 1)).all()
    # The expectations of all classes add up to the size of the sample, on average.
    sums = [log_uniform_candidates(tg.arange(1000), 200, 1000)[1].sum().item() for _ in range(40)]
    assert sum(sums) / 40 == pytest.approx(200, rel=0.03)
    many, of_labels, _ = log_uniform_candidates(tg.arange(20), 20_000, 20, unique=False)
    counts = tg.bincount(many, minlength=20)
    assert of_labels.sum().item() == pytest.approx(20_000) and ((counts - of_labels).abs() < 5 * of_labels.sqrt()).all()
    for count in (0, -1, 21):
        with pytest.raises(ValueError, match=f"between 1 and the number of classes, 20: got {count}"):
            log_uniform_candidates(tg.arange(3), count, 20)
    with pytest.raises(ValueError, match=r"expected input \(N, D\) and labels \(N,\)"):
        nce_loss(tg.ones(3, 2), None, tg.ones(2), tg.tensor(1), log_uniform_candidates(tg.tensor([1]), 2, 3))
    with pytest.raises(ValueError, match="reduction is 'none', 'mean' or 'sum': got 'max'"):
        nce_loss(tg.ones(3, 2), None, tg.ones(1, 2), tg.tensor([1]), log_uniform_candidates(tg.tensor([1]), 2, 3), reduction="max")
