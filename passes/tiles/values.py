"""The value of a kernel's tensor at an index: how tile emitters evaluate fused prologues and epilogues.

    values = Values(frame, {root result: lambda index: <the accumulator, in the root's dtype>})
    x = values.at(tensor, (i, j))                            # index: size expressions over registered loop variables
    values = Values(frame, overrides, Lane(code, "@n", n, (N,), 8))      # 8 lanes: n, n + 1, ...

Bodies of parallel `linalg.generic`s are inlined, views become index arithmetic, arguments become loads. With lanes, a
value that depends on the lane is a vector (unit stride: one load; other strides: one load a lane) and ops with a vector
operand become vector ops. Anything else is an EmitError; the kernel is compiled by the plain pipeline instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mlir import ir

from ...dialects import dims
from ...dialects.dims import Dim
from ...dialects.status import code_of
from ..lane_types import like
from ..loops.literal_table import table_type
from ..loops.strided_view import read_slice, reassociation, strided_view
from .code import Code, Index, delinearize
from .frame import EmitError, Frame
from .numeric import broadcast

Override = Callable[[Sequence[Dim]], ir.Value]


class Lane:
    """Consecutive row-major positions of `shape`, starting at `start`: the lanes of a vector, or one position.

    `index` is the index of the first lane, over the symbols `name0`, `name1`, ... of `shape`'s dimensions.
    """

    def __init__(self, code: Code, name: str, start: Index, shape: Sequence[Dim], width: int):
        self.code, self.name, self.start, self.shape, self.width = code, name, start, tuple(shape), width
        self.position = code.register(name, start)
        self.index: tuple[Dim, ...] = self._index(name, start)

    def _index(self, name: str, position: Index) -> tuple[Dim, ...]:
        if len(self.shape) == 1:
            return (self.code.register(name, position),)
        index = delinearize(self.code, position, self.shape)
        return tuple(self.code.register(f"{name}{d}", i) for d, i in enumerate(index))

    def flatten(self, offset: Dim) -> tuple[Dim, Dim | None]:
        """The offset, over the lanes' position where it is linear in it, and its stride from lane to lane.

        Stride None: the lanes have nothing to do with one another (`spell_out`).
        """
        if self.width == 1:
            return offset, 0
        stride = dims.linear_coefficient(offset, str(self.index[-1]))
        if stride is None:
            return offset, None
        step = stride
        for size, name in zip(reversed(self.shape[1:]), reversed(self.index[:-1])):
            step = step * size
            if dims.linear_coefficient(offset, str(name)) != step:
                return offset, None
        if len(self.shape) > 1 and stride != 0:
            rest = dims.substitute(offset, {str(i): 0 for i in self.index})
            offset = rest + stride * self.position
        return offset, stride

    def spell_out(self, offset: Dim) -> list[Dim]:
        """The offset of each lane."""
        lanes = []
        for lane in range(self.width):
            index = self._index(f"{self.name}_{lane}_", self.code.add(self.start, lane))
            names = {str(i): x for i, x in zip(self.index, index)}
            if len(self.shape) > 1:
                names[self.name] = self.code.register(f"{self.name}_{lane}", self.code.add(self.start, lane))
            lanes.append(dims.substitute(offset, names))
        return lanes


class Values:
    """Evaluates tensors of one kernel at the current insertion point."""

    def __init__(self, frame: Frame, overrides: Mapping[ir.Value, Override] | None = None, lane: Lane | None = None):
        self.frame = frame
        self.code = frame.code
        self.overrides = dict(overrides or {})
        self.lane = lane or Lane(frame.code, "@one", 0, (1,), 1)
        self.width = self.lane.width

    def at(self, tensor: ir.Value, index: Sequence[Dim]) -> ir.Value:
        """The element of `tensor` at `index`, in its storage type."""
        return self._at(tensor, tuple(index), {})

    def _at(self, tensor: ir.Value, index: tuple[Dim, ...], memo: dict) -> ir.Value:
        key = (tensor, index)
        if key not in memo:
            memo[key] = self._element(tensor, index, memo)
        return memo[key]

    def _element(self, tensor: ir.Value, index: tuple[Dim, ...], memo: dict) -> ir.Value:
        if tensor in self.overrides:
            return self.overrides[tensor](index)
        view = strided_view(tensor, self.frame.shapes)
        if view is not None:
            return self._load(self.frame.inputs[view.base].memref, view.at(index))
        assert not isinstance(tensor.owner, ir.Block), "an argument is a view of itself"
        op: ir.Operation = tensor.owner.operation
        name = op.name
        if name == "linalg.generic":
            return self._generic(op, tensor, index, memo)
        if name == "linalg.fill":
            return self._outside(op.operands[0])
        if name == "tensor.cast":
            return self._at(op.operands[0], index, memo)
        if name == "tensor.extract_slice":
            return self._at(op.operands[0], self._slice(op, index), memo)
        if name in ("tensor.collapse_shape", "tensor.expand_shape"):
            return self._at(op.operands[0], self._reshape(op, index), memo)
        if name == "arith.constant":
            return self._literal(op, index)
        if name == "tensor.empty":  # what MLIR makes of a tensor without elements, which nobody reads
            return self.code.constant(0, ir.RankedTensorType(tensor.type).element_type)
        raise EmitError(f"no tile code for {name} in kernel '{self.frame.name}'")

    def _literal(self, op: ir.Operation, index: tuple[Dim, ...]) -> ir.Value:
        """An element of a dense constant: a scalar, or read from a table beside the kernel."""
        attribute = ir.DenseElementsAttr(op.attributes["value"])
        if attribute.is_splat:
            splat = attribute.get_splat_value()
            return self.code.op("arith.constant", [splat.type], [], value=splat)
        table = self.frame.table(op)
        name = ir.FlatSymbolRefAttr.get(ir.StringAttr(table.attributes["sym_name"]).value)
        read = ir.Operation.create("memref.get_global", results=[table_type(table)], attributes={"name": name})
        tensor = ir.RankedTensorType(op.results[0].type)
        offset: Dim = 0
        for i, size in zip(index, tensor.shape):
            offset = offset * size + i
        return self._load(read.result, offset)

    def _load(self, buffer: ir.Value, offset: Dim) -> ir.Value:
        """The element at `offset`, or the elements at the lanes' offsets."""
        code = self.code
        offset, stride = self.lane.flatten(offset)
        if stride == 0:
            return code.load(buffer, code.size(offset))
        if stride == 1:
            return code.vload(buffer, code.size(offset), self.width)
        vector = ir.VectorType.get([self.width], ir.MemRefType(buffer.type).element_type)
        lanes = [code.load(buffer, code.size(at)) for at in self.lane.spell_out(offset)]
        return code.op("vector.from_elements", [vector], lanes)

    def _generic(self, op: ir.Operation, tensor: ir.Value, index: tuple[Dim, ...], memo: dict) -> ir.Value:
        if any("reduction" in str(i) for i in ir.ArrayAttr(op.attributes["iterator_types"])):
            raise EmitError(f"a reduction is fused into the tile kernel '{self.frame.name}'")
        maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]
        number = [r for r in op.results].index(tensor)
        inputs = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])[0]
        iteration = _invert(maps[inputs + number], index)
        body = op.regions[0].blocks[0]
        scope = {}
        for i in range(inputs):
            used = any(True for _ in body.arguments[i].uses)
            if used:
                at = tuple(_affine(e, iteration) for e in maps[i].results)
                scope[body.arguments[i]] = self._at(op.operands[i], at, memo)
        for inner in list(body.operations)[:-1]:
            self._inline(inner.operation, scope, iteration, memo)
        yielded = list(body.operations)[-1].operands
        # the other results at the same index come for free
        for r, value in zip(op.results, yielded):
            memo.setdefault((r, index), scope.get(value, value))
        return scope.get(yielded[number]) or self._outside(yielded[number])

    def _inline(self, op: ir.Operation, scope: dict, iteration: Sequence[Dim], memo: dict) -> None:
        if op.name == "linalg.index":
            dim = ir.IntegerAttr(op.attributes["dim"]).value
            scope[op.results[0]] = self._index(iteration[dim])
            return
        operands = [
            scope.get(v) or self._outside(v) for v in op.operands if not isinstance(v.type, ir.RankedTensorType)
        ]
        vector = any(isinstance(v.type, ir.VectorType) for v in operands)
        if vector and (op.name in ("tensor.extract", "cf.assert") or len(op.regions)):
            raise EmitError(f"no vector form of {op.name} in a fused body of kernel '{self.frame.name}'")
        if op.name == "tensor.extract":
            names = [self.code.register(f"@{len(self.code.symbols)}", v) for v in operands]
            scope[op.results[0]] = self._at(op.operands[0], tuple(names), memo)
            return
        if op.name == "cf.assert":
            code = code_of(ir.StringAttr(op.attributes["msg"]).value)
            self.code.branch(operands[0], lambda: None, lambda: self._fail(code))
            return
        if len(op.regions):
            raise EmitError(f"no tile code for {op.name} in a fused body of kernel '{self.frame.name}'")
        if vector:
            operands = [
                v if isinstance(v.type, ir.VectorType) else broadcast(self.code, v, self.width) for v in operands
            ]
        made = ir.Operation.create(
            op.name,
            results=[like(operands[0].type, r.type) if vector else r.type for r in op.results],
            operands=operands,
            attributes={a: op.attributes[a] for a in op.attributes},
        )
        scope.update(zip(op.results, made.results))

    def _index(self, position: Dim) -> ir.Value:
        code = self.code
        position, stride = self.lane.flatten(position)
        value = code.value(code.size(position))
        if stride == 0:
            return value
        if not isinstance(stride, int):
            raise EmitError(f"an index that is not linear in the lane in kernel '{self.frame.name}'")
        vector = ir.VectorType.get([self.width], code.index)
        steps = code.op("vector.step", [vector], [])
        scaled = code.op("arith.muli", [vector], [steps, code.constant(stride, vector)])
        return code.op("arith.addi", [vector], [scaled, broadcast(code, value, self.width)])

    def _fail(self, code: int) -> None:
        i32 = ir.IntegerType.get_signless(32)
        self.code.store(self.code.constant(code, i32), self.frame.status, 0)

    def _outside(self, value: ir.Value) -> ir.Value:
        """A scalar defined outside the body: a constant, or a size."""
        dim = self.frame.shapes.dim(value) if isinstance(value.type, ir.IndexType) else None
        if dim is not None:
            return self.code.value(self.code.size(dim))
        op = value.owner.operation if hasattr(value.owner, "operation") else value.owner
        if isinstance(op, ir.Block) or op.name != "arith.constant":
            raise EmitError(f"a fused body of kernel '{self.frame.name}' uses a value from outside")
        return self.code.op("arith.constant", [value.type], [], value=op.attributes["value"])

    def _slice(self, op: ir.Operation, index: tuple[Dim, ...]) -> tuple[Dim, ...]:
        part = read_slice(op, self.frame.shapes)
        if part is None:
            raise EmitError(f"a slice of a computed value in kernel '{self.frame.name}'")
        at = dict(zip(part.kept, index))
        return tuple(at.get(d, 0) * s + o for d, (s, o) in enumerate(zip(part.steps, part.offsets)))

    def _reshape(self, op: ir.Operation, index: tuple[Dim, ...]) -> tuple[Dim, ...]:
        collapse = op.name == "tensor.collapse_shape"
        wide = self.frame.shapes.of(op.operands[0] if collapse else op.results[0])
        if wide is None:
            raise EmitError(f"a dynamic reshape of a computed value in kernel '{self.frame.name}'")
        out: list[Dim] = []
        for position, group in enumerate(reassociation(op)):
            if collapse:
                rest, parts = index[position], []
                for d in reversed(group[1:]):
                    size = 1 if wide[d] == 0 else wide[d]  # nobody reads an empty tensor
                    parts.append(dims.mod(rest, size))
                    rest = dims.floordiv(rest, size)
                out += [rest, *reversed(parts)]
            else:
                linear: Dim = 0
                for d in group:
                    linear = linear * wide[d] + index[d] if d != group[0] else index[d]
                out.append(linear)
        return tuple(out)


def _invert(map: ir.AffineMap, index: Sequence[Dim]) -> list[Dim]:
    """The iteration point at which a projected permutation gives `index`; other dims are 0."""
    iteration: list[Dim] = [0] * map.n_dims
    for expression, i in zip(map.results, index):
        if not isinstance(expression, ir.AffineDimExpr):
            raise EmitError("an output map that is no permutation")
        iteration[ir.AffineDimExpr(expression).position] = i
    return iteration


def _affine(e: ir.AffineExpr, point: Sequence[Dim]) -> Dim:
    if isinstance(e, ir.AffineConstantExpr):
        return ir.AffineConstantExpr(e).value
    if isinstance(e, ir.AffineDimExpr):
        return point[ir.AffineDimExpr(e).position]
    both = ir.AffineBinaryExpr(e)
    a, b = _affine(both.lhs, point), _affine(both.rhs, point)
    if isinstance(e, ir.AffineAddExpr):
        return a + b
    if isinstance(e, ir.AffineMulExpr):
        return a * b
    return dims.floordiv(a, b) if isinstance(e, ir.AffineFloorDivExpr) else dims.mod(a, b)
