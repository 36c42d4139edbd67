"""Operations on single numbers, as C writes them.

`{name}` is an argument of torch's operation, converted to the type in which it computes, `{_}` that type's ending in prelude.h.
"""

from __future__ import annotations

import math
from typing import Any

import torch

TYPES = {  # of torch: in C, and its ending in prelude.h
    torch.float32: ("float", "_f32"),
    torch.float64: ("double", "_f64"),
    torch.int64: ("int64_t", "_i64"),
    torch.uint8: ("uint8_t", "_i64"),
    torch.bool: ("_Bool", "_i64"),
}
COMPARISONS = {
    "eq": "({self} == {other})",
    "ne": "({self} != {other})",
    "lt": "({self} < {other})",
    "le": "({self} <= {other})",
    "gt": "({self} > {other})",
    "ge": "({self} >= {other})",
    "logical_and": "({self} && {other})",
    "logical_or": "({self} || {other})",
    "logical_not": "(!{self})",
    "isnan": "({self} != {self})",
    "isinf": "(abs{_}({self}) == INFINITY)",
}  # in the type of what is compared; the others in the type of their result
ELEMENTWISE = {
    **COMPARISONS,
    "add": "({self} + {alpha} * {other})",
    "sub": "({self} - {alpha} * {other})",
    "rsub": "({other} - {alpha} * {self})",
    "mul": "({self} * {other})",
    "div": "({self} / {other})",
    "neg": "(-{self})",
    "abs": "abs{_}({self})",
    "reciprocal": "(1 / {self})",
    "sqrt": "sqrt{_}({self})",
    "rsqrt": "(1 / sqrt{_}({self}))",
    "exp": "exp{_}({self})",
    "expm1": "expm1{_}({self})",
    "log": "log{_}({self})",
    "log1p": "log1p{_}({self})",
    "sin": "sin{_}({self})",
    "cos": "cos{_}({self})",
    "erf": "erf{_}({self})",
    "lgamma": "lgamma{_}({self})",
    "floor": "floor{_}({self})",
    "sign": "(({self} > 0) - ({self} < 0))",
    "sgn": "(({self} > 0) - ({self} < 0))",
    "relu": "({self} < 0 ? 0 : {self})",
    "threshold_backward": "({self} <= {threshold} ? 0 : {grad_output})",
    "sigmoid": "sigmoid{_}({self})",
    "sigmoid_backward": "({grad_output} * (1 - {output}) * {output})",
    "tanh": "tanh{_}({self})",
    "tanh_backward": "({grad_output} * (1 - {output} * {output}))",
    "softplus": "softplus{_}({self}, {beta}, {threshold})",
    "softplus_backward": "softplus_backward{_}({grad_output}, {self}, {beta}, {threshold})",
    "logaddexp": "logaddexp{_}({self}, {other})",
    "maximum": "({self} > {other} || {self} != {self} ? {self} : {other})",
    "minimum": "({self} < {other} || {self} != {self} ? {self} : {other})",
    "where": "({condition} ? {self} : {other})",
    "remainder": "remainder{_}({self}, {other})",
    "bitwise_and": "({self} & {other})",
    "bitwise_or": "({self} | {other})",
    "bitwise_xor": "({self} ^ {other})",
    **dict.fromkeys(("bitwise_left_shift", "__lshift__"), "(0 <= {other} && {other} < 64 ? {self} << {other} : 0)"),
    **dict.fromkeys(("bitwise_right_shift", "__rshift__"), "({self} >> (0 <= {other} && {other} < 64 ? {other} : 63))"),
    "_to_copy": "{self}",
    "clone": "{self}",
}
POWERS = {
    1.0: "{self}",
    2.0: "({self} * {self})",
    3.0: "({self} * {self} * {self})",
    0.5: "sqrt{_}({self})",
    -1.0: "(1 / {self})",
    -0.5: "(1 / sqrt{_}({self}))",
    -2.0: "(1 / ({self} * {self}))",
    0.0: "1",
}
FRACTIONS = {"pow", "floor"}  # of whole numbers, which prelude.h has not
KEPT_AS_IT_IS = {"condition"}  # arguments that are not converted


def template(name: str, overload: str, given: dict[str, Any], out: torch.dtype) -> str | None:
    """The text for an operation with these arguments, or None for one that is none of single numbers."""
    if not out.is_floating_point and name in FRACTIONS:
        return None
    if name == "pow":
        if overload != "Tensor_Scalar":
            return "pow{_}({self}, {exponent})" if overload == "Tensor_Tensor" else None
        return POWERS.get(float(given["exponent"]), "pow{_}({self}, {exponent})")
    if name == "bitwise_not":
        return "(!{self})" if out == torch.bool else "(~{self})"
    if name in ("clamp", "clamp_min", "clamp_max"):
        text = "{self}"
        if given.get("min") is not None:
            text = f"({text} < {{min}} || {{min}} != {{min}} ? {{min}} : {text})"
        if given.get("max") is not None:
            text = f"({text} > {{max}} || {{max}} != {{max}} ? {{max}} : {text})"
        return text
    if name in ("where", "div") and overload not in ("self", "Tensor", "Scalar"):
        return None
    return ELEMENTWISE.get(name)


def literal(number: float | bool, dtype: torch.dtype) -> str:
    """A number as C writes it in this type."""
    if not dtype.is_floating_point:
        return f"INT64_C({int(number)})"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "(-INFINITY)"
    if math.isnan(number):
        return "NAN"
    text = repr(float(number))
    return f"({text}{'f' if dtype == torch.float32 else ''})"
