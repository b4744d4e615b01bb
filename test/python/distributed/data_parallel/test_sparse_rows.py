"""Gradients that are rows of tables: ids and values in one message, a dense table where the ranks have more rows than it."""

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks
from tapegrad import nn


def exchange(rank, size, rows, dtype, picks):
    """The gradient of a table of which each rank uses its own rows, and how many bytes were sent as rows and as a table."""
    sent = []
    from tapegrad.distributed.distributed_c10d import _process_group

    own = _process_group.ProcessGroup
    gather, reduce = own.allgather, own.allreduce
    own.allgather = lambda self, out, mine, *rest: (sent.append(("rows", mine[0].dtype)), gather(self, out, mine, *rest))[1]
    own.allreduce = lambda self, tensors, *rest: (sent.append(("table", tensors[0].dtype)), reduce(self, tensors, *rest))[1]
    table = nn.Embedding(rows, 3, sparse=True, dtype=getattr(tg, dtype))
    ddp = nn.parallel.DistributedDataParallel(table)
    sent.clear()
    ids = tg.tensor(picks[rank], dtype=tg.int64)
    scale = tg.arange(1, len(ids) * 3 + 1).reshape(len(ids), 3).to(table.weight.dtype) + rank
    (ddp(ids) * scale).sum().real.backward()
    grad = table.weight.grad
    expected = tg.zeros(rows, 3, dtype=tg.float64)
    for r in range(size):
        mine = tg.tensor(picks[r], dtype=tg.int64)
        values = tg.arange(1, len(mine) * 3 + 1).reshape(len(mine), 3).double() + r
        expected.index_add_(0, mine, values)
    assert grad.is_sparse and grad.dtype == table.weight.dtype and grad.is_coalesced()
    assert sorted(grad.indices()[0].tolist()) == sorted({i for p in picks for i in p})
    tg.testing.assert_close(grad.to_dense().real.double(), expected / size, rtol=1e-2 if dtype == "bfloat16" else 1e-6, atol=0)
    ways = {way for way, of in sent if way == "table" or of == tg.uint8}
    bits = [None] * size
    dist.all_gather_object(bits, grad.to_dense().real.double().tolist())
    assert bits.count(bits[0]) == size
    return sorted(ways)


@pytest.mark.parametrize(("rows", "dtype", "picks", "ways"), [
    (50, "float64", [[3, 7, 7], [3], [49]], ["rows"]),
    (50, "bfloat16", [[3, 7, 9], [], [0, 3]], ["rows"]),  # an odd number of ids, none, and two
    (50, "complex128", [[5], [5, 6, 8], [1]], ["rows"]),
    (4, "float32", [[0, 1, 2], [1, 2], [2, 0]], ["rows", "table"]),
], ids=["float64", "bfloat16", "complex128", "dense"])
def test_rows_of_three_ranks(rows, dtype, picks, ways):
    assert results(run_ranks(3, exchange, rows, dtype, picks, start="fork", timeout=60)) == [ways] * 3
