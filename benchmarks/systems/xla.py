"""XLA for CPUs: torchax runs the model's operators as functions of JAX, jax.jit compiles them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, _ops, nn

from .stateless import stateless


@contextmanager
def missing_overloads() -> Iterator[None]:
    """Let torchax's tables name overloads that torch 2.13 has no more (those of named tensors): strings stand for them."""
    find = _ops.OpOverloadPacket.__getattr__

    def found(packet: Any, name: str) -> Any:
        try:
            return find(packet, name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return f"{packet}.{name}"

    _ops.OpOverloadPacket.__getattr__ = found
    try:
        yield
    finally:
        _ops.OpOverloadPacket.__getattr__ = find


def build(model: nn.Module, args: Sequence[Tensor], threads: int) -> Callable[[], Any]:
    """Threads are as many as the processors that the process may use: XLA has no setting of its own."""
    import jax

    with missing_overloads():
        import torchax

        torchax.default_env()

    model, args = stateless(model, args)
    weights, function = torchax.extract_jax(model)
    compiled = jax.jit(function)
    arrays = tuple(jax.numpy.asarray(x.contiguous().numpy()) for x in args)
    return lambda: jax.tree.leaves(jax.block_until_ready(compiled(weights, arrays)))
