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


def byte_product(a: str, b: str, m: int | str, k: int, n: int, by_columns: bool, symbols: Sequence[str] = ()) -> str:
    """A product in i32 of casts of `a` and `b` ("i8", "u8"); the second factor is a transpose in memory, or not."""

    def cast(number: int, dtype: str, shape: Shape, map: str) -> str:
        to, sizes = tensor("i32", shape), "%m" if isinstance(shape[0], str) else ""
        return f"""
  %e{number} = tensor.empty({sizes}) : {to}
  %w{number} = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> ({map})>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
      ins(%{number} : {tensor(dtype, shape if map == "d0, d1" else shape[::-1])}) outs(%e{number} : {to}) {{
  ^bb0(%x: i8, %o: i32):
    %v = arith.ext{"s" if dtype == "i8" else "u"}i %x : i8 to i32
    linalg.yield %v : i32
  }} -> {to}"""

    size = "%zero = arith.constant 0 : index\n%m = tensor.dim %0, %zero : " + tensor(a, (m, k)) if symbols else ""
    y = tensor("i32", (m, n))
    body = (
        size
        + cast(0, a, (m, k), "d0, d1")
        + cast(1, b, (k, n), "d1, d0" if by_columns else "d0, d1")
        + f"""
  %y = "lamina.matmul"(%w0, %w1) : ({tensor("i32", (m, k))}, {tensor("i32", (k, n))}) -> {y}
  return %y : {y}"""
    )
    args = [(a, (m, k)), (b, (n, k) if by_columns else (k, n))]
    return kernel("matmul", args, [("i32", (m, n))], body, symbols)


def float8_product(
    m: int | str, n: int, k: int, formats: Sequence[str], symbols: Sequence[str] = (), rounded: bool = False
) -> str:
    """A kernel for `a @ w.T` of floats of 8 bits, in f32 or `rounded` to bf16."""
    a, w, y = tensor(formats[0], (m, k)), tensor(formats[1], (n, k)), tensor("f32", (m, n))
    turned = tensor(formats[1], (k, n))
    body = f"""
      %e = tensor.empty() : {turned}
      %t = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
          iterator_types = ["parallel", "parallel"]}} ins(%1 : {w}) outs(%e : {turned}) {{
      ^bb0(%p: {formats[1]}, %q: {formats[1]}):
        linalg.yield %p : {formats[1]}
      }} -> {turned}
      %y = "lamina.matmul"(%0, %t) : ({a}, {turned}) -> {y}"""
    args, out = [(formats[0], (m, k)), (formats[1], (n, k))], "bf16" if rounded else "f32"
    if rounded:
        z = tensor("bf16", (m, n))
        size = "%zero = arith.constant 0 : index\n%m = tensor.dim %0, %zero : " + a if symbols else ""
        body += f"""
      {size}
      %f = tensor.empty({"%m" if symbols else ""}) : {z}
      %z = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
          iterator_types = ["parallel", "parallel"]}} ins(%y : {y}) outs(%f : {z}) {{
      ^bb0(%p: f32, %q: bf16):
        %r = arith.truncf %p : f32 to bf16
        linalg.yield %r : bf16
      }} -> {z}"""
    body += f"\nreturn %{'z' if rounded else 'y'} : {tensor(out, (m, n))}"
    return kernel("matmul", args, [(out, (m, n))], body, symbols)


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
