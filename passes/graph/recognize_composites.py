"""Find composites that a program spells out: softmax, norms, activations and attention in their parts.

A composite is one kernel that rounds once, has cheaper code than its parts (no division an element, `exp` of what is
known to be at most 0), and can be part of a larger one: attention is found only where its softmax is one op.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlir import ir

from ...dialects.mlir_ops import PREFIX
from ...dialects.mlir_types import type_of
from ..registry import register
from .dataflow import entry_functions
from .dce import dce
from .part_patterns import Part, any_value, divided, either, find, number, op, product, row, scalar, total
from .recognize_attention import recognize_attention
from .rewriter import Match, Pattern, Patterns, Replacement

_WIDE = ("f32", "f64")  # eager rounds the parts of 16-bit types one by one, and so do we


@register
def recognize_composites(module: ir.Module, attention: tuple[str, ...] = ("f16", "bf16", "f32", "f64")) -> None:
    """Replace the parts of softmax, log_softmax, layer_norm, rms_norm, sigmoid, silu, gelu and attention by the op.

    Attention is found in the types `attention`, those that the target has a kernel for. Values between the parts that something else reads too keep the parts as they are.

    Before:
    ```mlir
    func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %0 = "lamina.amax"(%x) {dims = array<i64: 1>, keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
      %1 = "lamina.sub"(%x, %0) : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
      %2 = "lamina.exp"(%1) : (tensor<4x8xf32>) -> tensor<4x8xf32>
      %3 = "lamina.sum"(%2) {dims = array<i64: 1>, dtype = f32, keepdim = true} : (tensor<4x8xf32>) -> tensor<4x1xf32>
      %4 = "lamina.div"(%2, %3) {rounding = "none"} : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
      return %4 : tensor<4x8xf32> }
    ```
    After:
    ```mlir
    func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %0 = "lamina.softmax"(%x) {dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
      return %0 : tensor<4x8xf32> }
    ```
    """
    changed = False
    with module.context:
        for function in entry_functions(module):
            names = {op.operation.name.removeprefix(PREFIX) for op in function.regions[0].blocks[0].operations}
            patterns = _patterns(names, attention)
            changed |= bool(patterns.by_name) and patterns.apply(function)
    if changed:
        dce(module)


@dataclass(frozen=True)
class Composite:
    """How one composite looks: the last op of the parts, ops that are among them, and what replaces them."""

    roots: tuple[str, ...]
    needs: frozenset[str]
    parts: Part
    build: Callable[[Match, dict[str, Any]], ir.Value | None]

    def rewrite(self, m: Match) -> Replacement:
        """The composite in the place of its parts, if they end at `m`."""
        if m.type.dtype not in _WIDE:
            return None
        bound = find(m, self.parts)
        made = self.build(m, bound) if bound else None
        return made if made is not None and type_of(made) == m.type else None


# -- the parts --------------------------------------------------------------------------------------------------
x, w = any_value("x"), any_value("w")
_shifted = op("sub", x, row("amax", x))
_exponentials = op("exp", _shifted)
_mean = either(row("mean", x), row("var_mean", x, result=1))
_centred = op("sub", x, _mean)
_variance = either(row("mean", product(_centred, _centred)), row("var_mean", x, correction=0.0))
_grown = total(op("exp", op("neg", x)), number(1))  # 1 + exp(-x)
_erf = op("erf", either(product(number(0.5**0.5), x), divided(x, number(2**0.5))))
_cubic = either(
    product(total(product(number(0.044715), x, x, x), x), number(math.sqrt(2 / math.pi))),
    product(total(product(number(0.044715), x, x), number(1)), x, number(math.sqrt(2 / math.pi))),
)


def _gated(gate: Part) -> Part:
    """`x * (1 + gate) / 2`."""
    gate = total(gate, number(1))
    return either(product(gate, x, number(0.5)), product(gate, x, over=number(2)))


def _normalized(numerator: Part, moment: Part, *weight: Part) -> Part:
    """`numerator / sqrt(moment + eps) * weight`."""
    deviation = total(moment, scalar("eps"))
    return either(
        product(op("rsqrt", deviation), numerator, *weight), product(numerator, *weight, over=op("sqrt", deviation))
    )


def _softmax(name: str) -> Callable[[Match, dict[str, Any]], ir.Value | None]:
    def build(m: Match, found: dict[str, Any]) -> ir.Value | None:
        dims = found["dims"]
        return m.build(name, [found["x"]], dim=dims[0]) if len(dims) == 1 else None

    return build


def _unary(name: str, **attributes: Any) -> Callable[[Match, dict[str, Any]], ir.Value | None]:
    return lambda m, found: m.build(name, [found["x"]], **attributes) if type_of(found["x"]) == m.type else None


def _norm(name: str) -> Callable[[Match, dict[str, Any]], ir.Value | None]:
    def build(m: Match, found: dict[str, Any]) -> ir.Value | None:
        rank, dims, weight = m.type.rank, found["dims"], found.get("w")
        trailing = dims == tuple(range(rank - len(dims), rank))
        if not trailing or (weight is not None and type_of(weight).shape != m.type.shape[rank - len(dims) :]):
            return None
        operands = [found["x"], weight] if name == "rms_norm" else [found["x"], weight, None]
        return m.build(name, operands, dims=len(dims), eps=found["eps"])

    return build


# Before an rms_norm of what is centred, which a layer norm is too, comes the layer norm.
COMPOSITES = tuple(
    Composite(tuple(roots.split()), frozenset(needs.split()), parts, build)
    for roots, needs, parts, build in (
        ("div", "exp amax sum", divided(_exponentials, row("sum", _exponentials)), _softmax("softmax")),
        ("sub", "exp amax sum log", op("sub", _shifted, op("log", row("sum", _exponentials))), _softmax("log_softmax")),
        ("div reciprocal", "exp neg", either(divided(number(1), _grown), op("reciprocal", _grown)), _unary("sigmoid")),
        ("div", "exp neg", divided(x, _grown), _unary("silu")),
        ("mul", "", product(op("sigmoid", x), x), _unary("silu")),
        ("mul div", "erf", _gated(_erf), _unary("gelu", approximate="none")),
        ("mul div", "tanh", _gated(op("tanh", _cubic)), _unary("gelu", approximate="tanh")),
        ("mul div", "sub", _normalized(_centred, _variance), _norm("layer_norm")),
        ("mul div", "sub", _normalized(_centred, _variance, w), _norm("layer_norm")),
        ("mul div", "mean", _normalized(x, row("mean", product(x, x))), _norm("rms_norm")),
        ("mul div", "mean", _normalized(x, row("mean", product(x, x)), w), _norm("rms_norm")),
    )
)


def weight_of_norm(m: Match) -> Replacement:
    """`norm(x) * w` is `norm(x, w)` and `layer_norm(x, w) + b` is `layer_norm(x, w, b)`: they round alike in f32."""
    for normed, parameter in (m.operands, m.operands[::-1]):
        norm = m.producer(normed)
        if norm is None or norm.cls.name not in ("rms_norm", "layer_norm") or m.type.dtype not in _WIDE:
            continue
        count = norm.attributes["dims"]
        given = [norm["weight"], *([norm["bias"]] if norm.cls.name == "layer_norm" else [])]
        place = 0 if m.cls.name == "mul" else 1
        if any(g is not None for g in given[place:]) or place >= len(given):
            continue
        if type_of(parameter).shape != m.type.shape[m.type.rank - count :] or type_of(normed) != m.type:
            continue
        if [u.owner.operation.results[0] for r in norm.op.results for u in r.uses] != [m.op.results[0]]:
            continue
        given[place] = parameter
        return m.build(norm.cls.name, [norm["x"], *given], dims=count, eps=norm.attributes["eps"])
    return None


def _patterns(names: set[str], attention: tuple[str, ...]) -> Patterns:
    """The patterns that a function with these ops may have use for."""
    patterns = Patterns()

    def add(roots: tuple[str, ...], needs: frozenset[str], pattern: Pattern) -> None:
        if names & set(roots) and needs <= names:
            patterns.pattern(*roots)(pattern)

    for composite in COMPOSITES:
        add(composite.roots, composite.needs, composite.rewrite)
    if names & {"mean", "var_mean", "layer_norm", "rms_norm"}:
        add(("mul", "add"), frozenset(), weight_of_norm)
    if {"matmul"} <= names and names & {"softmax", "amax"}:
        add(("matmul",), frozenset(), lambda m: recognize_attention(m) if m.type.dtype in attention else None)
    return patterns
