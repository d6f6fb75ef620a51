"""Products in groups of rows against float64: empty groups, rows in none, few rows, K in blocks, ends of buffers."""

import ml_dtypes
import numpy as np
import pytest
from support.guarded import guarded
from support.run_kernel import compile_kernel
from support.tile_kernels import kernel, tensor

from lamina.dialects.mlir_context import context
from lamina.targets import get_target

COLUMNS = 2 * get_target("native").features.lanes()
NUMPY = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f64": np.float64}
TRANSPOSED = """
  %e = tensor.empty() : {w}
  %t = linalg.generic {{indexing_maps = [affine_map<(g, k, n) -> (g, n, k)>, affine_map<(g, k, n) -> (g, k, n)>],
      iterator_types = ["parallel", "parallel", "parallel"]}} ins(%1 : {given}) outs(%e : {w}) {{
  ^bb0(%a: {dtype}, %o: {dtype}):
    linalg.yield %a : {dtype} }} -> {w}"""
COMPUTED = """
  %n = linalg.generic {{indexing_maps = [affine_map<(s, k) -> (s, k)>, affine_map<(s, k) -> (s, k)>],
      iterator_types = ["parallel", "parallel"]}} ins(%0 : {x}) outs(%0 : {x}) {{
  ^bb0(%a: {dtype}, %o: {dtype}):
    %b = arith.negf %a : {dtype}
    linalg.yield %b : {dtype} }} -> {x}"""


def compiled(s, groups, k, n, dtype="f32", by_k=False, negated=False):
    """`y = x @ w[group]`, with w as [G, K, N], or [G, N, K] and transposed; `negated`: of -x."""
    x, w, y, ends = (s, k), (groups, k, n), (s, n), (groups,)
    given = (groups, n, k) if by_k else w
    names = {"x": tensor(dtype, x), "w": tensor(dtype, w), "given": tensor(dtype, given), "dtype": dtype}
    body = (TRANSPOSED.format(**names) if by_k else "") + (COMPUTED.format(**names) if negated else "")
    operands = f"{'%n' if negated else '%0'}, {'%t' if by_k else '%1'}, %2"
    types = f"({names['x']}, {names['w']}, {tensor('i64', ends)})"
    body += (
        f'\n%y = "lamina.grouped_matmul"({operands}) : {types} -> {tensor(dtype, y)}\nreturn %y : {tensor(dtype, y)}'
    )
    args = [(dtype, x), (dtype, given), ("i64", ends)]
    symbols = ("d0",) if s == "d0" else ()
    return compile_kernel(kernel("matmul", args, [(dtype, y)], body, symbols), context=context())


def check(run, rows, ends, k, n, dtype="f32", by_k=False, sign=1, tolerance=1e-5):
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, k)).astype(NUMPY[dtype])
    w = rng.standard_normal((len(ends), k, n)).astype(NUMPY[dtype])
    exact = np.zeros((rows, n))
    for start, end, matrix in zip([0, *ends], ends, w):
        exact[start:end] = sign * x[start:end].astype(float) @ matrix.astype(float)
    out = guarded(np.full((rows, n), np.nan, NUMPY[dtype]))
    given = np.ascontiguousarray(w.swapaxes(1, 2)) if by_k else w
    run.run([guarded(x), guarded(given), np.array(ends), out], {"d0": rows})
    np.testing.assert_allclose(out.astype(float), exact, rtol=tolerance, atol=tolerance * k**0.5)


@pytest.mark.parametrize("by_k", [False, True])
def test_groups_of_any_size(by_k):
    """Two blocks of columns, groups above a block of rows (72), below a tile (6), empty, and rows in none."""
    run = compiled("d0", 4, 19, 150, by_k=by_k)
    for rows, ends in [
        (9, [4, 4, 8, 9]),
        (200, [100, 103, 103, 190]),
        (75, [0, 0, 75, 75]),
        (5, [0, 0, 0, 0]),
        (0, [0] * 4),
    ]:
        check(run, rows, ends, 19, 150, by_k=by_k)


@pytest.mark.parametrize("rows, n", [(1, 16), (2, 70), (12, 5)])
def test_few_rows_read_transposed_matrices_in_place(rows, n):
    check(compiled(rows, 3, 21, n, by_k=True), rows, [0, rows // 2, rows], 21, n, by_k=True)


def test_blocks_of_k():
    check(compiled(11, 2, 2050, 20), 11, [3, 10], 2050, 20)


def test_computed_rows():
    check(compiled(13, 2, 9, 20, negated=True), 13, [6, 13], 9, 20, sign=-1)


@pytest.mark.parametrize("dtype, tolerance", [("bf16", 2**-6), ("f64", 1e-13)])
def test_dtypes(dtype, tolerance):
    check(compiled(20, 3, 33, 40, dtype), 20, [7, 7, 18], 33, 40, dtype, tolerance=tolerance)


def test_ends_past_the_last_row_are_the_last_row():
    run = compiled(4, 2, 3, 5)
    x, w = np.ones((4, 3), np.float32), np.stack([np.ones((3, 5), np.float32), np.full((3, 5), 2, np.float32)])
    out = np.full((4, 5), np.nan, np.float32)
    run.run([x, w, np.array([2, 1 << 40]), out], {})
    np.testing.assert_array_equal(out[:, 0], [3, 3, 6, 6])


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_matrices_packed_before(dtype):
    """Panels as wide as the register tile, rows in blocks, in none, and past the last end."""
    groups, panels, k = 3, 3, 37
    args = [(dtype, ("d0", k)), (dtype, (groups, panels, k, COLUMNS)), ("i64", (groups,))]
    y = tensor(dtype, ("d0", panels * COLUMNS))
    body = f'%y = "lamina.packed_grouped_matmul"(%0, %1, %2) : ({", ".join(tensor(*a) for a in args)}) -> {y}\nreturn %y : {y}'
    run = compile_kernel(kernel("matmul", args, [(dtype, ("d0", panels * COLUMNS))], body, ("d0",)), context=context())
    rng = np.random.default_rng(0)
    for rows, ends in [(9, [4, 4, 8]), (200, [100, 103, 190]), (5, [0, 0, 0]), (0, [0, 0, 0])]:
        x = rng.standard_normal((rows, k)).astype(NUMPY[dtype])
        packed = rng.standard_normal((groups, panels, k, COLUMNS)).astype(NUMPY[dtype])
        w = packed.swapaxes(1, 2).reshape(groups, k, -1).astype(float)
        exact = np.zeros((rows, panels * COLUMNS))
        for start, end, matrix in zip([0, *ends], ends, w):
            exact[start:end] = x[start:end].astype(float) @ matrix
        out = guarded(np.full(exact.shape, np.nan, NUMPY[dtype]))
        run.run([guarded(x), guarded(packed), np.array(ends), out], {"d0": rows})
        tolerance = 1e-5 if dtype == "f32" else 2**-6
        np.testing.assert_allclose(out.astype(float), exact, rtol=tolerance, atol=tolerance * k**0.5)
