"""Run a part by its ops' reference semantics on numpy: LAMINA_INTERPRET=1, and the tests' oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..dialects import interpret as interpreter
from ..dialects.strides import row_major
from . import values
from .calls.signature import Signature, allocate, evaluate, laid_out
from .part import Part


def interpret(part: Part) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A function of the part's arguments that returns its buffers."""
    signature = Signature(part)

    def call(*args: Any) -> tuple[torch.Tensor, ...]:
        known = signature.named(signature.symbols(args))
        inputs: list[Any] = []
        for tensor, where, name in zip(args, signature.layouts, signature.names):
            size, stride = evaluate(where.shape, known), evaluate(where.strides, known)
            inputs.append(_array(laid_out(tensor.detach(), size, stride, name), evaluate(where.buffer, known)))
        arrays = interpreter.run(part.graph, [*inputs, *args[signature.tensors :]])
        results = []
        for spec, target, array in zip(signature.outputs, signature.targets, arrays):
            out = allocate(spec, known) if target is None else args[target]
            _fill(out, array)
            if target is None:
                results.append(out)
        return tuple(results)

    return call


def _array(tensor: torch.Tensor, buffer: tuple[int, ...]) -> np.ndarray:
    """The memory of `tensor` as the row-major array that the record calls it."""
    flat = torch.as_strided(tensor, buffer, row_major(buffer)) if tensor.numel() else tensor.reshape(buffer)
    return values.bits(flat).numpy().view(interpreter.numpy_dtype(values.dtype_name(tensor.dtype)))


def _fill(out: torch.Tensor, array: np.ndarray) -> None:
    """Copy a row-major array into a dense tensor in the order of its memory, without autograd noticing."""
    source = np.array(array, order="C")
    if (plain := values.bits(out)) is not out:
        source, out = source.view(plain.numpy().dtype), plain
    if out.numel():
        with torch.no_grad():
            torch.as_strided(out, source.shape, row_major(source.shape)).copy_(torch.from_numpy(source))
