"""What kernels for AMD GPUs ask of the chips: registers, LDS, occupancy, matrix share; writes results/amdgpu.md.

Nothing is timed: there is no AMD GPU here. The numbers come from the code objects (tests/support/amdgpu_emulator/occupancy.py
says how), so anybody with LLVM's disassembler gets the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from support.amdgpu_emulator.occupancy import table  # noqa: E402

from lamina.compiler.api import compile_graph  # noqa: E402
from lamina.dialects.record import Graph, TensorType  # noqa: E402
from lamina.runtime.gpu.image import unpack  # noqa: E402

CHIPS = ("gfx90a", "gfx942", "gfx1100", "gfx1201")
RESULTS = Path(__file__).parent / "results" / "amdgpu.md"
HEADER = """# Kernels for AMD GPUs, as compiled

Written by `benchmarks/amdgpu.py`; nothing here was timed. *waves*: how many a SIMD can hold. *slots*: matrix instructions among all instructions of the loop that has
them. *busy*: a bound on how much of the time one wave keeps its matrix unit busy. Sizes are 8192 x 4096 for loops, 4096 x 4096 x 4096 for products, 32 images of 56 x 56 to
64 channels for convolutions, 64 heads of 4096 tokens for attention. All instructions count, waits, too. Convolutions load patches one by one, which is what fills their slots; 8-bit formats that a chip does not
multiply itself are widened by arithmetic.
"""


WRITTEN = "<!-- tables end -->\n"  # what stands behind is not ours to write


def graph_of(op: str, *types: tuple[str, tuple[int, ...]] | None, **attributes: object) -> Graph:
    """One op on inputs of these types (None: an operand that it does not have); its first result is the output."""
    g = Graph()
    made = g.add(op, *(t and g.add_input(f"x{i}", TensorType(*t)) for i, t in enumerate(types)), **attributes)
    g.add_output(made[0] if isinstance(made, tuple) else made)
    return g


def turned_product(dtype: str, shape: tuple[int, int]) -> Graph:
    """`a @ w.T`, in f32 for floats of 8 bits."""
    g = Graph()
    a, w = (g.add_input(n, TensorType(dtype, shape)) for n in "aw")
    g.add_output(g.add("matmul", a, g.add("permute", w, dims=(1, 0))))
    return g


def kernels() -> dict[str, Graph]:
    """The kernels of the table."""
    rows, square = (8192, 4096), (4096, 4096)
    made = {
        "add f32": graph_of("add", ("f32", rows), ("f32", rows)),
        "gelu bf16": graph_of("gelu", ("bf16", rows)),
        "softmax f32": graph_of("softmax", ("f32", rows), dim=1),
        "layer_norm bf16": graph_of("layer_norm", *[("bf16", s) for s in (rows, rows[1:], rows[1:])], dims=1, eps=1e-5),
        "sum of columns f32": graph_of("sum", ("f32", rows), dims=(0,), keepdim=False),
    }
    made |= {f"matmul {t}": graph_of("matmul", (t, square), (t, square)) for t in ("f16", "bf16", "f32")}
    made |= {f"matmul {t}, as _scaled_mm has it": turned_product(t, square) for t in ("f8E4M3FN", "f8E4M3FNUZ")}
    for channels, size in ((64, 3), (256, 1)):
        image, weights = ("f16", (32, channels, 56, 56)), ("f16", (64, channels, size, size))
        window = {"stride": (1, 1), "padding": (size // 2,) * 2, "dilation": (1, 1), "output_padding": (0, 0)}
        name = f"conv f16, {channels} channels, {size} x {size}"
        made[name] = graph_of("conv", image, weights, None, **window, groups=1, transposed=False)
    shapes = (("f16", 64, False), ("bf16", 128, False), ("bf16", 128, True), ("bf16", 256, False), ("f32", 64, False))
    for dtype, width, causal in shapes:
        name = f"{'causal ' if causal else ''}attention {dtype}, heads of {width}"
        made[name] = graph_of("attention", *[(dtype, (64, 4096, width))] * 3, None, causal=causal, scale=None, gqa=1)
    one, keys = ("f16", (64, 1, 128)), ("f16", (64, 4096, 128))
    made["attention f16 of one query, heads of 128"] = graph_of(
        "attention", one, keys, keys, None, causal=False, scale=None, gqa=1
    )
    return made


def main() -> None:
    """Compile all for all chips and write the tables."""
    parts = [HEADER]
    for chip in CHIPS:
        codes = {}
        for name, graph in kernels().items():
            program = compile_graph(graph, chip)
            if reasons := [facts["reason"] for facts in program.manifest["kernels"].values() if facts["reason"]]:
                raise SystemExit(f"{name} for {chip} is plain: {reasons[0]}")
            for kernel in unpack(program.image)[1]:
                codes[name] = unpack(kernel)[1][0]
        parts.append(f"## {chip}\n\n{table(codes)}\n")
    parts.append(WRITTEN)
    parts.append(RESULTS.read_text().partition(WRITTEN)[2].lstrip("\n"))
    RESULTS.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
