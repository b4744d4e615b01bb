"""What a misspelt name may have meant."""

import sys

# Names of other libraries, and what they are called here.
_ELSEWHERE = {"ndarray": "Tensor", "array": "tensor", "asarray": "as_tensor", "random": "rand", "power": "pow", "astype": "to",
              "concat": "cat", "expand_dims": "unsqueeze", "transpose_": "t_", "copy": "clone", "absolute": "abs", "ceiling": "ceil",
              "repeat_elements": "repeat_interleave", "matmult": "matmul", "nelements": "numel"}

QUANTISED = "quantised tensors are not supported: quantize_dynamic makes linear layers of int8, bfloat16 and float16 make other layers small"
_FLOAT8 = "tensors of 8-bit floating numbers are multiplied by nn.functional.scaled_mm alone: convert to bfloat16 for all else"
_MASKED = "there are no masked tensors: the functions of masked take a mask as an argument, masked.mean(x, mask=mask)"
# What PyTorch has and tapegrad has not, in one sentence. The names stay absent, so that programs which ask for them take their other way.
_ABSENT = {"nested": "there are no nested tensors: nn.utils.rnn.pad_sequence and a mask do their work",
           **dict.fromkeys(("quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic", "dequantize", "quantized",
                            "quantizable", "intrinsic"), QUANTISED),
           **dict.fromkeys(("_scaled_mm", "_scaled_grouped_mm"), _FLOAT8), "masked_tensor": _MASKED, "as_masked_tensor": _MASKED, "MaskedTensor": _MASKED, "is_masked_tensor": _MASKED}

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


def no_attribute(module: str, name: str, candidates) -> AttributeError:
    """The error of a module that has no such name."""
    hint = f": {_ABSENT[name]}" if name in _ABSENT else "" if name.startswith("_") else \
        (_elsewhere(name) if module == __package__ else "") or did_you_mean(name, candidates)
    compat = sys.modules.get(f"{__package__}.compat")
    if compat is not None and compat.is_installed():
        vision = f"{__package__}.vision"
        theirs = module.replace(vision, "torchvision", 1) if module.startswith(vision) else module.replace(__package__, "torch", 1)
        hint = hint or f"\n{theirs} is {module} here: dir({theirs}) lists its names, docs/compat.md what tapegrad leaves out"
        module = theirs
    return AttributeError(f"module '{module}' has no attribute '{name}'{hint}", name=name)
