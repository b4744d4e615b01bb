"""Gradients against finite differences, by backward and in forward mode, and that backward behaves as a linear function should.

Every tensor is taken as real coordinates: a complex element has two, a sparse tensor those of its entries. The gradient of a real
function of z = x + iy is df/dx + i df/dy, so that coordinates of gradients correspond to those of tensors.
"""

from typing import NoReturn

import numpy as np

from .._C import Tensor, complex128, float64, strided
from .._warn import warn
from .grad_mode import enable_grad, no_grad

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """A gradient differs from its finite differences, or backward is not what it should be."""


def gradcheck(func, inputs, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
              nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
              check_batched_grad: bool = False, check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False, masked: bool | None = None) -> bool:
    """True when the derivatives of `func` are what central differences give, for each input that requires a gradient.

    By backward (`check_backward_ad`) and in forward mode (`check_forward_ad`): |a - n| <= atol + rtol |n| for each coordinate. Two
    runs of backward must agree to `nondet_tol`, gradients of zero weights must be zeros, and with `check_undefined_grad` backward must
    also take absent ones (None). `check_batched_grad` and `check_batched_forward_grad` compare vmap over backward and forward mode with
    loops; `check_grad_dtypes` asks for gradients of the inputs' dtypes. A function whose outputs require no gradient must not depend on
    the inputs. Of sparse inputs the entries are differentiated by, whether `masked` or not. With `fast_mode` one direction of each input
    and one combination of an output's elements are compared, O(1) calls of `func` in place of O(elements); where they differ the full
    comparison says which element it is. Inputs should be float64 or complex128: others bring a UserWarning.

    Raises GradcheckError, or returns False without `raise_exception`. Whatever that says, raises ValueError without an input that
    requires a gradient and for sparse outputs, RuntimeError for inputs whose elements share memory.
    """
    switches = {"nondet_tol": nondet_tol, "undefined": check_undefined_grad, "dtypes": check_grad_dtypes, "batched": check_batched_grad,
                "batched_forward": check_batched_forward_grad, "forward": check_forward_ad, "backward": check_backward_ad, "fast": fast_mode}
    return _run(func, inputs, (eps, atol, rtol), switches, raise_exception)


def gradgradcheck(func, inputs, grad_outputs=None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
                  gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True, nondet_tol: float = 0.0,
                  check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
                  check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True, fast_mode: bool = False,
                  masked: bool = False) -> bool:
    """gradcheck of the gradient of `func`, weighted with fixed numbers or with `grad_outputs`: by backward (`check_rev_over_rev`)
    and in forward mode (`check_fwd_over_rev`)."""
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    arguments = _as_tuple(inputs)
    weights = _as_tuple(grad_outputs) if grad_outputs is not None else _weights(func, arguments, gen_non_contig_grad_outputs)
    count = len(arguments)

    def wants(given) -> bool:
        return isinstance(given, Tensor) and given.requires_grad

    def gradient(*everything):
        from . import grad

        own, weight = everything[:count], everything[count:]
        with enable_grad():
            own = tuple(a.detach().requires_grad_() if wants(given) and not a.requires_grad else a for a, given in zip(own, arguments))
            outputs = [t for t in _as_tuple(func(*own)) if isinstance(t, Tensor)]
            pairs = [(t, w) for t, w in zip(outputs, weight) if t.requires_grad]
            wanted = [a for a, given in zip(own, arguments) if wants(given)]
            if not pairs:
                return ()
            grads = grad([t for t, _ in pairs], wanted, [w for _, w in pairs], create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    switches = {"nondet_tol": nondet_tol, "undefined": check_undefined_grad, "dtypes": check_grad_dtypes, "batched": check_batched_grad,
                "batched_forward": False, "forward": check_fwd_over_rev, "backward": check_rev_over_rev, "fast": fast_mode, "constants": True}
    return _run(gradient, arguments + weights, (eps, atol, rtol), switches, raise_exception)


def _as_tuple(value) -> tuple:
    return (value,) if isinstance(value, Tensor) else tuple(value)


def _weights(func, arguments, strided_apart: bool) -> tuple:
    """Numbers of no pattern, between 0.5 and 1.5 and the same in each call, for each output that requires a gradient."""
    from .. import Generator, rand

    generator = Generator().manual_seed(0)
    weights = []
    for t in _Function(func, arguments).outputs(arguments):
        if t.requires_grad:
            dtype = t.dtype if t.is_floating_point() or t.is_complex() else float64
            numbers = (rand(t.numel(), generator=generator, dtype=float64) + 0.5).reshape(t.shape).to(t.device, dtype)
            numbers = numbers.repeat_interleave(2, dim=-1)[..., ::2] if strided_apart and t.dim() else numbers
            weights.append(numbers.requires_grad_())
    return tuple(weights)


def _run(func, inputs, tolerances, switches: dict, raise_exception: bool) -> bool:
    if not (switches["forward"] or switches["backward"]):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if switches["batched"] and not switches["backward"]:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if switches["batched_forward"] and not switches["forward"]:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    arguments = _as_tuple(inputs)
    _check_inputs(arguments)
    function = _Function(func, arguments, switches.get("constants", False))
    try:
        _Check(function, arguments, tolerances, switches).run()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_inputs(arguments) -> None:
    if not any(isinstance(a, Tensor) and a.requires_grad for a in arguments):
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True.")
    for i, a in enumerate(arguments):
        if not isinstance(a, Tensor) or not a.requires_grad:
            continue
        if a.dtype not in (float64, complex128):
            warn(f"Input #{i} requires gradient and is not a double precision floating point or complex. This check will likely fail if "
                          "all the inputs are not of double precision floating point or complex. ")
        if a.layout is strided and any(step == 0 and size > 1 for step, size in zip(a.stride(), a.shape)):
            raise RuntimeError(f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be able to "
                               "compute the numerical gradients correctly. You should call .contiguous on the input before passing it to gradcheck.")


def _entries(t) -> Tensor:
    """What of a tensor can be changed: its elements, or the entries of a sparse one, over the same memory."""
    t = t.detach()
    return t if t.layout is strided else t._values() if t.is_sparse else t.values()


def _parts(t) -> Tensor:
    """The entries as real numbers over the same memory."""
    from .. import view_as_real

    entries = _entries(t)
    return view_as_real(entries) if entries.is_complex() else entries


def _coordinates(t) -> Tensor:
    """All coordinates of a tensor as a vector of float64."""
    from .. import view_as_real

    t = _entries(t).resolve_conj()
    return (view_as_real(t) if t.is_complex() else t).reshape(-1).to("cpu", float64)


def _like_input(g, x) -> Tensor:
    """The coordinates of a gradient at those of an input; zeros where there is none."""
    from .. import zeros

    if g is None:
        return zeros(_coordinates(x).numel(), dtype=float64)
    if x.layout is not strided:
        dense = g.detach() if g.layout is strided else g.detach().to_dense()
        places = x.detach() if x.is_sparse else x.detach().to_sparse()
        return _coordinates(dense[tuple(places._indices())])
    return _coordinates(g if g.layout is strided else g.to_dense())


class _Function:
    """The function under test, and which of its results are compared."""

    def __init__(self, func, arguments, constants: bool = False) -> None:
        self.func = func
        self.constants = constants  # results off the tape are compared, too: their gradients are zeros
        self.wanted = [i for i, a in enumerate(arguments) if isinstance(a, Tensor) and a.requires_grad]

    def outputs(self, arguments) -> tuple:
        return tuple(t for t in _as_tuple(self.func(*arguments)) if isinstance(t, Tensor))

    def compared(self, outputs) -> list:
        return [i for i, t in enumerate(outputs) if t.requires_grad or (self.constants and t.is_floating_point())]


class _Check:
    """One run: the numerical Jacobians, and all that is compared with them."""

    def __init__(self, function: _Function, arguments, tolerances, switches: dict) -> None:
        self.function, self.arguments, self.switches = function, arguments, switches
        self.eps, self.atol, self.rtol = tolerances
        self.inputs = [arguments[i] for i in function.wanted]

    def run(self) -> None:
        with enable_grad():
            outputs = self.function.outputs(self.arguments)
        self.places = self.function.compared(outputs)
        for place in self.places:
            if outputs[place].layout is not strided:
                raise ValueError("Sparse output is not supported at gradcheck yet. Please call to_dense(masked_grad=...) on the output of fn for gradcheck.")
        if not self.places:
            self._check_constant(outputs)
            return
        fast = self._is_fast()
        numerical = [(self._along_line if fast else self._numerical)(i, outputs) for i in range(len(self.inputs))]
        if self.switches["backward"]:
            with enable_grad():
                fresh = self._fresh()
                if fast:
                    self._compare_combined(numerical, fresh)
                else:
                    self._compare(numerical, self._by_backward(fresh), fresh, "")
                if self.switches["batched"]:
                    self._check_batched(fresh)
                self._check_linear(fresh)
                if self.switches["undefined"]:
                    self._check_undefined()
        if self.switches["forward"]:
            if fast:
                self._compare_tangents(numerical)
            else:
                self._compare_forward(numerical, outputs)
            if self.switches["undefined"]:
                self._check_undefined_forward()
            if self.switches["batched_forward"]:
                self._check_batched_forward()

    def _fresh(self) -> list:
        outputs = self.function.outputs(self.arguments)
        return [outputs[place] for place in self.places]

    # By finite differences.

    def _numerical(self, i: int, outputs) -> list:
        """For each compared output a matrix: coordinates of input i down, of the output across."""
        from .. import stack, zeros

        place = _parts(self.inputs[i])
        rows: list[list] = [[] for _ in self.places]
        for index in np.ndindex(*place.shape):
            for row, difference in zip(rows, self._difference(place[index], 1.0, outputs), strict=True):
                row.append(difference)
        return [stack(row) if row else zeros(0, _coordinates(outputs[p]).numel(), dtype=float64) for row, p in zip(rows, self.places)]

    def _difference(self, place, direction, outputs) -> list:
        """The derivative of each compared output where `place`, a view of an input, moves along `direction`."""
        with no_grad():
            before, step = place.clone(), direction * self.eps
            try:
                place.add_(step)
                high = self._moved(outputs)
                place.copy_(before).sub_(step)
                low = self._moved(outputs)
            finally:
                place.copy_(before)
        return [(a - b) / (2 * self.eps) for a, b in zip(high, low, strict=True)]

    def _moved(self, outputs) -> list:
        with enable_grad():
            found = self.function.outputs(self.arguments)
        for what in ("shape", "dtype"):
            before, after = ([getattr(t, what) for t in list_] for list_ in (outputs, found))
            if before != after:
                raise AssertionError(f"Expected `func` to return outputs with the same {what} when inputs are perturbed by eps, but got: {before} and {after}")
        return [_coordinates(found[place]).clone() for place in self.places]  # it may be a view of the input

    def _check_constant(self, outputs) -> None:
        self.places = list(range(len(outputs)))
        for i in range(len(self.inputs)):
            for o, jacobian in enumerate(self._along_line(i, outputs) if self._is_fast() else self._numerical(i, outputs)):
                if bool((jacobian != 0).any()):
                    raise GradcheckError(f"gradcheck: Numerical gradient for function expected to be zero: output {o} requires no gradient, and changes "
                                         f"with input {self.function.wanted[i]}")

    # Along one direction of each input.

    def _is_fast(self) -> bool:
        """Entries of sparse tensors have no tangents: for these the whole Jacobian is compared."""
        return self.switches["fast"] and all(x.layout is strided for x in self.inputs)

    def _along(self, i: int) -> Tensor:
        """The direction of input i, which no output has: a wrong Jacobian may be antisymmetric."""
        return _direction(self.inputs[i], i + 1)

    def _along_line(self, i: int, outputs) -> list:
        """For each compared output the derivatives of its coordinates along the direction of input i."""
        return self._difference(_parts(self.inputs[i]), _parts(self._along(i)), outputs)

    def _compare_combined(self, numerical, outputs) -> None:
        for o, output in enumerate(outputs):
            weight = _direction(output, 0)
            grads = self._checked_grads(output, weight)
            for i, gradient in enumerate(grads):
                u, v = _coordinates(self._along(i)), _coordinates(weight)
                if not self._is_close(u @ gradient, v @ numerical[i][o], u.sum() * v.sum()):
                    self._compare_fully(True)

    def _compare_tangents(self, numerical) -> None:
        from .. import zeros_like

        none = {i: zeros_like(x) for i, x in enumerate(self.inputs)}
        for i in range(len(self.inputs)):
            direction = self._along(i)
            for n, t in zip(numerical[i], self._tangents({**none, i: direction}), strict=True):
                if not self._is_close(n * 0 if t is None else _coordinates(t), n, _coordinates(direction).sum()):
                    self._compare_fully(False)

    def _is_close(self, found, expected, total) -> bool:
        """Where the error of each of the elements that were added up may be `atol`; `total` is the sum of their weights."""
        return bool(((found - expected).abs() <= self.atol * total + self.rtol * expected.abs()).all())

    def _compare_fully(self, by_backward: bool) -> NoReturn:
        """Raises for the element that is wrong."""
        every = self.function.outputs(self.arguments)
        numerical = [self._numerical(i, every) for i in range(len(self.inputs))]
        if by_backward:
            fresh = self._fresh()  # what was saved before has been moved along the coordinates
            self._compare(numerical, self._by_backward(fresh), fresh, "")
        else:
            self._compare_forward(numerical, every)
        raise GradcheckError("gradcheck: Fast gradcheck failed but element-wise differences are small: the check may pass with fast_mode=False")

    # By backward.

    def _by_backward(self, outputs) -> list:
        """For each input, as _numerical: the rows of the matrices are made of runs of backward, one per coordinate of an output, each
        run twice."""
        from .. import stack, zeros

        found: list[list] = [[] for _ in self.inputs]
        for output in outputs:
            columns: list[list] = [[] for _ in self.inputs]
            for weight in _units(output):
                for column, vector in zip(columns, self._checked_grads(output, weight), strict=True):
                    column.append(vector)
            for part, column, x in zip(found, columns, self.inputs, strict=True):
                part.append(stack(column, 1) if column else zeros(_coordinates(x).numel(), 0, dtype=float64))
        return found

    def _checked_grads(self, output, weight) -> list:
        """The coordinates of the inputs' gradients, which two runs agree on."""
        found = []
        for x, g, h in zip(self.inputs, self._grads(output, weight), self._grads(output, weight), strict=True):
            self._check_gradient(x, g)
            vector = _like_input(g, x)
            if not bool(((vector - _like_input(h, x)).abs() <= self.switches["nondet_tol"]).all()) and bool(vector.isfinite().all()):
                raise GradcheckError("gradcheck: Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                                     f"gives different values: the tolerance for that was {self.switches['nondet_tol']}")
            found.append(vector)
        return found

    def _grads(self, output, weight) -> tuple:
        from . import grad

        if not output.requires_grad:
            return (None,) * len(self.inputs)
        return grad(output, self.inputs, weight, retain_graph=True, allow_unused=True)

    def _check_gradient(self, x, g) -> None:
        if g is None:
            return
        if g.shape != x.shape:
            raise GradcheckError(f"gradcheck: Analytical gradient has incorrect size: {tuple(g.shape)} for an input of {tuple(x.shape)}")
        if self.switches["dtypes"] and g.dtype is not x.dtype:
            raise GradcheckError(f"gradcheck: Gradient has dtype mismatch: {g.dtype} for an input of {x.dtype}")

    def _compare(self, numerical, found, outputs, mode: str) -> None:
        """Imaginary parts of outputs first."""
        for part, name in ((1, "imaginary"), (0, "real")):
            for o, output in enumerate(outputs):
                step = 2 if output.is_complex() else 1
                if part >= step:
                    continue
                words = f"While considering the {name} part of complex outputs only, " if step == 2 else ""
                for i, x in enumerate(self.inputs):
                    self._compare_one(numerical[i][o][:, part::step], found[i][o][:, part::step], words, mode, self.places[o], i, x)

    def _compare_one(self, n, a, words: str, mode: str, o: int, i: int, x) -> None:
        wrong = ~((a - n).abs() <= self.atol + self.rtol * n.abs())
        if bool(wrong.any()):
            at, to = wrong.nonzero()[0].tolist()
            raise GradcheckError(f"gradcheck: {words}Jacobian {mode}mismatch for output {o} with respect to input {self.function.wanted[i]}: at output element {to} and "
                                 f"input element {at // (2 if x.is_complex() else 1)} it is {a[at, to].item()}, finite differences give {n[at, to].item()}")

    def _check_batched(self, outputs) -> None:
        """vmap over backward gives what a loop gives."""
        from .. import randn, stack
        from ..func import vmap

        for o, output in zip(self.places, outputs):
            if not output.requires_grad:
                continue
            weights = [randn(output.shape, dtype=output.dtype, device=output.device) for _ in range(2)]
            loop = [self._grads(output, w) for w in weights]
            present = [j for j, g in enumerate(loop[0]) if g is not None]
            try:
                at_once = vmap(lambda w, output=output, present=present: tuple(self._grads(output, w)[j] for j in present))(stack(weights)) if present else ()
            except RuntimeError as error:
                raise GradcheckError(f"gradcheck or gradgradcheck failed while testing batched gradient computation of output {o}: vmap over backward "
                                     f"raised {error}") from error
            for j, batched in zip(present, at_once, strict=True):
                one_by_one = stack([g[j] for g in loop])
                if not batched.allclose(one_by_one.to(batched.dtype), rtol=self.rtol, atol=self.atol):
                    raise GradcheckError(f"gradcheck or gradgradcheck failed while testing batched gradient computation: for output {o} and input "
                                         f"{self.function.wanted[j]} vmap over backward gives {batched}, a loop {one_by_one}")

    def _check_linear(self, outputs) -> None:
        """Gradients of zero weights are zeros, of the input's layout."""
        from .. import zeros_like
        from . import grad

        live = [t for t in outputs if t.requires_grad]
        if not live:
            return
        grads = grad(live, self.inputs, [zeros_like(t) for t in live], retain_graph=True, allow_unused=True)
        for x, g in zip(self.inputs, grads, strict=True):
            if g is None:
                continue
            if g.layout is not strided and g.layout is not x.layout:
                raise GradcheckError(f"gradcheck: grad is incorrect layout ({g.layout} is not {x.layout})")
            if g.is_sparse and x.is_sparse and g.sparse_dim() != x.sparse_dim():
                raise GradcheckError(f"gradcheck: grad is sparse tensor, but has incorrect sparse_dim {g.sparse_dim()}, expected {x.sparse_dim()}")
            if bool((_like_input(g, x) != 0).any()):
                raise GradcheckError("gradcheck: backward not multiplied by grad_output")
            if g.dtype is not x.dtype or g.device != x.device:
                raise GradcheckError(f"gradcheck: grad is incorrect type ({g.dtype} on {g.device} is not {x.dtype} on {x.device})")

    def _check_undefined(self) -> None:
        """Backward takes absent gradients: of all outputs, and of each."""
        outputs = [t for t in self._fresh() if t.requires_grad]
        if not outputs:
            return
        self._run_undefined(outputs, range(len(outputs)))
        for o in range(len(outputs)) if len(outputs) > 1 else ():
            self._run_undefined([t for t in self._fresh() if t.requires_grad], [o])

    def _run_undefined(self, outputs, absent) -> None:
        from .. import zeros_like
        from . import grad
        from .function import UndefinedGrad

        roots = [UndefinedGrad.apply(t) if o in absent else t for o, t in enumerate(outputs)]
        try:
            grads = grad(roots, self.inputs, [zeros_like(t) for t in outputs], allow_unused=True)
        except RuntimeError as error:
            warn("Backwards compatibility: New undefined gradient support checking feature is enabled by default: a backward that does not "
                          "take None fails it. check_undefined_grad=False leaves it out.")
            raise GradcheckError("gradcheck: Expected backward function to handle undefined output grads: a gradient that is not there arrives as None: "
                                 f"{error}") from error
        if not all(g is None or not bool((_like_input(g, x) != 0).any()) for g, x in zip(grads, self.inputs, strict=True)):
            raise GradcheckError("gradcheck: Expected all input grads to be undefined or zero when all output grads are undefined or zero")

    # In forward mode.

    def _tangents(self, given: dict) -> list:
        """The tangents of the compared outputs, where input i of `given` carries given[i] and no input requires a gradient."""
        from . import forward_ad

        arguments = [a.detach() if isinstance(a, Tensor) and a.requires_grad else a for a in self.arguments]
        with forward_ad.dual_level():
            for i, tangent in given.items():
                place = self.function.wanted[i]
                arguments[place] = forward_ad.make_dual(arguments[place], tangent)
            outputs = self.function.outputs(arguments)
            return [forward_ad.unpack_dual(outputs[place]).tangent for place in self.places]

    def _compare_forward(self, numerical, outputs) -> None:
        outputs = [outputs[place] for place in self.places]
        self._compare(numerical, self._forward_jacobians(outputs), outputs, "computed with forward mode ")

    def _forward_jacobians(self, outputs) -> list:
        from .. import stack, zeros, zeros_like

        found = []
        none = {i: zeros_like(x) for i, x in enumerate(self.inputs)}
        for i, x in enumerate(self.inputs):
            rows: list[list] = [[] for _ in self.places]
            for tangent in _units(x):
                for row, output, t in zip(rows, outputs, self._tangents({**none, i: tangent}), strict=True):
                    row.append(zeros(_coordinates(output).numel(), dtype=float64) if t is None else _coordinates(t))
            found.append([stack(row) if row else zeros(0, 0, dtype=float64) for row in rows])
        return found

    def _check_undefined_forward(self) -> None:
        """Tangents of zeros, of all inputs and of one alone, give zeros."""
        from .. import zeros_like

        every = {i: zeros_like(x) for i, x in enumerate(self.inputs)}
        for i in every:
            for given in [every, {i: every[i]}] if len(every) > 1 else [every]:
                if not all(t is None or not bool((t != 0).any()) for t in self._tangents(given)):
                    raise GradcheckError("gradcheck: Expected all output tangents to be undefined or zero when all input tangents are undefined or zero")

    def _check_batched_forward(self) -> None:
        """vmap over forward mode gives what a loop gives."""
        from .. import randn, stack
        from ..func import vmap

        for i, x in enumerate(self.inputs):
            tangents = [randn(x.shape, dtype=x.dtype, device=x.device) for _ in range(2)]
            loop = [self._tangents({i: t}) for t in tangents]
            present = [o for o, t in enumerate(loop[0]) if t is not None]
            at_once = vmap(lambda t, i=i, present=present: tuple(self._tangents({i: t})[o] for o in present))(stack(tangents)) if present else ()
            for o, batched in zip(present, at_once, strict=True):
                if not batched.allclose(stack([row[o] for row in loop]), rtol=self.rtol, atol=self.atol):
                    raise GradcheckError(f"gradcheck: While testing batched forward mode: for output {self.places[o]} and input {self.function.wanted[i]} vmap gives "
                                         f"{batched}, a loop {stack([row[o] for row in loop])}")


def _direction(t, seed: int) -> Tensor:
    """A tensor like `t` of length 1 whose coordinates are of no pattern and not negative; the same in each call."""
    from .. import Generator, rand, view_as_complex

    vector = rand((*t.shape, 2) if t.is_complex() else t.shape, generator=Generator().manual_seed(seed), dtype=float64, device="cpu") + 0.1
    vector = vector / vector.norm()
    return (view_as_complex(vector) if t.is_complex() else vector).to(t.device, t.dtype)


def _units(t):
    """Tensors like `t`, each with one coordinate 1 and the others 0."""
    from .. import zeros

    for index in np.ndindex(*t.shape):
        for one in (1, 1j) if t.is_complex() else (1,):
            unit = zeros(t.shape, dtype=t.dtype, device=t.device)
            unit[index] = one
            yield unit


# PyTorch's former helpers, which tests of operators call.


def _iter_tensors(x, only_requiring_grad: bool = False):
    """The tensors in nested containers."""
    if isinstance(x, Tensor):
        if x.requires_grad or not only_requiring_grad:
            yield x
    elif hasattr(x, "__iter__") and not isinstance(x, str):
        for item in x:
            yield from _iter_tensors(item, only_requiring_grad)


def _get_numerical_jacobian(fn, inputs, outputs=None, target=None, eps: float = 1e-3, is_forward_ad: bool = False) -> list:
    """For each tensor of `target` that requires a gradient, and each output of fn(inputs): the central differences, (elements in, elements out).

    O(elements in) calls, for which the elements are written to in place and set back.
    """
    from .. import no_grad, stack, zeros

    def flat() -> list:
        with no_grad():
            return [t.detach().clone().reshape(-1) for t in _iter_tensors(fn(inputs))]

    sizes = [t.numel() for t in _iter_tensors(outputs)] if outputs is not None else [t.numel() for t in flat()]
    found = []
    for x in _iter_tensors(inputs if target is None else target, True):
        rows: list[list] = [[] for _ in sizes]
        place = x.detach()
        for index in np.ndindex(*x.shape):
            derivatives = []
            for step in (eps, 1j * eps) if x.is_complex() else (eps,):
                value = place[index].item()
                try:
                    place[index] = value + step
                    high = flat()
                    place[index] = value - step
                    low = flat()
                finally:
                    place[index] = value
                derivatives.append([(a - b) / (2 * eps) for a, b in zip(high, low, strict=True)])
            for row, *parts in zip(rows, *derivatives):
                row.append(parts[0] if len(parts) == 1 else 0.5 * (parts[0] + 1j * parts[1]))  # conjugated below, as PyTorch's is
        found.append(tuple(stack(row) if row else zeros(0, size, dtype=x.dtype) for row, size in zip(rows, sizes)))
    return found


def get_numerical_jacobian(fn, inputs, target=None, eps: float = 1e-3, grad_out: float = 1.0) -> tuple:
    """The central differences of fn's first output with respect to each input that requires a gradient."""
    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_numerical_jacobian no longer supports values of grad_out != 1.0.")
    return tuple(jacobians[0] for jacobians in _get_numerical_jacobian(fn, inputs, None, target, eps))


def get_analytical_jacobian(inputs, output, nondet_tol: float = 0.0, grad_out: float = 1.0) -> tuple:
    """(Jacobians of the output with respect to the inputs by backward, whether two runs agree to `nondet_tol`, sizes are right, dtypes are right)."""
    from .. import stack, zeros_like
    from . import grad

    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_analytical_jacobian no longer supports values of grad_out != 1.0.")
    wanted = list(_iter_tensors(inputs, True))

    def columns() -> list:
        rows: list[list] = [[] for _ in wanted]
        for index in np.ndindex(*output.shape):
            weight = zeros_like(output)
            weight[index] = 1
            for row, x, g in zip(rows, wanted, grad(output, wanted, weight, retain_graph=True, allow_unused=True)):
                row.append(zeros_like(x) if g is None else g)
        return rows

    first, second = columns(), columns()
    agree = all(bool(((a - b).abs() <= nondet_tol).all()) for u, v in zip(first, second) for a, b in zip(u, v))
    sizes = all(g.shape == x.shape for x, row in zip(wanted, first) for g in row)
    dtypes = all(g.dtype == x.dtype for x, row in zip(wanted, first) for g in row)
    return tuple(stack([g.reshape(-1) for g in row], 1) for row in first), agree, sizes, dtypes
