"""Networks by name, and what their functions do with arguments for trained weights."""

from __future__ import annotations

import fnmatch
import functools

_MODELS: dict[str, object] = {}


def register_model(function):
    """Puts a function that builds a network into the list."""
    _MODELS[function.__name__] = function
    return function


def no_weights(name: str, weights, pretrained=None) -> None:
    """Trained weights are not published for tapegrad: a clear sentence for who asks for them.

    A state_dict of torchvision loads: `model.load_state_dict(tapegrad.load(path))`.
    """
    if weights is not None or pretrained:
        raise ValueError(f"{name}: weights={weights if weights is not None else pretrained!r}: trained weights are not downloaded\n"
                         "build the network with weights=None and load a file of torchvision: model.load_state_dict(tapegrad.load(path))")


def builder(function):
    """Registers a function that makes a network from keyword arguments, and answers for `weights`, `pretrained` and `progress`."""
    @functools.wraps(function)
    def build(*, weights=None, progress: bool = True, pretrained=None, **kwargs):
        no_weights(function.__name__, weights, pretrained)
        return function(**kwargs)

    build.__doc__ = f"{function.__doc__}\n\n    weights must be None: trained weights are not downloaded. The other arguments go to the network."
    return register_model(build)


def list_models(module=None, include=None, exclude=None) -> list[str]:
    """The sorted names of all networks, of one module, or those that fit patterns."""
    names = [n for n, f in _MODELS.items() if module is None or f.__module__ == module.__name__]
    for patterns, wanted in ((include, True), (exclude, False)):
        if patterns:
            patterns = [patterns] if isinstance(patterns, str) else patterns
            names = [n for n in names if any(fnmatch.fnmatch(n, p) for p in patterns) == wanted]
    return sorted(names)


def get_model_builder(name: str):
    """The function that builds a network."""
    if name.lower() not in _MODELS:
        raise ValueError(f"Unknown model {name}")
    return _MODELS[name.lower()]


def get_model(name: str, **config):
    """A network by its name."""
    return get_model_builder(name)(**config)
