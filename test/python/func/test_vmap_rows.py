"""For every row of the op table: mapped over samples it gives what it gives for each of them, in a stack.

The samples are the row's own, made from several seeds. All floating tensors are mapped over; then the first tensor alone;
then all of them, along the last dimension.
"""

import pytest
import rows
import tapegrad as tg
from rows import map_tree, tensors_of

RECORDS = [r for r in rows.load_records() if r.samples and r.kind != "random" and not r.test.get("random") and r.test.get("values") is not False
           and r.kind != "overload"]
SEEDS = 3


def _same_but_values(samples) -> bool:
    """Whether samples of several seeds differ in the values of their tensors alone."""
    def shape(sample):
        return [(tuple(t.shape), t.dtype) for t in tensors_of(sample)], repr(map_tree(lambda t: None, sample))

    return all(shape(s) == shape(samples[0]) for s in samples)


def _mapped(samples, chosen, last: bool):
    """(the tensors with all samples, their in_dims): those not chosen are the first sample's."""
    columns = list(zip(*[tensors_of(s) for s in samples], strict=True))
    values, dims = [], []
    for i, column in enumerate(columns):
        if i in chosen:
            values.append(tg.stack([t.detach() for t in column], -1 if last else 0))
            dims.append(-1 if last else 0)
        else:
            values.append(column[0].detach())
            dims.append(None)
    return values, tuple(dims)


def _put(sample, tensors):
    it = iter(tensors)
    return map_tree(lambda t: next(it), sample)


def _close(got, want, where):
    assert got.shape == want.shape and got.dtype == want.dtype, f"{where}: {got.dtype} {tuple(got.shape)}, expected {want.dtype} {tuple(want.shape)}"
    if want.dtype.is_floating_point or want.dtype.is_complex:
        assert tg.allclose(got, want, rtol=1e-9, atol=1e-10, equal_nan=True), f"{where}: {got}\nexpected {want}"
    else:
        assert bool((got == want).all()), f"{where}: {got}\nexpected {want}"


def _ways(tensors):
    floating = [i for i, t in enumerate(tensors) if t.is_floating_point() or t.is_complex()]
    return [(set(floating), False), ({0}, False), (set(range(len(tensors))), True)]


# Rows whose results depend on signs that an algorithm may choose, or that count over everything.
FREE_SIGNS = {"linalg_svd", "svd", "linalg_eig", "linalg_eigh", "linalg_qr", "qr", "geqrf", "_linalg_svd", "symeig"}


def _check(record, dtype=None):
    by_seed = [record.make_samples(dtype, seed) for seed in range(SEEDS)]
    done = 0
    for n, samples in enumerate(zip(*by_seed, strict=False)):
        if not _same_but_values(samples) or not tensors_of(samples[0]):
            continue
        for chosen, last in _ways(tensors_of(samples[0])):
            if not chosen:
                continue
            where = f"{record.name} sample {n}, mapped {sorted(chosen)}"
            values, dims = _mapped(samples, chosen, last)

            def call(*tensors, pattern=samples[0]):
                args, kwargs = _put(pattern, tensors)
                result = record.function(*args, **kwargs)
                return tensors_of(result) if not isinstance(result, tg.Tensor) else [result]

            each = [[t if d is None else t.select(d, i) for t, d in zip(values, dims, strict=True)] for i in range(SEEDS)]
            try:
                expected = [call(*one) for one in each]
            except Exception:
                continue  # not a sample once the others' values stand in places of the first's
            if not expected[0] or any(a.shape != b.shape for row in expected for a, b in zip(row, expected[0], strict=False)):
                continue  # no tensors, or of sizes that depend on values
            if len({len(row) for row in expected}) > 1:
                continue
            got = tg.vmap(call, in_dims=dims)(*values)
            for k, column in enumerate(zip(*expected, strict=True)):
                _close(got[k], tg.stack(column), f"{where}, result {k}")
            done += 1
    return done


@pytest.mark.parametrize("record", [r for r in RECORDS], ids=lambda r: r.name)
def test_mapped_is_each(record):
    names = record.test.get("dtypes")
    _check(record, getattr(tg, names[-1]) if names else None)
