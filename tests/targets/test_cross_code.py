"""The code of matrix products for CPUs that are not here: what their inner loops are made of, and how fast models say they are."""

import functools
import re

import pytest
from support.assembly import MCA, assembly, cycles, inner_loops, port_limit
from support.tile_kernels import byte_product, kernel, tensor

SPILL = re.compile(r"\(%r[sb]p\)|v?mov\w*\s.*\)$")  # of x86: a place on the stack that does not move, or a store
# cores as LLVM models them: 128-bit multiply-adds that start in a cycle
PIPES = {"neoverse-n1": 2, "neoverse-v1": 4, "neoverse-v2": 4}


@functools.cache
def matmul_loop(target: str, multiply_add: str, rows: int = 64) -> tuple[str, ...]:
    body = f"""
  %y = "lamina.matmul"(%0, %1) : (tensor<{rows}x256xf32>, tensor<256x64xf32>) -> tensor<{rows}x64xf32>
  return %y : tensor<{rows}x64xf32>"""
    args = [("f32", (rows, 256)), ("f32", (256, 64))]
    loops = inner_loops(assembly(kernel("matmul", args, [("f32", (rows, 64))], body), target, "matmul"))
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


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("size", [197, "d0"])
def test_attention_keeps_its_sums_in_registers_whatever_the_heights_of_its_tiles(target, size):
    shape, symbols = (1, 3, size, 64), (["d0"] if size == "d0" else [])
    q, lse = tensor("f32", shape), tensor("f32", shape[:3])
    body = f"""
  %y, %l = "lamina.attention"(%0, %1, %2) {{causal = false, scale = unit, gqa = 1 : i64}} : ({q}, {q}, {q}) -> ({q}, {lse})
  return %y : {q}"""
    text = kernel("attention", [("f32", shape)] * 3, [("f32", shape)], body, symbols)
    loops = inner_loops(assembly(text, target, "attention"))
    products = [x for x in loops if count(x, "vfmadd231ps") and not count(x, "vfmadd213ps")]  # exp has a polynomial
    assert len(products) >= 4  # scores and values, each of tiles of two heights or more
    assert not any(SPILL.search(line) for loop in products for line in loop)


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
def byte_loop(target: str, by_columns: bool, a: str = "i8", b: str = "i8") -> tuple[str, ...]:
    """Of 64 x 256 times 256 x 128 bytes; the second factor is the transpose of a matrix in memory, or not."""
    loops = inner_loops(assembly(byte_product(a, b, 64, 256, 128, by_columns), target, "matmul"))
    products = r"us?mmla|smmla|[su]dot|vpmaddwd|(\{vex\}\s+)?vpdp"
    # on x86 the loop that reads A; another one sums columns
    return tuple(max(loops, key=lambda lines: (count(lines, "vpbroadcastd"), count(lines, products))))


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize(
    "target, a, b, product, times",
    [
        ("neoverse-v1", "i8", "i8", r"smmla\s+v\d+\.4s, v\d+\.16b, v\d+\.16b", 32),  # 8 rows, 8 columns, 16 of K
        ("neoverse-v2", "i8", "i8", r"smmla\s+v\d+\.4s, v\d+\.16b, v\d+\.16b", 32),
        ("neoverse-v1", "u8", "i8", r"usmmla\s+v\d+\.4s, v\d+\.16b, v\d+\.16b", 32),
        ("neoverse-v1", "u8", "u8", r"ummla\s+v\d+\.4s, v\d+\.16b, v\d+\.16b", 32),
        ("neoverse-n1", "i8", "i8", r"sdot\s+v\d+\.4s, v\d+\.16b, v\d+\.4b\[\d\]", 64),
        ("neoverse-n1", "u8", "u8", r"udot\s+v\d+\.4s, v\d+\.16b, v\d+\.4b\[\d\]", 64),
        ("apple-m1", "i8", "i8", r"sdot\s+v\d+\.4s, v\d+\.16b, v\d+\.4b\[\d\]", 64),
    ],
)
def test_products_of_bytes_use_the_instructions_for_them(target, a, b, product, times, by_columns):
    loop = byte_loop(target, by_columns, a, b)
    assert count(loop, product) == times
    assert count(loop, r"st\w+\s") == 0 and count(loop, "dup") == 0 and not any("[sp" in line for line in loop)


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize(
    "target, a, product, times",
    [
        ("x86-64-v3", "i8", r"vpmaddwd\s.*%ymm", 12),  # 6 rows, 2 vectors
        ("x86-64-v3", "u8", r"vpmaddwd\s.*%ymm", 12),
        ("x86-64-v4", "i8", r"vpmaddwd\s.*%zmm", 16),  # 8 rows
        ("x86-64-v3+vnni", "u8", r"(\{vex\}\s+)?vpdpbusd\s.*%ymm", 12),
        ("x86-64-v3+vnni", "i8", r"(\{vex\}\s+)?vpdpbusd\s.*%ymm", 12),
        ("x86-64-v4+vnni", "u8", r"vpdpbusd\s.*%zmm", 16),
        ("x86-64-v4+vnni", "i8", r"vpdpbusd\s.*%zmm", 16),
    ],
)
def test_products_of_bytes_on_x86(target, a, product, times, by_columns):
    loop = byte_loop(target, by_columns, a)
    assert count(loop, product) == times
    assert count(loop, r"vpbroadcastd\s+\S*\(") == (6 if "v3" in target else 8)  # a group of a row of A each
    assert not any(SPILL.search(line) for line in loop)


@pytest.mark.parametrize("target, rows, register", [("x86-64-v3", 6, "ymm"), ("x86-64-v4", 8, "zmm")])
def test_x86_multiplies_in_registers(target, rows, register):
    loop = matmul_loop(target, "vfmadd", rows)
    products = count(loop, rf"vfmadd\w+\s.*%{register}")
    assert products and products % (2 * rows) == 0 and count(loop, "vbroadcastss") == products // 2
    assert not any(SPILL.search(line) for line in loop)


@pytest.mark.skipif(not MCA.exists(), reason="needs llvm-mca")
@pytest.mark.parametrize("target, share", [("neoverse-n1", 0.3), ("neoverse-v1", 0.2), ("neoverse-v2", 0.2)])
def test_products_of_i8_take_less_time_than_those_of_f32(target, share):
    f32 = 16 * 16 / PIPES[target]
    taken = cycles(list(byte_loop(target, True)), "aarch64", target)
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


# by dtypes of A and B; bf16 with how many rows
NARROW = {
    "neoverse-n1": {("i8", "i8"), ("u8", "u8")},
    "neoverse-v1": {("i8", "i8"), ("u8", "i8"), ("u8", "u8"), ("bf16", 64), ("bf16", 8)},
    "neoverse-v2": {("i8", "i8"), ("u8", "i8"), ("u8", "u8"), ("bf16", 64), ("bf16", 8)},
}


@pytest.mark.skipif(not MCA.exists(), reason="needs llvm-mca")
@pytest.mark.parametrize("target, a, b", [(t, *of) for t in NARROW for of in sorted(NARROW[t], key=str)])
def test_narrow_products_take_little_more_than_the_ports_need(target, a, b):
    loop = list(bf16_loop(target, b) if a == "bf16" else byte_loop(target, True, a, b))
    share = port_limit(loop, "aarch64", target) / cycles(loop, "aarch64", target)
    print(f"{target}, {a} by {b}: {share:.1%} of the limit of the ports")
    assert share > 0.9


def pointwise(op: str) -> str:
    return kernel("loops", [("f32", (1000,))], [("f32", (1000,))], f"""
  %e = tensor.empty() : tensor<1000xf32>
  %y = linalg.generic {{indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}}
      ins(%0 : tensor<1000xf32>) outs(%e : tensor<1000xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %v = {op} : f32
    linalg.yield %v : f32
  }} -> tensor<1000xf32>
  return %y : tensor<1000xf32>""")  # fmt: skip


@pytest.mark.parametrize("op", ["arith.mulf %a, %a", "math.sqrt %a", "math.exp %a", "math.erf %a"])
@pytest.mark.parametrize(
    "target, uses",
    [
        ("aarch64+sve", r"ldr\s+z\d+, \[.*mul vl\]|ld1w\s+{ z\d+\.s }"),
        ("aarch64", r"\bv\d+\.4s\b"),
        ("riscv64", r"\bvf\w+\.v[vf]?\b"),
    ],
)
def test_loops_use_the_vectors_of_the_machine(target, uses, op):
    assert re.search(uses, assembly(pointwise(op), target, "loops"))
