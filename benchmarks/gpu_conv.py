"""Convolutions of bf16 on a GPU against cuDNN (eager) and Inductor: python benchmarks/gpu_conv.py [--inductor] [--json F]

Images have their channels last in memory, as cuDNN's fastest kernels want them. `conv` is the convolution alone, `layer` one of
ResNet-50 with what follows it: a channel's scale and shift in f32 (batch norm), the sum with another image, and relu. `transposed` ones make an image
of `stride` times the size. Each line is checked first, as in gpu_matmul.py, and timed as there.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from gpu_timing import CACHE, Captured, Tensors, by_group, error, interleaved, moved, save

LAST = torch.channels_last


@dataclass(frozen=True)
class Case:
    """`images` of `size` x `size`, a square kernel; `kind` names a function of KINDS."""

    kind: str
    size: int
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    images: int = 32

    @property
    def name(self) -> str:
        shape = f"{self.images} x {self.size}² x {self.inputs} to {self.outputs}"
        return f"{self.kind} {shape}, {self.kernel}² by {self.stride}"

    @property
    def multiplications(self) -> int:
        """Of all images."""
        places = self.size if self.kind == "transposed" else self.out
        return self.images * places**2 * self.outputs * self.read * self.kernel**2

    @property
    def read(self) -> int:
        """The channels that a result reads."""
        return 1 if self.kind == "depthwise" else self.inputs

    @property
    def out(self) -> int:
        """The side of the result."""
        if self.kind == "transposed":
            return self.size * self.stride
        return (self.size + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1


def conv(x: torch.Tensor, w: torch.Tensor, stride: int, groups: int = 1) -> torch.Tensor:
    """A convolution with "same" padding."""
    return F.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2, groups=groups)


def transposed(x: torch.Tensor, w: torch.Tensor, stride: int) -> torch.Tensor:
    """A transposed convolution, padded so that the result is `stride` times as large."""
    padding = (w.shape[-1] - stride + 1) // 2
    extra = 2 * padding + stride - w.shape[-1]
    return F.conv_transpose2d(x, w, stride=stride, padding=padding, output_padding=extra)


def layer(
    x: torch.Tensor, w: torch.Tensor, stride: int, scale: torch.Tensor, shift: torch.Tensor, z: torch.Tensor
) -> torch.Tensor:
    """The last convolution of a residual block."""
    y = (conv(x, w, stride) * scale + shift).to(x.dtype)
    return F.relu(y + z)


# kind: (function, operands beside image and weights: v is [outputs], z the result's shape)
KINDS: dict[str, tuple[Callable[..., torch.Tensor], str]] = {
    "conv": (conv, ""),
    "layer": (layer, "vvz"),
    "depthwise": (lambda x, w, stride: conv(x, w, stride, w.shape[0]), ""),
    "transposed": (transposed, ""),
}
# size, channels in and out, kernel, stride: the different convolutions of ResNet-50
RESNET = (
    (224, 3, 64, 7, 2), (56, 64, 64, 1, 1), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1), (56, 256, 64, 1, 1),
    (56, 256, 128, 1, 1), (56, 128, 128, 3, 2), (28, 128, 512, 1, 1), (56, 256, 512, 1, 2), (28, 512, 128, 1, 1),
    (28, 128, 128, 3, 1), (28, 512, 256, 1, 1), (28, 256, 256, 3, 2), (14, 256, 1024, 1, 1), (28, 512, 1024, 1, 2),
    (14, 1024, 256, 1, 1), (14, 256, 256, 3, 1), (14, 1024, 512, 1, 1), (14, 512, 512, 3, 2), (7, 512, 2048, 1, 1),
    (14, 1024, 2048, 1, 2), (7, 2048, 512, 1, 1), (7, 512, 512, 3, 1),
)  # fmt: skip
OTHERS = (
    Case("conv", 64, 320, 320, 3, images=2),
    Case("conv", 32, 1280, 640, 3, images=2),
    Case("conv", 112, 64, 128, 3, images=16),
    Case("conv", 224, 3, 64, 3, images=16),
    Case("conv", 80, 96, 96, 3, images=8),
    Case("layer", 56, 96, 192, 2, 2, images=32),
    Case("conv", 224, 3, 16, 3, 2, images=32),
    Case("conv", 128, 64, 2, 1, images=8),
    Case("conv", 128, 64, 2, 3, images=8),
)
TRANSPOSED = tuple(
    Case("transposed", size, inputs, outputs, kernel, stride, images=8)
    for size, inputs, outputs, kernel, stride in (
        (64, 256, 128, 2, 2), (32, 512, 256, 2, 2), (128, 128, 64, 2, 2), (64, 128, 64, 4, 2), (32, 64, 64, 8, 4),
    )
)  # fmt: skip
DEPTHWISE = tuple(
    Case("depthwise", size, channels, channels, kernel, stride)
    for size, channels, kernel, stride in ((56, 96, 7, 1), (14, 384, 7, 1), (112, 96, 3, 2), (28, 240, 5, 1))
)
GROUPS = {
    "conv": tuple(Case("conv", *given) for given in RESNET),
    "layer": tuple(Case("layer", *given) for given in RESNET if given[3] > 1 or given[1] > 3),
    "others": OTHERS,
    "depthwise": DEPTHWISE,
    "transposed": TRANSPOSED,
}


def operands(case: Case) -> Tensors:
    """Random operands; weights keep the result's scale at 1."""
    c = case
    image = torch.randn(c.images, c.inputs, c.size, c.size, device="cuda")
    channels = (c.inputs, c.outputs) if c.kind == "transposed" else (c.outputs, c.read)
    weights = torch.randn(*channels, c.kernel, c.kernel, device="cuda") / math.sqrt(c.read * c.kernel**2)
    more = {"v": (c.outputs, 1, 1), "z": (c.images, c.outputs, c.out, c.out)}
    given = [image, weights, *(torch.randn(more[n], device="cuda") for n in KINDS[c.kind][1])]
    return [t.bfloat16().to(memory_format=LAST) if t.dim() == 4 else t for t in given]


def function_of(case: Case) -> Callable[..., torch.Tensor]:
    """The function of the operands."""
    function = KINDS[case.kind][0]
    return lambda x, w, *rest: function(x, w, case.stride, *rest)


def measure(case: Case, inductor: bool, check: bool) -> dict[str, Any]:
    """One line of the table."""
    torch._dynamo.reset()
    function, first = function_of(case), operands(case)
    systems: dict[str, Callable[..., Any]] = {"lamina": torch.compile(function, backend="lamina", dynamic=False)}
    with torch.no_grad():
        eager, exact = function(*first), function(*[t.double() for t in first])
        poison = torch.full_like(eager, math.nan)
        del poison  # the allocator gives this memory to the result
        made = systems["lamina"](*first)
        assert torch.equal(made, systems["lamina"](*first)), f"{case.name}: two runs differ"
        assert made.stride() == eager.stride(), f"{case.name}: strides {made.stride()}, eager's {eager.stride()}"
        errors = error(made, exact), error(eager, exact)
        assert errors[0] <= 2 * errors[1], f"{case.name}: error {errors[0]:.1e}, eager's {errors[1]:.1e}"
        line: dict[str, Any] = {"case": case.name, "error": errors[0], "eager error": errors[1]}
        if check:
            return line
        size = moved(first, made)
        sets = [first, *(operands(case) for _ in range(min(5, CACHE // size)))]
        systems["eager"] = function
        if inductor:
            systems["inductor"] = torch.compile(function, backend="inductor", dynamic=False)
        work = 2 * case.multiplications
        calls = max(4, min(40, int(2e-3 / (work / 5e14 + size / 4e12 + 2e-6))))
        times = interleaved({n: Captured(f, sets, calls) for n, f in systems.items()}, rounds=9)
    best = min(t for n, t in times.items() if n != "lamina")
    line |= {
        "us": {n: round(t, 2) for n, t in times.items()},
        "tflops": round(work / times["lamina"] / 1e6, 1),
        "TB/s": round(size / times["lamina"] / 1e6, 2),
        "against best": round(best / times["lamina"], 3),
    }
    return line


def shown(line: dict[str, Any]) -> str:
    """A line for people."""
    errors = f"error {line['error']:.1e}, eager's {line['eager error']:.1e}"
    if "us" not in line:
        return f"{line['case']:46}{errors}"
    times = "  ".join(f"{n} {t:8.2f}" for n, t in line["us"].items())
    rates = f"{line['tflops']:5.0f} TFLOP/s {line['TB/s']:.1f} TB/s"
    return f"{line['case']:46}{times}  of best {line['against best']:.2f}  {rates}  {errors}"


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--json", default="")
    parser.add_argument("--check", action="store_true", help="errors only")
    parser.add_argument("--only", default="", help="groups: conv, layer, others, depthwise, transposed")
    given = parser.parse_args()
    import lamina
    import lamina.frontend.dynamo  # noqa: F401

    print(torch.cuda.get_device_name(0), torch.__version__)
    lines = []
    one = functools.partial(measure, inductor=given.inductor, check=given.check)
    for group, found in by_group(GROUPS, given.only, one, shown):
        lines += found
        ratios = [math.log(l["against best"]) for l in found if "against best" in l]
        if ratios:
            print(f"{group}: geomean {math.exp(sum(ratios) / len(ratios)):.3f} of the best other", flush=True)
    print(lamina.stats()["fallback"], lamina.stats()["failures"])
    save(given.json, lines)


if __name__ == "__main__":
    main()
