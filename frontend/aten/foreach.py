"""ATen's `_foreach_*` ops: one op for each tensor of a list, as optimisers step all parameters at once.

`_foreach_add.List(xs, ys, alpha)` is `add.Tensor(x, y, alpha)` for each pair, by its converter.
"""

from __future__ import annotations

from typing import Any

from .registry import add, converters

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt"
    " sigmoid sign sin sinh sqrt tan tanh trunc".split()
)
# what one element of the list is, by the name of the overload
_BINARY = {
    **{op: dict.fromkeys(("Scalar", "List", "ScalarList", "Tensor"), f"{op}.Tensor") for op in ("add", "mul", "div")},
    "sub": dict.fromkeys(("Scalar", "List", "ScalarList"), "sub.Tensor"),
    "pow": {
        **dict.fromkeys(("Scalar", "ScalarList"), "pow.Tensor_Scalar"),
        "List": "pow.Tensor_Tensor",
        "ScalarAndTensor": "pow.Scalar",
    },
    "lerp": {"Scalar": "lerp.Scalar", "ScalarList": "lerp.Scalar", "List": "lerp.Tensor"},
    "maximum": {"List": "maximum.default", "Scalar": "clamp_min.default", "ScalarList": "clamp_min.default"},
    "minimum": {"List": "minimum.default", "Scalar": "clamp_max.default", "ScalarList": "clamp_max.default"},
    **{op: dict.fromkeys(("Scalar", "ScalarList"), f"{op}.default") for op in ("addcmul", "addcdiv")},
    "norm": {"Scalar": "linalg_vector_norm.default"},
}


def _each(name: str) -> Any:
    """A converter that applies that of `name` to the i-th elements of its lists."""

    def convert(c: Any, *args: Any, **kwargs: Any) -> list[Any]:
        types, made = c.out_type, []
        try:
            for i, c.out_type in enumerate(types):
                one = [a[i] if isinstance(a, (list, tuple)) else a for a in args]
                made.append(converters()[f"aten.{name}"](c, *one, **kwargs))
        finally:
            c.out_type = types
        return made

    return convert


for _op in _UNARY:
    add(f"_foreach_{_op}", _each(f"{_op}.default"))
for _op, _forms in _BINARY.items():
    for _form, _name in _forms.items():
        add(f"_foreach_{_op}.{_form}", _each(_name))
