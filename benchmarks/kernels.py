"""Matmul, convolution and attention kernels against eager torch, and against the machine's FMA peak.

    python benchmarks/kernels.py [--only matmul] [--seconds 2]

Without `--only` it writes benchmarks/results/kernels.md.
On one thread in its CPU time, so that the numbers say how good the code is and not how threads shared the machine; on two
threads of torch's pool, which eager uses too, by the clock. The peak is a register-only FMA loop on as many threads, timed
in the same rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.run_kernel import compile_kernel  # noqa: E402
from support.tile_kernels import kernel, tensor  # noqa: E402
from timing import interleaved, write  # noqa: E402

from lamina.compiler.api import compile_llvm  # noqa: E402
from lamina.compiler.native.support_ir import support_ir  # noqa: E402
from lamina.dialects.mlir_context import context  # noqa: E402
from lamina.runtime.loader import Image  # noqa: E402
from lamina.runtime.threads import Contexts  # noqa: E402
from lamina.targets import get_target  # noqa: E402

MATMULS = [
    (1024, 1024, 1024), (512, 512, 512), (1000, 513, 777), (128, 768, 768), (128, 768, 3072), (128, 3072, 768),
    (512, 768, 3072), (16, 768, 3072), (4, 768, 3072), (1, 768, 3072),
]  # fmt: skip
CONVS = [  # image, channels in, out, kernel, stride: ResNet-18 at batch 1
    (224, 3, 64, 7, 2), (56, 64, 64, 3, 1), (56, 64, 128, 3, 2), (28, 128, 128, 3, 1), (14, 256, 256, 3, 1),
    (7, 512, 512, 3, 1), (56, 64, 128, 1, 2), (56, 64, 256, 1, 1), (14, 1024, 256, 1, 1),
]  # fmt: skip
DEPTHWISE = [(56, 128, 3, 1), (28, 192, 3, 2), (56, 96, 7, 1)]  # image, channels, kernel, stride
ATTENTIONS = [(12, 128, 64), (8, 512, 64), (8, 2048, 64)]  # heads, sequence, width

Call = Callable[[int], object]  # takes the address of a ctx (docs/contracts.md, section 7), which says how many threads
Case = tuple[str, float, Call, Callable[[], object]]
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Machine:
    """The pools of threads, and the peak: `threads` loops of independent FMAs in registers, of `flops` in all."""

    def __init__(self, lanes: int):
        loops, chains = 100_000, 12
        text = support_ir() + _peak_ir(lanes, loops, chains)
        exports = ["peak", *(f"lamina_parallel_{name}" for name in ("serial", "torch", "gomp", "pool"))]
        self._image = Image(compile_llvm(text, exports))
        self._contexts = Contexts(self._image)
        self._out = np.ones(lanes, np.float32)
        self.flops = 2.0 * lanes * loops * chains

    def context(self, threads: int) -> int:
        """The ctx for calls on so many threads; sets eager's number of threads too."""
        torch.set_num_threads(threads)
        return self._contexts.current(threads)

    def burn(self, context: int, threads: int) -> None:
        """One loop on each thread."""
        buffers, sizes = (ctypes.c_void_p * 1)(self._out.ctypes.data), (ctypes.c_int64 * 1)(threads)
        _LAUNCH(self._image.address("peak"))(context, ctypes.addressof(buffers), ctypes.addressof(sizes))


def _peak_ir(lanes: int, loops: int, chains: int) -> str:
    """A kernel of the ABI whose work items, `dims[0]` of them, are each a loop of independent FMAs."""
    kind = f"<{lanes} x float>"
    fma = f"@llvm.fma.v{lanes}f32"
    carried = "\n".join(f"  %a{c} = phi {kind} [%q, %entry], [%b{c}, %loop]" for c in range(chains))
    products = "\n".join(f"  %b{c} = call {kind} {fma}({kind} %a{c}, {kind} %q, {kind} %q)" for c in range(chains))
    sums = "\n".join(f"  %s{c} = fadd {kind} %{f's{c - 1}' if c else 'q'}, %b{c}" for c in range(chains))
    return f"""
declare {kind} {fma}({kind}, {kind}, {kind})

define i32 @peak(ptr %ctx, ptr %buffers, ptr %dims) {{
  %total = load i64, ptr %dims
  %at = getelementptr ptr, ptr %ctx, i64 1
  %parallel_for = load ptr, ptr %at
  %status = call i32 %parallel_for(ptr %ctx, ptr @peak.range, ptr %buffers, ptr %dims, i64 %total, i64 1)
  ret i32 %status
}}

define internal i32 @peak.range(ptr %ctx, ptr %buffers, ptr %dims, i64 %begin, i64 %end) {{
entry:
  %p = load ptr, ptr %buffers
  %q = load {kind}, ptr %p, align 4
  %items = sub i64 %end, %begin
  %n = mul i64 %items, {loops}
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{carried}
{products}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
{sums}
  %same = fcmp oeq {kind} %s{chains - 1}, zeroinitializer
  %first = extractelement <{lanes} x i1> %same, i64 0
  %status = zext i1 %first to i32
  ret i32 %status
}}
"""


def prepared(text: str, operands: list[torch.Tensor], result: torch.Tensor) -> Call:
    """A call of the compiled kernel, checked once against eager's result."""
    run = compile_kernel(text, context=context())
    out = np.empty(result.shape, np.float32)
    arrays = [*[x.numpy() for x in operands], out]
    run.run(arrays, {})
    np.testing.assert_allclose(out, result.numpy(), rtol=2e-3, atol=2e-3)
    return lambda ctx: run.run(arrays, {}, ctx)


def matmuls() -> Iterator[Case]:
    columns = 2 * get_target("native").features.lanes()
    for m, k, n in MATMULS:
        a, b, w = torch.randn(m, k), torch.randn(k, n), torch.randn(n, k)
        panels = F.pad(w, (0, 0, 0, -n % columns)).view(-1, columns, k).transpose(1, 2).contiguous()
        for op, right, eager in (
            ("matmul", b, lambda a=a, b=b: torch.matmul(a, b)),
            ("linear", w, lambda a=a, w=w: F.linear(a, w)),
            ("packed_linear", panels, lambda a=a, w=w: F.linear(a, w)),
        ):
            types = [("f32", tuple(a.shape)), ("f32", tuple(right.shape))]
            signature = ", ".join(tensor(*t) for t in types)
            y = tensor("f32", (m, n))
            size = f"{{size = {n} : i64}}" if op == "packed_linear" else ""
            body = f'%y = "lamina.{op}"(%0, %1) {size} : ({signature}) -> {y}\nreturn %y : {y}'
            call = prepared(kernel("matmul", types, [("f32", (m, n))], body), [a, right], eager())
            yield f"{op} {m}x{k}x{n}", 2.0 * m * n * k, call, eager


def convs() -> Iterator[Case]:
    """Each with weights as they are, and packed ahead of time where there is one group."""
    columns = 2 * get_target("native").features.lanes()
    both = lambda v: f"array<i64: {v}, {v}>"
    shapes = [(*c, 1) for c in CONVS] + [(size, c, c, k, s, c) for size, c, k, s in DEPTHWISE]
    for size, inputs, outputs, window, stride, groups in shapes:
        x, w = torch.randn(1, inputs, size, size), torch.randn(outputs, inputs // groups, window, window)
        eager = lambda x=x, w=w, s=stride, p=window // 2, g=groups: torch.conv2d(x, w, stride=s, padding=p, groups=g)
        result = eager()
        matrix = F.pad(w.flatten(1), (0, 0, 0, -outputs % columns))
        panels = matrix.view(-1, columns, w[0].numel()).transpose(1, 2).contiguous()
        windows = f"stride = {both(stride)}, padding = {both(window // 2)}, dilation = {both(1)}"
        plain = f"{windows}, groups = {groups} : i64, transposed = false, output_padding = array<i64>"
        name = f"{inputs}->{outputs} {window}x{window}/{stride} {size}^2" + (" depthwise" if groups > 1 else "")
        for op, weight, attributes in (
            ("conv", w, plain),
            ("packed_conv", panels, f"{windows}, size = {outputs} : i64, kernel = {both(window)}"),
        ):
            if op == "packed_conv" and groups > 1:
                continue
            types = [("f32", tuple(x.shape)), ("f32", tuple(weight.shape))]
            y = tensor("f32", tuple(result.shape))
            signature = ", ".join(tensor(*t) for t in types)
            body = f'%y = "lamina.{op}"(%0, %1) {{{attributes}}} : ({signature}) -> {y}\nreturn %y : {y}'
            call = prepared(kernel("conv", types, [("f32", tuple(result.shape))], body), [x, weight], result)
            yield f"{op} {name}", 2.0 * result.numel() * w[0].numel(), call, eager


def attentions() -> Iterator[Case]:
    for heads, length, width in ATTENTIONS:
        for causal in (False, True):
            q, k, v = (torch.randn(1, heads, length, width) for _ in range(3))
            eager = lambda q=q, k=k, v=v, c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c)
            t, lse = tensor("f32", tuple(q.shape)), tensor("f32", tuple(q.shape[:-1]))
            body = (
                f'%y, %l = "lamina.attention"(%0, %1, %2) {{causal = {str(causal).lower()}, scale = unit, gqa = 1 : i64}} : '
                f"({t}, {t}, {t}) -> ({t}, {lse})\nreturn %y : {t}"
            )
            text = kernel("attention", [("f32", tuple(q.shape))] * 3, [("f32", tuple(q.shape))], body)
            flops = 4.0 * heads * length * length * width * (0.5 if causal else 1)
            name = f"attention {heads}x{length}x{width}" + (" causal" if causal else "")
            yield name, flops, prepared(text, [q, k, v], eager()), eager


FAMILIES = {"matmul": matmuls, "conv": convs, "attention": attentions}


def measure(
    machine: Machine, threads: int, flops: float, ours: Call, eager: Callable[[], object], seconds: float
) -> list[str]:
    """Our rate, its share of the peak, eager's rate, and the speed-up."""
    ctx, clock = machine.context(threads), time.thread_time if threads == 1 else time.perf_counter
    calls = {"ours": lambda: ours(ctx), "eager": eager, "peak": lambda: machine.burn(ctx, threads)}
    t = interleaved(calls, seconds, 5, clock)
    rate, other = (flops / t[x].median / 1e9 for x in ("ours", "eager"))
    share = rate / (threads * machine.flops / t["peak"].median / 1e9)
    return [f"{rate:.1f}", f"{share:.0%}", f"{other:.1f}", f"{rate / other:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=FAMILIES, action="append", default=[])
    parser.add_argument("--seconds", type=float, default=0.6, help="per case")
    options = parser.parse_args()
    machine = Machine(get_target("native").features.lanes())
    lines = [
        "| kernel | Gflop/s | of peak | eager | speed-up | Gflop/s, 2 threads | of peak | eager | speed-up |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for family in options.only or FAMILIES:
        for name, flops, ours, eager in FAMILIES[family]():
            cells = [name]
            for threads in (1, 2):
                cells += measure(machine, threads, flops, ours, eager, options.seconds)
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if not options.only:
        write("kernels", "Kernels", "python benchmarks/kernels.py", lines)


if __name__ == "__main__":
    main()
