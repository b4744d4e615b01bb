"""Optimizer state by the names of parameters: a state_dict numbers them by their order, which changes when a model does."""


def _numbered(optimizer) -> list:
    """The parameters in the order in which state_dict numbers them."""
    found: dict = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            found.setdefault(id(p), p)
    return list(found.values())


def names_of(optimizer, names: dict[int, str]) -> list:
    """The names of the parameters by number; None for one that is in no model."""
    return [names.get(id(p)) for p in _numbered(optimizer)]


def renumbered(key: str, optimizer, saved: dict, names: dict[int, str], strict: bool) -> dict:
    """The saved state_dict with the numbers, groups and order that the optimizer has now.

    Options come from the saved group of a group's first parameter that was saved. Parameters without names, on either side, are
    matched by position.
    """
    state, old_names = saved["state"], saved["names"]
    new_names = names_of(optimizer, names)
    if None in old_names or None in new_names or len(set(old_names)) != len(old_names):
        return state
    number = {name: n for n, name in enumerate(old_names)}
    missing = [name for name in new_names if name not in number]
    gone = [name for name in old_names if name not in set(new_names)]
    if strict and (missing or gone):
        sentences = [f"{what}: {', '.join(which)}" for what, which in (("not in the file", missing), ("only in the file", gone)) if which]
        raise RuntimeError(f"checkpoint: the parameters of {key!r} do not match: {'; '.join(sentences)}\n"
                           "strict=False keeps the state of those that are on both sides")
    group_of = {n: group for group in state["param_groups"] for n in group["params"]}
    groups, place = [], {id(p): n for n, p in enumerate(_numbered(optimizer))}
    for own in optimizer.param_groups:
        numbers = [place[id(p)] for p in own["params"]]
        known = [number[new_names[n]] for n in numbers if new_names[n] in number]
        source = group_of[known[0]] if known else own
        group = {k: v for k, v in source.items() if k not in ("params", "param_names")}
        if "param_names" in own:
            group["param_names"] = own["param_names"]
        groups.append({**group, "params": numbers})
    new = {n: state["state"][number[name]] for n, name in enumerate(new_names) if name in number and number[name] in state["state"]}
    others = {k: v for k, v in state["state"].items() if not isinstance(k, int)}
    rest = {k: v for k, v in state.items() if k not in ("state", "param_groups")}
    return {**rest, "state": {**new, **others}, "param_groups": groups}
