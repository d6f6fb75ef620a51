"""Matrix products on GPUs, without one: simulated where no TMA is involved; operands, tiles and fragments by index."""

import ml_dtypes
import numpy as np
import pytest
from mlir import ir
from support.simulate_gpu import simulate
from support.tile_kernels import kernel, tensor

from lamina.dialects.mlir_context import context
from lamina.passes.gpu.gpu_kernel import GpuKernel
from lamina.passes.gpu.hopper.ptx import Ptx
from lamina.passes.gpu.hopper.ring import Ring
from lamina.passes.gpu.matmul import emit_gpu_matmul
from lamina.passes.gpu.matmul.operands import place_operands
from lamina.passes.gpu.matmul.read_product import read_product
from lamina.passes.gpu.matmul.staged_tile import Layout
from lamina.passes.gpu.matmul.sums import emit_sums
from lamina.passes.gpu.matmul.tiles import WarpTiles
from lamina.passes.loops.kernel_functions import kernels
from lamina.passes.loops.tensor_graph import TensorGraph
from lamina.passes.pass_manager import run

DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32}


def product(op, a, b, y, dtype="f32", bias=None, epilogue=False, turned=False):
    """A kernel; with `turned` A is the transpose of its input, with `epilogue` a residual is added."""
    arguments = [(dtype, a[::-1] if turned else a), (dtype, b)]
    body, left = "", "%0"
    if turned:
        left = "%at"
        body = f"""
  %ae = tensor.empty() : {tensor(dtype, a)}
  %at = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%0 : {tensor(dtype, a[::-1])}) outs(%ae : {tensor(dtype, a)}) {{
  ^bb0(%in: {dtype}, %out: {dtype}):
    linalg.yield %in : {dtype}
  }} -> {tensor(dtype, a)}"""
    operands, types = f"{left}, %1", f"{tensor(dtype, a)}, {tensor(dtype, b)}"
    if bias:
        arguments.append((dtype, bias))
        operands, types = operands + ", %2", f"{types}, {tensor(dtype, bias)}"
    result, type = "%y", tensor(dtype, y)
    body += f'\n  %y = "lamina.{op}"({operands}) : ({types}) -> {type}'
    if epilogue:
        arguments.append((dtype, y))
        same = f"affine_map<({', '.join(f'd{i}' for i in range(len(y)))}) -> ({', '.join(f'd{i}' for i in range(len(y)))})>"
        result = "%z"
        body += f"""
  %e = tensor.empty() : {type}
  %z = linalg.generic {{indexing_maps = [{same}, {same}, {same}], iterator_types = [{", ".join(['"parallel"'] * len(y))}]}}
      ins(%y, %{len(arguments) - 1} : {type}, {type}) outs(%e : {type}) {{
  ^bb0(%p: {dtype}, %q: {dtype}, %r: {dtype}):
    %s = arith.addf %p, %q : {dtype}
    linalg.yield %s : {dtype}
  }} -> {type}"""
    return kernel("matmul", arguments, [(dtype, y)], f"{body}\n  return {result} : {type}")


def random(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    return (rng.integers(-5, 5, shape) if dtype == "i32" else rng.standard_normal(shape)).astype(DTYPES[dtype])


def check(op, a, b, y, dtype="f32", bias=None, epilogue=False, turned=False, options="", before="", tolerance=None):
    shapes = [a[::-1] if turned else a, b, *([bias] if bias else []), *([y] if epilogue else [])]
    given = [random(s, dtype, i) for i, s in enumerate(shapes)]
    with context(), ir.Location.unknown():
        module = ir.Module.parse(product(op, a, b, y, dtype, bias, epilogue, turned))
        run(module, f"{before}lamina-emit-gpu-matmul{options}")
        (made,), status = simulate(module, given, [(y, np.dtype(DTYPES[dtype]))])
        text = str(module)
    assert status == 0
    wide = [x.astype(np.float64) for x in given]
    left = wide[0].T if turned else wide[0]
    exact = left @ (np.swapaxes(wide[1], -1, -2) if op == "linear" else wide[1])
    exact = exact + (wide[2] if bias else 0)
    if epilogue:
        exact = exact.astype(DTYPES[dtype]).astype(np.float64) + wide[-1]
    tolerance = tolerance or {"f32": 1e-5, "f64": 1e-12, "i32": 0, "f16": 4e-3, "bf16": 2e-2}[dtype]
    np.testing.assert_allclose(made.astype(np.float64), exact, rtol=tolerance, atol=tolerance * np.sqrt(a[-1]))
    return text


@pytest.mark.parametrize(
    "op, a, b, y, dtype",
    [
        ("linear", (70, 33), (40, 33), (70, 40), "f32"),
        ("matmul", (64, 16), (16, 64), (64, 64), "f32"),
        ("matmul", (17, 300), (300, 18), (17, 18), "f32"),
        ("matmul", (5, 7), (7, 3), (5, 3), "f64"),
        ("matmul", (9, 20), (20, 33), (9, 33), "i32"),
        ("matmul", (3, 20, 17), (3, 17, 9), (3, 20, 9), "bf16"),
        ("linear", (2, 20, 17), (9, 17), (2, 20, 9), "f32"),
        ("matmul", (1, 1), (1, 1), (1, 1), "f32"),
    ],
)
def test_without_tensor_cores(op, a, b, y, dtype):
    check(op, a, b, y, dtype)


def test_bias_and_residual_are_fused():
    text = check("linear", (40, 24), (36, 24), (40, 36), bias=(36,), epilogue=True)
    assert text.count("gpu.func @") == 1


@pytest.mark.parametrize("m, n, k, dtype", [(1, 40, 256, "f32"), (3, 7, 100, "f32"), (16, 12, 37, "f32"), (1, 130, 512, "bf16"), (2, 6, 10, "f64"), (5, 4, 1024, "f16")])  # fmt: skip
def test_few_rows(m, n, k, dtype):
    text = check("linear", (m, k), (n, k), (m, n), dtype, bias=(n,), epilogue=True)
    assert "gpu.shuffle" in text


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize(
    "op, a, b, y, turned",
    [
        ("linear", (64, 64), (64, 64), (64, 64), False),
        ("linear", (50, 40), (72, 40), (50, 72), False),
        ("matmul", (33, 37), (37, 51), (33, 51), False),
        ("matmul", (40, 96), (96, 64), (40, 64), True),
        ("matmul", (2, 20, 24), (2, 24, 16), (2, 20, 16), False),
    ],
)
def test_mma_sync(op, a, b, y, turned, dtype):
    text = check(op, a, b, y, dtype, epilogue=True, turned=turned, options="{matrix=mma}")
    assert "nvvm.mma.sync" in text


STAGED = {
    "two steps a part": WarpTiles(64, 64, 32, 32, 1.0),
    "four": WarpTiles(64, 128, 32, 64, 1.0, depth_bytes=128, stages=3),
    "K in two parts": WarpTiles(64, 64, 32, 32, 1.0, stages=3, splits=2),
}


@pytest.mark.parametrize("tiles", STAGED)
@pytest.mark.parametrize(
    "op, a, b, y, turned",
    [
        ("linear", (50, 136), (72, 136), (50, 72), False),
        ("matmul", (72, 200), (200, 88), (72, 88), False),
        ("matmul", (33, 37), (37, 51), (33, 51), False),
        ("matmul", (40, 96), (96, 64), (40, 64), True),
        ("matmul", (2, 40, 64), (2, 64, 48), (2, 40, 48), False),
    ],
)
def test_copies_in_stages(op, a, b, y, turned, tiles, monkeypatch):
    """A copy takes effect at the wait for it; before, its target is NaN."""
    monkeypatch.setattr(emit_gpu_matmul, "SMALL", 0)
    monkeypatch.setattr(emit_gpu_matmul, "choose_warp_tiles", lambda *sizes: STAGED[tiles])
    text = check(op, a, b, y, "bf16", epilogue=True, turned=turned, options="{matrix=mma}")
    assert "nvvm.cp.async.shared.global" in text and "nvvm.ldmatrix" in text


@pytest.mark.parametrize(
    "batch, m, n, k, tensor_cores",
    [
        ((), 512, 512, 512, True),
        ((), 256, 256, 256, False),
        ((), 4096, 4096, 64, False),  # more is copied than multiplied
        ((96,), 197, 197, 64, False),
        ((384,), 128, 128, 256, False),
        ((16,), 256, 256, 256, True),
    ],
)
def test_f32_that_tensor_cores_pay_for(batch, m, n, k, tensor_cores):
    """Measured on an H200 (benchmarks/results/gpu_matmul.md): planes of TF32 are copied first."""
    with context(), ir.Location.unknown():
        module = ir.Module.parse(product("matmul", (*batch, m, k), (*batch, k, n), (*batch, m, n)))
        (op,) = kernels(module)
        assert emit_gpu_matmul._suits_tensor_cores(read_product(TensorGraph(op))) == tensor_cores


@pytest.mark.parametrize("dtype, options", [("bf16", "{matrix=mma}"), ("bf16", ""), ("f32", "")])
@pytest.mark.parametrize("staged", [False, True])
def test_parts_of_rows_are_stored_between_each_other(dtype, options, staged, monkeypatch):
    """The phases of a transposed convolution: `[N, H, W, (p, q, O)]` as `[N, H, p, W, q, O]`."""
    if staged:
        monkeypatch.setattr(emit_gpu_matmul, "SMALL", 0)
    x, w, y = (2, 3, 5, 40), (64, 40), (2, 3, 5, 64)
    parts, result = (2, 3, 5, 2, 2, 16), (2, 3, 2, 5, 2, 16)
    order = "affine_map<(n, h, p, w, q, o) -> (n, h, w, p, q, o)>"
    body = f"""
  %y = "lamina.linear"(%0, %1) : ({tensor(dtype, x)}, {tensor(dtype, w)}) -> {tensor(dtype, y)}
  %p = tensor.expand_shape %y [[0], [1], [2], [3, 4, 5]] output_shape {list(parts)} : {tensor(dtype, y)} into {tensor(dtype, parts)}
  %e = tensor.empty() : {tensor(dtype, result)}
  %z = linalg.generic {{indexing_maps = [{order}, affine_map<(a, b, c, d, e, f) -> (a, b, c, d, e, f)>],
      iterator_types = [{", ".join(['"parallel"'] * 6)}]}} ins(%p : {tensor(dtype, parts)}) outs(%e : {tensor(dtype, result)}) {{
  ^bb0(%in: {dtype}, %out: {dtype}):
    linalg.yield %in : {dtype}
  }} -> {tensor(dtype, result)}
  return %z : {tensor(dtype, result)}"""
    given = [random(s, dtype, i) for i, s in enumerate((x, w))]
    exact = given[0].astype(np.float64) @ given[1].astype(np.float64).T
    exact = exact.reshape(parts).transpose(0, 1, 3, 2, 4, 5)
    with context(), ir.Location.unknown():
        module = ir.Module.parse(kernel("matmul", [(dtype, x), (dtype, w)], [(dtype, result)], body))
        run(module, f"lamina-emit-gpu-matmul{options}")
        (made,), _ = simulate(module, given, [(result, np.dtype(DTYPES[dtype]))])
    tolerance = 2e-2 if dtype == "bf16" else 1e-5
    np.testing.assert_allclose(made.astype(np.float64), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("stages", [1, 3, 4])
def test_alternating_consumers_skip_stages_of_the_ring(stages):
    """Number `n` from the start on is stage `n mod stages`, and the phase turns at each round."""
    with context(), ir.Location.unknown():
        module = ir.Module.parse(product("matmul", (1, 8), (8, 64), (1, 64), "i32"))
        (op,) = kernels(module)
        made = GpuKernel(TensorGraph(op))
        stage = made.stage(64, (1, 1, 1))
        b, ring = stage.b, Ring(Ptx(stage), stages, 1024, 0, 4)
        thread = b.bind("thread", stage.thread())
        place, phase = ring.skip(*ring.skip(*ring.start(producer=False), 5), thread)
        found = b.value("arith.addi", (b.value("arith.muli", (ring.ptx.i32(place), b.constant(2, b.i32)), b.i32), phase), b.i32)  # fmt: skip
        b.op("memref.store", (found, stage.outputs[0], b.dim(thread)))
        stage.finish()
        made.finish()
        given = [random((1, 8), "i32", 0), random((8, 64), "i32", 1)]
        (found,), _ = simulate(module, given, [((64,), np.dtype(np.int32))])
    numbers = 5 + np.arange(64)
    np.testing.assert_array_equal(found, 2 * (numbers % stages) + numbers // stages % 2)


@pytest.mark.parametrize("columns", [1, 7, 33, 51, 63, 75, 97, 130])
def test_rows_that_begin_anywhere_are_written_by_aligned_vectors(columns, monkeypatch):
    """Without fused ops; each row's first vector starts at another column, and its ends are single elements."""
    monkeypatch.setattr(emit_gpu_matmul, "SMALL", 0)
    monkeypatch.setattr(emit_gpu_matmul, "choose_warp_tiles", lambda *sizes: STAGED["two steps a part"])
    monkeypatch.setattr(emit_gpu_matmul, "_suits_tensor_cores", lambda p: True)
    text = check("linear", (70, 40), (columns, 40), (70, columns), "bf16", bias=(columns,), options="{matrix=mma}")
    assert "nvvm.shfl.sync  idx" in text and "vector<8xbf16>" in text


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows, depth_bytes", [(64, 64), (128, 64), (256, 128)])
def test_lines_that_are_read_at_once_are_in_all_banks(rows, depth_bytes, turned):
    """Eight lines of 16 bytes are in 32 banks of 4 bytes, and no two lines of a tile lie in the same place."""
    layout = Layout(rows, depth_bytes, turned, 2)
    count = layout.bytes // layout.pitch
    places = {
        (outer, line): layout.offset(outer, line ^ layout.turn(outer))
        for outer in range(count)
        for line in range(layout.lines)
    }
    assert sorted(places.values()) == list(range(0, layout.bytes, 16))
    for first in range(0, count, 8):
        for line in range(layout.lines):
            assert len({places[first + i, line] // 16 % 8 for i in range(8)}) == 8


@pytest.mark.parametrize(
    "op, a, b, y",
    [
        ("linear", (70, 132), (72, 132), (70, 72)),
        ("matmul", (68, 65), (65, 67), (68, 67)),
        ("matmul", (2, 64, 64), (2, 64, 96), (2, 64, 96)),
    ],
)
@pytest.mark.parametrize("tf32", [False, True])
def test_f32_by_tf32(op, a, b, y, tf32, monkeypatch):
    """Three products of planes, with sums in full f32; or one of operands that are rounded, where that is allowed."""
    for limit in ("SMALL", "LARGE_F32", "SHORT_F32", "COPIED_F32"):
        monkeypatch.setattr(emit_gpu_matmul, limit, 0)
    tiles = WarpTiles(64, 64, 32, 32, 1.0, promoted=not tf32)
    monkeypatch.setattr(emit_gpu_matmul, "choose_warp_tiles", lambda *sizes: tiles)
    before, tolerance = ("lamina-allow-tf32,", 3e-3) if tf32 else ("", 1e-6)
    text = check(op, a, b, y, epilogue=True, options="{matrix=mma}", before=before, tolerance=tolerance)
    assert "m = 16, n = 8, k = 8" in text
    if tf32 and op == "linear":  # no stage before
        assert text.count("gpu.func @") == 1 and "cvt.rna.tf32.f32" in text


def scaled_product(m, n, k):
    """`a @ w.T * s[:, None] * t` in f32, rounded to bf16 once."""
    y, rows = tensor("f32", (m, n)), "affine_map<(i, j) -> (i)>"
    same, columns = "affine_map<(i, j) -> (i, j)>", "affine_map<(i, j) -> (j)>"
    body = f"""
  %y = "lamina.linear"(%0, %1) : ({tensor("f32", (m, k))}, {tensor("f32", (n, k))}) -> {y}
  %e = tensor.empty() : {tensor("bf16", (m, n))}
  %z = linalg.generic {{indexing_maps = [{same}, {rows}, {columns}, {same}], iterator_types = ["parallel", "parallel"]}}
      ins(%y, %2, %3 : {y}, {tensor("f32", (m,))}, {tensor("f32", (n,))}) outs(%e : {tensor("bf16", (m, n))}) {{
  ^bb0(%p: f32, %q: f32, %r: f32, %o: bf16):
    %u = arith.mulf %p, %q : f32
    %v = arith.mulf %u, %r : f32
    %w = arith.truncf %v : f32 to bf16
    linalg.yield %w : bf16
  }} -> {tensor("bf16", (m, n))}
  return %z : {tensor("bf16", (m, n))}"""
    return kernel("matmul", [("f32", x) for x in ((m, k), (n, k), (m,), (n,))], [("bf16", (m, n))], body)


@pytest.mark.parametrize("m, n", [(70, 72), (64, 64), (50, 40), (130, 136)])
def test_sums_in_f32_are_stored_as_16_bits_by_vectors(m, n, monkeypatch):
    """Also where the last tile starts within the one before, or has rows and columns that do not exist."""
    for limit in ("SMALL", "LARGE_F32", "SHORT_F32", "COPIED_F32"):
        monkeypatch.setattr(emit_gpu_matmul, limit, 0)
    monkeypatch.setattr(emit_gpu_matmul, "_suits_tensor_cores", lambda p: True)
    monkeypatch.setattr(emit_gpu_matmul, "choose_warp_tiles", lambda *sizes: STAGED["two steps a part"])
    given = [random(shape, "f32", i) for i, shape in enumerate(((m, 72), (n, 72), (m,), (n,)))]
    with context(), ir.Location.unknown():
        module = ir.Module.parse(scaled_product(m, n, 72))
        run(module, "lamina-allow-tf32,lamina-emit-gpu-matmul{matrix=mma}")
        (made,), status = simulate(module, given, [((m, n), np.dtype(ml_dtypes.bfloat16))])
        text = str(module)
    stores = [line for line in text.splitlines() if ".store" in line and "xbf16" in line]
    assert status == 0 and stores and all(line.endswith("vector<8xbf16>") for line in stores)
    a, w, s, t = (x.astype(np.float64) for x in given)
    np.testing.assert_allclose(made.astype(np.float64), a @ w.T * s[:, None] * t, rtol=2e-2, atol=5e-2)


@pytest.mark.parametrize("rows", [3, 40])
def test_packed_panels_are_read_as_they_lie(rows):
    """`packed[p, k, c]` is column `8 p + c`; the last panel has columns that do not exist."""
    text = kernel(
        "matmul",
        [("f32", (rows, 20)), ("f32", (3, 20, 8))],
        [("f32", (rows, 19))],
        f"""
  %y = "lamina.packed_linear"(%0, %1) {{size = 19 : i64}}
      : ({tensor("f32", (rows, 20))}, {tensor("f32", (3, 20, 8))}) -> {tensor("f32", (rows, 19))}
  return %y : {tensor("f32", (rows, 19))}""",
    )
    x, panels = random((rows, 20), "f32", 1), random((3, 20, 8), "f32", 2)
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        run(module, "lamina-emit-gpu-matmul")
        (made,), status = simulate(module, [x, panels], [((rows, 19), np.dtype(np.float32))])
    assert status == 0
    columns = panels.astype(np.float64).transpose(1, 0, 2).reshape(20, 24)[:, :19]
    np.testing.assert_allclose(made, x.astype(np.float64) @ columns, rtol=1e-5, atol=1e-5)


def operands_only(text):
    """The scratch buffers that the copies of a product's operands write, and the operands; the product is left out."""
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        (op,) = kernels(module)
        made = GpuKernel(TensorGraph(op))
        found = place_operands(made, read_product(made.graph))
        results = [(tuple(made.graph.shape(v)), np.dtype(np.float32)) for v in made.graph.results]
        made.finish()
        inputs = [random(s, "f32", i) for i, s in enumerate(INPUTS)]
        inputs[0].flat[:5] = [np.inf, -np.inf, np.nan, 3.4e38, 1e-40]
        buffers = {}
        simulate(module, inputs, results, scratch=buffers)
    return found, buffers, inputs


INPUTS = [(70, 45), (45, 33)]


def test_f32_operands_are_three_tf32_planes_along_k():
    """The planes add up to the operand within 2**-22, hold 10 fraction bits, and are finite but for the first."""
    operands, buffers, inputs = operands_only(product("matmul", *INPUTS, (70, 33)))
    for operand, whole in zip(operands, (inputs[0], inputs[1].T)):
        pitch = operand.matrix.row_stride
        assert pitch == 48 and not operand.matrix.turned
        planes = buffers[operand.source].reshape(3, whole.shape[0], pitch)[:, :, : whole.shape[1]]
        assert not (planes.view(np.int32) & 0x1FFF).any()
        high, finite, low = planes
        ok = np.isfinite(whole)
        np.testing.assert_array_equal(np.isnan(high), np.isnan(whole))
        np.testing.assert_array_equal(high[np.isinf(whole)], whole[np.isinf(whole)])
        np.testing.assert_array_equal(finite, np.where(ok, high, 0))
        assert not low[~ok].any() and np.isfinite(low).all()
        error = np.abs(whole[ok].astype(np.float64) - high[ok] - low[ok])
        assert (error <= np.abs(whole[ok].astype(np.float64)) * 2.0**-21 + 1e-38).all()


def test_parts_of_k_are_added_in_order_with_bias():
    """The second stage of a split K, on sums that are given."""
    with context(), ir.Location.unknown():
        module = ir.Module.parse(product("linear", (6, 64), (11, 64), (6, 11), bias=(11,)))
        (op,) = kernels(module)
        made = GpuKernel(TensorGraph(op))
        p = read_product(made.graph)
        emit_sums(made, p, made.new_scratch(ir.F32Type.get(), 3 * 6 * 16), 3)
        made.finish()
        sums, bias = random((3, 6, 16), "f32", 1), random((11,), "f32", 2)
        given = [random((6, 64), "f32", 3), random((11, 64), "f32", 4), bias]
        (y,), _ = simulate(module, given, [((6, 11), np.dtype(np.float32))], scratch={0: sums.reshape(-1)})
    np.testing.assert_array_equal(y, ((sums[0] + sums[1]) + sums[2])[:, :11] + bias)
