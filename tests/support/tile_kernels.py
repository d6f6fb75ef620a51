"""Write kernels of kind matmul, conv and attention as linalg-level text, for the tests of their emitters."""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from lamina.dialects.dtypes import DTYPES
from lamina.passes.gpu.attention.problem import Attention, read_attention
from lamina.passes.gpu.gpu_kernel import GpuKernel
from lamina.passes.loops.kernel_functions import kernels
from lamina.passes.loops.tensor_graph import TensorGraph

Shape = Sequence[int | str]


def element(dtype: str) -> str:
    """The storage type of a dtype at the linalg level."""
    d = DTYPES[dtype]
    return dtype if d.kind == "float" else f"i{8 * d.bytes}"


def tensor(dtype: str, shape: Shape) -> str:
    """A tensor type; a symbolic size (a string) is `?`."""
    return f"tensor<{''.join(('?' if isinstance(d, str) else str(d)) + 'x' for d in shape)}{element(dtype)}>"


def kernel(
    kind: str,
    args: Sequence[tuple[str, Shape]],
    results: Sequence[tuple[str, Shape]],
    body: str,
    symbols: Sequence[str] = (),
) -> str:
    """A module with one kernel `@k`; its arguments are `%0`, `%1`, ... and its symbols `%s0`, ..."""

    def strings(shape: Shape) -> str:
        return "[" + ", ".join(f'"{d}"' for d in shape) + "]"

    def lists(items: Sequence[str]) -> str:
        return "[" + ", ".join(items) + "]"

    parameters = [f"%{i}: {tensor(d, s)}" for i, (d, s) in enumerate(args)] + [f"%{s}: index" for s in symbols]
    return f"""
func.func private @k({", ".join(parameters)}) -> ({", ".join(tensor(d, s) for d, s in results)}) attributes {{
  lamina.kind = "{kind}", lamina.label = "test", lamina.symbols = {strings(symbols)},
  lamina.arg_dims = {lists([strings(s) for _, s in args])}, lamina.result_dims = {lists([strings(s) for _, s in results])},
  lamina.arg_dtypes = {strings([d for d, _ in args])}, lamina.result_dtypes = {strings([d for d, _ in results])}}} {{
{body}
}}"""


def attention(q, k, causal=False, gqa=1, dtype="bf16", mask=None, lse=False, symbols=()):
    """A kernel of attention alone; `mask` is (dtype, shape)."""
    arguments = [(dtype, q), (dtype, k), (dtype, k), *([mask] if mask else [])]
    results = [(dtype, q), *([("f32", q[:-1])] if lse else [])]
    attributes = f"{{causal = {str(causal).lower()}, gqa = {gqa} : i64, scale = unit}}"
    types = ", ".join(tensor(*a) for a in arguments)
    names = ", ".join(f"%{i}" for i in range(len(arguments)))
    body = f'%y, %l = "lamina.attention"({names}) {attributes} : ({types}) -> ({tensor(dtype, q)}, {tensor("f32", q[:-1])})'
    returned = "%y, %l" if lse else "%y"
    return kernel(
        "attention",
        arguments,
        results,
        f"{body}\nreturn {returned} : {', '.join(tensor(*r) for r in results)}",
        symbols,
    )


def open_attention(module: ir.Module) -> tuple[GpuKernel, Attention]:
    """The kernel of a module, ready to be written for a GPU, and its attention."""
    (op,) = kernels(module)
    made = GpuKernel(TensorGraph(op))
    found = read_attention(made.graph)
    assert found is not None
    return made, found
