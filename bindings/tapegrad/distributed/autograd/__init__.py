"""Backward passes over several workers of remote calls (`distributed.rpc`), by PyTorch's names.

    with distributed.autograd.context() as context_id:
        loss = rpc.rpc_sync("worker1", forward, args=(x,)).sum()
        distributed.autograd.backward(context_id, [loss])
        distributed.autograd.get_gradients(context_id)
"""

from . import _contexts
from ._contexts import Context as DistAutogradContext

__all__ = ["DistAutogradContext", "backward", "context", "get_gradients", "is_available"]


def is_available() -> bool:
    """Whether there are backward passes over several workers: always."""
    return True


def _agent():
    from ..rpc.api import _get_current_rpc_agent

    return _get_current_rpc_agent()


class context:  # noqa: N801
    """Within this, gradients pass through the calls of this thread, and of what they call. `as` gives the number of the context, which all
    workers know it by. Its end frees what they keep for it. RuntimeError where the thread has a context already."""

    def __enter__(self) -> int:
        self.autograd_context = _new_context()
        return self.autograd_context.id

    def __exit__(self, *_) -> None:
        _release_context(self.autograd_context.id)


def backward(context_id: int, roots: list, retain_graph: bool = False) -> None:
    """Computes the gradients of the sum of `roots`, tensors of one element, on all workers that they depend on. Leaves' gradients are added
    up in the context (`get_gradients`), their `.grad` stays as it is. Raises RuntimeError for roots that have no gradient, an unknown
    context, and where a worker failed or was lost; KeyboardInterrupt ends it on all workers."""
    _agent().backward(context_id, roots, retain_graph)


def get_gradients(context_id: int) -> dict:
    """The gradients of this worker's leaves, by leaf. RuntimeError for an unknown context."""
    return dict(_agent().contexts.of(context_id).grads)


def _new_context():
    if _contexts.current() is not None:
        raise RuntimeError(f"Already have an autograd context id for this thread: {_contexts.current().id}")
    made = _contexts._local.context = _agent().contexts.new()
    return made


def _release_context(context_id: int) -> None:
    if _contexts.current() is not None and _contexts.current().id == context_id:
        _contexts._local.context = None
    from ..rpc.api import _agent as agent

    if agent is not None:
        agent.release_context(context_id)


def _current_context():
    found = _contexts.current()
    if found is None:
        raise RuntimeError("Current thread doesn't have a valid autograd context. Please wrap your code using: `with "
                           "distributed.autograd.context() as context_id` to generate a valid context")
    return found


def _retrieve_context(context_id: int):
    return _agent().contexts.of(context_id)


def _is_valid_context(context_id: int) -> None:
    _retrieve_context(context_id)


def _get_max_id() -> int:
    return (_agent().id << 48) + (1 << 48) - 1
