"""Tensors of bool whose bytes are others than 0 and 1, as x.view(bool), files and memory that was never written give: any byte
but 0 is true, for every operator."""

import numpy as np
import pytest
import rows
import tapegrad as tg
from flags import VALUES, dirty, with_flags


@pytest.mark.parametrize("record", VALUES, ids=lambda r: r.name)
def test_any_byte_is_true(record):
    for args, kwargs in with_flags(record):
        try:
            expected = record.function(*rows.map_tree(tg.clone, list(args)), **kwargs)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
            continue
        got = record.function(*rows.map_tree(dirty, list(args)), **rows.map_tree(dirty, kwargs))
        for g, e in zip(rows.tensors_of([got]), rows.tensors_of([expected]), strict=True):
            if g.dtype == tg.bool:
                g = g.to(tg.uint8).ne(0)
            rounded = g.dtype.is_floating_point or g.dtype.is_complex  # in another layout in another order
            np.testing.assert_allclose(rows.as_numpy(g), rows.as_numpy(e), rtol=1e-6 if rounded else 0, equal_nan=True, err_msg=record.name)


def test_long_rows_and_what_has_no_row():
    """Lengths at which kernels go by blocks and threads; an extreme is found, and nothing is read behind the end."""
    for n in (1, 31, 33, 700, 100_000):
        truth = np.arange(n) % 7 == 3
        x = dirty(tg.tensor(truth))
        assert x.to(tg.int64).sum() == truth.sum() == x.sum() == x.count_nonzero() and x.nonzero().flatten().tolist() == np.flatnonzero(truth).tolist()
        assert x.max(0).indices == x.argmax() == truth.argmax() and x.min(0).indices == x.argmin() == truth.argmin()
        assert tg.arange(n)[x].tolist() == np.flatnonzero(truth).tolist()
        assert tg.unique(x).tolist() == np.unique(truth).tolist() and tg.unique(x, return_counts=True)[1].tolist() == np.unique(truth, return_counts=True)[1].tolist()
        assert tg.equal(x, tg.tensor(truth)) and tg.equal(x.sort()[0], tg.tensor(np.sort(truth))) and tg.equal(x.float(), tg.tensor(truth).float())
        assert tg.equal(x.t() if n > 1 else x, tg.tensor(truth)) and x.cummax(0)[0].tolist() == np.maximum.accumulate(truth).tolist()
        assert x[::2].sum() == truth[::2].sum() and tg.where(x, 1.0, 0.0).sum() == truth.sum() and x.any() == truth.any() and x.all() == truth.all()
        assert x.tolist() == truth.tolist() and (x ^ tg.tensor(truth)).sum() == 0 and str(x[:3]) == str(tg.tensor(truth[:3]))
    square = dirty(tg.ones(5, 6, dtype=tg.bool))
    assert square.max(0).indices.tolist() == [0] * 6 and square.max(1).indices.tolist() == [0] * 5 and square.argmin(0).tolist() == [0] * 6
    assert square[0, 0].item() is True and bool(square[0, 0]) and int(square[0, 0]) == 1 and float(square[0, 0]) == 1.0
    assert square.numpy().astype(int).sum() >= 30  # NumPy reads the same memory
