"""The checks of one operator of PyTorch's database: every sample, dtype and form as a function to be called."""

import functools
import types

import numpy as np
import tapegrad
import torch
from torch.testing._internal import common_methods_invocations

from .compare import Failure, Skip, compare, compare_values, expect_error, expect_result, outcome
from .translate import (
    Converter,
    Copier,
    Missing,
    as_numpy,
    convert,
    dtype_name,
    first_by_name,
    ours,
    public_names,
    tensors_of,
    unseeded,
    uses_seed,
)

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.bfloat16, torch.bool]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
WIDER = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.complex64: torch.complex128}
# Their results hold what was in memory.
UNINITIALISED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted", "resize_", "resize_as_"}
# Results that are unique up to a sign or a rotation: the database's own function of the result is compared.
NOT_UNIQUE = {"svd", "linalg.svd", "linalg.eigh", "linalg.eig", "svd_lowrank", "pca_lowrank"}
# Which of several equal elements an index names is not said: indices are compared by the elements that they name.
TIES = {"topk", "kthvalue", "sort", "argsort", "msort", "mode", "median", "nanmedian"}
SECOND_GRADIENTS, SECOND_GRADIENT_NUMEL, OUT_SAMPLES = 10, 400, 5


@functools.cache
def database() -> dict:
    """The operators of PyTorch's database by full name; jiterator's and other test-only entries are left out."""
    return first_by_name((op.full_name, op) for op in common_methods_invocations.op_db
                         if not op.name.startswith(("jiterator", "_", "ops.", "torch.ops")) or op.name.startswith("__"))


class Operator:
    """One entry. `checks` yields (id, function): the function returns, or raises Failure, Skip or Missing."""

    def __init__(self, name: str):
        self.name = name
        self.info = database()[name]
        self.function = ours(self.info.op, self.info.name)
        words = ("rand", "normal.", "dropout", "lowrank", "multinomial", "bernoulli")
        self.random = uses_seed(self.info.op) or name == "normal" or any(w in name for w in words)
        self.require()

    def require(self):
        """Raises Missing when the function that the entry is about does not exist here."""
        op = self.info.op
        if isinstance(op, types.FunctionType) and id(op) not in public_names():
            # A lambda of the database: its names are looked up when it runs. The entry's own name decides beforehand.
            for path in (self.info.name, f"Tensor.{self.info.name}"):
                owner, _, last = path.rpartition(".")
                scope = tapegrad
                for part in [p for p in owner.split(".") if p]:
                    scope = getattr(scope, part, None)
                if hasattr(scope, last) or hasattr(scope, last + "_"):
                    return
            raise Missing(self.info.name)

    def dtypes(self, quick=False) -> list:
        supported = self.info.supported_dtypes("cpu")
        integer = [d for d in INTEGERS if d in supported][:1]
        wanted = [d for d in DTYPES if d in supported] + integer
        if quick:
            wanted = [d for d in (torch.float32, torch.complex64) if d in supported] + integer
        return wanted or sorted(supported, key=str)[:1]

    def samples(self, dtype, requires_grad=False):
        torch.manual_seed(0)
        tapegrad.manual_seed(0)
        np.random.seed(0)
        return self.info.sample_inputs("cpu", dtype, requires_grad=requires_grad)

    def checks(self, limit: int | None = None):
        """`limit`: the first samples of fewer dtypes, the quick part."""
        dtypes = self.dtypes(quick=limit is not None)
        for dtype in dtypes:
            name = str(dtype).removeprefix("torch.")
            for n, sample in enumerate(self.samples(dtype)):
                if limit is not None and n >= limit:
                    break
                forms = Forms(self, sample, dtype)
                main = dtype == dtypes[0]
                yield f"{name}/{n}/value", forms.value
                if main and self.info.method_variant is not None:
                    yield f"{name}/{n}/method", forms.method
                if self.info.inplace_variant is not None:
                    yield f"{name}/{n}/inplace", forms.inplace
                if main and self.info.supports_out:
                    yield f"{name}/{n}/out", forms.out
                    if n < OUT_SAMPLES:
                        for kind in ("strided", "empty", "int64", "float64"):
                            yield f"{name}/{n}/out-{kind}", functools.partial(forms.out, kind)
                if main and limit is None:
                    yield f"{name}/{n}/noncontiguous", forms.noncontiguous
        yield from self.gradient_checks(limit)
        if self.info.error_inputs_func is not None:
            for n, error in enumerate(self.info.error_inputs("cpu")):
                yield f"error/{n}", functools.partial(Forms(self, error.sample_input, None).error)

    def gradient_checks(self, limit):
        if not self.info.supports_autograd:
            return
        supported = self.info.supported_dtypes("cpu")
        for dtype in (torch.float64, torch.complex128):
            if dtype not in supported or dtype not in self.info.supported_backward_dtypes("cpu"):
                continue
            name = str(dtype).removeprefix("torch.")
            for n, sample in enumerate(self.samples(dtype, requires_grad=True)):
                if limit is not None and n >= limit:
                    break
                forms = Forms(self, sample, dtype)
                yield f"{name}/{n}/gradient", forms.gradient
                small = sum(t.numel() for t in tensors_of([sample.input, sample.args, sample.kwargs])) <= SECOND_GRADIENT_NUMEL
                if self.info.supports_gradgrad and small and n < (limit or SECOND_GRADIENTS):
                    yield f"{name}/{n}/second-gradient", functools.partial(forms.gradient, second=True)


class Forms:
    """One sample in its forms. PyTorch's call and ours get copies of the sample, so that either may write."""

    def __init__(self, operator: Operator, sample, dtype):
        self.operator, self.sample, self.dtype = operator, sample, dtype
        self.info = operator.info

    def arguments(self, sample=None):
        sample = sample or self.sample
        return Copier()([sample.input, list(sample.args), sample.kwargs])

    def call_torch(self, function, sample=None, **more):
        torch.manual_seed(0)
        inputs = self.arguments(sample)
        result = outcome(lambda: unseeded(function)(inputs[0], *inputs[1], **inputs[2], **more))
        return result, inputs

    def expected(self, function, sample=None, **more):
        result, inputs = self.call_torch(function, sample, **more)
        if isinstance(result, Exception):
            raise Skip(f"torch: {result}")
        return result, inputs

    def call_ours(self, function, sample=None, **more):
        sample = sample or self.sample
        inputs = Converter()([sample.input, list(sample.args), sample.kwargs])
        return self.apply(function, inputs, **more), inputs

    @staticmethod
    def apply(function, inputs, **more):
        try:
            return function(inputs[0], *inputs[1], **inputs[2], **more)
        except Missing:
            raise
        except Exception as error:  # noqa: BLE001 - the kind is what is compared
            return error

    def is_random(self, function, sample=None) -> bool:
        if not self.operator.random:
            return False
        results = []
        with torch.no_grad():
            for seed in range(24):  # one element drawn from two values repeats itself often
                torch.manual_seed(seed)
                inputs = self.arguments(sample)
                results.append(outcome(lambda inputs=inputs: unseeded(function)(inputs[0], *inputs[1], **inputs[2])))
                pairs = zip(tensors_of(results[0]), tensors_of(results[-1]))
                if any(not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs):
                    return True
        return False

    def precise(self, function, sample=None):
        """PyTorch's result for the same inputs in a wider dtype."""
        if self.dtype not in WIDER:
            return None

        def widen(value):
            if isinstance(value, torch.Tensor):
                return value.to(WIDER[value.dtype]) if value.dtype in WIDER else value
            return WIDER.get(value, value)

        wide = (sample or self.sample).transform(widen)
        result = self.call_torch(function, wide)[0]
        return None if isinstance(result, Exception) else result

    def compare(self, got, expected, function, sample=None):
        values = self.info.name not in UNINITIALISED and not self.is_random(function, sample)
        if values and self.info.name in NOT_UNIQUE:
            compare(got, expected, values=False)
            process = (sample or self.sample).output_process_fn_grad
            got, expected = ours(process)(got), process(expected)
        try:
            compare(got, expected, values=values)
        except Failure:
            if values and self.info.name in TIES and self.same_elements(got, expected, (sample or self.sample).input):
                return
            if self.dtype not in WIDER or not values:
                raise
            compare(got, expected, precise=self.precise(function, sample))

    @staticmethod
    def same_elements(got, expected, input) -> bool:
        """Whether the indices name equal elements along some dimension, and everything else is equal."""
        pairs = list(zip(tensors_of(got, tapegrad.Tensor), tensors_of(expected)))
        for g, e in pairs[:-1]:
            compare(g, e)
        mine, theirs = torch.from_numpy(as_numpy(pairs[-1][0]).copy()), pairs[-1][1]
        compare(pairs[-1][0], theirs, values=False)
        for d in range(input.ndim):
            a, b = (i.unsqueeze(d) if i.ndim < input.ndim else i for i in (mine, theirs))
            elements = [outcome(lambda i=i, d=d: input.gather(d, i)) for i in (a, b)]
            if not any(isinstance(x, Exception) for x in elements) and torch.equal(*(x.nan_to_num() for x in elements)):
                return True
        return False

    def value(self, sample=None):
        expected, their_inputs = self.expected(self.info.op, sample)
        got, inputs = self.call_ours(self.operator.function, sample)
        expect_result(got)
        self.compare(got, expected, self.info.op, sample)
        self.compare_views(got, inputs, expected, their_inputs)

    def noncontiguous(self):
        sample = self.sample.noncontiguous()
        self.value(sample)

    def compare_views(self, got, inputs, expected, their_inputs):
        """A result that is a view in PyTorch is the same view here, and no other result is one."""
        mine = {t.untyped_storage().data_ptr() for t in tensors_of(inputs, tapegrad.Tensor) if not _sparse(t) and t.numel()}
        theirs = {t.untyped_storage().data_ptr() for t in tensors_of(their_inputs) if not _sparse(t) and t.numel()}
        pairs = zip(tensors_of(got, tapegrad.Tensor), tensors_of(expected))
        for i, (g, e) in enumerate(pairs):
            if _sparse(e) or e.is_conj() or e.is_neg() or e.device.type == "meta" or not e.numel():
                continue
            shared, wanted = g.untyped_storage().data_ptr() in mine, e.untyped_storage().data_ptr() in theirs
            if shared != wanted:
                raise Failure(f"result {i} {'shares' if shared else 'does not share'} memory with an input, unlike torch's")
            if wanted and (tuple(g.stride()) != e.stride() or g.storage_offset() != e.storage_offset()):
                raise Failure(
                    f"view {i} has strides {tuple(g.stride())}, offset {g.storage_offset()}; torch {e.stride()}, {e.storage_offset()}"
                )

    def method(self):
        variant = self.info.method_variant
        expected, _ = self.expected(variant)
        got, _ = self.call_ours(ours(variant))
        self.compare(expect_result(got), expected, variant)

    def inplace(self):
        variant = self.info.inplace_variant
        expected, their_inputs = self.call_torch(variant)
        got, inputs = self.call_ours(ours(variant))
        if isinstance(expected, Exception):
            return expect_error(got, expected)
        expect_result(got)
        if expected is their_inputs[0] and got is not inputs[0]:
            raise Failure("the result is not the tensor that was written to")
        self.compare(got, expected, variant)

    def out(self, kind="same"):
        plain, _ = self.expected(self.info.op)
        results = tensors_of(plain)
        if not results or any(_sparse(r) or r.device.type == "meta" for r in results):
            raise Skip("no dense result")
        targets = [_target(r, kind) for r in results]
        pack = (lambda made: made[0]) if isinstance(plain, torch.Tensor) else type(plain) if type(plain) in (list, tuple) else tuple
        theirs, mine = pack([r.clone() if kind != "strided" else _target(r, kind) for r in targets]), pack([convert(r) for r in targets])
        with _quiet():
            expected, _ = self.call_torch(self.info.op, out=theirs)
        got, _ = self.call_ours(self.operator.function, out=mine)
        if isinstance(expected, Exception):
            if kind in ("same", "strided"):
                raise Skip(f"torch: {expected}")
            return expect_error(got, expected)
        expect_result(got)
        if isinstance(mine, tapegrad.Tensor) and got is not mine:
            raise Failure("the result is not out")
        values = self.info.name not in UNINITIALISED and not self.is_random(self.info.op)
        if self.info.name in NOT_UNIQUE:
            values = False
        written = tensors_of(mine, tapegrad.Tensor)
        precise = tensors_of(self.precise(self.info.op)) if values else []
        for i, (g, e, r) in enumerate(zip(written, tensors_of(theirs), results)):
            # Whether the values in an output of a wider dtype are computed in that dtype is not said.
            compare(g, e, f"out {i}: ", values=values and kind != "float64", precise=_at(precise, i))
            if values and kind == "float64":
                compare_values(as_numpy(g), as_numpy(e), dtype_name(r), f"out {i}: ", _at(precise, i))

    def error(self):
        expected, _ = self.call_torch(self.info.op)
        if not isinstance(expected, Exception):
            raise Skip("torch does not raise")
        got = outcome(lambda: self.call_ours(self.operator.function)[0])
        expect_error(got, expected)

    def gradient(self, second=False):
        if self.is_random(self.info.op):
            raise Skip("random")
        process = self.sample.output_process_fn_grad
        wrapper = self.info.gradcheck_wrapper
        theirs = self.arguments()
        mine = Converter()([self.sample.input, list(self.sample.args), self.sample.kwargs])
        function = unseeded(self.info.op)
        try:
            expected = process(wrapper(function, theirs[0], *theirs[1], **theirs[2]))
            their_results = [t for t in tensors_of(expected) if t.requires_grad]
            their_leaves = _leaves(theirs, torch.Tensor)
            if not their_results or not their_leaves:
                raise Skip("nothing to differentiate")
            weights = [_weights(t, i) for i, t in enumerate(their_results)]
            expected_gradients = torch.autograd.grad(their_results, their_leaves, weights, create_graph=second, allow_unused=True)
            if second:
                expected_gradients = self.second(torch, expected_gradients, their_leaves, weights, lambda t: t)
        except Skip:
            raise
        except Exception as error:
            raise Skip(f"torch: {error}") from error
        result = ours(process)(ours(wrapper)(self.operator.function, mine[0], *mine[1], **mine[2]))
        my_results = [t for t in tensors_of(result, tapegrad.Tensor) if t.requires_grad]
        my_leaves = _leaves(mine, tapegrad.Tensor)
        if len(my_results) != len(their_results):
            raise Failure(f"{len(my_results)} results carry gradients, torch {len(their_results)}")
        my_weights = [convert(w) for w in weights]
        gradients = tapegrad.autograd.grad(my_results, my_leaves, my_weights, create_graph=second, allow_unused=True)
        if second:
            gradients = self.second(tapegrad, gradients, my_leaves, my_weights, convert)
        for i, (g, e, leaf) in enumerate(zip(gradients, expected_gradients, their_leaves)):
            e = torch.zeros_like(leaf) if e is None else e.detach()
            g = tapegrad.zeros(tuple(leaf.shape), dtype=convert(leaf.dtype)) if g is None else g
            if e._is_zerotensor():
                e = torch.zeros_like(leaf)
            compare(g, e, f"{'second ' if second else ''}gradient {i}: ")

    def second(self, library, gradients, leaves, weights, make):
        """The gradients of the weighted sum of the gradients that can be differentiated again."""
        chosen = [(i, g) for i, g in enumerate(gradients) if g is not None and g.requires_grad]
        if library is torch:
            if not chosen:
                raise Skip("the gradient is constant")
            self.chosen = [i for i, _ in chosen]
        mine = [gradients[i] for i in self.chosen]
        kept = [i for i, g in enumerate(mine) if g is not None and g.requires_grad]
        sums = [make(_weights(leaves[i] if library is torch else self.shapes[i], 7 + i)) for i in self.chosen]
        if library is torch:
            self.shapes = leaves
        if not kept:
            return [None] * len(leaves)
        return library.autograd.grad([mine[k] for k in kept], leaves, [sums[k] for k in kept], allow_unused=True)


def _sparse(t) -> bool:
    return bool(getattr(t, "is_sparse", False)) or (isinstance(t, torch.Tensor) and t.layout is not torch.strided)


def _leaves(inputs, kind) -> list:
    found = {}
    for t in tensors_of(inputs, kind):
        if t.requires_grad:
            found.setdefault(id(t), t)
    return list(found.values())


def _weights(t, seed: int):
    return torch.randn(t.shape, dtype=t.dtype, generator=torch.Generator().manual_seed(seed))


def _target(result, kind):
    """An output tensor for a result: of its shape and dtype, with gaps, empty (to be resized), or of another dtype."""
    shape, dtype = tuple(result.shape), result.dtype
    if kind == "strided":
        return torch.zeros((*shape, 2), dtype=dtype)[..., 0]
    if kind == "empty":
        return torch.zeros(0, dtype=dtype)
    if kind in ("int64", "float64"):
        return torch.zeros(shape, dtype=getattr(torch, kind))
    return torch.zeros(shape, dtype=dtype)


def _at(values, index):
    return values[index] if index < len(values) else None


def _quiet():
    import warnings

    return warnings.catch_warnings(action="ignore")
