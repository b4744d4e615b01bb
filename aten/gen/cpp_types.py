"""How each argument type of a row is spelled in C++, kept by a tape node, and converted from Python."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ArgType:
    row: str  # as written in the table
    cpp: str  # parameter type
    saved: str  # member type in a node; empty: never saved
    stub: str  # Python annotation
    tensor: bool = False  # carries gradients
    optional: bool = False


def _types():
    rows = [
        ("Tensor", "const Tensor&", "SavedTensor", "Tensor", True, False),
        ("Tensor?", "const Tensor&", "SavedTensor", "Tensor | None", True, True),
        ("Tensor|Scalar", "const Operand&", "SavedTensor", "Tensor | Number", True, False),
        ("Tensor|Scalar?", "const Operand&", "SavedTensor", "Tensor | Number | None", True, True),
        ("Tensor[]", "TensorSpan", "SavedList", "Sequence[Tensor]", True, False),
        ("Scalar", "const Scalar&", "Scalar", "Number"),
        ("Scalar?", "const std::optional<Scalar>&", "std::optional<Scalar>", "Number | None"),
        ("int", "int64_t", "int64_t", "int"),
        ("int?", "std::optional<int64_t>", "std::optional<int64_t>", "int | None"),
        ("float", "double", "double", "float"),
        ("float?", "std::optional<double>", "std::optional<double>", "float | None"),
        ("bool", "bool", "bool", "bool"),
        ("bool?", "std::optional<bool>", "std::optional<bool>", "bool | None"),
        ("int[]", "IntSpan", "DimVector", "Sequence[int] | int"),
        ("int[]?", "OptionalInts", "std::optional<DimVector>", "Sequence[int] | int | None"),
        ("float[]", "std::span<const double>", "std::vector<double>", "Sequence[float]"),
        ("float[]?", "const std::optional<std::vector<double>>&", "std::optional<std::vector<double>>", "Sequence[float] | None"),
        ("str", "std::string_view", "std::string", "str"),
        ("str?", "std::optional<std::string_view>", "std::optional<std::string>", "str | None"),
        ("DType", "DType", "DType", "dtype"),
        ("DType?", "std::optional<DType>", "std::optional<DType>", "dtype | None"),
        ("Device?", "std::optional<Device>", "std::optional<Device>", "device | str | None"),
        ("MemoryFormat?", "std::optional<MemoryFormat>", "std::optional<MemoryFormat>", "memory_format | None"),
        ("Generator?", "const GeneratorPtr&", "", "Generator | None"),
    ]
    table = {}
    for r in rows:
        tensor = r[4] if len(r) > 4 else False
        table[r[0]] = ArgType(*r[:4], tensor=tensor, optional=r[0].endswith("?"))
    for n in range(1, 7):
        table[f"int[{n}]"] = ArgType(f"int[{n}]", "IntSpan", "DimVector", "Sequence[int] | int")
        table[f"int[{n}]?"] = ArgType(
            f"int[{n}]?", "OptionalInts", "std::optional<DimVector>", "Sequence[int] | int | None",
            optional=True)
    return table


TYPES = _types()


def fixed_length(row_type: str) -> int:
    """The N of `int[N]`, or 0."""
    if row_type.startswith("int[") and row_type[4].isdigit():
        return int(row_type[4])
    return 0


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
