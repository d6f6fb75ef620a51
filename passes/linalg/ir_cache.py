"""Types and attributes of one MLIR context, made once and looked up by plain Python keys.

Making an attribute through the bindings costs more than making an op, so the linalg builders take everything from here.
Element types are dtype names; inside loop bodies `bool` is `i1` and `index` is allowed, in tensors `bool` is stored as `i8`.
"""

from __future__ import annotations

from typing import Any

from mlir import ir

from ...dialects import dtypes
from ...dialects.record import TensorType

DYNAMIC = ir.ShapedType.get_dynamic_size()


class IrCache:
    """Memoised types and attributes of `context`."""

    def __init__(self, context: ir.Context):
        self.context = context
        self.location = ir.Location.unknown(context)
        self._made: dict[Any, Any] = {}

    def element(self, dtype: str) -> ir.Type:
        """The type of a scalar in a loop body."""
        return self._get(("element", dtype), lambda: self._element(dtype))

    def storage(self, dtype: str) -> ir.Type:
        """The type of an element in memory: `bool` is a byte, unsigned integers are signless."""
        return self.element("i8" if dtype == "bool" else dtype)

    def tensor(self, type: TensorType) -> ir.Type:
        """`tensor<…>` without encoding; symbolic sizes are `?`."""
        return self._get(type, lambda: self.shaped([static(d) for d in type.shape], type.dtype))

    def shaped(self, sizes: list[int], dtype: str) -> ir.Type:
        """`tensor<…>` of MLIR sizes (DYNAMIC for `?`)."""
        return ir.RankedTensorType.get(sizes, self.storage(dtype), loc=self.location)

    def number(self, value: bool | int | float, dtype: str) -> ir.Attribute:
        """A scalar constant; integers wrap around, floats round to nearest even."""
        return self._get((dtype, type(value), repr(value)), lambda: self._number(value, dtype))

    def i64(self, value: int) -> ir.Attribute:
        return self._get(("i64attr", value), lambda: ir.IntegerAttr.get(self.element("i64"), value))

    def text(self, value: str) -> ir.Attribute:
        return self._get(("text", value), lambda: ir.StringAttr.get(value, self.context))

    def segments(self, *counts: int) -> ir.Attribute:
        """`operandSegmentSizes`."""
        return self._get(("segments", counts), lambda: ir.DenseI32ArrayAttr.get(list(counts), self.context))

    def integers(self, values: tuple[int, ...]) -> ir.Attribute:
        return self._get(("integers", values), lambda: ir.DenseI64ArrayAttr.get(list(values), self.context))

    def groups(self, groups: tuple[tuple[int, ...], ...]) -> ir.Attribute:
        """The `reassociation` of expand_shape and collapse_shape."""
        return self._get(
            ("groups", groups),
            lambda: ir.ArrayAttr.get(
                [ir.ArrayAttr.get([self.i64(i) for i in g], self.context) for g in groups], self.context
            ),
        )

    def iterators(self, reduced: tuple[bool, ...]) -> ir.Attribute:
        """`iterator_types`: reduction where `reduced`, else parallel."""
        return self._get(("iterators", reduced), lambda: self._iterators(reduced))

    def maps(self, loops: int, maps: tuple[tuple[Any, ...], ...]) -> ir.Attribute:
        """`indexing_maps`: per operand and dimension a loop number, None (index 0) or an affine expression's key."""
        return self._get(("maps", loops, maps), lambda: self._maps(loops, maps))

    def _get(self, key: Any, make: Any) -> Any:
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make()
        return found

    def _element(self, dtype: str) -> ir.Type:
        match dtype:
            case "index":
                return ir.IndexType.get(self.context)
            case "bool":
                return ir.IntegerType.get_signless(1, self.context)
            case "f64":
                return ir.F64Type.get(self.context)
            case "f32":
                return ir.F32Type.get(self.context)
            case "f16":
                return ir.F16Type.get(self.context)
            case "bf16":
                return ir.BF16Type.get(self.context)
        if dtype in dtypes.FLOAT8:
            return ir.Type.parse(dtype, self.context)
        return ir.IntegerType.get_signless(dtypes.bits(dtype), self.context)

    def _number(self, value: bool | int | float, dtype: str) -> ir.Attribute:
        if dtype == "bool":
            return ir.BoolAttr.get(bool(value), self.context)
        if dtype != "index" and dtypes.is_float(dtype):
            return ir.FloatAttr.get(self.element(dtype), float(value), loc=self.location)
        return ir.IntegerAttr.get(self.element(dtype), wrap(int(value), 64 if dtype == "index" else dtypes.bits(dtype)))

    def _iterators(self, reduced: tuple[bool, ...]) -> ir.Attribute:
        kinds = [ir.Attribute.parse(f"#linalg.iterator_type<{k}>", self.context) for k in ("parallel", "reduction")]
        return ir.ArrayAttr.get([kinds[r] for r in reduced], self.context)

    def _maps(self, loops: int, maps: tuple[tuple[Any, ...], ...]) -> ir.Attribute:
        return ir.ArrayAttr.get(
            [
                ir.AffineMapAttr.get(ir.AffineMap.get(loops, 0, [self._affine(e) for e in m], self.context))
                for m in maps
            ],
            self.context,
        )

    def _affine(self, entry: Any) -> ir.AffineExpr:
        if entry is None:
            return ir.AffineConstantExpr.get(0, self.context)
        if isinstance(entry, int):
            return ir.AffineDimExpr.get(entry, self.context)
        coefficients, constant = entry
        total = ir.AffineConstantExpr.get(constant, self.context)
        for loop, factor in coefficients:
            total = total + ir.AffineDimExpr.get(loop, self.context) * factor
        return total


def static(dim: Any) -> int:
    """A size as MLIR writes it in a type: an int, or DYNAMIC."""
    return dim if isinstance(dim, int) else DYNAMIC


def wrap(value: int, bits: int) -> int:
    """`value` modulo 2^bits, as a signed number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
