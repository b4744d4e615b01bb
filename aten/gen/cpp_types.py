"""How each argument type of a row is spelled in C++, kept by a tape node, and converted from Python."""

import re
from collections import namedtuple


class ArgType(namedtuple("ArgType", "cpp saved stub kind getter tensor", defaults=[False])):
    """C++ parameter type; member type in a node (empty: never saved); Python annotation; ArgKind and method of ArgumentsBase (bindings' args.h); whether
    it carries gradients."""

    def optional(self):
        """The type with `?`."""
        cpp = self.cpp if self.tensor or self.kind == "Generator" else "OptionalInts" if self.kind == "Ints" else f"std::optional<{self.cpp}>"
        cpp = {"Scalar": "const std::optional<Scalar>&", "Floats": "const std::optional<std::vector<double>>&"}.get(self.kind, cpp)
        saved = self.saved if self.tensor or not self.saved else f"std::optional<{self.saved}>"
        return self._replace(cpp=cpp, saved=saved, stub=f"{self.stub} | None")


TYPES = {
    "Tensor": ArgType("const Tensor&", "SavedTensor", "Tensor", "Tensor", "tensor", tensor=True),
    "Tensor|Scalar": ArgType("const Operand&", "SavedTensor", "Tensor | Number", "Operand", "operand", tensor=True),
    "Tensor[]": ArgType("TensorSpan", "SavedList", "Sequence[Tensor]", "Tensors", "tensors", tensor=True),
    "Scalar": ArgType("const Scalar&", "Scalar", "Number", "Scalar", "scalar"),
    "int": ArgType("int64_t", "int64_t", "int", "Int", "integer"),
    "float": ArgType("double", "double", "float", "Float", "real"),
    "bool": ArgType("bool", "bool", "bool", "Bool", "boolean"),
    "int[]": ArgType("IntSpan", "DimVector", "Sequence[int] | int", "Ints", "ints"),
    "float[]": ArgType("std::span<const double>", "std::vector<double>", "Sequence[float]", "Floats", "reals"),
    "str": ArgType("std::string_view", "std::string", "str", "Str", "str"),
    "DType": ArgType("DType", "DType", "dtype", "DType", "dtype"),
    "Device": ArgType("Device", "Device", "device | str", "Device", "device"),
    "MemoryFormat": ArgType("MemoryFormat", "MemoryFormat", "memory_format", "MemoryFormat", "memory_format"),
    "Generator": ArgType("const GeneratorPtr&", "", "Generator", "Generator", "generator"),
}
TYPES |= {f"int[{n}]": TYPES["int[]"]._replace(getter="ints_n") for n in range(1, 7)}
TYPES |= {f"{name}?": kind.optional() for name, kind in TYPES.items() if name != "Tensor[]"}
TYPES |= {f"int?[{n}]": TYPES[f"int[{n}]"]._replace(stub="Sequence[int | None] | int | None", getter="ints_or_none") for n in range(1, 4)}


def fixed_length(row_type: str) -> int:
    """The N of `int[N]` and `int?[N]`, or 0."""
    found = re.match(r"int\??\[(\d)\]", row_type)
    return int(found[1]) if found else 0


def cpp_default(arg_type: str, text: str) -> str:
    """A default of the table as a C++ default argument."""
    if text == "None":
        return "Operand(Tensor())" if arg_type == "Tensor|Scalar?" else "{}"
    if text.startswith("["):
        return "{" + text[1:-1] + "}"
    if arg_type.startswith("int[") and text.lstrip("-").isdigit():
        return "{" + ", ".join([text] * (fixed_length(arg_type) or 1)) + "}"
    infinity = "std::numeric_limits<double>::infinity()"
    return {"True": "true", "False": "false", "inf": infinity, "-inf": f"-{infinity}"}.get(text, text)


RETURN_SCALARS = {"bool": "bool", "int": "int64_t", "Scalar": "Scalar", "float": "double", "DType": "DType", "None": "void"}
