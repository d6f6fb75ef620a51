"""Matmul, convolution and attention kernels against eager torch, and against the machine's FMA peak.

    python benchmarks/kernels.py [--only matmul] [--seconds 2]

Without `--only` it writes benchmarks/results/kernels.md.
One thread each, in its CPU time, so that the numbers say how good the code is and not how threads shared the machine.
The peak is a register-only FMA loop timed in the same run.
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

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.run_kernel import compile_kernel, load  # noqa: E402
from support.tile_kernels import kernel, tensor  # noqa: E402
from timing import interleaved, write  # noqa: E402

from lamina.dialects.mlir_context import context  # noqa: E402
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

Case = tuple[str, float, Callable[[], object], Callable[[], object]]


def peak(lanes: int) -> tuple[Callable[[], object], float]:
    """A loop of independent FMAs in registers, and its flops per call."""
    count, chains = 100_000, 12
    kind = f"<{lanes} x float>"
    lines = [f"declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})", "define void @peak(ptr %p) {", "entry:"]
    lines += [
        f"  %q = load {kind}, ptr %p, align 4",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [0, %entry], [%n, %loop]",
    ]
    lines += [f"  %a{c} = phi {kind} [%q, %entry], [%b{c}, %loop]" for c in range(chains)]
    lines += [f"  %b{c} = call {kind} @llvm.fma.v{lanes}f32({kind} %a{c}, {kind} %q, {kind} %q)" for c in range(chains)]
    lines += [
        "  %n = add i64 %i, 1",
        f"  %c = icmp ult i64 %n, {count}",
        "  br i1 %c, label %loop, label %done",
        "done:",
    ]
    total = "%q"
    for c in range(chains):
        lines.append(f"  %s{c} = fadd {kind} {total}, %b{c}")
        total = f"%s{c}"
    lines += [f"  store {kind} {total}, ptr %p, align 4", "  ret void", "}"]
    address, keep = load(get_target("native").emit("\n".join(lines)), "peak")
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
    buffer = np.ones(lanes, np.float32)
    return lambda: (function(buffer.ctypes.data), keep), 2.0 * lanes * chains * count


def prepared(text: str, operands: list[torch.Tensor], result: torch.Tensor) -> Callable[[], object]:
    """A call of the compiled kernel, checked once against eager's result."""
    run = compile_kernel(text, context=context())
    out = np.empty(result.shape, np.float32)
    arrays = [*[x.numpy() for x in operands], out]
    run.run(arrays, {})
    np.testing.assert_allclose(out, result.numpy(), rtol=2e-3, atol=2e-3)
    return lambda: run.run(arrays, {})


def matmuls() -> Iterator[Case]:
    for m, k, n in MATMULS:
        a, b, w = torch.randn(m, k), torch.randn(k, n), torch.randn(n, k)
        for op, right, eager in (("matmul", b, torch.matmul), ("linear", w, torch.nn.functional.linear)):
            types = [("f32", tuple(a.shape)), ("f32", tuple(right.shape))]
            signature = ", ".join(tensor(*t) for t in types)
            y = tensor("f32", (m, n))
            body = f'%y = "lamina.{op}"(%0, %1) : ({signature}) -> {y}\nreturn %y : {y}'
            call = prepared(kernel("matmul", types, [("f32", (m, n))], body), [a, right], eager(a, right))
            yield f"{op} {m}x{k}x{n}", 2.0 * m * n * k, call, lambda a=a, right=right, eager=eager: eager(a, right)


def convs() -> Iterator[Case]:
    shapes = [(*c, 1) for c in CONVS] + [(size, c, c, k, s, c) for size, c, k, s in DEPTHWISE]
    for size, inputs, outputs, window, stride, groups in shapes:
        x, w = torch.randn(1, inputs, size, size), torch.randn(outputs, inputs // groups, window, window)
        eager = lambda x=x, w=w, s=stride, p=window // 2, g=groups: torch.conv2d(x, w, stride=s, padding=p, groups=g)
        result = eager()
        types = [("f32", tuple(x.shape)), ("f32", tuple(w.shape))]
        both = lambda v: f"array<i64: {v}, {v}>"
        y = tensor("f32", tuple(result.shape))
        body = (
            f'%y = "lamina.conv"(%0, %1) {{stride = {both(stride)}, padding = {both(window // 2)}, dilation = {both(1)}, '
            f"groups = {groups} : i64, transposed = false, output_padding = array<i64>}} : "
            f"({', '.join(tensor(*t) for t in types)}) -> {y}\nreturn %y : {y}"
        )
        call = prepared(kernel("conv", types, [("f32", tuple(result.shape))], body), [x, w], result)
        name = f"conv {inputs}->{outputs} {window}x{window}/{stride} {size}^2" + (" depthwise" if groups > 1 else "")
        yield name, 2.0 * result.numel() * w[0].numel(), call, eager


def attentions() -> Iterator[Case]:
    for heads, length, width in ATTENTIONS:
        for causal in (False, True):
            q, k, v = (torch.randn(1, heads, length, width) for _ in range(3))
            eager = lambda q=q, k=k, v=v, c=causal: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=c
            )
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=FAMILIES, action="append", default=[])
    parser.add_argument("--seconds", type=float, default=0.6, help="per case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    burn, burn_flops = peak(get_target("native").features.vector_bits // 32)
    lines = ["| kernel | Gflop/s | of peak | eager Gflop/s | speed-up |", "|---|---|---|---|---|"]
    for family in options.only or FAMILIES:
        for name, flops, ours, eager in FAMILIES[family]():
            t = interleaved({"ours": ours, "eager": eager, "peak": burn}, options.seconds, 5, time.thread_time)
            rate = flops / t["ours"].median / 1e9
            share = rate / (burn_flops / t["peak"].median / 1e9)
            lines.append(
                f"| {name} | {rate:.1f} | {share:.0%} | {flops / t['eager'].median / 1e9:.1f} | "
                f"{t['eager'].median / t['ours'].median:.2f} |"
            )
            print(lines[-1], flush=True)
    if not options.only:
        write("kernels", "Kernels, one thread", "python benchmarks/kernels.py", lines)


if __name__ == "__main__":
    main()
