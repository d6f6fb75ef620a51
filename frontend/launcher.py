"""Calling a compiled part with torch tensors: inputs as buffers, outputs with eager's sizes and strides.

    part = launcher.load(part, compiled_program)      or      launcher.interpret(part)
    buffers = part(*tensors, *symbol values)

Both check that each tensor's strides are those that the record was made for, and lay the tensor out anew where an
eager op gave others (a fake kernel's strides can be wrong).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..dialects import dims
from ..dialects import interpret as interpreter
from ..dialects.dims import Dim
from . import compat, values
from .convert import OutputSpec, Part
from .layout import row_major


class Signature:
    """Sizes and strides of a part's tensors, as functions of the symbols; symbols have torch's names."""

    def __init__(self, part: Part):
        self.part = part
        self.tensors = len(part.inputs)
        self.input_layouts = [values.layout(n.meta["val"]) for n in part.inputs]
        self.input_names = [n.name for n in part.inputs]
        self.sources = _symbol_sources(part)
        where = {n: i for i, n in enumerate(part.inputs)}
        self.outputs = part.outputs
        self.targets = [None if o.mutates is None else where[o.mutates] for o in part.outputs]

    def symbols(self, args: Sequence[Any]) -> dict[str, int]:
        """The value of every symbol from the arguments."""
        return {n: args[i] if dim < 0 else args[i].shape[dim] for n, i, dim in self.sources}

    def tensor(self, i: int, tensor: torch.Tensor, known: Mapping[str, int]) -> torch.Tensor:
        """Argument `i` with the strides that the record was made for (itself, if it has them)."""
        where = self.input_layouts[i]
        stride = evaluate(where.strides, known)
        if tensor.stride() == stride or tensor.numel() <= 1:
            return tensor
        size = evaluate(where.shape, known)
        if all(n <= 1 or a == b for n, a, b in zip(size, tensor.stride(), stride)):
            return tensor
        return compat.empty_strided(size, stride, tensor.dtype).copy_(tensor)


def evaluate(shape: Sequence[Dim], known: Mapping[str, int]) -> tuple[int, ...]:
    """The values of sizes."""
    return tuple(d if isinstance(d, int) else dims.evaluate(d, known) for d in shape)


def _symbol_sources(part: Part) -> list[tuple[str, int, int]]:
    """Per symbol in torch's names: the argument, and the dim of the tensor (-1: an int argument) that gives it.

    The record counts dims in memory order; tensors are asked in their own.
    """
    found = [(name, len(part.inputs) + i, -1) for i, name in enumerate(part.symbols)]
    known = set(part.symbols)
    for number, node in enumerate(part.inputs):
        for dim, size in enumerate(node.meta["val"].shape):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and size.node.expr.name not in known:
                known.add(size.node.expr.name)
                found.append((size.node.expr.name, number, dim))
    return found


def interpret(part: Part, weights: Mapping[str, Any] | None = None) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Run `part` by its ops' reference semantics on numpy (LAMINA_INTERPRET=1)."""
    signature = Signature(part)

    def call(*args: Any) -> tuple[torch.Tensor, ...]:
        known = signature.symbols(args)
        inputs: list[Any] = []
        for i, tensor in enumerate(args[: signature.tensors]):
            inputs.append(_array(signature, i, tensor, known))
        arrays = interpreter.run(part.graph, [*inputs, *args[signature.tensors :]])
        results = []
        for spec, target, array in zip(signature.outputs, signature.targets, arrays):
            out = args[target] if target is not None else allocate(spec, known)
            _fill(out, array)
            if target is None:
                results.append(out)
        return tuple(results)

    return call


def allocate(spec: OutputSpec, known: Mapping[str, int]) -> torch.Tensor:
    """An uninitialised result."""
    return compat.empty_strided(evaluate(spec.size, known), evaluate(spec.stride, known), spec.dtype)


def _array(signature: Signature, i: int, tensor: torch.Tensor, known: Mapping[str, int]) -> np.ndarray:
    """Argument `i` as the row-major array that the record calls it."""
    where = signature.input_layouts[i]
    buffer = evaluate(where.buffer, known)
    tensor = signature.tensor(i, tensor.detach(), known)
    flat = torch.as_strided(tensor, buffer, row_major(buffer)) if tensor.numel() else tensor.reshape(buffer)
    dtype = interpreter.numpy_dtype(values.dtype_name(tensor.dtype))
    if tensor.dtype is torch.bfloat16:
        return flat.view(torch.int16).numpy().view(dtype)
    return flat.numpy()


def _fill(out: torch.Tensor, array: np.ndarray) -> None:
    """Copy a row-major array into a dense tensor, in the order of the tensor's memory, even where autograd watches."""
    source = np.ascontiguousarray(array)
    if out.dtype is torch.bfloat16:
        source, out = source.view(np.int16), out.view(torch.int16)
    if not out.numel():
        return
    with torch.no_grad():
        torch.as_strided(out, source.shape, row_major(source.shape)).copy_(torch.from_numpy(source))
