"""The code of matrix products for CPUs that are not here: what their inner loops are made of, and how fast models say they are."""

import functools
import re

import pytest
from support.assembly import MCA, assembly, cycles, inner_loops
from support.tile_kernels import kernel

BODY = """
  %y = "lamina.matmul"(%0, %1) : (tensor<64x256xf32>, tensor<256x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>"""
# cores as LLVM models them: 128-bit multiply-adds that start in a cycle
PIPES = {"neoverse-n1": 2, "neoverse-v1": 4, "neoverse-v2": 4}


@functools.cache
def matmul_loop(target: str, multiply_add: str) -> tuple[str, ...]:
    args = [("f32", (64, 256)), ("f32", (256, 64))]
    loops = inner_loops(assembly(kernel("matmul", args, [("f32", (64, 64))], BODY), target, "matmul"))
    return tuple(max(loops, key=lambda lines: sum(line.startswith(multiply_add) for line in lines)))


def count(lines, pattern):
    return sum(bool(re.match(pattern, line)) for line in lines)


@pytest.mark.parametrize("target", ["aarch64", "aarch64+sve", "apple-m1", *PIPES])
def test_aarch64_multiplies_by_lanes_and_spills_nothing(target):
    loop = matmul_loop(target, "fmla")
    assert count(loop, r"fmla\s+v\d+\.4s, v\d+\.4s, v\d+\.s\[\d\]") == 64  # 8 rows, 2 vectors, 4 of K
    assert count(loop, r"st\w+\s") == 0 and not any("[sp" in line for line in loop)
    assert len(loop) < 64 * 1.35


def test_riscv64_multiplies_by_scalars_and_spills_nothing():
    loop = matmul_loop("riscv64", "vfmacc")
    assert count(loop, r"vfmacc\.vf") == 16 and count(loop, r"vle32") == 2 and count(loop, r"vsetvli") == 0
    assert count(loop, r"(vs\w*[er]|fsw|sd|sw)\b") == 0


@pytest.mark.skipif(not MCA.exists(), reason="needs llvm-mca")
@pytest.mark.parametrize("target", PIPES)
def test_models_of_cores_give_90_percent_of_the_port_limit(target):
    share = 64 / PIPES[target] / cycles(list(matmul_loop(target, "fmla")), "aarch64", target)
    print(f"{target}: {share:.1%} of {PIPES[target]} multiply-adds a cycle")
    assert share > 0.9


@functools.cache
def bf16_loop(target: str, rows: int, packed: bool = True) -> tuple[str, ...]:
    shape, y = (8, 256, 8) if packed else (256, 64), f"tensor<{rows}x64xbf16>"
    args = [("bf16", (rows, 256)), ("bf16", shape)]
    op, size = ("packed_linear", "{size = 64 : i64}") if packed else ("matmul", "")
    types = f"(tensor<{rows}x256xbf16>, tensor<{'x'.join(map(str, shape))}xbf16>) -> {y}"
    body = f'%y = "lamina.{op}"(%0, %1) {size} : {types}\nreturn %y : {y}'
    loops = inner_loops(assembly(kernel("matmul", args, [("bf16", (rows, 64))], body), target, "matmul"))
    return tuple(max(loops, key=lambda lines: sum(line.startswith("bf") for line in lines)))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("target", ["neoverse-v1", "neoverse-v2"])
def test_bf16_products_of_many_rows_multiply_squares(target, packed):
    loop = bf16_loop(target, 64, packed)
    assert count(loop, r"bfmmla\s+v\d+\.4s, v\d+\.8h, v\d+\.8h") == 32  # 8 rows, 8 columns, 8 of K
    assert count(loop, r"st\w+\s") == 0 and not any("[sp" in line for line in loop)


@pytest.mark.parametrize("target", ["neoverse-v1", "neoverse-v2"])
def test_bf16_products_of_few_rows_are_dot_products_by_lanes(target):
    loop = bf16_loop(target, 8)
    assert count(loop, r"bfdot\s+v\d+\.4s, v\d+\.8h, v\d+\.2h\[\d\]") == 32 and count(loop, "dup") == 0
    assert count(loop, r"st\w+\s") == 0 and not any("[sp" in line for line in loop)


@functools.cache
def int8_loop(target: str, by_columns: bool) -> tuple[str, ...]:
    """Of 64 x 256 times 256 x 64; B is the transpose of a matrix in memory, or not."""
    widen = """
  %e{n} = tensor.empty() : tensor<{to}xi32>
  %w{n} = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> ({map})>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}}
      ins(%{n} : tensor<{of}xi8>) outs(%e{n} : tensor<{to}xi32>) {{
  ^bb0(%x: i8, %o: i32):
    %v = arith.extsi %x : i8 to i32
    linalg.yield %v : i32
  }} -> tensor<{to}xi32>"""
    shape = (64, 256) if by_columns else (256, 64)
    casts = widen.format(n=0, of="64x256", to="64x256", map="d0, d1") + widen.format(
        n=1, of="x".join(map(str, shape)), to="256x64", map="d1, d0" if by_columns else "d0, d1"
    )
    body = (
        casts
        + """
  %y = "lamina.matmul"(%w0, %w1) : (tensor<64x256xi32>, tensor<256x64xi32>) -> tensor<64x64xi32>
  return %y : tensor<64x64xi32>"""
    )
    text = kernel("matmul", [("i8", (64, 256)), ("i8", shape)], [("i32", (64, 64))], body)
    loops = inner_loops(assembly(text, target, "matmul"))
    return tuple(max(loops, key=lambda lines: sum(line.startswith(("smmla", "sdot")) for line in lines)))


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize(
    "target, product",
    [
        ("neoverse-v1", r"smmla\s+v\d+\.4s, v\d+\.16b, v\d+\.16b"),  # 8 rows, 8 columns, 16 of K
        ("neoverse-v2", r"smmla\s+v\d+\.4s, v\d+\.16b, v\d+\.16b"),
        ("neoverse-n1", r"sdot\s+v\d+\.4s, v\d+\.16b, v\d+\.4b\[\d\]"),
        ("apple-m1", r"sdot\s+v\d+\.4s, v\d+\.16b, v\d+\.4b\[\d\]"),
    ],
)
def test_products_of_i8_use_the_instructions_for_them(target, product, by_columns):
    loop = int8_loop(target, by_columns)
    assert count(loop, product) == (32 if "smmla" in product else 64)
    assert count(loop, r"st\w+\s") == 0 and count(loop, "dup") == 0 and not any("[sp" in line for line in loop)


@pytest.mark.skipif(not MCA.exists(), reason="needs llvm-mca")
@pytest.mark.parametrize("target, share", [("neoverse-n1", 0.3), ("neoverse-v1", 0.2), ("neoverse-v2", 0.2)])
def test_products_of_i8_take_less_time_than_those_of_f32(target, share):
    f32 = 16 * 16 / PIPES[target]
    taken = cycles(list(int8_loop(target, True)), "aarch64", target)
    print(f"{target}: {taken / f32:.1%} of f32")
    assert taken < share * f32


@pytest.mark.skipif(not MCA.exists(), reason="needs llvm-mca")
@pytest.mark.parametrize("target", ["neoverse-v1", "neoverse-v2"])
@pytest.mark.parametrize("rows, depth, share", [(64, 8, 0.38), (8, 4, 0.62)])
def test_bf16_products_take_less_time_than_those_of_f32(target, rows, depth, share):
    f32 = 16 * depth / PIPES[target]
    taken = cycles(list(bf16_loop(target, rows)), "aarch64", target)
    print(f"{target}, {rows} rows: {taken / f32:.1%} of f32")
    assert taken < share * f32


@pytest.mark.parametrize("target, uses", [("aarch64+sve", r"\bz\d+\.s\b"), ("aarch64", r"\bv\d+\.4s\b"), ("riscv64", r"\bvf\w+\.v[vf]\b")])  # fmt: skip
def test_loops_use_the_vectors_of_the_machine(target, uses):
    text = kernel("loops", [("f32", (1000,))], [("f32", (1000,))], """
  %e = tensor.empty() : tensor<1000xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%0 : tensor<1000xf32>) outs(%e : tensor<1000xf32>) {
  ^bb0(%a: f32, %o: f32):
    %v = arith.mulf %a, %a : f32
    linalg.yield %v : f32
  } -> tensor<1000xf32>
  return %y : tensor<1000xf32>""")  # fmt: skip
    assert re.search(uses, assembly(text, target, "loops"))
