"""Networks by name, and what their functions do with arguments for trained weights."""

import fnmatch
import functools
import re

_MODELS: dict[str, object] = {}


def register_model(function):
    """Puts a function that builds a network into the list."""
    _MODELS[function.__name__] = function
    return function


def builder(function):
    """Registers a function that makes a network from keyword arguments, and lets it take `weights`, `pretrained` and `progress`."""

    @functools.wraps(function)
    def build(pretrained=None, progress: bool = True, *, weights=None, **kwargs):
        if pretrained is None and weights is None:
            return function(**kwargs)
        return _with_weights(function, weights, pretrained, progress, kwargs)

    build.__doc__ = (f"{function.__doc__}\n\n    weights: None, a member of the network's enumeration or its name ('DEFAULT'): downloaded unless "
                     "they are there.\n    The other arguments go to the network.")
    return register_model(build)


def variant(name: str, network, doc: str, *args, **options):
    """The builder of one size of a network: network(*args, **options), where a caller's keyword arguments come before the options."""

    def build(**kwargs):
        return network(*args, **{**options, **kwargs})

    build.__name__ = build.__qualname__ = name
    build.__module__, build.__doc__ = network.__module__, doc
    return builder(build)


def _with_weights(function, weights, pretrained, progress: bool, kwargs: dict):
    from ._weights import weights_for

    name = function.__name__
    if not isinstance(pretrained, bool) and pretrained is not None:
        weights, pretrained = pretrained, None  # the first argument was once `pretrained` and may be weights now
    chosen = weights_for(name, weights, pretrained)
    if chosen is None:
        return function(**kwargs)
    classes = chosen.meta["num_classes"]
    if kwargs.setdefault("num_classes", classes) != classes:
        raise ValueError(f"The parameter 'num_classes' expected value {classes} but got {kwargs['num_classes']} instead.")
    auxiliary = None
    if name in ("googlenet", "inception_v3"):  # trained with auxiliary scores on images normalised otherwise
        auxiliary = kwargs.pop("aux_logits", name == "inception_v3")
        kwargs = {"transform_input": True, "init_weights": False, **kwargs, "aux_logits": True}
    elif "_resnet" in name and name.startswith(("fcn", "deeplab")):
        kwargs = {**kwargs, "aux_loss": True}
    model = function(**kwargs)
    state = chosen.get_state_dict(progress=progress, check_hash=True)
    if name.startswith("densenet"):  # their file is older than today's names
        state = {re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", key): value for key, value in state.items()}
    model.load_state_dict(state)
    if auxiliary is False:
        model.aux_logits = False
        for head in ("aux1", "aux2", "AuxLogits"):
            if hasattr(model, head):
                setattr(model, head, None)
    return model


def list_models(module=None, include=None, exclude=None) -> list[str]:
    """The sorted names of all networks, of one module, or those that fit patterns."""
    names = [n for n, f in _MODELS.items() if module is None or f.__module__.rsplit(".", 1)[0] == module.__name__ or f.__module__ == module.__name__]
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


def get_model_weights(name):
    """The enumeration of a network's published weights."""
    from ._weights import _OF_FUNCTION

    name = name if isinstance(name, str) else name.__name__
    if name not in _OF_FUNCTION:
        raise ValueError(f"{name}: no published weights are known")
    return _OF_FUNCTION[name]
