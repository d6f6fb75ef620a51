"""On a machine with an NVIDIA GPU: matrix products against float64. `python tests/gpu/run_products.py`.

Views, batches, symbolic sizes, fused ops and non-finite values through `torch.compile`, convolutions as artifacts. Memory
held NaN before; our error may be twice eager's. It is no pytest file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.device import Failures, distance

import lamina
import lamina.frontend.dynamo  # noqa: F401

FLOOR = 1.2e-7  # relative: half a unit of f32
TARGETS = ("sm_90a", "sm_80")  # by TMA and wgmma, by mma.sync


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def wide(*shape: int) -> torch.Tensor:
    return normal(*shape, dtype=torch.float32)


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(4, 128, 8, 64).transpose(1, 2)


# name: (function, one set of operands, or several of which sizes are symbolic)
CASES: dict[str, tuple[Callable[..., torch.Tensor], Sequence[Sequence[torch.Tensor]]]] = {}


def case(name: str, function: Callable[..., torch.Tensor], *sets: Sequence[torch.Tensor]) -> None:
    CASES[name] = function, sets


def residuals(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Layers each of which is added to what it reads, and may be written over it."""
    x = x.tanh()
    for _ in range(3):
        x = x + F.linear(F.linear(x, w).relu(), v)
    return x


def make_cases() -> None:
    w = normal(3072, 768)
    case("symbolic rows", lambda x, w: F.gelu(F.linear(x, w)), *((normal(m, 768), w) for m in (2, 37, 128, 300, 1000)))
    sizes = ((64, 72, 80), (100, 33, 50), (257, 512, 1030), (2, 3, 4))
    case("all symbolic", lambda a, b: a @ b, *((normal(m, k), normal(k, n)) for m, k, n in sizes))
    sizes = ((3, 50, 70), (8, 128, 128))
    case("symbolic batch", lambda a, b: a @ b.mT, *((normal(b, m, 64), normal(b, n, 64)) for b, m, n in sizes))
    case("slices", lambda x, w: F.linear(x[:, 768:1536], w[:, :768]) + 1, (normal(512, 2304), normal(1000, 800)))
    case("odd slices", lambda x, w: F.linear(x[:, 3:771], w), (normal(512, 2304), normal(1000, 768)))
    case("heads", lambda q, k: heads(q) @ heads(k).mT, (normal(4, 128, 512), normal(4, 128, 512)))
    case("expanded", lambda a, b: a @ b.expand(6, 128, 96), (normal(6, 64, 128), normal(1, 128, 96)))
    case("fused operands", lambda a, b, c: (a.relu() * 2) @ (b + c), (normal(300, 512), normal(512, 256), normal(512, 256)))  # fmt: skip
    operands = (normal(333, 264), normal(520, 264), normal(520), normal(333, 520))
    case("epilogue", lambda x, w, b, y: torch.relu(F.linear(x, w, b) + y) * y, operands)
    case("transposed", lambda a, b: a.t() @ b, (normal(1000, 136), normal(1000, 264)))
    case("odd everything", lambda a, b: a @ b, (normal(333, 521), normal(521, 779)))
    case("odd columns", lambda a, b: F.linear(a, b), (normal(300, 264), normal(50257, 264)))
    case("one row", lambda a, b, c: F.linear(a, b, c), (normal(1, 4096), normal(4096, 4096), normal(4096)))
    case("few rows, long", lambda a, b, c: F.linear(a, b, c), (normal(3, 14336), normal(2047, 14336), normal(2047)))
    for rows, width, inner in ((4096, 768, 3072), (1000, 264, 400), (333, 521, 779), (8, 4096, 512), (40, 256, 8192)):
        weights = normal(inner, width) / width**0.5, normal(width, inner) / inner**0.5
        case(f"residuals {rows} x {width} x {inner}", residuals, (normal(rows, width), *weights))
    case("residuals f32", residuals, (wide(500, 512), wide(1028, 512) / 22, wide(512, 1028) / 32))
    case("f16", lambda a, b: a @ b, (normal(999, 1000, dtype=torch.float16), normal(1000, 1000, dtype=torch.float16)))
    case("f32", lambda a, b: F.linear(a, b) * 0.5, (wide(4, 333, 512), wide(1030, 512)))
    case("f32 turned", lambda a, b: a.t() @ b, (wide(600, 1000), wide(600, 777)))
    case("f32 batch", lambda a, b: a @ b, (wide(3, 300, 1028), wide(3, 1028, 257)))
    case("f32 small", lambda a, b: a @ b, (wide(48, 128, 64), wide(48, 64, 128)))
    case("f32 few rows", lambda a, b: F.linear(a, b), (wide(16, 4097), wide(1001, 4097)))


def convolution_cases() -> None:
    """Convolutions that `torch.compile` does not leave to cuDNN, and what joins them."""
    image, w, v = normal(3, 64, 30, 27), normal(72, 64, 3, 3) / 24, normal(72)
    case("3 x 3", lambda x, w, b: F.conv2d(x, w, b, padding=1), (image, w, v))
    case("strides", lambda x, w, b: F.conv2d(x, w, b, (2, 3), 1).relu(), (image, w, v))
    case("dilated", lambda x, w: F.conv2d(x, w, dilation=(3, 2), padding=(0, 4)), (image, w))
    case("channels last", lambda x, w: F.conv2d(x, w), (image.to(memory_format=torch.channels_last), w))
    u = nn.Parameter(w, requires_grad=False)  # an input's channels would be symbolic too, which no kernel of ours takes
    around = lambda x: F.conv2d(x, u.to(x.dtype), padding=1)
    case("symbolic images", around, *((normal(n, 64, 20, 20),) for n in (2, 5, 9)))
    case("symbolic sizes", around, *((normal(2, 64, n, m),) for n, m in ((9, 30), (40, 17))))
    case("1 x 1", lambda x, w: F.conv2d(x, w), (image, normal(40, 64, 1, 1)))
    case("1 x 1 by 2", lambda x, w: F.conv2d(x, w, stride=2), (image, normal(40, 64, 1, 1)))
    case("3 channels, 7 x 7 by 2", lambda x, w: F.conv2d(x, w, stride=2, padding=3), (normal(2, 3, 64, 50), normal(64, 3, 7, 7)))  # fmt: skip
    for stride, kernel, size in ((1, 3, 33), (3, 3, 32), ((1, 2), (2, 5), 31), (2, 4, 30)):
        short = lambda x, w, stride=stride: F.conv2d(x, w, stride=stride, padding=1)
        taps = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        case(f"3 channels, {kernel} by {stride}", short, (normal(3, 3, size, 27), normal(40, 3, *taps) / 5))
    case("3 channels, channels last", lambda x, w: F.conv2d(x, w, padding=1), (normal(2, 3, 20, 21).to(memory_format=torch.channels_last), normal(16, 3, 3, 3)))  # fmt: skip
    three = nn.Parameter(normal(32, 3, 3, 3), requires_grad=False)
    case("3 channels, symbolic sizes", lambda x: F.conv2d(x, three.to(x.dtype), padding=1), *((normal(2, 3, n, m),) for n, m in ((9, 30), (40, 17))))  # fmt: skip
    for outputs, kernel in ((2, 1), (3, 3), (1, 5)):
        few = lambda x, w, b: F.conv2d(x, w, b, padding=w.shape[-1] // 2).sigmoid()
        given = image, normal(outputs, 64, kernel, kernel) / (8 * kernel), normal(outputs)
        case(f"{outputs} outputs, {kernel} x {kernel}", few, given)
    for kernel, stride, padding, extra in ((2, 2, 0, 0), (4, 2, 1, 0), (4, 2, 0, 1), (3, 3, 0, 2), (6, 3, 2, 1), (3, 1, 1, 0), (1, 1, 0, 0)):  # fmt: skip
        up = lambda x, w, b, s=stride, p=padding, e=extra: F.conv_transpose2d(x, w, b, s, p, e).relu()
        case(f"transposed, {kernel} by {stride}", up, (image, normal(64, 40, kernel, kernel) / (8 * kernel), normal(40)))  # fmt: skip
    case("transposed, one dimension", lambda x, w: F.conv_transpose1d(x, w, stride=4, padding=2), (normal(3, 80, 50), normal(80, 32, 8) / 20))  # fmt: skip
    upwards = nn.Parameter(normal(64, 32, 4, 4) / 32, requires_grad=False)
    case("transposed, symbolic sizes", lambda x: F.conv_transpose2d(x, upwards.to(x.dtype), stride=2, padding=1), *((normal(2, 64, n, m),) for n, m in ((9, 30), (20, 17))))  # fmt: skip
    case("1 channel", lambda x, w: F.conv2d(x, w, padding=1), (normal(5, 1, 28, 28), normal(32, 1, 3, 3)))
    case(
        "one dimension", lambda x, w: F.conv1d(x, w, stride=2, padding=2), (normal(3, 80, 100), normal(64, 80, 5) / 20)
    )
    case(
        "three dimensions",
        lambda x, w: F.conv3d(x, w, padding=1),
        (normal(2, 16, 9, 8, 10), normal(32, 16, 3, 3, 3) / 20),
    )
    case("few positions", lambda x, w: F.conv2d(x, w, padding=1), (normal(1, 512, 4, 4), normal(512, 512, 3, 3) / 64))
    case("f16", lambda x, w: F.conv2d(x, w, padding=1), (image.half(), w.half()))

    added = lambda x, w: F.conv2d(F.conv2d(y := x.tanh(), w, padding=1).relu(), w, padding=1) + y
    case("residual", added, (image, normal(64, 64, 3, 3) / 24))
    middle = (image, normal(64, 1, 5, 5) / 5, v[:64])
    case("depthwise", lambda x, w, b: F.relu6(F.conv2d(x, w, b, (1, 2), 2, groups=64)), middle)

    def block(x: torch.Tensor, w: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        y = F.max_pool2d(F.conv2d(x, w, padding=1).relu(), 3, 2, 1)
        z = F.conv2d(torch.cat([y, y.sigmoid()], 1), u)
        return torch.relu(z + z.mean((2, 3), keepdim=True))

    case("pool, concat, sum", block, (image, normal(64, 64, 3, 3) / 24, normal(64, 128, 1, 1) / 8))


def check(
    function: Callable[..., torch.Tensor], sets: Sequence[Sequence[torch.Tensor]], target: str = "native"
) -> None:
    """All sets of one case, and that nothing fell back to torch."""
    before = lamina.stats()["fallback"]  # of the cases before
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="lamina", dynamic=len(sets) > 1, options={"target": target})
    for given in sets:
        with torch.no_grad():
            expected, exact = function(*given), function(*(t.double() for t in given))
            poison = torch.full_like(expected, float("nan"))
            del poison  # the allocator gives this memory to the result
            made = compiled(*given)
        assert made.shape == expected.shape and made.dtype == expected.dtype
        error, eagers = distance(made, exact), distance(expected, exact)
        assert error <= max(2 * eagers, FLOOR), f"{[tuple(t.shape) for t in given]}: {error:.1e}, eager {eagers:.1e}"
    fallback = lamina.stats()["fallback"]
    assert fallback == before, fallback


def in_tf32(target: str) -> None:
    """f32 products where torch allows TF32: as wrong as cuBLAS's, and exact f32 again afterwards."""
    torch.set_float32_matmul_precision("high")
    try:
        for function, given in (
            (F.linear, (wide(300, 1028), wide(520, 1028))),
            (torch.matmul, (wide(3, 300, 200), wide(3, 200, 257))),
            (lambda a, b: torch.relu(a.t() @ b), (wide(640, 333), wide(640, 520))),
        ):
            check(function, [given], target)
    finally:
        torch.set_float32_matmul_precision("highest")
    check(F.linear, [(wide(300, 1028), wide(520, 1028))], target)


def non_finite(target: str) -> None:
    """Infinities and NaN come out of an f32 product where torch's come out."""
    a, b = wide(512, 2048), wide(2048, 1024)
    a[3, 5], a[7, 9], b[11, 2], a[20, 4], a[21, :] = float("inf"), float("nan"), -float("inf"), 3.4e38, 1e-39
    b[4] = 0.5
    torch._dynamo.reset()
    compiled = torch.compile(lambda a, b: a @ b, backend="lamina", dynamic=False, options={"target": target})
    made, expected = compiled(a, b), a @ b
    finite = torch.isfinite(expected)
    assert torch.equal(torch.isfinite(made), finite) and torch.equal(torch.isnan(made), torch.isnan(expected))
    infinite = torch.isinf(expected)
    assert torch.equal(made[infinite], expected[infinite])
    torch.testing.assert_close(made[finite], expected[finite], rtol=1e-4, atol=1e-3)


class Block(nn.Module):
    """Two convolutions around which an image goes."""

    def __init__(self, channels: int):
        super().__init__()
        self.a, self.b = (nn.Conv2d(channels, channels, 3, padding=1, bias=i > 0) for i in range(2))
        self.m, self.n = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.n(self.b(torch.relu(self.m(self.a(x))))))


def convolutions(dtype: torch.dtype) -> None:
    """A small network as an artifact for both targets."""
    stem = (nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(64))
    rest = (
        nn.Conv2d(64, 128, 1, 2),
        nn.Conv2d(128, 128, 3, padding=1, groups=4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    model = nn.Sequential(*stem, *rest, nn.Linear(128, 10)).eval().to(dtype)
    x = torch.randn(4, 3, 128, 128).to(dtype)
    program = torch.export.export(model, (x,))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder, "m.lamina")
        lamina.export(program, targets=["sm_90a", "sm_80"]).save(path)
        expected: Any = model(x)
        exact = model.double()(x.double())
        for target in ("sm_90a", "sm_80"):
            made = torch.from_dlpack(lamina.load(path, device="cuda:0", target=target)(x.cuda())).cpu()
            error, eagers = distance(made, exact), distance(expected, exact)
            assert error <= max(2 * eagers, 1e-6), f"{target}: {error:.1e}, eager {eagers:.1e}"


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    make_cases()
    failures = Failures()
    for name, (function, sets) in CASES.items():
        for target in TARGETS:
            failures.run(f"{name}, {target}", lambda f=function, s=sets, t=target: check(f, s, t))
    CASES.clear()
    convolution_cases()
    for name, (function, sets) in CASES.items():
        failures.run(name, lambda f=function, s=sets: check(f, s))
    for target in TARGETS:
        failures.run(f"non-finite values, {target}", lambda t=target: non_finite(t))
        failures.run(f"TF32, {target}", lambda t=target: in_tf32(t))
    for dtype in (torch.float32, torch.bfloat16):
        failures.run(f"convolutions {dtype}", lambda d=dtype: convolutions(d))
    failures.report("products")
