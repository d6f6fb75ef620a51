"""Convolutions with channels last and packed weights against eager in float64, in buffers that end at guard pages."""

import ml_dtypes
import numpy as np
import pytest
import torch
from support.guarded import guarded
from support.run_kernel import compile_kernel
from support.tile_kernels import kernel, tensor

from lamina.dialects.mlir_context import context
from lamina.targets import get_target

COLUMNS = 2 * get_target("native").features.lanes()
TYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}
pytestmark = pytest.mark.skipif(get_target("native").features.has_lane_fma, reason="made for other tiles")


def ints(values):
    return f"array<i64: {', '.join(map(str, values))}>"


def run(x, w, stride=1, padding=0, dilation=1, dtype="f32", symbols=()):
    """The kernel's result for `x` `[N, …, C]` and `w` `[O, …, C]`, and the exact one. Of `symbols`, dims of `x`, it has no sizes."""
    x, w = x.astype(TYPES[dtype]), w.astype(TYPES[dtype])
    spread = lambda v: tuple(v) if isinstance(v, tuple) else (v,) * (x.ndim - 2)
    options = spread(stride), spread(padding), spread(dilation)
    columns = COLUMNS // 2 if dtype == "f64" else COLUMNS
    columns = columns if 2 * len(w) > columns else columns // 2
    lines = np.pad(w.reshape(len(w), -1), ((0, -len(w) % columns), (0, 0)))
    packed = np.ascontiguousarray(lines.reshape(-1, columns, lines.shape[1]).swapaxes(1, 2))
    first = lambda a: torch.from_numpy(np.moveaxis(a.astype(float), -1, 1).copy())
    convolve = (torch.conv1d, torch.conv2d, torch.conv3d)[x.ndim - 3]
    exact = np.moveaxis(convolve(first(x), first(w), None, *options).numpy(), 1, -1)
    names = {d: f"d{i}" for i, d in enumerate(symbols)}
    x_shape, y_shape = ([names[d] if d in names else n for d, n in enumerate(a.shape)] for a in (x, exact))
    y, windows = tensor(dtype, y_shape), zip(("kernel", "stride", "padding", "dilation"), (w.shape[1:-1], *options))
    attributes = ", ".join(f"{name} = {ints(values)}" for name, values in windows)
    body = (
        f'%y = "lamina.packed_last_conv"(%0, %1) {{size = {len(w)} : i64, {attributes}}} : '
        f"({tensor(dtype, x_shape)}, {tensor(dtype, packed.shape)}) -> {y}\nreturn %y : {y}"
    )
    types = [(dtype, x_shape), (dtype, packed.shape)]
    text = kernel("conv", types, [(dtype, y_shape)], body, tuple(names.values()))
    out = guarded(np.zeros(exact.shape, TYPES[dtype]))
    sizes = {name: x.shape[d] for d, name in names.items()}
    compile_kernel(text, context=context()).run([guarded(x), guarded(packed), out], sizes)
    return out.astype(float), exact


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(
    "x, w, options",
    [
        ((1, 8, 9, 3), (COLUMNS, 3, 3, 3), dict(padding=1)),
        ((2, 7, 7, 5), (COLUMNS + 8, 3, 3, 5), dict(padding=1)),  # the last panel fits one vector
        ((1, 23, 21, 3), (3 * COLUMNS - 1, 7, 7, 3), dict(padding=3, stride=2)),
        ((2, 7, 7, 40), (9, 1, 1, 40), dict(stride=2)),  # in place
        ((1, 6, 7, 10), (COLUMNS, 1, 1, 10), dict(padding=1)),
        ((1, 16, 24, 5), (5, 4, 4, 5), dict(stride=4)),  # in place, by lines of taps
        ((1, 9, 14, 20), (COLUMNS, 2, 3, 20), dict(dilation=(1, 2))),  # ... tap by tap
        ((1, 20, 40, 2), (6, 3, 2, 2), dict(padding=(2, 1), dilation=(2, 3), stride=(1, 2))),
        ((2, 301, 3), (COLUMNS, 5, 3), dict(padding=2, stride=3)),
        ((1, 5, 6, 7, 4), (COLUMNS, 2, 3, 3, 4), dict(padding=(0, 1, 1), stride=(1, 2, 1))),
        ((1, 13, 12, 150), (COLUMNS + 3, 3, 3, 150), dict(padding=1)),  # parts of a line, blocks of positions
        ((1, 6, 5, 24), (2 * COLUMNS, 3, 3, 24), dict(padding=1)),  # one line a block
        ((1, 4, 4, 131), (COLUMNS, 2, 2, 131), dict(dilation=2, padding=1)),  # a tap whose size is prime
        ((1, 5, 5, 1100), (COLUMNS, 1, 1, 1100), dict(stride=2)),
        ((1, 3, 3, 4), (COLUMNS, 3, 3, 4), dict()),  # one position
        ((1, 96, 96, 5), (COLUMNS // 2, 3, 3, 5), dict(padding=1)),  # one vector of channels, rows of whole tiles
        ((2, 9, 49, 4), (COLUMNS // 2 - 1, 2, 3, 4), dict(stride=(1, 2))),
    ],
)
def test_equals_float64(x, w, options):
    got, exact = run(normal(*x), normal(*w, seed=1), **options)
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype, tolerance", [("f64", 1e-12), ("bf16", 1e-2)])
def test_other_types(dtype, tolerance):
    got, exact = run(normal(1, 9, 9, 6), normal(COLUMNS + 1, 3, 3, 6, seed=1), padding=1, dtype=dtype)
    scale = np.abs(exact).max() if dtype == "bf16" else 1
    np.testing.assert_allclose(got, exact, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("x", [(1, 1, 1, 3), (2, 5, 9, 3), (1, 20, 30, 3)])
@pytest.mark.parametrize("channels, symbols", [(COLUMNS, (0, 1, 2)), (COLUMNS // 2, (0, 1)), (9, (0, 2))])
def test_symbolic_batch_and_sizes(x, channels, symbols):
    got, exact = run(normal(*x), normal(channels, 3, 3, 3, seed=1), padding=1, symbols=symbols)
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)
