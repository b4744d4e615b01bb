"""How functions are run for callers."""

import functools

__all__ = ["async_execution"]


def async_execution(fn):
    """A function that returns a Future: its callers get what the future is given, and no thread of the callee waits for it. Below
    @staticmethod and @classmethod. A call in the own process gives the Future."""
    @functools.wraps(fn)
    def run(*args, **kwargs):
        return fn(*args, **kwargs)

    run._wrapped_async_rpc_function = fn
    return run
