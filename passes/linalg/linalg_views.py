"""Views at the linalg level: index maps that move nothing once they are fused.

`permute`, `expand`, `flip` and `as_strided` are `linalg.generic` that yield their input through a map; `slice` is
`tensor.extract_slice`; `reshape` is `collapse_shape` and `expand_shape`; `concat` is `insert_slice` into an empty tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlir import ir

from ...dialects.dims import Dim, product
from ...dialects.record import TensorType
from .ir_cache import static
from .linalg_tensor import Tensor, aligned, is_static


class Views:
    """The part of LinalgBuilder that makes views."""

    ip: ir.InsertionPoint
    location: ir.Location
    cache: Any
    size: Any
    dynamic: Any
    empty: Any
    generic: Any
    generate: Any

    def permute(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        """Dimension `i` of the result is dimension `dims[i]` of `x`."""
        if tuple(dims) == tuple(range(x.rank)):
            return x
        return self._mapped(x, [x.shape[d] for d in dims], tuple(list(dims).index(j) for j in range(x.rank)))

    def transpose(self, x: Tensor, a: int = -1, b: int = -2) -> Tensor:
        """Exchange two dimensions."""
        order = list(range(x.rank))
        order[a], order[b] = order[b], order[a]
        return self.permute(x, order)

    def expand(self, x: Tensor, shape: Sequence[Dim]) -> Tensor:
        """Broadcast to `shape`."""
        if tuple(shape) == x.shape:
            return x
        return self._mapped(x, shape, aligned(x.shape, shape))

    def flip(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        """Reverse `dims`."""
        if is_static(x.shape):
            ends = [int(d) - 1 for d in x.shape]  # type: ignore[arg-type]
            return self._mapped(x, x.shape, tuple((((i, -1),), ends[i]) if i in dims else i for i in range(x.rank)))

        def body(s: Any, at: list[Any]) -> Any:
            return s.read(x, [s.sub(s.size(x.shape[i] - 1), a) if i in dims else a for i, a in enumerate(at)])

        return self.generate(x.shape, x.dtype, body)

    def as_strided(self, x: Tensor, shape: Sequence[Dim], strides: Sequence[Dim], offset: Dim) -> Tensor:
        """Element `i` of the result is element `offset + sum(i * strides)` of 1-D `x`."""
        if is_static([*shape, *strides, offset]):
            moving = [(n, stride) for n, stride in zip(shape, strides) if stride]
            if offset == 0 and len(moving) == 1 and moving[0][1] == 1:
                x = self.slice(x, (0,), (moving[0][0],))  # MLIR wants what one loop reads alone to be of its size
            return self._mapped(x, shape, ((tuple(enumerate(strides)), offset),))

        def body(s: Any, at: list[Any]) -> Any:
            total = s.size(offset)
            for a, stride in zip(at, strides):
                total = s.add(total, s.mul(a, s.size(stride)))
            return s.read(x, [total])

        return self.generate(shape, x.dtype, body)

    def slice(
        self, x: Tensor, starts: Sequence[Dim], sizes: Sequence[Dim], steps: Sequence[int] | None = None
    ) -> Tensor:
        """`sizes` elements of every dimension from `starts` on, every `steps`-th."""
        steps = tuple(steps or (1,) * x.rank)
        if tuple(sizes) == x.shape and all(d == 0 for d in starts) and set(steps) <= {1}:
            return x
        if any(isinstance(n, int) and n == 0 for n in sizes):
            return self.empty(sizes, x.dtype)  # MLIR refuses a start at the end
        return self._slice_op("tensor.extract_slice", [x], TensorType(x.dtype, tuple(sizes)), starts, sizes, steps)

    def insert(self, x: Tensor, into: Tensor, starts: Sequence[Dim], steps: Sequence[int] | None = None) -> Tensor:
        """`into` with `x` written from `starts` on, every `steps`-th."""
        steps = tuple(steps or (1,) * x.rank)
        if any(isinstance(n, int) and n == 0 for n in x.shape):
            return into
        return self._slice_op("tensor.insert_slice", [x, into], into.type, starts, x.shape, steps)

    def concat(self, xs: Sequence[Tensor], dim: int) -> Tensor:
        """The operands side by side along `dim`."""
        total: Dim = 0
        for x in xs:
            total = total + x.shape[dim]
        shape = tuple(total if i == dim else d for i, d in enumerate(xs[0].shape))
        result = self.empty(shape, xs[0].dtype)
        at: Dim = 0
        for x in xs:
            result = self.insert(x, result, [at if i == dim else 0 for i in range(x.rank)])
            at = at + x.shape[dim]
        return result

    def reshape(self, x: Tensor, shape: Sequence[Dim]) -> Tensor:
        """The same elements in row-major order under another shape."""
        shape = tuple(shape)
        if shape == x.shape:
            return x
        groups = regroup(x.shape, shape)
        if groups is not None:
            return self._reshape_op("tensor.collapse_shape", x, shape, groups)
        groups = regroup(shape, x.shape)
        if groups is not None:
            return self._reshape_op("tensor.expand_shape", x, shape, groups)
        numel = product(x.shape)
        if isinstance(numel, int) and not is_static([*x.shape, *shape]):
            return self._reshape_by_index(x, shape)  # MLIR has no `?` inside a group of static size
        if x.rank != 1:
            x = self._reshape_op("tensor.collapse_shape", x, (numel,), (tuple(range(x.rank)),))
        return self._reshape_op("tensor.expand_shape", x, shape, (tuple(range(len(shape))),))

    def unsqueeze(self, x: Tensor, dims: Sequence[int]) -> Tensor:
        """Insert dimensions of size 1 at positions `dims` of the result."""
        shape = list(x.shape)
        for d in sorted(dims):
            shape.insert(d, 1)
        return self.reshape(x, shape)

    # -- ops --------------------------------------------------------------------------------------------------
    def _mapped(self, x: Tensor, shape: Sequence[Dim], index_map: tuple[Any, ...]) -> Tensor:
        return self.generic(tuple(shape), [(x, index_map)], [x.dtype], lambda s, v: v)

    def _slice_op(
        self,
        name: str,
        operands: list[Tensor],
        type: TensorType,
        starts: Sequence[Dim],
        sizes: Sequence[Dim],
        steps: Sequence[int],
    ) -> Tensor:
        offsets, extents = self.dynamic(starts), self.dynamic(sizes)
        op = ir.Operation.create(
            name,
            results=[self.cache.tensor(type)],
            operands=[*(o.value for o in operands), *offsets, *extents],
            attributes={
                "static_offsets": self.cache.integers(tuple(map(static, starts))),
                "static_sizes": self.cache.integers(tuple(map(static, sizes))),
                "static_strides": self.cache.integers(tuple(steps)),
                "operandSegmentSizes": self.cache.segments(*(1,) * len(operands), len(offsets), len(extents), 0),
            },
            ip=self.ip,
            loc=self.location,
        )
        return Tensor(op.results[0], type)

    def _reshape_op(self, name: str, x: Tensor, shape: tuple[Dim, ...], groups: tuple[tuple[int, ...], ...]) -> Tensor:
        type = TensorType(x.dtype, shape)
        attributes = {"reassociation": self.cache.groups(groups)}
        operands = [x.value]
        if name == "tensor.expand_shape":
            attributes["static_output_shape"] = self.cache.integers(tuple(map(static, shape)))
            operands += self.dynamic(shape)
        op = ir.Operation.create(
            name,
            results=[self.cache.tensor(type)],
            operands=operands,
            attributes=attributes,
            ip=self.ip,
            loc=self.location,
        )
        return Tensor(op.results[0], type)

    def _reshape_by_index(self, x: Tensor, shape: tuple[Dim, ...]) -> Tensor:
        def body(s: Any, at: list[Any]) -> Any:
            flat = s.const(0, "index")
            for a, d in zip(at, shape):
                flat = s.add(s.mul(flat, s.size(d)), a)
            indices = []
            for d in reversed(x.shape):
                end = s.maximum(s.size(d), 1)
                indices.append(s.emit("arith.remui", (flat, end), "index"))
                flat = s.emit("arith.divui", (flat, end), "index")
            return s.read(x, indices[::-1])

        return self.generate(shape, x.dtype, body)


def regroup(fine: Sequence[Dim], coarse: Sequence[Dim]) -> tuple[tuple[int, ...], ...] | None:
    """Consecutive groups of `fine` whose products are the sizes of `coarse`, one group each, or None.

    >>> regroup((2, 3, 4), (6, 4))
    ((0, 1), (2,))
    """
    if not coarse:
        return () if all(d == 1 for d in fine) else None
    if any(d == 0 for d in (*fine, *coarse)) or len(fine) < len(coarse):
        return None
    groups: list[tuple[int, ...]] = []
    i = 0
    for size in coarse:
        if i == len(fine):
            return None
        group, total = [i], fine[i]
        i += 1
        # `?` and static sizes cannot share a group whose size is static
        while total != size and i < len(fine):
            total = total * fine[i]
            group.append(i)
            i += 1
        if total != size or (isinstance(size, int) and not is_static([fine[g] for g in group])):
            return None
        groups.append(tuple(group))
    if any(d != 1 for d in fine[i:]):
        return None
    groups[-1] += tuple(range(i, len(fine)))
    return tuple(groups)
