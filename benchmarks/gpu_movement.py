"""Kernels that only move data, or little more, on an NVIDIA GPU beside eager and Inductor, in microseconds.

    python benchmarks/gpu_movement.py [--json results.json] [--only roll,stack]

Permutations, concatenations, paddings, windows of memory, rotary embeddings, what is written into a tensor and running sums,
also of rows that begin anywhere; each is checked and timed as in gpu.py, and `copy` is the share of a copy's speed.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from gpu import attempted, compared
from gpu_timing import Tensors, save

Shapes = tuple[tuple[int, ...], ...]


def rotated(x: torch.Tensor) -> torch.Tensor:
    """The halves of the last dimension, exchanged and one negated."""
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], -1)


def rotary_pairs(x: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """A rotary embedding of neighbouring elements."""
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * c - odd * s, even * s + odd * c], -1).flatten(-2)


def places(count: int, below: int, device: torch.device) -> torch.Tensor:
    """Different rows or columns, computed with what reads them."""
    return (torch.arange(count, device=device) * 5) % below


def chosen(y: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The gradient of `log_softmax(x).gather(1, i)`, whose forward pass made `y`."""
    full = torch.zeros_like(y).scatter_add(1, places(y.shape[0], y.shape[1], y.device)[:, None], g)
    return full - y.exp() * full.sum(1, keepdim=True)


CASES: dict[str, tuple[Callable[..., torch.Tensor], Shapes]] = {
    "nchw to nhwc": (lambda x: x.permute(0, 2, 3, 1).contiguous(), ((32, 256, 56, 56),)),
    "nhwc to nchw": (lambda x: x.permute(0, 3, 1, 2).contiguous(), ((32, 56, 56, 256),)),
    "nhwc to nchw 55": (lambda x: x.permute(0, 3, 1, 2).contiguous(), ((32, 55, 55, 256),)),
    "nhwc to nchw 7": (lambda x: x.permute(0, 3, 1, 2).contiguous(), ((64, 7, 7, 2048),)),
    "heads": (lambda x: x.permute(0, 2, 1, 3).contiguous(), ((16, 1024, 16, 64),)),
    "permute 2 1 0": (lambda x: x.permute(2, 1, 0).contiguous(), ((256, 512, 256),)),
    "permute 1 2 0": (lambda x: x.permute(1, 2, 0).contiguous(), ((256, 512, 256),)),
    "permute of 16 rows": (lambda x: x.permute(0, 2, 1).contiguous(), ((16384, 16, 128),)),
    "permute of 16 columns": (lambda x: x.permute(0, 2, 1).contiguous(), ((16384, 128, 16),)),
    "transpose to odd rows": (lambda x: x.t().contiguous(), ((4097, 8192),)),
    "transpose both odd": (lambda x: x.t().contiguous(), ((4099, 8193),)),
    "transpose and add": (lambda x, y: x.t() + y, ((8192, 4096), (4096, 8192))),
    "transpose and add odd": (lambda x, y: x.t() + y, ((8192, 4097), (4097, 8192))),
    "flip": (lambda x: x.flip(1), ((8192, 4096),)),
    "roll": (lambda x: x.roll(5, 1), ((8192, 4096),)),
    "roll of windows": (lambda x: x.roll((3, 3), (1, 2)), ((32, 56, 56, 192),)),
    "stack": (lambda x, y: torch.stack([x, y], -1), ((8192, 2048), (8192, 2048))),
    "every second": (lambda x: x[:, ::2] * x[:, 1::2], ((8192, 4096),)),
    "swiglu odd": (lambda x: F.silu(x[:, :4097]) * x[:, 4097:], ((8192, 8194),)),
    "rotary halves": (lambda x, c, s: x * c + rotated(x) * s, ((16, 16, 1024, 64), (1024, 64), (1024, 64))),
    "rotary pairs": (rotary_pairs, ((8, 16, 2048, 128), (2048, 64), (2048, 64))),
    "pad": (lambda x: F.pad(x, (1, 1, 1, 1)), ((32, 128, 56, 56),)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), ((32, 256, 56, 56),)),
    "repeat odd": (lambda x: x.repeat(1, 2), ((8192, 2049),)),
    "slice odd": (lambda x: x[:, 1:4097].contiguous(), ((8192, 4104),)),
    "concat of short rows": (lambda x, y: torch.cat([x, y], 1), ((262144, 33), (262144, 50))),
    "concat and relu": (lambda x, y: torch.relu(torch.cat([x, y], 1)), ((32, 128, 56, 56), (32, 64, 56, 56))),
    "scale of 7 x 7": (lambda x, w: x * w, ((256, 1024, 7, 7), (1024, 1, 1))),
    "bias of 99": (lambda x, w: x + w, ((262144, 99), (99,))),
    "tril": (lambda x: x.tril(), ((8192, 4097),)),
    "upsample by 2": (lambda x: F.interpolate(x, scale_factor=2), ((32, 64, 56, 56),)),
    "upsample by 3": (lambda x: F.interpolate(x, scale_factor=3), ((32, 64, 40, 40),)),
    "computed rows": (lambda x: x[places(8192, 8192, x.device)], ((8192, 4096),)),
    "computed columns": (lambda x: x[:, places(4096, 4096, x.device)], ((8192, 4096),)),
    "slice written": (lambda x, y: x.relu().slice_scatter(y, 1, 1024, 2048), ((8192, 4096), (8192, 1024))),
    "slice written odd": (lambda x, y: x.relu().slice_scatter(y, 1, 501, 1502), ((8192, 4096), (8192, 1001))),
    "two slices written": (
        lambda x, y, z: x.slice_scatter(y, 0, 0, 512).slice_scatter(z, 1, 0, 2048),
        ((8192, 4096), (512, 4096), (8192, 2048)),
    ),
    "column written": (lambda x, y: x.select_scatter(y, 1, 7), ((8192, 4096), (8192,))),
    "gradient of every second": (
        lambda g: torch.ops.aten.slice_backward(g, [8192, 4096], 1, 0, 4096, 2),
        ((8192, 2048),),
    ),
    "one hot": (
        lambda x: torch.zeros_like(x).scatter(1, places(8192, 4096, x.device)[:, None], 1.0) * x,
        ((8192, 4096),),
    ),
    "gradient of gather": (chosen, ((8192, 4096), (8192, 1))),
    "rows scattered": (lambda x, y: x.index_copy(0, places(4096, 8192, x.device), y), ((8192, 4096), (4096, 4096))),
    "gradient of embedding": (  # of 8192 tokens, some of them more than once
        lambda g: torch.ops.aten.embedding_dense_backward(g, places(8192, 4099, g.device) * 12, 50304, -1, False),
        ((8192, 768),),
    ),
    "gradient of many tokens": (
        lambda g: torch.ops.aten.embedding_dense_backward(g, places(65536, 16411, g.device) * 3, 50304, -1, False),
        ((65536, 512),),
    ),
    "rows added": (
        lambda x, y: x.index_add(0, places(65536, 4099, x.device), y),
        ((8192, 256), (65536, 256)),
    ),
    "gradient of two rows": (
        lambda g: torch.ops.aten.embedding_dense_backward(g, places(8192, 2, g.device), 2, -1, False),
        ((8192, 768),),
    ),
    "top 8 of 64": (lambda x: x.topk(8, -1).values, ((16384, 64),)),
    "top 8 of 256": (lambda x: x.topk(8, -1).values, ((16384, 256),)),
    "top 32 of 1024": (lambda x: x.topk(32, -1).values, ((4096, 1024),)),
    "top 50 of 128256": (lambda x: x.topk(50, -1).values, ((1, 128256),)),
    "top 50 of 128256 by 64": (lambda x: x.topk(50, -1).values, ((64, 128256),)),
    "top 200 of 32000": (lambda x: x.topk(200, -1).values, ((8, 32000),)),
    "cumsum of rows": (lambda x: x.cumsum(1), ((8192, 4096),)),
    "cumsum of columns": (lambda x: x.cumsum(0), ((8192, 4096),)),
    "cumsum of tokens": (lambda x: x.cumsum(1), ((8, 2048, 2048),)),
    "cumsum of few columns": (lambda x: x.cumsum(0), ((65536, 16),)),
    "cumsum of few rows": (lambda x: x.cumsum(1), ((8, 131072),)),
    "cumsum of a vector": (lambda x: x.cumsum(0), ((1 << 20,),)),
    "cumsum of a long vector": (lambda x: x.cumsum(0), ((1 << 25,),)),
}


def measure(name: str, dtype: torch.dtype) -> dict[str, Any]:
    """One line of the table."""
    function, shapes = CASES[name]

    def make() -> Tensors:
        return [torch.randn(s, device="cuda").to(dtype) for s in shapes]

    dtype_name = str(dtype).removeprefix("torch.")
    return {"case": name, "dtype": dtype_name, **compared(name, function, make, inductor=True)}


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", default="")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    import lamina.frontend.dynamo  # noqa: F401

    print(torch.cuda.get_device_name(0), torch.__version__)
    lines = []
    for name in CASES:
        if given.only and name not in given.only.split(","):
            continue
        for dtype in (torch.float32, torch.bfloat16):
            lines += attempted(f"{name:24}", dtype, functools.partial(measure, name, dtype))
    save(given.json, lines)


if __name__ == "__main__":
    main()
