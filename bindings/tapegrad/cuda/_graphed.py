"""make_graphed_callables: forward and backward passes of modules and functions as graphs."""

from .. import autograd as _autograd
from ..nn import Module as _Module
from .graphs import CUDAGraph, graph, graph_pool_handle
from .streams import Stream, current_stream, stream

__all__ = ["graphed_callables"]


def _flatten(value, out: list):
    """Puts the tensors of nested tuples, lists and dictionaries into `out`; the result makes the same nest from others."""
    if isinstance(value, (tuple, list)):
        parts = [_flatten(v, out) for v in value]
        kind = type(value)
        return lambda it: kind(*[p(it) for p in parts]) if hasattr(value, "_fields") else kind(p(it) for p in parts)
    if isinstance(value, dict):
        items = [(k, _flatten(v, out)) for k, v in value.items()]
        return lambda it: {k: p(it) for k, p in items}
    if hasattr(value, "requires_grad"):
        out.append(value)
        return lambda it: next(it)
    return lambda it: value


def _gradients(outputs, inputs, grads, allow_unused):
    wanted = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad]
    return _autograd.grad([o for o, _ in wanted], inputs, [g for _, g in wanted], allow_unused=allow_unused, only_inputs=True) if inputs and wanted \
        else (None,) * len(inputs)


class _Captured:
    """One callable's pair of graphs and the tensors that they read and write."""

    def __init__(self, call, args, pool, allow_unused):
        self.inputs = list(args) + (list(call.parameters()) if isinstance(call, _Module) else [])
        self.num_args = len(args)
        self.pool, self.allow_unused = pool, allow_unused
        self.forward_graph, self.backward_graph = CUDAGraph(), CUDAGraph()
        with graph(self.forward_graph, pool=pool):
            result = call(*args)
        self.outputs: list = []
        self.unflatten = _flatten(result, self.outputs)

    def capture_backward(self):
        from .._C import _functions

        like = _functions[""]["empty_like"]
        self.output_grads = [like(o) if o.requires_grad else None for o in self.outputs]
        wanted = [t for t in self.inputs if t.requires_grad]
        with graph(self.backward_graph, pool=self.pool):
            found = iter(_gradients(self.outputs, wanted, self.output_grads, self.allow_unused))
        self.input_grads = [next(found) if t.requires_grad else None for t in self.inputs]
        self.has_backward = bool(wanted) and any(o.requires_grad for o in self.outputs)

    def function(self):
        captured = self

        class Graphed(_autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                for mine, given in zip(captured.inputs[:captured.num_args], inputs):
                    if mine.data_ptr() != given.data_ptr():
                        mine.copy_(given)
                captured.forward_graph.replay()
                return tuple(o.detach() for o in captured.outputs)

            @staticmethod
            def backward(ctx, *grads):
                for mine, given in zip(captured.output_grads, grads):
                    if mine is not None and mine.data_ptr() != given.data_ptr():
                        mine.copy_(given)
                if captured.has_backward:
                    captured.backward_graph.replay()
                return tuple(None if g is None else g.detach() for g in captured.input_grads)

        return Graphed

    def run(self, function, args):
        flat: list = []
        _flatten(args, flat)
        if len(flat) != self.num_args:
            raise RuntimeError(f"make_graphed_callables: expected {self.num_args} tensors, as in sample_args: got {len(flat)}")
        for i, (mine, given) in enumerate(zip(self.inputs, flat)):
            if mine.shape != given.shape or mine.dtype != given.dtype:
                raise RuntimeError(f"make_graphed_callables: argument {i} must be as in sample_args, {tuple(mine.shape)} of {mine.dtype}: "
                                   f"got {tuple(given.shape)} of {given.dtype}")
        return self.unflatten(iter(function.apply(*flat, *self.inputs[self.num_args:])))


def _warm_up(call, args, rounds, allow_unused):
    inputs = [t for t in list(args) + (list(call.parameters()) if isinstance(call, _Module) else []) if t.requires_grad]
    from .._C import _functions

    for _ in range(rounds):
        outputs: list = []
        _flatten(call(*args), outputs)
        _gradients(outputs, inputs, [_functions[""]["empty_like"](o) if o.requires_grad else None for o in outputs], allow_unused)


def graphed_callables(callables, sample_args, num_warmup_iters, allow_unused_input, pool):
    """See make_graphed_callables."""
    from . import synchronize

    single = not isinstance(callables, tuple)
    if single:
        callables, sample_args = (callables,), (sample_args,)
    if len(callables) != len(sample_args):
        raise RuntimeError(f"make_graphed_callables: one tuple of arguments per callable is needed: got {len(callables)} and {len(sample_args)}")
    for call in callables:
        if isinstance(call, _Module) and (call._backward_hooks or call._forward_hooks or call._forward_pre_hooks):
            raise RuntimeError("make_graphed_callables: modules must not have hooks: register them after graphing")
    flat_args = []
    for args in sample_args:
        flat: list = []
        _flatten(args, flat)
        if len(flat) != len(args):
            raise RuntimeError("make_graphed_callables: sample_args must be tuples of tensors")
        flat_args.append(tuple(flat))
    pool = graph_pool_handle() if pool is None else pool
    side = Stream()
    side.wait_stream(current_stream())
    with stream(side):
        for call, args in zip(callables, flat_args):
            _warm_up(call, args, num_warmup_iters, allow_unused_input)
    current_stream().wait_stream(side)
    synchronize()
    # Graphs that share memory replay in the order of their capture: forward passes in order, backward passes in reverse.
    captured = [_Captured(call, args, pool, allow_unused_input) for call, args in zip(callables, flat_args)]
    for c in reversed(captured):
        c.capture_backward()
    results = []
    for call, c in zip(callables, captured):
        function = c.function()

        def run(*args, _c=c, _f=function):
            return _c.run(_f, args)

        if isinstance(call, _Module):
            training, plain = call.training, call.forward

            def forward(*args, _call=call, _run=run, _training=training, _plain=plain):
                return _run(*args) if _call.training == _training else _plain(*args)

            call.forward = forward
            results.append(call)
        else:
            results.append(run)
    return results[0] if single else tuple(results)
