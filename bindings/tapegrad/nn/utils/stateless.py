"""Calls of a module with substituted parameters."""

import contextlib

__all__ = ["functional_call"]


def _owner(module, name: str):
    """The module that holds the tensor of this dotted name, and the name there."""
    *path, last = name.split(".")
    for part in path:
        module = getattr(module, part)
    return module, last


def _table(owner, name: str, full: str) -> dict:
    for table in (owner._parameters, owner._buffers):
        if name in table:
            return table
    raise KeyError(f"functional_call: the module has no parameter or buffer '{full}'")


def _tied(module) -> dict[int, list[str]]:
    """Names by tensor, all of them where a tensor has several."""
    names: dict[int, list[str]] = {}
    for named in (module.named_parameters, module.named_buffers):
        for name, t in named(remove_duplicate=False):
            names.setdefault(id(t), []).append(name)
    return names


@contextlib.contextmanager
def _swapped(module, tensors: dict):
    """At its end `tensors` has what the module was given in the meantime in their places."""
    places = []
    try:
        for name, value in tensors.items():
            owner, last = _owner(module, name)
            table = _table(owner, last, name)
            places.append((name, table, last, table[last]))
            table[last] = value
        yield
    finally:
        for name, table, last, value in reversed(places):
            tensors[name], table[last] = table[last], value


@contextlib.contextmanager
def _reparametrize_module(module, parameters_and_buffers: dict, tie_weights: bool = False, strict: bool = False, stack_weights: bool = False):
    """A context in which the module has the given tensors, by name, in place of its own. The dictionary is given what the module puts in
    their places."""
    given = dict(parameters_and_buffers)
    own = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers(remove_duplicate=False))}
    if strict:
        missing = [name for name in own if name not in given]
        unknown = [name for name in given if name not in own]
        if missing or unknown:
            raise RuntimeError(f"Error(s) in loading state_dict for functional_call: missing {missing}, unexpected {unknown}")
    if tie_weights:
        names = _tied(module)
        for name, value in list(given.items()):
            for other in names.get(id(own.get(name)), ()):
                given.setdefault(other, value)
    try:
        with _swapped(module, given):
            yield
    finally:
        parameters_and_buffers.update((name, given[name]) for name in parameters_and_buffers)


def functional_call(module, parameters_and_buffers: dict, args=None, kwargs=None, *, tie_weights: bool = True, strict: bool = False):
    """module(*args, **kwargs) with the given tensors, by name, in place of its own. Tied weights are replaced together; strict: all
    tensors have to be given."""
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights, strict):
        return module(*args, **(kwargs or {}))
