"""Placeholders for names of PyTorch that tapegrad does not implement: they can be imported and subclassed, and using them raises an error with the reason."""

__all__ = ["missing_class", "missing_function"]


def missing_function(name: str, why: str, error: type = NotImplementedError, doc: str = ""):
    """A function that raises `error` with one sentence: the name and why there is no such thing."""

    def refuse(*args, **kwargs):
        raise error(f"{name}: {why}")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    refuse.__doc__ = doc or f"Not there: {why}"
    return refuse


def missing_class(name: str, why: str, error: type = NotImplementedError, bases: tuple = (), doc: str = ""):
    """A placeholder class that can be imported, used with isinstance and subclassed; instantiating it raises `error`."""

    def __init__(self, *args, **kwargs):
        raise error(f"{name}: {why}")

    module, _, short = f"{__name__.partition('.')[0]}.{name}".rpartition(".")
    return type(short, bases, {"__init__": __init__, "__module__": module, "__doc__": doc or f"Not there: {why}"})
