"""Where the time of a step goes, by the library's own profiler."""

import re
import time
from collections import defaultdict

KINDS = {  # the first that matches an operator's name
    "convolutions": r"conv",
    "attention": r"attention",
    "recurrent layers": r"lstm|gru|rnn",
    "optimizer": r"Optimizer\.step|_fused_|_foreach_",
    "sparse products": r"sparse",
    "matrix products": r"linear|mm$|matmul|bmm|addmv|::mv|::dot|baddbmm",
    "norms": r"norm",
    "pooling": r"pool|interpolate|upsample",
    "losses and softmax": r"softmax|nll|cross_entropy|mse|binary_cross|logsumexp",
    "tables and indexing": r"embedding|index|gather|scatter|unique|coalesce",
    "copies": r"copy|clone|contiguous|cat$|stack$|::to$",
    "other operators": r"^aten::|Backward0$|^autograd",
}


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), "outside operators")


def profile(lib, step, steps: int) -> dict:
    """Seconds of a step: the whole, what is outside of any operator and node of the tape, and by operator (its own time)."""
    step()
    with lib.profiler.profile() as p:
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        wall = time.perf_counter() - begin
    own, within = defaultdict(float), 0.0
    for event in p.events():
        own[event.name.removeprefix("autograd::engine::evaluate_function: ")] += event.self_cpu_time_total / 1e6 / steps
        if event.cpu_parent is None:
            within += event.cpu_time_total / 1e6
    rows = dict(sorted(own.items(), key=lambda item: -item[1]))
    return {"seconds": wall / steps, "outside": (wall - within) / steps, "operators": rows}


def by_kind(found: dict) -> dict:
    """Shares of the step, by kinds of operators."""
    shares = dict.fromkeys([*KINDS, "outside operators"], 0.0)
    for name, seconds in found["operators"].items():
        shares[kind_of(name)] += seconds / found["seconds"]
    shares["outside operators"] += found["outside"] / found["seconds"]
    return shares


def draw(profiles: dict, path) -> None:
    """A bar of shares for each model."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(profiles)[::-1]
    shares = {name: by_kind(profiles[name]) for name in names}
    figure, axes = plt.subplots(figsize=(11, 0.42 * len(names) + 2))
    left, colours = [0.0] * len(names), plt.get_cmap("tab20").colors
    for kind, colour in zip([*KINDS, "outside operators"], colours):
        widths = [100 * shares[name][kind] for name in names]
        if max(widths) >= 1:
            axes.barh(names, widths, left=left, label=kind, color=colour)
        left = [a + b for a, b in zip(left, widths)]
    axes.set(xlabel="share of a training step, %", xlim=(0, 100))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncol=4, fontsize=8)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
