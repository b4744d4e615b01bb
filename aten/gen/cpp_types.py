"""How each argument type of a row is spelled in C++, kept by a tape node, and converted from Python."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class ArgType:
    cpp: str  # parameter type
    saved: str  # member type in a node; empty: never saved
    stub: str  # Python annotation
    tensor: bool = False  # carries gradients


TYPES = {
    "Tensor": ArgType("const Tensor&", "SavedTensor", "Tensor", tensor=True),
    "Tensor?": ArgType("const Tensor&", "SavedTensor", "Tensor | None", tensor=True),
    "Tensor|Scalar": ArgType("const Operand&", "SavedTensor", "Tensor | Number", tensor=True),
    "Tensor|Scalar?": ArgType("const Operand&", "SavedTensor", "Tensor | Number | None", tensor=True),
    "Tensor[]": ArgType("TensorSpan", "SavedList", "Sequence[Tensor]", tensor=True),
    "Scalar": ArgType("const Scalar&", "Scalar", "Number"),
    "Scalar?": ArgType("const std::optional<Scalar>&", "std::optional<Scalar>", "Number | None"),
    "int": ArgType("int64_t", "int64_t", "int"),
    "int?": ArgType("std::optional<int64_t>", "std::optional<int64_t>", "int | None"),
    "float": ArgType("double", "double", "float"),
    "float?": ArgType("std::optional<double>", "std::optional<double>", "float | None"),
    "bool": ArgType("bool", "bool", "bool"),
    "bool?": ArgType("std::optional<bool>", "std::optional<bool>", "bool | None"),
    "int[]": ArgType("IntSpan", "DimVector", "Sequence[int] | int"),
    "int[]?": ArgType("OptionalInts", "std::optional<DimVector>", "Sequence[int] | int | None"),
    "float[]": ArgType("std::span<const double>", "std::vector<double>", "Sequence[float]"),
    "float[]?": ArgType("const std::optional<std::vector<double>>&", "std::optional<std::vector<double>>", "Sequence[float] | None"),
    "str": ArgType("std::string_view", "std::string", "str"),
    "str?": ArgType("std::optional<std::string_view>", "std::optional<std::string>", "str | None"),
    "DType": ArgType("DType", "DType", "dtype"),
    "DType?": ArgType("std::optional<DType>", "std::optional<DType>", "dtype | None"),
    "Device?": ArgType("std::optional<Device>", "std::optional<Device>", "device | str | None"),
    "MemoryFormat?": ArgType("std::optional<MemoryFormat>", "std::optional<MemoryFormat>", "memory_format | None"),
    "Generator?": ArgType("const GeneratorPtr&", "", "Generator | None"),
    **{f"int?[{n}]": ArgType("IntSpan", "DimVector", "Sequence[int | None] | int | None") for n in range(1, 4)},
    **{f"int[{n}]": ArgType("IntSpan", "DimVector", "Sequence[int] | int") for n in range(1, 7)},
    **{f"int[{n}]?": ArgType("OptionalInts", "std::optional<DimVector>", "Sequence[int] | int | None") for n in range(1, 7)},
}


def fixed_length(row_type: str) -> int:
    """The N of `int[N]` and `int?[N]`, or 0."""
    found = re.match(r"int\??\[(\d)\]", row_type)
    return int(found[1]) if found else 0


def cpp_default(arg_type: str, text: str) -> str:
    """A default of the table as a C++ default argument."""
    if text == "None":
        return "Operand(Tensor())" if arg_type == "Tensor|Scalar?" else "{}"
    if text in ("True", "False"):
        return text.lower()
    if text == "[]":
        return "{}"
    if text.startswith("["):
        return "{" + text[1:-1] + "}"
    if arg_type.startswith("int[") and text.lstrip("-").isdigit():
        n = fixed_length(arg_type) or 1
        return "{" + ", ".join([text] * n) + "}"
    if text in ("inf", "-inf"):
        return ("-" if text[0] == "-" else "") + "std::numeric_limits<double>::infinity()"
    return text


RETURN_SCALARS = {"bool": "bool", "int": "int64_t", "Scalar": "Scalar", "float": "double", "DType": "DType", "None": "void"}
