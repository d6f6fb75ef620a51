"""On a machine with an NVIDIA GPU: kernels against torch. `python tests/gpu/run.py [samples] [shapes] [compile]`.

Outputs are poisoned before each run. It is no pytest file: the suite runs where there is no GPU.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.samples import (
    assert_close,
    attributes,
    eager,
    from_torch,
    inferred,
    operands,
    to_torch,
    type_of,
)

from lamina.compiler.api import compile_graph
from lamina.dialects.dtypes import FLOAT8
from lamina.dialects.op import all_ops
from lamina.dialects.record import Graph, TensorType
from lamina.frontend.values import torch_dtype
from lamina.runtime.gpu import cuda
from lamina.runtime.gpu.cuda import target_of
from lamina.runtime.gpu.program import GpuProgram

LOOPS = ("pointwise", "view", "creation", "gather", "reduction", "row", "concat")


class Failures:
    """Runs checks and keeps the messages of those that fail."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}
        self.passed = 0

    def run(self, name: str, check: Callable[[], Any]) -> None:
        try:
            check()
            self.passed += 1
        except Exception as error:
            self.failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
            if "-v" in sys.argv:
                traceback.print_exc()

    def report(self, what: str) -> None:
        print(f"{what}: {self.passed} passed, {len(self.failed)} failed", flush=True)
        for name, message in self.failed.items():
            print(f"  {name}: {message}")


def run_graph(
    graph: Graph, tensors: list[torch.Tensor], types: list[TensorType], target: str = ""
) -> list[torch.Tensor]:
    """The outputs of `graph` on the GPU, which are whole buffers; compiled for another `target` that it can run."""
    device = cuda.device(0)
    made = compile_graph(graph, target or target_of(device))
    program = GpuProgram(made.manifest, made.image, device)
    names = [i["name"] for i in program.plan["inputs"]]
    given = {i.name: t for i, t in zip(graph.inputs, tensors)}
    prepared = program.prepare(())
    buffers = [poisoned(b.shape, torch_dtype(b.dtype)) for b in prepared.buffers]
    program.run(prepared, [given[n].data_ptr() for n in names], [b.data_ptr() for b in buffers])
    torch.cuda.synchronize()
    program.check_status()
    results = []
    for o in prepared.outputs:
        base = buffers[o.index] if o.space == "output" else given[names[o.index]]
        results.append(torch.as_strided(base, o.shape, o.strides, o.offset).clone())
    return results


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Memory that shows when it was not written."""
    value: Any = float("nan") if dtype.is_floating_point else (dtype is not torch.bool and 77)
    return torch.full(shape, value, dtype=dtype, device="cuda")


def check_op(name: str) -> None:
    """All samples of an op in one graph."""
    op = all_ops()[name]
    graph, tensors, types = Graph(name), [], []
    chosen = op.samples
    for number, s in enumerate(chosen):
        values: list[int | None] = []
        for k, x in enumerate(operands(s)):
            if x is None:
                values.append(None)
                continue
            values.append(graph.add_input(f"x{number}_{k}", type_of(x)))
            tensors.append(to_torch(x).cuda())
        made = graph.add(name, *values, **attributes(op, s))
        for v in made if isinstance(made, tuple) else (made,):
            graph.add_output(v)
        types += inferred(op, s)
    actual = iter(run_graph(graph, tensors, types))
    for number, s in enumerate(chosen):
        made = [from_torch(next(actual).cpu()) for _ in inferred(op, s)]
        try:
            all_close(op, s, made, eager(op, s))
        except AssertionError as error:
            try:  # the GPU's eager may differ: inf through tanh, say, or floats out of an integer's range
                all_close(op, s, made, on_device(op, s))
            except Exception:
                raise AssertionError(f"sample {number}: {error}") from None


def samples() -> None:
    """Every op of the registry: those with loops kernels, direct ops, and the others."""
    groups: dict[str, list[str]] = {"loops": [], "direct": [], "others": []}
    for name, op in all_ops().items():
        group = "loops" if op.category in LOOPS else "direct" if op.category == "direct" else "others"
        if op.samples and op.torch is not None and (op.lower is not None or group == "direct"):
            groups[group].append(name)
    for title, names in groups.items():
        failures = Failures()
        for name in names:
            failures.run(name, lambda name=name: check_op(name))
        failures.report(f"op samples, {title}")


def all_close(op: Any, s: Any, made: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """Compare the results of one sample."""
    given = [x for x in operands(s) if x is not None]
    for m, e in zip(made, expected):
        if op.name == "matmul" and type_of(given[0]).dtype in FLOAT8:
            assert np.all(np.abs(m - e) <= float8_error(*given))
        else:
            assert_close(m, e, "exact" if op.numerics == "exact" else "order")


def float8_error(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How far Hopper's sums of products of 8-bit floats may be off.

    An instruction adds 32 products and the sum before after it has cut each at 2^-13 of the largest of them (DeepSeek-V3
    Technical Report, 3.3.2), which is at most the sum of all magnitudes.
    """
    wide = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    return -(-a.shape[-1] // 32) * 33 * 2.0**-13 * wide


def on_device(op: Any, s: Any) -> list[np.ndarray]:
    """What torch computes for a sample, on the GPU where it can."""
    given = [None if x is None else to_torch(x).cuda() for x in operands(s)]
    made = op.torch(*given, **attributes(op, s))
    return [from_torch(t.cpu()) for t in (made if isinstance(made, (tuple, list)) else (made,))]


SHAPES = [(64, 4096), (1024, 1024), (8192, 4096), (8192, 4097), (8192, 5000), (20000, 1000), (32768, 256), (20000, 100), (4096, 16384), (37, 70000), (3, 1000003), (2, 33, 65, 17)]  # fmt: skip


def shapes() -> None:
    """Fused rows and reductions at real sizes against float64."""
    import lamina.frontend.dynamo  # noqa: F401

    w = lambda x: torch.arange(x.shape[-1], device="cuda", dtype=torch.float32).mul(0.01).sin().to(x.dtype)
    cases: dict[str, Callable[..., Any]] = {
        "add": lambda x: x + x.flip(0) * 2,
        "silu": lambda x: F.silu(x) * x,
        "gelu": lambda x: F.gelu(x, approximate="tanh"),
        "softmax": lambda x: F.softmax(x, -1),
        "log_softmax": lambda x: F.log_softmax(x, -1),
        "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], w(x), w(x)),
        "rms_norm": lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w(x),
        "sum_rows": lambda x: x.sum(-1),
        "sum_columns": lambda x: x.sum(0),
        "sum_all": lambda x: x.abs().sum(),  # of both signs its error has no measure
        "argmax": lambda x: x.argmax(-1),
        "amax_columns": lambda x: x.amax(0),
        "var": lambda x: x.var(-1),
        "transpose": lambda x: (x + 1).transpose(0, -1).contiguous(),
        "softmax_first": lambda x: F.softmax(x, 0),
        "pad": lambda x: F.pad(x, (1, 2)) * 2,
    }
    failures = Failures()
    only = [n for a in sys.argv if a.startswith("--only=") for n in a[7:].split(",")]
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(shape, device="cuda").to(dtype)
            for name, f in cases.items():
                if only and name not in only:
                    continue
                failures.run(f"{name} {shape} {dtype}", lambda f=f, x=x: compare(f, x))
        torch._dynamo.reset()
    failures.report("shapes")


def compare(f: Callable[..., Any], x: torch.Tensor) -> None:
    """Twice: the same bits, and as near to float64 as eager is (to a factor)."""
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="lamina", dynamic=False)
    with torch.no_grad():
        first, second = compiled(x), compiled(x)
        assert torch.equal(first, second) or bool(torch.isnan(first).any()), "two runs differ"
        expected, exact = f(x), f(x.double())
    assert first.shape == expected.shape and first.dtype == expected.dtype and first.stride() == expected.stride()
    if not first.dtype.is_floating_point:
        assert torch.equal(first, expected), "unequal"
        return
    error, eagers = distance(first, exact), distance(expected, exact)
    floor = 2e-6 if x.dtype is torch.float32 else 1e-2
    assert error <= max(2 * eagers, floor), f"error {error:.2e}, eager's {eagers:.2e}"


def distance(a: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative Frobenius distance; NaN never passes."""
    found = float((a.double() - exact).norm() / exact.norm().clamp_min(1e-30))
    return found if found == found else float("inf")


def check_model(m: nn.Module, *inputs: torch.Tensor, train: bool = False, dynamic: bool = False) -> None:
    """A compiled model beside eager: outputs, or gradients with `train`; with `dynamic` also for a batch of twice the size."""
    torch._dynamo.reset()
    compiled = torch.compile(m, backend="lamina", dynamic=dynamic or None)
    for scale in (1, 2) if dynamic else (1,):
        given = [torch.cat([x] * scale) for x in inputs]
        if train:
            grads = []
            for f in (m, compiled):
                m.zero_grad()
                f(*given).square().mean().backward()
                grads.append([p.grad.clone() for p in m.parameters()])
            for a, b in zip(*grads):
                torch.testing.assert_close(b, a, rtol=2e-3, atol=2e-4)
        else:
            with torch.no_grad():
                torch.testing.assert_close(compiled(*given), m(*given), rtol=2e-3, atol=2e-4)


class Lookup(nn.Module):
    """Rows of a table, summed and normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 64)

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.table(i).sum(1), dim=-1)


def misaligned() -> None:
    """An input that starts between multiples of 16 bytes."""
    x = torch.randn(4097, device="cuda")[1:]
    f = torch.compile(lambda x: torch.relu(x) + 1, backend="lamina")
    torch.testing.assert_close(f(x), torch.relu(x) + 1)


def in_place() -> None:
    """An input that is written."""
    x = torch.randn(4096, device="cuda")
    y = x.clone()
    torch.compile(lambda x: x.mul_(2).add_(1), backend="lamina")(x)
    torch.testing.assert_close(x, y * 2 + 1)


def out_of_range() -> None:
    """An index that is too large is raised by the next call."""
    f = torch.compile(lambda t, i: torch.ops.aten.embedding(t, i) + 1, backend="lamina")
    t = torch.randn(10, 8, device="cuda")
    f(t, torch.tensor([1, 2], device="cuda"))
    f(t, torch.tensor([1, 99], device="cuda"))
    torch.cuda.synchronize()
    try:
        f(t, torch.tensor([1, 2], device="cuda"))
    except IndexError:
        return
    raise AssertionError("no IndexError")


def other_stream() -> None:
    """A call on a stream that is not the default one."""
    x = torch.randn(1 << 20, device="cuda")
    f = torch.compile(lambda x: torch.tanh(x) * 3, backend="lamina")
    f(x)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y = torch.randn(1 << 20, device="cuda")
        z = f(y)
    stream.synchronize()
    torch.testing.assert_close(z, torch.tanh(y) * 3, rtol=1e-5, atol=1e-6)


def attention_gradients(width: int, length: int, causal: bool, shared: int) -> None:
    """Attention whose forward pass is ours and whose backward pass is torch's, in bf16; against float64."""
    from lamina import stats

    torch._dynamo.reset()
    before = stats()["fallback"]
    shapes = ((2, 8, length, width), (2, shared, length, width), (2, shared, length, width))
    given = [torch.randn(s, device="cuda").bfloat16().transpose(1, 2).contiguous().transpose(1, 2) for s in shapes]
    weight = torch.randn(2, 8, length, width, device="cuda").bfloat16()

    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        made = F.scaled_dot_product_attention(q * 2, k, v, is_causal=causal, enable_gqa=shared != 8)
        return (made * weight).sum()

    def gradients(f: Callable[..., torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
        leaves = [t.to(dtype).requires_grad_() for t in given]
        return list(torch.autograd.grad(f(*leaves), leaves))

    made, eager = gradients(torch.compile(loss, backend="lamina"), torch.bfloat16), gradients(loss, torch.bfloat16)
    weight = weight.double()
    for m, e, x in zip(made, eager, gradients(loss, torch.float64)):
        assert distance(m, x) <= max(2 * distance(e, x), 1e-2), (
            f"error {distance(m, x):.1e}, eager {distance(e, x):.1e}"
        )
    left = [op for op, found in stats()["fallback"].items() if found != before.get(op) and "backward" not in op]
    assert not left, f"in eager: {left}"


def compile_modules() -> None:
    """Models through torch.compile: dynamic shapes, training, views, fallbacks."""
    import lamina.frontend.dynamo  # noqa: F401
    from lamina import stats

    failures = Failures()

    def model(name: str, m: nn.Module, *inputs: torch.Tensor, **how: bool) -> None:
        failures.run(name, lambda: check_model(m, *inputs, **how))

    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 10), nn.LogSoftmax(-1)).cuda()
    model("mlp", mlp, torch.randn(64, 256, device="cuda"))
    model("mlp dynamic", mlp, torch.randn(64, 256, device="cuda"), dynamic=True)
    model("mlp training", mlp, torch.randn(64, 256, device="cuda"), train=True)
    conv = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 64, 10)).cuda()  # fmt: skip
    model("conv", conv.eval(), torch.randn(4, 3, 16, 16, device="cuda"))
    block = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0).cuda()
    model("encoder layer", block.eval(), torch.randn(4, 50, 128, device="cuda"))
    model("encoder layer training", block.train(), torch.randn(4, 50, 128, device="cuda"), train=True)
    for case in ((64, 1024, True, 8), (64, 513, False, 8), (128, 300, True, 8), (128, 512, False, 2)):
        failures.run(f"gradients of attention {case}", lambda case=case: attention_gradients(*case))
    model("embedding", Lookup().cuda(), torch.randint(0, 1000, (32, 20), device="cuda"))

    for f in (misaligned, in_place, out_of_range, other_stream):
        failures.run(f.__name__, f)
    failures.report("torch.compile")
    print(stats())


def load() -> None:
    """An artifact on the device: numpy, torch and our own arrays in and out, state, errors."""
    import tempfile

    import lamina

    failures = Failures()
    m = torch.nn.Sequential(torch.nn.LayerNorm(256), torch.nn.GELU(), torch.nn.Linear(256, 64), torch.nn.Softmax(-1))
    x = torch.randn(8, 256)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(m.eval(), (x,), dynamic_shapes=({0: batch},))
    with torch.no_grad():
        expected = m(x)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.lamina")
        lamina.export(program, targets=["sm_90a", "sm_80", "x86-64-v3"]).save(path)
        model = lamina.load(path, device="cuda:0")

        def close(made: torch.Tensor) -> None:
            torch.testing.assert_close(made.cpu(), expected, rtol=1e-4, atol=1e-6)

        def refuses(what: str, call: Callable[[], Any]) -> None:
            try:
                call()
            except RuntimeError as error:
                assert what in str(error), str(error)
                return
            raise AssertionError("no error")

        failures.run("numpy in", lambda: close(torch.from_numpy(np.asarray(model(x.numpy())))))
        failures.run("torch in, DLPack out", lambda: close(torch.from_dlpack(model(x.cuda()))))
        failures.run("torch in, array interface out", lambda: close(torch.as_tensor(model(x.cuda()), device="cuda")))
        failures.run("misaligned in", lambda: close(torch.from_dlpack(model(torch.cat([x.new_zeros(1), x.flatten()]).cuda()[1:].view(8, 256)))))  # fmt: skip
        failures.run("sm_80 code is refused no device that can", lambda: close(torch.from_dlpack(lamina.load(path, device="cuda", target="sm_80")(x.cuda()))))  # fmt: skip
        failures.run("strided", lambda: refuses("not contiguous", lambda: model(x.t().contiguous().t().cuda())))
        failures.run("shape", lambda: refuses("size 255", lambda: model(x[:, 1:].contiguous().cuda())))
        failures.run("device", lambda: refuses("no device cuda:7", lambda: lamina.load(path, device="cuda:7")))
        failures.run("the CPU of the same file", lambda: close(torch.from_numpy(lamina.load(path)(x.numpy()))))
    failures.report("load")


if __name__ == "__main__":
    chosen = [a for a in sys.argv[1:] if not a.startswith("-")] or ["samples", "compile", "load", "shapes"]
    for part in chosen:
        start = time.time()
        {"samples": samples, "shapes": shapes, "compile": compile_modules, "load": load}[part]()
        print(f"{part}: {time.time() - start:.1f} s", flush=True)
