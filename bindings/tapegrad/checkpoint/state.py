"""One file with the complete state of a run."""

import random

import numpy as np

from .. import Generator, cuda, get_rng_state, serialization, set_rng_state
from ..nn import Module
from ..optim import Optimizer
from .optimizers import names_of, renumbered

FORMAT = "tapegrad.checkpoint"
VERSION = 1


# One part.
def _kind(part) -> str | None:
    """How a part's state is read and written; None for what is no part but a value."""
    if isinstance(part, Module):
        return "module"
    if isinstance(part, Optimizer) or (hasattr(part, "param_groups") and hasattr(part, "load_state_dict")):
        return "optimizer"
    if isinstance(part, Generator):
        return "generator"
    if isinstance(part, np.random.Generator):
        return "numpy"
    if isinstance(part, random.Random):
        return "random"
    return "other" if hasattr(part, "state_dict") and hasattr(part, "load_state_dict") else None


def _state(part, kind: str, names: dict, gradients: bool):
    if kind == "module":
        state = {"state": part.state_dict(), "eval": [n for n, m in part.named_modules() if not m.training]}
        if gradients:
            state["gradients"] = {n: p.grad for n, p in part.named_parameters() if p.grad is not None}
        return state
    if kind == "optimizer":
        return {"state": part.state_dict(), "names": names_of(part, names)}
    if kind == "generator":
        return part.get_state()
    if kind == "numpy":
        return part.bit_generator.state
    if kind == "random":
        return part.getstate()
    return part.state_dict()


def _restore(name: str, part, kind: str, state, names: dict, strict: bool) -> None:
    if kind == "module":
        part.load_state_dict(state["state"], strict=strict)
        asleep = set(state["eval"])
        for n, m in part.named_modules():
            m.training = n not in asleep
        gradients = state.get("gradients")
        if gradients is not None:
            for n, p in part.named_parameters():
                p.grad = gradients.get(n)
    elif kind == "optimizer":
        part.load_state_dict(renumbered(name, part, state, names, strict))
    elif kind == "generator":
        part.set_state(state)
    elif kind == "numpy":
        part.bit_generator.state = state
    elif kind == "random":
        part.setstate(state)
    else:
        part.load_state_dict(state)


def _parameter_names(parts: dict) -> dict[int, str]:
    """Parameter -> its name in the models among the parts; with the part's name before it, so that models do not collide."""
    names: dict[int, str] = {}
    for key, part in parts.items():
        if isinstance(part, Module):
            for name, p in part.named_parameters():
                names.setdefault(id(p), f"{key}.{name}")
    return names


# All generators.
def _generators() -> dict:
    state = {"tapegrad": get_rng_state(), "numpy": np.random.get_state(), "random": random.getstate()}
    if cuda.is_available():
        state["cuda"] = cuda.get_rng_state_all()
    return state


def _set_generators(state: dict) -> None:
    set_rng_state(state["tapegrad"])
    np.random.set_state(state["numpy"])
    random.setstate(state["random"])
    if "cuda" in state and cuda.is_available():
        cuda.set_rng_state_all(state["cuda"])


def collect(things: dict, generators: bool, gradients: bool) -> dict:
    """What `save` writes."""
    kinds = {name: _kind(part) for name, part in things.items()}
    parts = {name: part for name, part in things.items() if kinds[name] is not None}
    names = _parameter_names(parts)
    states = {name: {"kind": kinds[name], "state": _state(part, kinds[name], names, gradients)} for name, part in parts.items()}
    return {"format": FORMAT, "version": VERSION, "parts": states, "generators": _generators() if generators else None,
            "values": {name: value for name, value in things.items() if kinds[name] is None}}


def save(path, *, generators: bool = True, gradients: bool = False, **things) -> None:
    """Saves a whole run: `save("run.tape", model=model, optimizer=optimizer, loader=loader, epoch=3, loss=0.25)`.

    What has a state (modules, optimizers, schedulers, scalers, loaders: whatever has state_dict and load_state_dict; generators of
    tapegrad, NumPy and Python) goes in by its state, everything else is a value that `load` gives back. generators: also the default
    generators of tapegrad, NumPy and Python, as they are now. gradients: also p.grad, for runs that gather gradients over several
    steps. The file is written atomically.
    """
    serialization.save(collect(things, generators, gradients), path, format="tapegrad")


def load(path, *, map_location=None, strict: bool = True, **parts) -> dict:
    """Puts a saved run's state into these parts, by their names, and returns the values: the reverse of `save`.

    Optimizer state finds its parameters by their names in the models among the parts, so that parameters may have another order or
    other groups. Generators go on where they were. strict: every saved part must be given, every given one saved, and the models'
    keys must meet. Errors come before the first part has changed as far as names and kinds tell.
    """
    data = serialization.load(path, map_location=map_location)
    return restore(data, parts, strict, str(path))


def restore(data, parts: dict, strict: bool, shown: str) -> dict:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RuntimeError(f"checkpoint: {shown} holds no checkpoint\nwrite one with tapegrad.checkpoint.save; plain files are for tapegrad.load")
    if data["version"] > VERSION:
        raise RuntimeError(f"checkpoint: {shown} has version {data['version']}: this program reads versions up to {VERSION}")
    saved = data["parts"]
    for name, part in parts.items():
        kind = _kind(part)
        if kind is None:
            raise TypeError(f"checkpoint: {name!r} has no state to restore: got {type(part).__name__}")
        if name in saved and saved[name]["kind"] != kind:
            raise RuntimeError(f"checkpoint: {name!r} is a {type(part).__name__}, and the saved one was of the kind {saved[name]['kind']!r}")
    missing, unused = [n for n in parts if n not in saved], [n for n in saved if n not in parts]
    if strict and (missing or unused):
        sentences = [f"{what}: {', '.join(map(repr, which))}" for what, which in (("not in the file", missing), ("only in the file", unused)) if which]
        raise RuntimeError(f"checkpoint: the parts do not match {shown}: {'; '.join(sentences)}\nstrict=False restores those that are on both sides")
    names = _parameter_names(parts)
    # Models first: an optimizer's state takes its dtype and device from the parameters.
    for name in sorted((n for n in parts if n in saved), key=lambda n: saved[n]["kind"] != "module"):
        _restore(name, parts[name], saved[name]["kind"], saved[name]["state"], names, strict)
    if data["generators"] is not None:
        _set_generators(data["generators"])
    return data["values"]
