"""Properties that hold for every row of the op table, on the samples that the row names.

Values, dtypes and shapes as PyTorch's; gradients and second gradients by finite differences; `out=`, in-place and
method forms agree with the function; the meta device predicts shape and dtype; layout does not matter.
"""

import copy

import pytest
import rows
import tapegrad
from rows import as_numpy, assert_equal, dtype_name, fixed_tensors, map_tree, tensors_of, to_torch

RECORDS = rows.load_records()
SAMPLED = [r for r in RECORDS if r.samples]
EMPTY = [r for r in SAMPLED if r.test.get("values") is False]  # uninitialised memory: shapes and dtypes only
RANDOM = [r for r in RECORDS if r.kind == "random" or r.test.get("random")]
DETERMINISTIC = [r for r in SAMPLED if r not in RANDOM and r not in EMPTY]


def ids(record):
    return record.name


def each(records):
    return pytest.mark.parametrize("record", records, ids=ids)


def test_samples_that_rows_name_exist():
    missing = sorted({(r.test["samples"], r.where) for r in RECORDS
                      if r.test.get("samples") and not r.samples and not r.name.startswith("_")})
    assert not missing, f"no function of test/python/samples: {missing}"


def test_every_public_row_has_samples_or_a_reason():
    missing = [r.name for r in RECORDS if not r.name.startswith("_") and not r.samples and r.kind != "overload"
               and not r.test.get("reason")]
    assert not missing, f"rows without samples and without a reason: {missing}"


@pytest.mark.skipif(rows.torch is None, reason="PyTorch is not installed")
@each([r for r in DETERMINISTIC if r.torch_function is not None and r.test.get("torch", True)])
def test_equals_torch(record):
    names = record.test.get("dtypes") or ["float32", "float64"]
    for name in names:
        for n, (args, kwargs) in enumerate(record.make_samples(getattr(tapegrad, name))):
            where = f"{record.name} sample {n} {name}"
            expected = record.torch_function(*to_torch(args), **to_torch(kwargs))
            got = record.function(*args, **kwargs)
            assert_equal(got, expected, where, record.test.get("rtol"))


def _widened(value):
    """The same nested value with 16-bit tensors as float32."""
    return map_tree(lambda t: t.float() if t.dtype in (rows.torch.float16, rows.torch.bfloat16) else t, value)


def _dtypes_in_torch(record, args, kwargs):
    """PyTorch's result dtype for the same call in the 16-bit dtype itself, or None where it has no kernel for it."""
    try:
        return [t.dtype for t in tensors_of([record.torch_function(*map_tree(rows.torch.clone, args), **kwargs)])]
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        return None


def _in_torch_somewhere(record, samples) -> bool:
    """Whether PyTorch has a kernel for a sample that has elements."""
    return any(_dtypes_in_torch(record, *to_torch((args, kwargs))) for args, kwargs in samples
               if all(t.numel() for t in tensors_of([args, kwargs])))


@pytest.mark.skipif(rows.torch is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@each([r for r in DETERMINISTIC if r.torch_function is not None and r.test.get("torch", True) and "half" not in r.test])
def test_half_precision(record, half):
    """16-bit inputs give PyTorch's float32 result of the same values, rounded once or as its parts round."""
    try:
        samples = record.make_samples(getattr(tapegrad, half))
    except (KeyError, RuntimeError, NotImplementedError) as error:
        pytest.skip(f"the samples are made by operators without 16-bit forms: {type(error).__name__}")
    for n, (args, kwargs) in enumerate(samples):
        if not any(dtype_name(t) == half for t in tensors_of([args, kwargs])):
            continue
        where = f"{record.name} sample {n} {half}"
        theirs = to_torch(args), to_torch(kwargs)
        dtypes = _dtypes_in_torch(record, *theirs)
        try:
            wide = record.torch_function(*_widened(theirs[0]), **_widened(theirs[1]))
        except (RuntimeError, ValueError, TypeError, IndexError):
            continue  # an argument that widening does not reach, such as dtype=
        try:
            got = record.function(*args, **kwargs)
        except (RuntimeError, NotImplementedError, TypeError):
            if dtypes is None or not _in_torch_somewhere(record, samples):
                continue  # neither has it; of no elements PyTorch does not ask
            raise
        if dtypes is not None:
            assert [dtype_name(t) for t in tensors_of([got])] == [str(d).rsplit(".", 1)[-1] for d in dtypes], where
        for g, e in zip(tensors_of([got]), tensors_of([wide])):
            if not (g.is_floating_point() and e.is_floating_point()):
                continue  # indices and comparisons: ties in 16 bits fall as they may
            tolerance = record.test.get("half_tolerance", rows.TOLERANCE[half])
            assert tuple(g.shape) == tuple(e.shape), where
            scale = max(1.0, float(e.abs().nan_to_num(0, 0, 0).max())) if e.numel() else 1.0
            rows.np.testing.assert_allclose(g.detach().float().numpy(), e.detach().to(getattr(rows.torch, half)).float().numpy(), rtol=tolerance,
                                            atol=tolerance * scale, equal_nan=True, err_msg=where)


def _float_inputs(args, kwargs):
    return [t for t in tensors_of([args, kwargs]) if t.dtype.is_floating_point or t.dtype.is_complex]


def _differentiable(record, args, kwargs):
    """The sample as a function of its floating tensors alone."""
    leaves, fixed = [], fixed_tensors(record, args, kwargs)

    def is_leaf(t):
        return (t.dtype.is_floating_point or t.dtype.is_complex) and id(t) not in fixed

    def leaf(t):
        if not is_leaf(t):
            return t
        leaves.append(t.detach().clone().requires_grad_(True))
        return leaves[-1]

    new_args, new_kwargs = map_tree(leaf, args), map_tree(leaf, kwargs)
    del new_args, new_kwargs

    def substitute(values):
        remaining = iter(values)

        def pick(t):
            return next(remaining) if is_leaf(t) else t

        return map_tree(pick, args), map_tree(pick, kwargs)

    return leaves, substitute


def _differentiable_results(result):
    return tuple(t for t in tensors_of(result) if t.requires_grad)


def _gradient_cases(record):
    for args, kwargs in record.make_samples(tapegrad.float64, seed=1):
        leaves, substitute = _differentiable(record, args, kwargs)
        if not leaves or sum(t.numel() for t in leaves) > 400:
            continue

        def f(*values, substitute=substitute):
            if record.test.get("hermitian"):  # one triangle is read: the other is to change with it
                values = [(v + v.mH) / 2 for v in values]
            a, k = substitute(values)
            return _differentiable_results(record.function(*a, **k))

        results = f(*leaves)
        used = results and [g is not None for g in tapegrad.autograd.grad(
            [r.sum() if not r.is_complex() else r.abs().sum() for r in results], leaves, allow_unused=True)]
        if results and any(used):
            yield f, leaves


GRADIENTS = [r for r in DETERMINISTIC if r.differentiable and r.test.get("grad", True) and (r.modules or r.method)]


@each(GRADIENTS)
def test_gradient(record):
    for f, leaves in _gradient_cases(record):
        assert tapegrad.autograd.gradcheck(f, leaves, check_undefined_grad=False)


@pytest.mark.skipif(rows.torch is None, reason="PyTorch is not installed")
@each([r for r in GRADIENTS if r.torch_function is not None and r.test.get("torch", True) and r.test.get("torch_grad", True) and not r.writes])
def test_gradient_equals_torch(record):
    for n, (args, kwargs) in enumerate(record.make_samples(tapegrad.float64, seed=2)):
        mine, theirs = _with_leaves(record, (args, kwargs)), _with_leaves(record, to_torch((args, kwargs)))
        got, expected = record.function(*mine[0], **mine[1]), record.torch_function(*theirs[0], **theirs[1])
        pairs = [(g, e) for g, e in zip(tensors_of(got), tensors_of(expected)) if e.requires_grad and g.requires_grad]
        if not pairs:
            continue
        mine, theirs = ([t for t in tensors_of(side) if t.requires_grad] for side in (mine, theirs))
        weights = [rows.Make(tapegrad.float64, 3 + i)(tuple(g.shape), dtype=g.dtype) for i, (g, _) in enumerate(pairs)]
        try:
            expected = rows.torch.autograd.grad([e for _, e in pairs], theirs, [to_torch(w) for w in weights], allow_unused=True)
        except RuntimeError as error:
            if "not implemented" in str(error):
                continue  # a derivative that PyTorch does not have
            raise
        got = tapegrad.autograd.grad([g for g, _ in pairs], mine, weights, materialize_grads=True)
        expected = [rows.torch.zeros_like(t) if e is None or e._is_zerotensor() else e for t, e in zip(theirs, expected)]
        assert_equal(list(got), list(expected), f"gradient of {record.name} sample {n}", 1e-7)


def _with_leaves(record, sample):
    """The sample with its floating tensors as leaves that want a gradient."""
    fixed = fixed_tensors(record, *sample)
    return map_tree(lambda t: t.detach().requires_grad_((t.dtype.is_floating_point or t.dtype.is_complex) and id(t) not in fixed), sample)


@each([r for r in GRADIENTS if r.test.get("gradgrad", True)])
def test_second_gradient(record):
    for n, (f, leaves) in enumerate(_gradient_cases(record)):
        if n < 4 and sum(t.numel() for t in leaves) <= 120:
            assert tapegrad.autograd.gradgradcheck(f, leaves)


@each([r for r in DETERMINISTIC if r.out and (r.modules or r.method)])
def test_out_form(record):
    for n, (args, kwargs) in enumerate(record.make_samples(tapegrad.float32)):
        expected = record.function(*args, **kwargs)
        if isinstance(expected, tapegrad.Tensor):
            out = tapegrad.empty_like(expected)
            result = record.function(*args, **kwargs, out=out)
            assert result is out
            assert_equal(out, expected, f"{record.name}(out=) sample {n}")
            strided = tapegrad.empty((*expected.shape, 2), dtype=expected.dtype)[..., 0]
            record.function(*args, **kwargs, out=strided)
            assert_equal(strided, expected, f"{record.name}(strided out=) sample {n}")
        else:
            outs = tuple(tapegrad.empty_like(t) for t in expected)
            record.function(*args, **kwargs, out=outs)
            assert_equal(outs, expected, f"{record.name}(out=) sample {n}")


@each([r for r in DETERMINISTIC if r.inplace])
def test_inplace_form(record):
    checked = 0
    for n, (args, kwargs) in enumerate(record.make_samples(tapegrad.float32)):
        if not args or not isinstance(args[0], tapegrad.Tensor):
            continue
        expected = record.function(*args, **kwargs)
        if expected.shape != args[0].shape or expected.dtype != args[0].dtype or record.kind == "view":
            continue
        for make_self in (lambda t: t.clone(), lambda t: tapegrad.empty((*t.shape, 2), dtype=t.dtype)[..., 1].copy_(t)):
            self = make_self(args[0])
            before = self._version
            method = getattr(self, record.name + "_", None) or (lambda *a, f=getattr(tapegrad, record.name + "_", None), s=self, **k: f(s, *a, **k))
            result = method(*args[1:], **kwargs)
            assert result is self
            assert self._version > before, f"{record.name}_ does not bump the version"
            assert_equal(self, expected, f"{record.name}_ sample {n}")
            checked += 1
    assert checked or record.kind == "view" or record.test.get("no_inplace_sample"), f"{record.name}: no sample fits the in-place form"


@each([r for r in DETERMINISTIC if r.method and not r.name.startswith("_")])
def test_method_form(record):
    for n, (args, kwargs) in enumerate(record.make_samples(tapegrad.float32)):
        if args and isinstance(args[0], tapegrad.Tensor):
            expected = record.function(*args, **kwargs) if record.modules else None
            self = args[0].clone() if record.writes else args[0]
            got = getattr(self, record.name)(*args[1:], **kwargs)
            if expected is not None:
                assert_equal(got, expected, f"Tensor.{record.name} sample {n}")


@each([r for r in SAMPLED if (r.modules or r.method) and r.test.get("meta", True)])
def test_meta_device(record):
    for n, (args, kwargs) in enumerate(record.make_samples(tapegrad.float32)):
        if not tensors_of([args, kwargs]):
            continue
        expected = record.function(*copy.copy(args), **kwargs)
        a, k = map_tree(lambda t: t.detach().to("meta"), args), map_tree(lambda t: t.detach().to("meta"), kwargs)
        got = record.function(*a, **k)
        for g, e in zip(tensors_of(got), tensors_of(expected)):
            where = f"{record.name} on meta, sample {n}"
            assert g.device.type == "meta", where
            assert tuple(g.shape) == tuple(e.shape), where
            assert dtype_name(g) == dtype_name(e), where


def _relaid(t):
    """The same values in another layout: dimensions reversed in memory, every second element."""
    if t.ndim == 0:
        return t
    order = list(range(t.ndim))[::-1]
    wide = tapegrad.empty([2 * t.shape[d] if d == 0 else t.shape[d] for d in order], dtype=t.dtype)
    view = wide.permute(*order)
    index = [slice(None)] * t.ndim
    index[0] = slice(None, None, 2)
    view = view[tuple(index)] if t.shape[0] else view
    return view.copy_(t.detach()) if view.shape == t.shape else t


@each([r for r in DETERMINISTIC if (r.modules or r.method) and r.kind != "view" and r.test.get("layout", True)])
def test_layout_does_not_matter(record):
    for n, (args, kwargs) in enumerate(record.make_samples(tapegrad.float32)):
        expected = record.function(*args, **kwargs)
        got = record.function(*map_tree(_relaid, args), **map_tree(_relaid, kwargs))
        for g, e in zip(tensors_of(got), tensors_of(expected)):
            if g.is_floating_point() or g.is_complex():
                assert_equal(g, e, f"{record.name} with other strides, sample {n}")
            else:
                assert (as_numpy(g) == as_numpy(e)).all(), f"{record.name} with other strides, sample {n}"


@each([r for r in DETERMINISTIC if r.modules or r.method])
def test_inputs_are_left_alone(record):
    if record.name.endswith("_"):
        pytest.skip("writes to its argument by definition")
    for args, kwargs in record.make_samples(tapegrad.float32):
        before = [as_numpy(t).copy() for t in tensors_of([args, kwargs])]
        record.function(*args, **kwargs)
        for old, t in zip(before, tensors_of([args, kwargs])):
            assert (old == as_numpy(t)).all() or (old != old).any(), f"{record.name} changed its input"
