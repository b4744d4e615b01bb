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


# They raise inside vmap: sizes and memory of a tensor that stands for many cannot be exchanged; and a random row.
REFUSED = {"resize_", "resize_as_", "set_", "rrelu", "rrelu_"}
# They speak of places in the storage, which holds the samples one after the other only where these lead.
SAMPLES_LEAD = {"as_strided", "as_strided_", "as_strided_scatter", "view_as_complex"}


def _calls(record, dtype, ways=None):
    """(where, function of tensors, tensors, dims) for each sample and way of mapping over it."""
    by_seed = [record.make_samples(dtype, seed) for seed in range(SEEDS)]
    for n, samples in enumerate(zip(*by_seed, strict=False)):
        if not _same_but_values(samples) or not tensors_of(samples[0]):
            continue
        for chosen, last in _ways(tensors_of(samples[0]))[:ways]:
            if not chosen or (last and record.name in SAMPLES_LEAD):
                continue

            def call(*tensors, pattern=samples[0]):
                args, kwargs = _put(pattern, tensors)
                result = record.function(*args, **kwargs)
                return tensors_of(result) if not isinstance(result, tg.Tensor) else [result]

            yield f"{record.name} sample {n}, mapped {sorted(chosen)}", call, *_mapped(samples, chosen, last)


def _each(values, dims):
    return [[t if d is None else t.select(d, i).clone() for t, d in zip(values, dims, strict=True)] for i in range(SEEDS)]


def _dtype_of(record):
    names = record.test.get("dtypes")
    return getattr(tg, names[-1]) if names else None


@pytest.mark.parametrize("record", [r for r in RECORDS if r.name not in REFUSED], ids=lambda r: r.name)
def test_mapped_is_each(record):
    for where, call, values, dims in _calls(record, _dtype_of(record)):
        try:
            expected = [call(*one) for one in _each(values, dims)]
        except Exception:
            continue  # not a sample once the others' values stand in places of the first's
        if not expected[0] or len({tuple(tuple(t.shape) for t in row) for row in expected}) > 1:
            continue  # no tensors, or of sizes that depend on values
        got = tg.vmap(call, in_dims=dims)(*values)
        for k, column in enumerate(zip(*expected, strict=True)):
            _close(got[k], tg.stack(column), f"{where}, result {k}")


def _weighted(results):
    total = 0
    for k, t in enumerate(results):
        if t.is_floating_point():
            total = total + (t * (0.5 + 0.25 * k)).sum() + (t * t).sum() * 0.125
    return total


@pytest.mark.parametrize("record", [r for r in RECORDS if r.differentiable and r.name not in REFUSED and r.test.get("grad", True)],
                         ids=lambda r: r.name)
def test_gradient_of_each(record):
    """vmap of grad, over the floating tensors, is the gradient of each sample."""
    for where, call, values, dims in _calls(record, None, ways=1):
        if any(t.is_complex() for t in values):
            continue
        places = tuple(i for i, d in enumerate(dims) if d is not None)

        def loss(*tensors, call=call):
            return _weighted(call(*tensors))

        gradient = tg.func.grad(loss, argnums=places)
        try:
            expected = [gradient(*one) for one in _each(values, dims)]
        except Exception:
            continue  # no gradient there
        try:
            got = tg.vmap(gradient, in_dims=dims)(*values)
        except RuntimeError as error:
            if "has no value of its own" in str(error) or "same in all samples" in str(error):
                continue  # a composite that asks for values is run per sample only without a tape
            raise
        for k, column in enumerate(zip(*expected, strict=True)):
            _close(got[k], tg.stack(column), f"{where}, gradient {places[k]}")
        return
