"""What a misspelt name may have meant, and why a name or a module of PyTorch is not there."""

import sys

from ._lazy import is_compat

# Names of other libraries, and what they are called here.
_ELSEWHERE = {"ndarray": "Tensor", "array": "tensor", "asarray": "as_tensor", "random": "rand", "power": "pow", "astype": "to",
              "concat": "cat", "expand_dims": "unsqueeze", "transpose_": "t_", "copy": "clone", "absolute": "abs", "ceiling": "ceil",
              "repeat_elements": "repeat_interleave", "matmult": "matmul", "nelements": "numel"}

QUANTISED = "quantised tensors are not supported: quantize_dynamic makes linear layers of int8, bfloat16 and float16 make other layers small"
_MASKED = "there are no masked tensors: the functions of masked take a mask as an argument, masked.mean(x, mask=mask)"
# What PyTorch has and tapegrad has not, in one sentence. The names stay absent, so that programs which ask for them take their other way.
_ABSENT = {"nested": "there are no nested tensors: nn.utils.rnn.pad_sequence and a mask do their work",
           **dict.fromkeys(("quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic", "dequantize", "quantized",
                            "quantizable", "intrinsic"), QUANTISED),
           "_scaled_grouped_mm": "it is nn.functional.scaled_grouped_mm", "masked_tensor": _MASKED, "as_masked_tensor": _MASKED, "MaskedTensor": _MASKED, "is_masked_tensor": _MASKED}

# The same of modules and of all that is below them; the longest path counts. Other modules of PyTorch have no reason of their own.
NO_GRAPHS = "programs are not recorded as graphs: tapegrad runs eagerly"
NO_ARCHIVES = "archives of code are neither written nor read\nsave and load the state_dict, and keep the code"
_ABSENT_MODULES = {"nested": _ABSENT["nested"], "fx": NO_GRAPHS, "package": NO_ARCHIVES, "masked.maskedtensor": _MASKED,
                   **dict.fromkeys(("ao", "quantization", "nn.intrinsic", "nn.qat", "nn.quantizable", "nn.quantized"), QUANTISED),
                   "ao.pruning": "schedules that prune are not there: nn.utils.prune prunes", "jit": "functions and modules run as they are: jit.trace makes programs of them",
                   "onnx": "onnx.export translates the operators that docs/onnx.md lists by tables of its own",
                   "export": "export.export writes programs down by public functions, without graphs", "nativert": NO_GRAPHS,
                   "distributed": "docs/distributed.md says what distributed has", "distributed.elastic": "distributed.run starts the ranks of one machine",
                   "distributed.checkpoint": "checkpoints have one form here: a folder that save() and load() know",
                   "cuda": "docs/cuda.md says what is there for GPUs", "backends": "switches of libraries that tapegrad does not use are not there",
                   "sparse.semi_structured": "matrices with two of four elements are not sparse tensors here: COO, CSR, CSC, BSR and BSC are there",
                   "utils.hipify": "AMD's GPUs are not supported", "utils.data.datapipes": "chains over data sets are in utils.data.pipes"}


def why_no_module(path: str) -> str:
    """Why there is no module of this path below the root, in one sentence; empty where nothing more is known."""
    while path and path not in _ABSENT_MODULES:
        path = path.rpartition(".")[0]
    return _ABSENT_MODULES.get(path, "")


def no_module(name: str, shown: str) -> ModuleNotFoundError:
    """The error of an import of a module that is not there; `shown`: its name as the program writes it."""
    from pkgutil import iter_modules

    above, _, last = name.rpartition(".")
    beside = [m.name for m in iter_modules(getattr(sys.modules.get(above), "__path__", ()))]
    why = why_no_module(name.partition(".")[2]) or "docs/compat.md says what tapegrad leaves out"
    return ModuleNotFoundError(f"No module named {shown!r}: {why}{did_you_mean(last, beside)}", name=shown)


# The same of a tensor's methods.
ABSENT_METHODS = {**dict.fromkeys(("dequantize", "int_repr", "q_scale", "q_zero_point", "qscheme"), QUANTISED),
                   **dict.fromkeys(("to_padded_tensor", "_nested_tensor_size"), _ABSENT["nested"]),
                   "to_mkldnn": "oneDNN's layouts stay inside of the operators that use them: the tensor itself can be given to them"}


class _AbsentMethod:
    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text

    def __get__(self, instance, owner):
        raise AttributeError(f"'{owner.__module__}.{owner.__name__}' object has no attribute '{self.name}': {self.text}", name=self.name)


def mark_absent_methods(cls: type) -> None:
    """Lets attributes that a class lacks say why. hasattr() is False for them."""
    for name, text in ABSENT_METHODS.items():
        if not hasattr(cls, name):
            setattr(cls, name, _AbsentMethod(name, text))


def _elsewhere(name: str) -> str:
    """The module below the root that has a name which the root has not: cuda, or one that is loaded."""
    from ._lazy import load

    if hasattr(load(f"{__package__}.cuda"), name):
        return f"\nit is {__package__}.cuda.{name}"
    for path, module in sorted(sys.modules.items(), key=lambda pair: (pair[0].count("."), pair[0])):
        if path.startswith(f"{__package__}.") and "._" not in path and module is not None and name in vars(module):
            return f"\nit is {path}.{name}"
    return ""


def did_you_mean(name: str, candidates) -> str:
    """A second line for an error message: the most similar of the names, or nothing."""
    from difflib import get_close_matches

    names = {c for c in candidates if not c.startswith("_")}
    close = [c for c in [_ELSEWHERE.get(name)] if c in names] or get_close_matches(name, names, n=1, cutoff=0.7)
    return f"\ndid you mean '{close[0]}'?" if close else ""


def _is_from_import() -> bool:
    """Whether the program asks by `from module import name`, whose error Python makes itself, without ours, where it gets an AttributeError."""
    from opcode import opmap

    frame = sys._getframe(2)  # of no_attribute's caller
    while frame is not None and frame.f_code.co_name in ("__getattr__", "get"):  # of a module, and of compat/importer.py
        frame = frame.f_back
    return frame is not None and frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


def no_attribute(module: str, name: str, candidates) -> AttributeError | ImportError:
    """The error of a module that has no such name."""
    hint = f": {_ABSENT[name]}" if name in _ABSENT else "" if name.startswith("_") else \
        (_elsewhere(name) if module == __package__ else "") or did_you_mean(name, candidates)
    if not hint and (why := why_no_module(module.partition(".")[2])):
        hint = f": {why}"
    if is_compat():
        vision = f"{__package__}.vision"
        theirs = module.replace(vision, "torchvision", 1) if module.startswith(vision) else module.replace(__package__, "torch", 1)
        hint = hint or f"\n{theirs} is {module} here: dir({theirs}) lists its names, docs/compat.md what tapegrad leaves out"
        module = theirs
    if _is_from_import():
        return ImportError(f"cannot import name '{name}' from '{module}'{hint}", name=module)
    return AttributeError(f"module '{module}' has no attribute '{name}'{hint}", name=name)
