"""Objects travel as plain data; what is not is refused by name, on all ranks, and nothing is unpickled that nobody allowed."""

import collections
import datetime
import pathlib
import pickle

import numpy as np
import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks


def thing(rank: int):
    """One of everything that the format knows, other on each rank."""
    return {"numbers": [rank, 1.5, 2j, True, None, 10**30, float("inf")], "texts": ("é" * rank, b"\0\1", bytearray(b"x" * 1000 * rank)),
            "sets": {1, rank}, 7: frozenset("ab"), "tensors": [tg.full((rank, 2), rank + 0.5), tg.arange(3)[::2], tg.tensor(rank, dtype=tg.bfloat16)],
            "numpy": (np.arange(rank, dtype="u2"), np.float32(1.5), np.dtype("i4")), "tapegrad": [tg.float16, tg.device("cpu"), tg.Size([1, rank])],
            "kept": collections.OrderedDict(a=rank), "times": datetime.timedelta(seconds=rank), "path": pathlib.Path("/a"), "range": range(rank)}


def same(a, b) -> bool:
    if isinstance(a, (tg.Tensor, np.ndarray)):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def move(rank, n):
    mine, failures = thing(rank), []
    everything = [thing(r) for r in range(n)]

    def expect(what, got, wanted):
        if not same(got, wanted):
            failures.append((what, repr(got)[:300], repr(wanted)[:300]))

    out = [None] * n
    dist.all_gather_object(out, mine)
    expect("all_gather_object", out, everything)
    out = [None] * n if rank == n - 1 else None
    dist.gather_object(mine, out, dst=n - 1)
    expect("gather_object", out, everything if rank == n - 1 else None)
    out = [thing(5), "x", None] if rank == 1 else [0, 0, 0]
    dist.broadcast_object_list(out, src=1)
    expect("broadcast_object_list", out, [thing(5), "x", None])
    dist.broadcast_object_list([], src=0)
    out = ["here", "stays"]
    dist.scatter_object_list(out, everything if rank == 0 else None, src=0)
    expect("scatter_object_list", out, [mine, "stays"])
    if rank == 0:
        dist.send_object_list([mine, 3], dst=1)
        out = [None]
        expect("any source", (dist.recv_object_list(out, src=None), out), (1, ["back"]))
    elif rank == 1:
        out = [None, None]
        expect("source", dist.recv_object_list(out, src=0), 0)
        expect("recv_object_list", out, [thing(0), 3])
        dist.send_object_list(["back"], group_dst=0)
    return failures


@pytest.mark.parametrize("n", [2, 3])
def test_plain_data(n):
    assert results(run_ranks(n, move)) == [[]] * n


class Own:
    """A class that the format does not know."""

    def __init__(self, x):
        self.x = x

    def __reduce__(self):
        return _made, (self.x,)

    def __eq__(self, other):
        return isinstance(other, Own) and self.x == other.x


def _made(x):
    print("unpickled")
    return Own(x)


def refuse(rank, n):
    said = []
    for call in (lambda bad: dist.all_gather_object([None] * n, bad),
                 lambda bad: dist.gather_object(bad, [None] * n if rank == 0 else None),
                 lambda bad: dist.broadcast_object_list([1, bad], src=1),
                 lambda bad: dist.scatter_object_list([None], [1, bad, 2][:n] if rank == 1 else None, src=1)):
        try:
            call({"a": [Own(3)]} if rank == 1 else 3)
            said.append("nothing")
        except (TypeError, dist.DistError) as error:
            said.append(f"{type(error).__name__}: {error}")
    if rank == 1:
        with pytest.raises(TypeError, match="^send_object_list: cannot send"):
            dist.send_object_list([Own(1)], dst=0)
    elif rank == 0:
        with pytest.raises(dist.DistError, match="^recv_object_list: rank 1 has an object that it cannot send"):
            dist.recv_object_list([None], src=1)
    t = tg.ones(1)
    dist.all_reduce(t)  # the group goes on
    return said, t.item()


def test_what_is_not_plain_is_refused_on_all_ranks():
    for rank, (said, total) in enumerate(results(run_ranks(3, refuse))):
        assert total == 3
        for op, text in zip(("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"), said):
            if rank == 1:
                assert text.startswith(f"TypeError: {op}: cannot send an object of class ")
                assert "test_objects.Own at 'a.0'" in text or "scatter" in op or "broadcast" in op
                assert "test_objects.Own" in text and "allow_pickle(True) or TAPEGRAD_ALLOW_PICKLE=1" in text
            else:
                assert text == f"DistError: {op}: rank 1 has an object that it cannot send; its own error says why"


def pickled(rank, n):
    before = dist.allow_pickle(rank == 0)
    said = "nothing"
    if rank == 0:
        dist.send_object_list([Own(7)], dst=1)
    else:
        try:
            dist.recv_object_list([None], src=0)
        except TypeError as error:
            said = str(error)
    dist.allow_pickle(True)
    out = [None] * n
    dist.all_gather_object(out, Own(rank))
    return before, said, out == [Own(r) for r in range(n)], dist.allow_pickle(False)


def test_pickles_only_where_both_sides_allow_them():
    outcomes = run_ranks(2, pickled)
    (_, _, equal, was), (before, said, equal_too, _) = results(outcomes)
    assert equal and equal_too and was and not before
    assert said.startswith("recv_object_list: rank 0 sent an object that is pickled, and this rank does not read pickles\n"
                           "tapegrad.distributed.allow_pickle(True) or TAPEGRAD_ALLOW_PICKLE=1")
    assert outcomes[1].output.count("unpickled") == 2  # and not the one that was refused
    assert outcomes[0].output.count("unpickled") == 2


def from_the_environment(rank, n):
    out = [None] * n
    dist.all_gather_object(out, Own(rank))
    return [o.x for o in out]


def test_the_environment_allows_pickles():
    assert results(run_ranks(2, from_the_environment, environment={"TAPEGRAD_ALLOW_PICKLE": "1"})) == [[0, 1]] * 2


def test_damaged_bytes_are_errors():
    from tapegrad.distributed.distributed_c10d import _objects

    good = _objects._to_bytes(thing(2), "op")
    for cut in (0, 1, 5, 9, len(good) // 2, len(good) - 1):
        with pytest.raises((RuntimeError, pickle.UnpicklingError)):
            _objects._to_object(tg.frombuffer(bytearray(good[:cut]), dtype=tg.uint8) if cut else tg.zeros(0, dtype=tg.uint8), "op", 1)
