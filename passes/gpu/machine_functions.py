"""Functions of f32 as a machine has them: quotients, roots and powers within some ulp, where values need not round correctly.

Quotients of what is approximate anyway, and all quotients where every result is rounded to 16 bits, are the machine's own
(`GpuKernel.divide`); `1 / sqrt(x)` of one body is `rsqrt`. The machine's power of two (`GpuKernel.exp2`) of a rounded
product is an exponential where results have 16 bits, or only a sum sees it (`summed_exponents`). A term of a sum that is
a product is added in one instruction, and so is any product in f32 where results have 16 bits, unless it is added to another
(`a * b - a * b` is 0). bf16 becomes f32 a pair at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlir import ir

from ..lane_types import element_of
from ..loops.evaluate_vector import Lanes, VectorEvaluator
from ..loops.index_algebra import Ranges
from ..loops.order_keys import flip, float_bits
from ..loops.reduction_loops import accumulator_kinds
from ..loops.tensor_graph import BodyOp, Generic, TensorGraph
from .block_reduce import reduce_lanes
from .gpu_kernel import GpuStage

LOG2_E = 1.4426950408889634

# functions that do not round correctly: a quotient of what they give need not either
BOUNDED = {f"math.{f}" for f in ("erf", "exp", "exp2", "expm1", "log", "log1p", "log2", "pow", "powf", "tanh")}


class MachineFunctions(VectorEvaluator):
    """The evaluator of a stage as far as the ops of bodies go; `sums` are the results of bodies that add a term to a sum."""

    def __init__(self, stage: GpuStage, graph: TensorGraph, ranges: Ranges, lanes: Lanes):
        super().__init__(graph, stage.b, stage.inputs, ranges, stage.status, lanes=lanes)
        self.stage = stage
        self.sums: set[ir.Value] = set()
        self.bounded: set[ir.Value] = set()  # what was made of functions that are right to some ulp
        self.narrow: dict[ir.Value, ir.Value] = {}  # vectors of f32, and those of 16-bit floats that they are
        elements = [ir.RankedTensorType(v.type).element_type for v in stage.kernel.graph.results]
        self.coarse = all(isinstance(e, (ir.F16Type, ir.BF16Type)) for e in elements)

    def emit(self, op: BodyOp, operands: list[Any], types: list[ir.Type]) -> list[Any]:
        product = _product(operands) if op.name == "arith.addf" else None
        if product is not None and (op.results[0] in self.sums or self._contracts(product[-1])):
            return [self.b.value("math.fma", product, types[0])]
        exact = op.name not in BOUNDED and not any(x in self.bounded for x in operands)
        root = _root(op, operands) if self.stage.kernel.divide and _is_f32(types[0]) else None
        if root is not None:
            return [self.b.value("math.rsqrt", (root,), types[0])]
        if op.name == "arith.divf" and _is_f32(types[0]) and (self.coarse or not exact):
            made = [self._quotient(op, operands, types[0])]
        elif (
            op.name == "arith.extf" and self.stage.kernel.divide and _are_pairs(operands[0].type) and _is_f32(types[0])
        ):
            made = [self.widened(operands[0])]
        elif op.name == "math.exp" and _is_f32(types[0]) and self._is_rough(op):
            b = self.b
            scaled = b.value("arith.mulf", (operands[0], b.constant(LOG2_E, types[0])), types[0])
            made = [self.power_of_two(scaled)]
        else:
            made = super().emit(op, operands, types)
        if not exact:
            self.bounded.update(made)
        return made

    def _quotient(self, op: BodyOp, operands: list[Any], type: ir.Type) -> ir.Value:
        """`x / y` within 2 ulp, lane by lane, where the machine has an instruction for that."""
        b, intrinsic = self.b, self.stage.kernel.divide
        if not intrinsic:
            flags = {"fastmath": b.attribute("#arith.fastmath<afn>")} if self.coarse else {}
            return b.value(op.name, operands, type, **flags)
        return self._intrinsic(intrinsic, operands, type)

    def _contracts(self, term: ir.Value) -> bool:
        """May a product that is added to `term` be so in one rounding? Where results have 16 bits, and `term` is no product."""
        maker = None if isinstance(term.owner, ir.Block) else term.owner.operation
        return self.coarse and _is_f32(term.type) and (maker is None or maker.name != "arith.mulf")

    def widened(self, value: ir.Value) -> ir.Value:
        """Pairs of 16-bit floats as f32. bf16 an instruction an element: the low one is shifted and the high one masked.

        (LLVM takes the high one out first, which is two.)
        """
        b, count = self.b, ir.VectorType(value.type).shape[0]
        type = ir.VectorType.get([count], b.f32)
        if isinstance(ir.VectorType(value.type).element_type, ir.BF16Type):
            made = self._shifted(value)
        else:
            made = b.value("arith.extf", (value,), type)
        self.narrow[made] = value
        return made

    def _shifted(self, value: ir.Value) -> ir.Value:
        """Pairs of bf16 as f32."""
        b, count = self.b, ir.VectorType(value.type).shape[0]
        words = b.value("vector.bitcast", (value,), ir.VectorType.get([count // 2], b.i32))
        made = []
        for word in b.elements(words):
            low = b.value("arith.shli", (word, b.constant(16, b.i32)), b.i32)
            high = b.value("arith.andi", (word, b.constant(-(1 << 16), b.i32)), b.i32)
            made += [b.value("arith.bitcast", (w,), b.f32) for w in (low, high)]
        return b.value("vector.from_elements", made, ir.VectorType.get([count], b.f32))

    def _is_rough(self, op: BodyOp) -> bool:
        """True if the machine's exp2 of a rounded product will do for an exponential: of 16 bits, or summed."""
        kernel = self.stage.kernel
        return bool(kernel.exp2) and (self.coarse or op.results[0] in kernel.rough)

    def power_of_two(self, value: ir.Value) -> ir.Value:
        """`2^value` of f32 within 2 ulp, by the machine's instruction."""
        return self._intrinsic(self.stage.kernel.exp2, [value], value.type)

    def largest_of_lanes(self, value: ir.Value, lanes: int) -> ir.Value:
        """The largest of the f32s of `lanes` neighbouring lanes, in each; a NaN, which has no sign, is larger than all."""
        b, intrinsic = self.b, self.stage.kernel.largest
        if not intrinsic or lanes != self.stage.kernel.wave:
            return reduce_lanes(b, [value], lanes, lambda x, y: [b.value("arith.maximumf", (x[0], y[0]), b.f32)])[0]
        all_lanes = b.constant(-1, b.i32)
        most = self._intrinsic(intrinsic, [flip(b, float_bits(b, value)), all_lanes], b.i32)
        return b.value("arith.bitcast", (flip(b, most),), b.f32)

    def _intrinsic(self, name: str, operands: Sequence[ir.Value], type: ir.Type) -> ir.Value:
        """An LLVM intrinsic, lane by lane."""
        b = self.b
        attributes = {
            "intrin": ir.StringAttr.get(name),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        }
        if not isinstance(type, ir.VectorType):
            return b.op("llvm.call_intrinsic", operands, [type], attributes).result
        lanes = []
        for k in range(ir.VectorType(type).shape[0]):
            given = [b.extract(x, k) for x in operands]
            lanes.append(b.op("llvm.call_intrinsic", given, [type.element_type], attributes).result)
        return b.value("vector.from_elements", lanes, type)


def sums_of(generic: Generic) -> set[ir.Value]:
    """The values of a reduction's body that add a term to a sum; where it is a product, both are one instruction."""
    return {kind.result for kind in accumulator_kinds(generic) if kind.is_sum}


def _are_pairs(type: ir.Type) -> bool:
    """Is this a vector of pairs of 16-bit floats?"""
    if not isinstance(type, ir.VectorType):
        return False
    return isinstance(type.element_type, (ir.BF16Type, ir.F16Type)) and type.shape[0] % 2 == 0


def _product(operands: Sequence[ir.Value]) -> tuple[ir.Value, ...] | None:
    """`(x, y, z)` where the operands are `x * y` and `z`."""
    for product, other in (operands, operands[::-1]):
        maker = None if isinstance(product.owner, ir.Block) else product.owner.operation
        if maker is not None and maker.name == "arith.mulf":
            return *maker.operands, other
    return None


def _root(op: BodyOp, operands: list[Any]) -> ir.Value | None:
    """`x` where `op` is `1 / sqrt(x)` of one body (rsqrt, a norm): the machine has an instruction for that."""
    if op.name != "arith.divf":
        return None
    one, root, made = *(x.owner for x in op.op.operands), operands[1].owner
    if any(isinstance(o, ir.Block) for o in (one, root, made)):
        return None
    one, root, made = one.operation, root.operation, made.operation
    if (one.name, root.name, made.name) != ("arith.constant", "math.sqrt", "math.sqrt"):
        return None
    value = one.attributes["value"]
    return made.operands[0] if isinstance(value, ir.FloatAttr) and value.value == 1.0 else None


def _is_f32(type: ir.Type) -> bool:
    return isinstance(element_of(type), ir.F32Type)
