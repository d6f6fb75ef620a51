"""On a machine with an NVIDIA GPU: small kernels of every family, for compute-sanitizer.

    compute-sanitizer --tool memcheck --report-api-errors no --target-processes application-only python tests/gpu/run_families.py

(or `--tool racecheck`). `--list` names the families, and names on the command line choose. Each result is compared with
float64. (An op that is left to torch says so at the end: a hazard in cuDNN's kernels is not ours.) It is no pytest file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.device import Failures, distance

BF16, F32 = torch.bfloat16, torch.float32
FLOOR = {BF16: 1e-2, torch.float16: 2e-3, F32: 2e-5}  # relative distances from float64

Make = Callable[[], Sequence[torch.Tensor]]


def random(*shape: int, dtype: torch.dtype = BF16, last: bool = False) -> torch.Tensor:
    """Normal values; `last`: channels last in memory."""
    made = torch.randn(shape, device="cuda").to(dtype)
    return made.contiguous(memory_format=torch.channels_last) if last else made


def classes(count: int, below: int) -> torch.Tensor:
    return torch.randint(0, below, (count,), device="cuda")


def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], w, w)


def pairs(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """A rotary embedding of neighbouring elements."""
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * c - odd, even + odd * c], -1).flatten(-2)


def put(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return x.index_put((i,), v, accumulate=True)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **how: Any) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1], **how)


def heads(width: int, queries: int, keys: int, shared: int = 4) -> Make:
    return lambda: (random(2, 4, queries, width), random(2, shared, keys, width), random(2, shared, keys, width))


def image(channels: int, size: int, weights: tuple[int, ...], last: bool = True) -> Make:
    return lambda: (random(2, channels, size, size, last=last), random(*weights) / 8)


def rows(*shapes: tuple[int, ...], dtype: torch.dtype = BF16) -> Make:
    return lambda: [random(*s, dtype=dtype) for s in shapes]


def top(x: torch.Tensor, count: int) -> torch.Tensor:
    """The largest elements of rows, and what is where they are said to be (which of equal ones is nobody's to say)."""
    values, places = x.topk(count, -1)
    return torch.cat([values, x.gather(-1, places)])


# name: (function, operands, target where it is not the GPU's own)
FAMILIES: dict[str, tuple[Any, ...]] = {
    "pointwise": (lambda x, y: F.gelu(x) * y, rows((33, 4097), (33, 4097))),
    "pointwise f32": (lambda x, y: F.silu(x) * y, rows((33, 4096), (33, 4096), dtype=F32)),
    "softmax, a warp a row": (lambda x: x.softmax(-1), rows((65, 200))),
    "softmax, a block a row": (lambda x: x.softmax(-1), rows((9, 4096))),
    "softmax, rows that begin anywhere": (lambda x: x.softmax(-1), rows((9, 4097))),
    "softmax, long": (lambda x: x.softmax(-1), rows((3, 70001))),
    "layer_norm": (norm, rows((33, 1024), (1024,))),
    "layer_norm, rows that begin anywhere": (norm, rows((600, 4097), (4097,))),
    "layer_norm, f32": (norm, rows((9, 4097), (4097,), dtype=F32)),
    "cross_entropy": (lambda x, i: F.cross_entropy(x.float(), i), lambda: (random(300, 1000), classes(300, 1000))),
    "cross_entropy, many": (lambda x, i: F.cross_entropy(x.float(), i), lambda: (random(9000, 64), classes(9000, 64))),
    "cross_entropy, some of many ignored": (
        lambda x, i: F.cross_entropy(x.float(), torch.where(i < 3, -100, i)),
        lambda: (random(32768, 64), classes(32768, 64)),
    ),
    "sums of columns": (lambda x: x.sum(0), rows((3000, 513))),
    "sums of columns, last row apart": (lambda x: x.sum(0), rows((3001, 517))),
    "sums of columns, aligned": (lambda x: x.sum(0), rows((3000, 512))),
    "variances of columns": (lambda x: x.var(0), rows((3000, 513), dtype=F32)),
    "sums of columns, together": (lambda x, y: x.sum(0) + (x * y).sum(0), rows((3000, 512), (3000, 512), dtype=F32)),
    "sum of all, by a cluster": (lambda x: x.square().sum(), rows((5000,), dtype=F32)),
    "sums of few rows, by clusters": (lambda x: x.sum(-1) / x.amax(-1), rows((3, 20001), dtype=F32)),
    "place of a maximum, by a cluster": (lambda x: x.argmax(-1), rows((1, 30000))),
    "any of all": (lambda x: (x > 2).any(), rows((700, 1001), dtype=F32)),
    "sum of all": (lambda x: x.square().sum(), rows((700, 1001), dtype=F32)),
    "arg-maxima": (lambda x: x.argmax(-1), rows((40, 3001))),
    "transpose": (lambda x: x.t().contiguous(), rows((300, 257))),
    "transpose, aligned": (lambda x: x.t().contiguous(), rows((256, 320))),
    "7 x 7 turned": (lambda x: x.permute(0, 3, 1, 2).contiguous(), rows((4, 7, 7, 256))),
    "16 columns turned": (lambda x: x.permute(0, 2, 1).contiguous(), rows((300, 128, 16))),
    "rotary pairs": (pairs, rows((3, 65, 128), (65, 64))),
    "concat and pad": (lambda x, y: F.pad(torch.cat([x, y], -1), (1, 2)), rows((30, 65), (30, 100))),
    "embedding": (lambda x, i: F.embedding(i, x), lambda: (random(100, 130), classes(77, 100))),
    "columns gathered": (lambda x, i: x[:, i], lambda: (random(1100, 300), classes(1500, 300))),
    "index_put": (put, lambda: (random(50, 64, dtype=F32), classes(300, 50), random(300, 64, dtype=F32))),
    "gradient of embedding": (lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 50, -1, False), lambda: (random(300, 64), classes(300, 50))),
    "gradient of embedding, tiles": (lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 300, -1, False), lambda: (random(2500, 36), classes(2500, 300))),
    "scatter": (lambda x, v: x.scatter(0, torch.arange(59, -1, -1, device="cuda")[:, None].expand(60, 99), v), rows((70, 130), (60, 99))),
    "scatter, few added": (lambda x, i, v: x.relu().scatter_add(1, i[:, None], v), lambda: (random(50, 77), classes(50, 77), random(50, 1))),
    "slices": (lambda x, y, z: x.slice_scatter(y, 1, 1, None, 2).slice_scatter(z, 0, 7, 10) * 2, rows((33, 130), (33, 65), (3, 130))),
    "slices in place": (lambda x, y: x.slice_scatter(y, 1, 0, 9).slice_scatter(y, 1, 20, 29).slice_scatter(y, 1, 40, 49), rows((33, 130), (33, 9))),
    "cumsum of columns": (lambda x: x.cumsum(1), rows((3, 531, 70), dtype=F32)),
    "cumsum of few columns": (lambda x: x.cumsum(0), rows((1000, 3))),
    "cumsum": (lambda x: x.cumsum(-1), rows((20, 3000), dtype=F32)),
    "index_add": (lambda x, i, v: x.index_add(0, i, v), lambda: (random(50, 64, dtype=F32), classes(300, 50), random(300, 64, dtype=F32))),
    "topk": (lambda x: top(x, 7), rows((33, 77))),
    "topk of long rows": (lambda x: top(x, 50), rows((3, 5000))),
    "cumsum in chunks": (lambda x: x.cumsum(0), rows((20011,), dtype=F32)),
    "sort": (lambda x: x.sort(-1).values, rows((20, 1500), dtype=F32)),
    "pooling": (lambda x: F.max_pool2d(x, 3, 2, 1), rows((2, 16, 33, 33))),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), rows((2, 16, 16, 16))),
    "product": (F.linear, rows((300, 512), (384, 512))),
    "product, large": (F.linear, rows((2048, 1024), (2304, 1024))),
    "product, NN": (torch.matmul, rows((300, 512), (512, 264))),
    "product, TN": (lambda a, b: a.t() @ b, rows((512, 304), (512, 264))),
    "product, odd": (torch.matmul, rows((301, 513), (513, 257))),
    "product, K split": (F.linear, rows((64, 8192), (256, 8192))),
    "product, few rows": (F.linear, rows((3, 4096), (512, 4096))),
    "product, batched": (torch.matmul, rows((5, 130, 128), (5, 128, 192))),
    "product, epilogue": (lambda x, w, b: F.gelu(F.linear(x, w, b)), rows((520, 512), (768, 512), (768,))),
    "product, f32": (torch.matmul, rows((512, 640), (640, 512), dtype=F32)),
    "product, small f32": (torch.matmul, rows((100, 77), (77, 65), dtype=F32)),
    "product, sm_80": (F.linear, rows((300, 512), (384, 512)), "sm_80"),
    "attention 64": (attend, heads(64, 300, 300)),
    "attention 128, causal": (lambda q, k, v: attend(q, k, v, is_causal=True), heads(128, 257, 257, shared=2)),
    "attention 256": (attend, heads(256, 130, 200)),
    "attention, a mask": (lambda q, k, v, m: attend(q, k, v, attn_mask=m), lambda: (*heads(64, 100, 130)(), random(1, 1, 100, 130))),
    "attention, one query": (attend, heads(128, 1, 2000, shared=2)),
    "attention, sm_80": (attend, heads(64, 200, 200), "sm_80"),
    "convolution 3 x 3": (lambda x, w: F.conv2d(x, w, padding=1).relu(), image(64, 14, (64, 64, 3, 3))),
    "convolution, stride": (lambda x, w: F.conv2d(x, w, None, 2, 1), image(64, 15, (128, 64, 3, 3))),
    "convolution, 3 channels": (lambda x, w: F.conv2d(x, w, None, 2, 3), image(3, 33, (64, 3, 7, 7), False)),
    "convolution, each channel": (lambda x, w: F.conv2d(x, w, None, 1, 2, 1, 64), image(64, 14, (64, 1, 5, 5))),
    "convolution, transposed": (lambda x, w: F.conv_transpose2d(x, w, None, 2), image(64, 14, (64, 32, 2, 2))),
}  # fmt: skip


def check(function: Callable[..., torch.Tensor], make: Make, target: str = "native") -> None:
    """One family: our kernel, on memory that held NaN before, against float64."""
    torch._dynamo.reset()
    given = make()
    with torch.no_grad():
        exact = function(*(t.double() if t.is_floating_point() else t for t in given))
        made = torch.compile(function, backend="lamina", dynamic=False, options={"target": target})(*given)
    if not made.is_floating_point():
        assert torch.equal(made, function(*given)), "unequal"
        return
    error = distance(made, exact)
    assert error <= FLOOR[made.dtype], f"error {error:.1e}"


def main() -> None:
    """The chosen families."""
    chosen = [a for a in sys.argv[1:] if not a.startswith("-")] or list(FAMILIES)
    if "--list" in sys.argv:
        print("\n".join(chosen))
        return
    import lamina
    import lamina.frontend.dynamo  # noqa: F401

    torch.manual_seed(0)
    failures = Failures()
    for name in chosen:
        failures.run(name, lambda name=name: check(*FAMILIES[name]))
    failures.report("families")
    print(lamina.stats()["fallback"])


if __name__ == "__main__":
    main()
