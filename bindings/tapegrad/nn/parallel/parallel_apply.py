"""Several modules called with an input each."""

__all__ = ["parallel_apply"]


def parallel_apply(modules, inputs, kwargs_tup=None, devices=None) -> list:
    """Calls modules[i](*inputs[i], **kwargs_tup[i]), one after the other: each uses all threads."""
    if len(modules) != len(inputs):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}")
    named = kwargs_tup or ({},) * len(modules)
    results = []
    for module, given, options in zip(modules, inputs, named):
        given = given if isinstance(given, (list, tuple)) else (given,)
        results.append(module(*given, **options))
    return results
