"""Former name of `mlir_context`."""

from .mlir_context import context

__all__ = ["context"]
