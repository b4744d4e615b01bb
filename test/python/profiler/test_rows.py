"""For every row of the op table: a call that goes through the handlers gives the same bits as a plain one.

With a profiler on each public function describes its call and is called back without its name (aten/dispatch/): arguments and results of
every type pass through, in the value, out= and in-place forms, recorded or not.
"""

import pytest
import rows
import tapegrad as tg
from rows import map_tree, tensors_of

RECORDS = [r for r in rows.load_records() if r.samples and r.test.get("values") is not False]


def _leaves(sample, recorded: bool):
    """A copy of the sample with tensors of its own."""
    return map_tree(lambda t: t.detach().clone().requires_grad_(recorded and t.requires_grad), sample)


def _results(function, sample):
    args, kwargs = sample
    tg.manual_seed(1)
    result = function(*args, **kwargs)
    return result, [result] if isinstance(result, tg.Tensor) else tensors_of(result)


def _outcome(function, sample, profiled: bool, recorded: bool):
    """(type of the result, values, gradients), or the error."""
    sample = _leaves(sample, recorded)
    try:
        if profiled:
            with tg.profiler.profile():
                result, tensors = _results(function, sample)
        else:
            result, tensors = _results(function, sample)
    except Exception as error:
        return type(error), str(error).split("\n")[0]
    roots = [t for t in tensors if t.requires_grad]
    leaves = [t for t in tensors_of(sample) if t.requires_grad]
    grads = tg.autograd.grad([t.abs().sum() for t in roots], leaves, allow_unused=True) if roots and leaves else []
    if not tensors:
        return type(result), repr(result)
    values = [t.detach().to_dense() if t.is_sparse else t.detach() for t in tensors]
    return type(result), [(v.dtype, tuple(v.shape), v.stride(), v.clone().contiguous().numpy().tobytes() if v.numel() else b"") for v in values], \
        [None if g is None else g.detach().contiguous().numpy().tobytes() for g in grads]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
def test_a_profiled_call_is_the_call(record):
    for n, sample in enumerate(record.make_samples(tg.float64)):
        for recorded in (True, False):
            plain = _outcome(record.function, sample, False, recorded)
            assert _outcome(record.function, sample, True, recorded) == plain, f"{record.name} sample {n}, recorded {recorded}"
