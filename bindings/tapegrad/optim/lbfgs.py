"""L-BFGS."""

from .. import Tensor, cat, contiguous_format, enable_grad, no_grad, view_as_real
from .optimizer import Optimizer, _check_lr

__all__ = ["LBFGS"]


def _number(loss) -> float:
    return loss.item() if isinstance(loss, Tensor) else float(loss)


# Slopes, and the positions that come of them, are tensors of the gradient's dtype: decisions are as exact as it is.
def _cubic_minimum(a, b, bounds=None):
    """Where the cubic through two points (position, value, slope) is least, kept within bounds (Nocedal and Wright, 3.59)."""
    (x1, f1, g1), (x2, f2, g2) = (a, b) if a[0] <= b[0] else (b, a)
    low, high = bounds if bounds is not None else (x1, x2)
    if x1 == x2:
        return (low + high) / 2.0
    bend = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = bend**2 - g1 * g2
    if not square >= 0:
        return (low + high) / 2.0
    root = square.sqrt()
    return min(max(x2 - (x2 - x1) * ((g2 + root - bend) / (g2 - g1 + 2 * root)), low), high)


def _strong_wolfe(evaluate, t, direction_size, f, g, slope, c1=1e-4, c2=0.9, tolerance_change=1e-9, max_evals=25):
    """A step along the direction that satisfies the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6).

    evaluate(t) gives the loss, the gradient and the slope at t; f, g and slope are those at 0. A point is a tuple
    (t, loss, gradient, slope). Returns the best point and the number of evaluations.
    """
    start = (0, f, g, slope)
    before, point = start, (t, *evaluate(t))
    evals, rounds, bracket, done = 1, 0, None, False
    while rounds < max_evals:
        t, f_t, _, slope_t = point
        if f_t > f + c1 * t * slope or (rounds > 1 and f_t >= before[1]):
            bracket = [before, point]
            break
        if abs(slope_t) <= -c2 * slope:
            bracket, done = [point], True
            break
        if slope_t >= 0:
            bracket = [before, point]
            break
        t = _cubic_minimum(_place(before), _place(point), (t + 0.01 * (t - before[0]), t * 10))
        before, point = point, (t, *evaluate(t))
        evals += 1
        rounds += 1
    if bracket is None:
        bracket = [start, point]

    # Between the two ends there is a good point; the ends come closer until it is found.
    stuck = False
    while not done and rounds < max_evals:
        low, high = sorted((bracket[0][0], bracket[1][0]))
        if (high - low) * direction_size < tolerance_change:
            break
        t = _cubic_minimum(_place(bracket[0]), _place(bracket[1]))
        margin = 0.1 * (high - low)
        if min(high - t, t - low) < margin:  # too close to an end
            if stuck or t >= high or t <= low:
                t = high - margin if abs(t - high) < abs(t - low) else low + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        point = (t, *evaluate(t))
        evals += 1
        rounds += 1
        best, other = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        if point[1] > f + c1 * t * slope or point[1] >= bracket[best][1]:
            bracket[other] = point
            continue
        if abs(point[3]) <= -c2 * slope:
            done = True
        elif point[3] * (bracket[other][0] - bracket[best][0]) >= 0:
            bracket[other] = bracket[best]
        bracket[best] = point
    return min(bracket, key=lambda p: p[1]), evals


def _place(point):
    return point[0], point[1], point[3]


class LBFGS(Optimizer):
    """L-BFGS (Liu and Nocedal, 1989), for one group of parameters.

    `step(closure)` makes up to `max_iter` iterations and calls closure, which computes the loss and its gradients, up to
    `max_eval` times (max_iter * 1.25). It ends early where the gradient's largest element is at most `tolerance_grad` or the
    loss or the parameters change by less than `tolerance_change`. `line_search_fn` is "strong_wolfe" or None. Keeps
    2 * history_size vectors as long as all parameters.
    """

    _steps_on_parts = False

    def __init__(self, params, lr=1, max_iter: int = 20, max_eval: int | None = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: str | None = None) -> None:
        _check_lr(lr)
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn})
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    # The parameters as one vector of real numbers.
    def _gradient(self):
        parts = []
        for p in self.param_groups[0]["params"]:
            if p.grad is None:
                part = p.new_zeros(p.numel())
            else:
                part = (p.grad.to_dense() if p.grad.is_sparse else p.grad).reshape(-1)
            parts.append(view_as_real(part).reshape(-1) if part.is_complex() else part)
        return cat(parts)

    def _move(self, t, direction) -> None:
        at = 0
        for p in self.param_groups[0]["params"]:
            real = view_as_real(p) if p.is_complex() else p
            real.add_(direction[at:at + real.numel()].view(real.shape), alpha=float(t))
            at += real.numel()

    def _direction(self, gradient, state, history_size: int):
        """Minus the inverse Hessian, as the history knows it, times the gradient: the two loops of Nocedal (1980)."""
        change, moved = gradient.sub(state["prev_flat_grad"]), state["d"].mul(state["t"])
        curvature = change.dot(moved)
        directions, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        if curvature > 1e-10:
            if len(directions) == history_size:
                for history in (directions, steps, ro):
                    history.pop(0)
            directions.append(change)
            steps.append(moved)
            ro.append(1.0 / curvature)
            state["H_diag"] = curvature / change.dot(change)
        factors = state.setdefault("al", [None] * history_size)
        q = gradient.neg()
        for i in range(len(directions) - 1, -1, -1):
            factors[i] = steps[i].dot(q) * ro[i]
            q.add_(directions[i], alpha=-float(factors[i]))
        r = q.mul(state["H_diag"])
        for i in range(len(directions)):
            r.add_(steps[i], alpha=float(factors[i] - directions[i].dot(r) * ro[i]))
        return r

    def _search(self, closure, t, direction, loss: float, gradient, slope, max_evals: int):
        params = self.param_groups[0]["params"]
        origin = [p.clone(memory_format=contiguous_format) for p in params]

        def evaluate(t):
            self._move(t, direction)
            with enable_grad():
                value = _number(closure())
            g = self._gradient()
            for p, old in zip(params, origin, strict=True):
                p.copy_(old)
            return value, g, g.dot(direction)

        size = direction.abs().max()
        return _strong_wolfe(evaluate, t, size, loss, gradient, slope, max_evals=max_evals)

    @no_grad()
    def step(self, closure):
        """Up to max_iter iterations. Returns the loss before them."""
        if len(self.param_groups) != 1:
            raise AssertionError(f"Expected exactly one param_group, but got {len(self.param_groups)}")
        group = self.param_groups[0]
        lr = group["lr"].item() if isinstance(group["lr"], Tensor) else group["lr"]
        search = group["line_search_fn"]
        state = self.state[group["params"][0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        with enable_grad():
            first_loss = closure()
        loss, gradient = _number(first_loss), self._gradient()
        evals = 1
        state["func_evals"] += 1

        def flat() -> bool:
            return bool(gradient.abs().max() <= group["tolerance_grad"])

        if flat():
            return first_loss
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                state.update(d=gradient.neg(), old_dirs=[], old_stps=[], ro=[], H_diag=1)
                t = min(1.0, 1.0 / gradient.abs().sum()) * lr
            else:
                state["d"] = self._direction(gradient, state, group["history_size"])
                t = lr
            direction = state["d"]
            state["t"] = t
            state["prev_flat_grad"] = gradient.clone(memory_format=contiguous_format)
            state["prev_loss"] = before = loss
            slope = gradient.dot(direction)
            if slope > -group["tolerance_change"]:
                break
            used = 0
            if search is not None:
                if search != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                (t, loss, gradient, _), used = self._search(closure, t, direction, loss, gradient, slope,
                                                            group["max_eval"] - evals)
                state["t"] = t
                self._move(t, direction)
            else:
                self._move(t, direction)
                if iteration != group["max_iter"]:
                    with enable_grad():
                        loss = _number(closure())
                    gradient = self._gradient()
                    used = 1
            evals += used
            state["func_evals"] += used
            if (iteration == group["max_iter"] or evals >= group["max_eval"] or flat()
                    or direction.mul(t).abs().max() <= group["tolerance_change"]
                    or abs(loss - before) < group["tolerance_change"]):
                break
        return first_loss
