"""Variants of products assemble without spills, and ptxas finds no reason to serialise warpgroup products."""

import pytest
from mlir import ir
from support.ptx import Assembled, assembled, needs_ptxas
from support.tile_kernels import float8_product, kernel, tensor

from lamina.dialects.mlir_context import context

GELU = """
  %e = tensor.empty() : {type}
  %z = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%y, %2 : {type}, {type}) outs(%e : {type}) {{
  ^bb0(%p: bf16, %q: bf16, %r: bf16):
    %w = arith.extf %p : bf16 to f32
    %t = math.tanh %w : f32
    %v = arith.extf %q : bf16 to f32
    %u = arith.mulf %t, %v : f32
    %o = arith.truncf %u : f32 to bf16
    linalg.yield %o : bf16
  }} -> {type}"""


def product(op, a, b, y, dtype="bf16", symbols=(), fused=False):
    arguments = [(dtype, a), (dtype, b), *([(dtype, y)] if fused else [])]
    body = f'%y = "lamina.{op}"(%0, %1) : ({tensor(dtype, a)}, {tensor(dtype, b)}) -> {tensor(dtype, y)}'
    body += GELU.format(type=tensor(dtype, y)) if fused else ""
    return kernel(
        "matmul", arguments, [(dtype, y)], f"{body}\nreturn %{'z' if fused else 'y'} : {tensor(dtype, y)}", symbols
    )


def normalised(m, n, k):
    """A layer with batch norm, another image and relu behind it."""
    wide = f"tensor<{n}xf32>"
    shapes = [("bf16", (m, k)), ("bf16", (n, k)), ("f32", (n,)), ("f32", (n,)), ("bf16", (m, n))]
    type = tensor("bf16", (m, n))
    body = f"""
  %y = "lamina.linear"(%0, %1) : ({tensor("bf16", (m, k))}, {tensor("bf16", (n, k))}) -> {type}
  %e = tensor.empty() : {type}
  %z = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
      ins(%y, %2, %3, %4 : {type}, {wide}, {wide}, {type}) outs(%e : {type}) {{
  ^bb0(%p: bf16, %a: f32, %c: f32, %q: bf16, %r: bf16):
    %zero = arith.constant 0.0 : bf16
    %w = arith.extf %p : bf16 to f32
    %t = arith.mulf %w, %a : f32
    %s = arith.addf %t, %c : f32
    %u = arith.truncf %s : f32 to bf16
    %v = arith.addf %u, %q : bf16
    %o = arith.maximumf %v, %zero : bf16
    linalg.yield %o : bf16
  }} -> {type}
  return %z : {type}"""
    return kernel("matmul", shapes, [("bf16", (m, n))], body)


DYNAMIC = ("d0", "d1", "d2")
WGMMA = {
    "square": product("linear", (4096, 4096), (4096, 4096), (4096, 4096)),
    "fused": product("linear", (2048, 1024), (1024, 1024), (2048, 1024), fused=True),
    "turned, ragged": product("matmul", (1000, 520), (520, 776), (1000, 776), "f16"),
    "odd": product("matmul", (333, 521), (521, 779), (333, 779)),
    "batched": product("matmul", (8, 512, 512), (8, 512, 512), (8, 512, 512)),
    "one row": product("linear", (1, 4096), (4096, 4096), (1, 4096)),
    "split": product("linear", (64, 8192), (256, 8192), (64, 256)),
    "symbolic": product("matmul", ("d0", "d1"), ("d1", "d2"), ("d0", "d2"), symbols=DYNAMIC),
    "three consumers": product("linear", (6304, 768), (768, 768), (6304, 768), fused=True),
    "alternating consumers": product("linear", (6304, 768), (3072, 768), (6304, 3072)),
    "f32": product("matmul", (1024, 1024), (1024, 1024), (1024, 1024), "f32"),
    "batch norm": normalised(100352, 256, 64),
    "batch norm, three consumers": normalised(25088, 512, 128),
}
OTHERS = {
    "sm_80": ("sm_80", product("linear", (1024, 1024), (1024, 1024), (1024, 1024), "f16")),
    "sm_80 large": ("sm_80", product("matmul", (4096, 4096), (4096, 4096), (4096, 4096))),
    "sm_80 fused": ("sm_80", product("linear", (2048, 1024), (1024, 1024), (2048, 1024), fused=True)),
    "sm_80 ragged": ("sm_80", product("matmul", (1000, 521), (521, 779), (1000, 779))),
    "sm_80 split": ("sm_80", product("linear", (64, 8192), (256, 8192), (64, 256))),
    "sm_80 symbolic": ("sm_80", product("matmul", ("d0", "d1"), ("d1", "d2"), ("d0", "d2"), symbols=DYNAMIC)),
    "few rows": ("sm_90a", product("linear", (16, 4096), (4096, 4096), (16, 4096), "f32")),
    "f64": ("sm_90a", product("matmul", (300, 300), (300, 300), (300, 300), "f64")),
}


def made_for(target: str, text: str, numerics: str = "eager") -> Assembled:
    with context(), ir.Location.unknown():
        return assembled(ir.Module.parse(text), target, "matmul", numerics)


@needs_ptxas
@pytest.mark.parametrize("name", WGMMA)
def test_wgmma(name):
    made = made_for("sm_90a", WGMMA[name])
    assert "wgmma.mma_async.sync.aligned.m64n" in made.ptx and "cp.async.bulk.tensor" in made.ptx
    assert "wgmma" not in made.report, made.report
    assert ("bar.arrive" in made.ptx) == (name == "alternating consumers")


FLOAT8: dict[str, tuple[int | str, int, int]] = {
    "square": (4096, 4096, 4096),
    "large": (8192, 8192, 8192),
    "columns in two parts": (128, 33792, 1024),
    "one row": (1, 4096, 4096),
    "ragged": (257, 784, 1040),
    "rows of no 16 bytes": (128, 129, 130),
    "split": (64, 256, 8192),
    "symbolic rows": ("d0", 1024, 2048),
}


@needs_ptxas
@pytest.mark.parametrize("name", FLOAT8)
def test_float8(name):
    """Sums of the tensor cores are of one block of K: each begins anew."""
    m, n, k = FLOAT8[name]
    symbols = (m,) if isinstance(m, str) else ()
    made = made_for("sm_90a", float8_product(m, n, k, ("f8E4M3FN", "f8E5M2"), symbols, rounded=True))
    assert "k32.f32.e4m3.e5m2" in made.ptx and "cp.async.bulk.tensor" in made.ptx
    assert "wgmma" not in made.report, made.report
    assert "wgmma.wait_group.sync.aligned 1" not in made.ptx, "sums of two blocks"


@needs_ptxas
@pytest.mark.parametrize(
    "target, formats, products",
    [
        ("sm_90a", ("f8E4M3FNUZ", "f8E5M2FNUZ"), "wgmma.mma_async.sync.aligned.m64n"),
        ("sm_80", ("f8E4M3FN", "f8E5M2"), "mma.sync.aligned.m16n8k16"),
    ],
)
def test_other_floats_of_8_bits_are_multiplied_as_bf16(target, formats, products):
    ptx = made_for(target, float8_product(512, 512, 512, formats)).ptx
    assert products in ptx and ".f32.bf16.bf16" in ptx


@needs_ptxas
@pytest.mark.parametrize("name, products", [("sm_90a", "wgmma.mma_async.sync.aligned.m64n"), ("sm_80", "mma.sync.aligned.m16n8k8")])  # fmt: skip
def test_tf32(name, products):
    """f32 is read where it lies, K by columns, and no plane of it is made."""
    ptx = made_for(name, product("linear", (2000, 260), (1028, 260), (2000, 1028), "f32"), "tf32").ptx
    assert products in ptx and ".f32.tf32.tf32" in ptx and ptx.count(".entry") == 1


@needs_ptxas
@pytest.mark.parametrize("k, dtype, overlaps", [(768, "bf16", True), (3072, "bf16", False), (1024, "f32", False)])
def test_launches_of_long_products_do_not_overlap(k, dtype, overlaps):
    ptx = made_for("sm_90a", product("linear", (1024, k), (768, k), (1024, 768), dtype)).ptx
    assert ("griddepcontrol.launch_dependents" in ptx) == overlaps


@needs_ptxas
def test_tf32_of_short_k_is_written_while_the_next_tile_is_multiplied():
    made = made_for("sm_90a", product("linear", (4096, 768), (3072, 768), (4096, 3072), "f32"), "tf32")
    assert "bar.arrive" in made.ptx and "wgmma" not in made.report, made.report


@needs_ptxas
@pytest.mark.parametrize("name", OTHERS)
def test_others(name):
    target, text = OTHERS[name]
    ptx = made_for(target, text).ptx
    assert ("mma.sync.aligned.m16n8k16" in ptx) == (target == "sm_80") and "wgmma" not in ptx
