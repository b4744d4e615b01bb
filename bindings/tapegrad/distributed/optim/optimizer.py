"""An optimizer of parameters that are stored on several RPC workers."""

import threading

from .. import autograd, rpc

__all__ = ["DistributedOptimizer"]

_one_at_a_time = threading.Lock()  # on a worker: optimizers of several workers may have the same parameters


class _Local:
    """The optimizer of the parameters of one worker."""

    def __init__(self, optimizer_class, parameters: list, args: tuple, kwargs: dict) -> None:
        self.parameters = [p.local_value() for p in parameters]
        self.optimizer = optimizer_class(self.parameters, *args, **kwargs)

    def step(self, context_id: int) -> None:
        grads = autograd.get_gradients(context_id)
        with _one_at_a_time:
            before = [p.grad for p in self.parameters]
            try:
                for p in self.parameters:
                    p.grad = grads.get(p)
                self.optimizer.step()
            finally:  # gradients of contexts are not those of `.grad`
                for p, grad in zip(self.parameters, before, strict=True):
                    p.grad = grad


def _make(optimizer_class, parameters: list, args: tuple, kwargs: dict):
    return rpc.RRef(_Local(optimizer_class, parameters, args, kwargs))


def _wait_all(futures: list) -> list:
    """The values of all futures, once all are done; raises what the last one that failed raised."""
    values, failed = [], None
    for future in futures:
        try:
            values.append(future.wait())
        except Exception as error:
            failed = error
    if failed is not None:
        raise failed
    return values


class DistributedOptimizer:
    """Optimizes parameters where they lie, with the gradients of a context of distributed.autograd.

    Args:
        optimizer_class: the class of the optimizer that each worker makes of its parameters.
        params_rref: RRefs to the parameters.
        args, kwargs: of the class, behind the parameters.

    On each worker steps are taken one at a time, for all callers. What a worker raises is raised here.
    """

    def __init__(self, optimizer_class, params_rref, *args, **kwargs) -> None:
        by_worker: dict = {}
        for p in params_rref:
            by_worker.setdefault(p.owner(), []).append(p)
        self.remote_optimizers = _wait_all([rpc.rpc_async(worker, _make, args=(optimizer_class, parameters, args, kwargs))
                                            for worker, parameters in by_worker.items()])

    def step(self, context_id: int) -> None:
        """One step with the gradients of a context; RuntimeError where there is no such context."""
        autograd._is_valid_context(context_id)
        _wait_all([optimizer.rpc_async().step(context_id) for optimizer in self.remote_optimizers])
