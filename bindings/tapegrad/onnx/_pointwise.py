"""Elementwise operators: tables for those that are one ONNX operator or one expression."""

from __future__ import annotations

import math

from .. import bool as bool_
from .. import float32, int64
from ._builder import Builder, Ref, handler
from ._errors import Refused

# One operator, in the dtype of the result.
_UNARY = ("abs=Abs exp=Exp log=Log sin=Sin cos=Cos tan=Tan asin=Asin acos=Acos atan=Atan sinh=Sinh cosh=Cosh tanh=Tanh asinh=Asinh "
          "acosh=Acosh atanh=Atanh erf=Erf sigmoid=Sigmoid neg=Neg reciprocal=Reciprocal sqrt=Sqrt floor=Floor ceil=Ceil _round=Round relu=Relu "
          "softsign=Softsign hardswish=HardSwish mish=Mish clone=Identity contiguous=Identity positive=Identity _alias=Identity _identity=Identity conj=Identity")
_BINARY = "mul=Mul true_divide=Div maximum=Max minimum=Min"
_COMPARE = "eq=Equal lt=Less le=LessOrEqual gt=Greater ge=GreaterOrEqual"
_LOGICAL = "logical_and=And logical_or=Or logical_xor=Xor"
_BITWISE = "bitwise_and=BitwiseAnd:And bitwise_or=BitwiseOr:Or bitwise_xor=BitwiseXor:Xor"


def _rows(text: str):
    return [row.split("=") for row in text.split()]


def _unary(op_type: str):
    def translate(g: Builder, x, *_):
        x = g.number(x, g.out[0].dtype)
        return x if op_type == "Identity" or op_type in ("Floor", "Ceil") and not x.dtype.is_floating_point else g.op(op_type, x)

    return translate


def _binary(op_type: str):
    return lambda g, x, y: g.op(op_type, *g.cast_all(g.out[0].dtype, x, y))


def _compare(op_type: str):
    return lambda g, x, y: g.op(op_type, *g.cast_all(g.common(x, y), x, y), kind=bool_)


def _logical(op_type: str):
    return lambda g, x, y: g.op(op_type, *g.cast_all(bool_, x, y))


def _bitwise(names: str):
    numbers, bools = names.split(":")
    return lambda g, x, y: g.op(bools if g.out[0].dtype is bool_ else numbers, *g.cast_all(g.out[0].dtype, x, y))


for _text, _make in ((_UNARY, _unary), (_BINARY, _binary), (_COMPARE, _compare), (_LOGICAL, _logical), (_BITWISE, _bitwise)):
    for _name, _op_type in _rows(_text):
        handler(_name, sizes=_make is not _unary)(_make(_op_type))

# An expression in the dtype of the result: of the operands, which are cast to it.
_EXPRESSIONS = {
    "sign": lambda g, x: _sign(g, x), "sgn": lambda g, x: _sign(g, x),
    "exp2": lambda g, x: g.Pow(g.number(2, x.dtype), x),
    "expm1": lambda g, x: g.Exp(x) - 1, "log1p": lambda g, x: g.Log(x + 1),
    "log2": lambda g, x: g.Log(x) / math.log(2), "log10": lambda g, x: g.Log(x) / math.log(10),
    "erfc": lambda g, x: 1 - g.Erf(x), "rsqrt": lambda g, x: g.Reciprocal(g.Sqrt(x)),
    "square": lambda g, x: x * x, "_square": lambda g, x: x * x, "_cube": lambda g, x: x * x * x,
    "trunc": lambda g, x: g.Sign(x) * g.Floor(g.Abs(x)), "frac": lambda g, x: x - g.Sign(x) * g.Floor(g.Abs(x)),
    "silu": lambda g, x: x * g.Sigmoid(x), "logsigmoid": lambda g, x: -g.Softplus(-x), "tanhshrink": lambda g, x: x - g.Tanh(x),
    "relu6": lambda g, x: g.Clip(x, g.number(0, x.dtype), g.number(6, x.dtype)),
    "hardsigmoid": lambda g, x: g.HardSigmoid(x, alpha=1 / 6, beta=0.5),
    "selu": lambda g, x: g.Selu(x), "deg2rad": lambda g, x: x * (math.pi / 180), "rad2deg": lambda g, x: x * (180 / math.pi),
    "lerp": lambda g, x, y, w: x + w * (y - x), "addcmul": lambda g, x, y, z, value: x + y * z * value,
    "addcdiv": lambda g, x, y, z, value: x + y / z * value,
    "_prelu": lambda g, x, w: g.PRelu(x, w),
    "logaddexp": lambda g, x, y: g.Max(x, y) + g.Log(1 + g.Exp(-g.Abs(x - y))),
    "xlogy": lambda g, x, y: g.where(g.Equal(x, g.number(0, x.dtype), kind=bool_), 0.0, x * g.Log(y), x.dtype),
    "hypot": lambda g, x, y: g.Sqrt(x * x + y * y), "logit": lambda g, x, eps: g.Log(_clipped(g, x, eps) / (1 - _clipped(g, x, eps))),
    "leaky_relu": lambda g, x, slope: g.LeakyRelu(x, alpha=float(slope)), "celu": lambda g, x, alpha: g.Celu(x, alpha=float(alpha)),
    "elu": lambda g, x, alpha: g.Elu(x, alpha=float(alpha)),
    "hardtanh": lambda g, x, least, most: g.Clip(x, g.number(least, x.dtype), g.number(most, x.dtype)),
    "softshrink": lambda g, x, lambd: g.Shrink(x, lambd=float(lambd), bias=float(lambd)),
    "hardshrink": lambda g, x, lambd: g.Shrink(x, lambd=float(lambd), bias=0.0),
    "threshold": lambda g, x, threshold, value: g.where(g.Greater(x, g.number(threshold, x.dtype), kind=bool_), x, value, x.dtype),
    "clamp": lambda g, x, least=None, most=None: _clipped_by(g, x, least, most), "clamp_min": lambda g, x, least: _clipped_by(g, x, least, None),
    "clamp_max": lambda g, x, most: _clipped_by(g, x, None, most),
}


def _sign(g: Builder, x: Ref):
    """Zero for NaN, too, which ONNX's Sign leaves undefined."""
    zero = g.number(0, x.dtype)
    return g.cast(g.Greater(x, zero, kind=bool_), x.dtype) - g.cast(g.Less(x, zero, kind=bool_), x.dtype)


def _clipped(g: Builder, x: Ref, eps):
    return x if eps is None else g.Clip(x, g.number(eps, x.dtype), g.number(1 - eps, x.dtype))


def _clipped_by(g: Builder, x: Ref, least, most):
    x = x if least is None else g.Max(x, g.number(least, x.dtype))
    return x if most is None else g.Min(x, g.number(most, x.dtype))


def _expression(make):
    def translate(g: Builder, *args):
        kind = g.out[0].dtype
        return make(g, *(g.number(x, kind) if isinstance(x, Ref) or i == 0 else x for i, x in enumerate(args)))

    return translate


for _name, _expression_of in _EXPRESSIONS.items():
    handler(_name, sizes=_name in ("clamp", "clamp_min", "clamp_max"))(_expression(_expression_of))


@handler("add", "sub", "rsub", sizes=True)
def _add(g: Builder, x, y, alpha=1):
    kind = g.out[0].dtype
    x, y = g.cast_all(kind, x, y)
    if g.function == "rsub":
        x, y = y, x
    if kind is bool_:
        return g.Or(x, y)
    y = y if alpha == 1 else y * alpha
    return x + y if g.function == "add" else x - y


@handler("div", "floor_divide", "_floor_divide", sizes=True)
def _div(g: Builder, x, y, rounding="floor"):
    kind = g.out[0].dtype
    x, y = g.cast_all(kind, x, y)
    if rounding is None or kind.is_floating_point:
        q = x / y
        return q if rounding is None else g.Floor(q) if rounding == "floor" else g.Sign(q) * g.Floor(g.Abs(q))
    if rounding == "trunc":
        return x / y
    return (x - g.Mod(x, y)) / y  # the remainder has the divisor's sign, so this division is exact


@handler("remainder", "fmod", sizes=True)
def _remainder(g: Builder, x, y):
    kind = g.out[0].dtype
    x, y = g.cast_all(kind, x, y)
    if g.function == "fmod":
        return g.Mod(x, y, fmod=1)
    return x - y * g.Floor(x / y) if kind.is_floating_point else g.Mod(x, y)


@handler("pow", "_pow")
def _pow(g: Builder, x, y):
    kind = g.out[0].dtype
    if y in (1, 2) and not isinstance(y, (Ref, bool)):
        x = g.number(x, kind)
        return x if y == 1 else x * x
    return g.Pow(*g.cast_all(kind, x, y))


@handler("round")
def _round(g: Builder, x: Ref, decimals=0):
    if not x.dtype.is_floating_point:
        return x
    scale = 10.0 ** abs(decimals)
    return g.Round(x) if not decimals else g.Round(x * scale) / scale if decimals > 0 else g.Round(x / scale) * scale


@handler("ne", sizes=True)
def _ne(g: Builder, x, y):
    return g.Not(g.Equal(*g.cast_all(g.common(x, y), x, y), kind=bool_))


@handler("logical_not")
def _logical_not(g: Builder, x):
    return g.Not(g.number(x, bool_))


@handler("bitwise_not")
def _bitwise_not(g: Builder, x):
    return g.Not(x) if x.dtype is bool_ else g.BitwiseNot(x)


def _float(g: Builder, x: Ref) -> Ref:
    return x if x.dtype.is_floating_point else g.cast(x, float32)


@handler("isnan", "isinf", "isposinf", "isneginf", "isfinite")
def _classes(g: Builder, x: Ref):
    x = _float(g, x)
    if g.function == "isnan":
        return g.IsNaN(x, kind=bool_)
    if g.function == "isfinite":
        return g.Not(g.Or(g.IsNaN(x, kind=bool_), g.IsInf(x, kind=bool_)))
    return g.IsInf(x, kind=bool_, detect_positive=int(g.function != "isneginf"), detect_negative=int(g.function != "isposinf"))


@handler("where", sizes=True)
def _where(g: Builder, condition: Ref, x, y):
    return g.where(condition, x, y, g.out[0].dtype)


@handler("masked_fill", sizes=True)
def _masked_fill(g: Builder, x: Ref, mask: Ref, value):
    return g.where(mask, value, x, x.dtype)


@handler("gelu", "_gelu", "_gelu_tanh")
def _gelu(g: Builder, x: Ref, approximate="none"):
    if approximate == "tanh" or g.function == "_gelu_tanh":
        return x * 0.5 * (1 + g.Tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)))
    return x * 0.5 * (1 + g.Erf(x * math.sqrt(0.5)))


@handler("softplus")
def _softplus(g: Builder, x: Ref, beta=1, threshold=20):
    made = g.Softplus(x) if beta == 1 else g.Softplus(x * beta) / beta
    return g.where(g.Greater(x * beta, g.number(threshold, x.dtype), kind=bool_), x, made, x.dtype)


@handler("glu")
def _glu(g: Builder, x: Ref, dim=-1):
    a, b = g.Split(x, axis=x.axis(dim), num_outputs=2, outputs=2)
    return a * g.Sigmoid(b)


@handler("prelu")
def _prelu(g: Builder, x: Ref, weight: Ref):
    shape = [1] * x.ndim
    if weight.ndim and x.ndim > 1:
        shape[1] = weight.shape[0]
    return g.PRelu(x, g.reshape(weight, shape))


@handler("dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d")
def _dropout(g: Builder, x: Ref, p=0.5, training=True, inplace=False):
    if training and p > 0:
        raise Refused("it drops numbers at random: export the model in evaluation mode")
    return x


@handler("rrelu")
def _rrelu(g: Builder, x: Ref, lower=1 / 8, upper=1 / 3, training=False, inplace=False):
    if training:
        raise Refused("its slopes are random: export the model in evaluation mode")
    return g.LeakyRelu(x, alpha=(lower + upper) / 2)


@handler("nan_to_num")
def _nan_to_num(g: Builder, x: Ref, nan=None, posinf=None, neginf=None):
    from .. import finfo

    if not x.dtype.is_floating_point:
        return x
    limits = finfo(x.dtype)
    made = g.where(g.IsNaN(x, kind=bool_), 0.0 if nan is None else nan, x, x.dtype)
    made = g.where(g.IsInf(x, kind=bool_, detect_negative=0), limits.max if posinf is None else posinf, made, x.dtype)
    return g.where(g.IsInf(x, kind=bool_, detect_positive=0), limits.min if neginf is None else neginf, made, x.dtype)


@handler("_to_copy", "to", "type_as")
def _to(g: Builder, x: Ref, *_):
    return g.cast(x, g.out[0].dtype)


@handler("one_hot")
def _one_hot(g: Builder, x: Ref, classes=-1):
    if classes < 0:
        raise Refused("the number of classes is read from the values")
    return g.cast(g.Equal(g.unsqueeze(x, x.ndim), g.const(list(range(classes))), kind=bool_), int64)
