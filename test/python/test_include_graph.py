"""Who may include whom (docs/architecture.md): downwards only."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A layer may include itself and the layers named here. bindings sees all and is in nobody's list; cuda is in nobody's
# list but theirs: from above it is reached through the kernel table and the interfaces of c10.
BELOW = {
    "c10": set(),
    "aten": {"c10"},
    "autograd": {"c10", "aten"},
    "nn": {"c10", "aten", "autograd"},
    "multiprocessing": {"c10", "aten", "autograd"},
    "distributed": {"c10", "aten", "autograd", "multiprocessing"},
    "cuda": {"c10", "aten", "distributed"},  # whose engine for devices it has
    "bindings": {"c10", "aten", "autograd", "nn", "multiprocessing", "distributed", "cuda"},
}
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def included_layers(path):
    """(line number, layer) for each include of ours; generated headers lie in the layer that their path names."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*["<](?:tapegrad/)?([a-z0-9_]+)/', line)
        if match and match.group(1) in BELOW and (ROOT / match.group(1)).is_dir():
            yield number, match.group(1)


def sources(layer):
    return [p for p in (ROOT / layer).rglob("*") if p.suffix in SUFFIXES]


@pytest.mark.parametrize("layer", BELOW)
def test_layers_include_downwards_only(layer):
    allowed = BELOW[layer] | {layer}
    wrong = [
        f"{path.relative_to(ROOT)}:{number} includes {other}"
        for path in sources(layer)
        for number, other in included_layers(path)
        if other not in allowed
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("layer", [r for r in BELOW if r != "bindings"])
def test_the_core_knows_nothing_of_python(layer):
    wrong = [
        str(path.relative_to(ROOT))
        for path in sources(layer)
        if re.search(r"#\s*include\s*[<\"](Python\.h|pybind11/|numpy/)", path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def test_includes_are_written_in_one_way():
    """`#include "tapegrad/layer/file.h"`, so that the source tree and an installed tree read the same."""
    wrong = []
    for layer in BELOW:
        for path in sources(layer):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
                if match and not match.group(1).startswith("tapegrad/"):
                    wrong.append(f"{path.relative_to(ROOT)}:{number} {match.group(1)}")
    assert not wrong, "\n".join(wrong)
