"""Convolutions with packed weights against eager in float64, in buffers that end at guard pages."""

import ml_dtypes
import numpy as np
import pytest
import torch
from support.guarded import guarded
from support.run_kernel import compile_kernel
from support.tile_kernels import kernel, tensor

import lamina
from lamina.dialects.families.packed_conv import PackedConv
from lamina.dialects.mlir_context import context
from lamina.targets import get_target

COLUMNS = 2 * get_target("native").features.lanes()
TYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}


def root(x, packed, y, size, kernel, stride, padding, dilation, dtype):
    ints = lambda values: f"array<i64: {', '.join(map(str, values))}>"
    return (
        f'%y = "lamina.packed_conv"(%0, %1) {{size = {size} : i64, kernel = {ints(kernel)}, stride = {ints(stride)}, '
        f"padding = {ints(padding)}, dilation = {ints(dilation)}}} : ({tensor(dtype, x)}, {tensor(dtype, packed)}) -> "
        f"{tensor(dtype, y)}"
    )


def panels(w: np.ndarray, columns: int) -> np.ndarray:
    """`w` as `pack` leaves it."""
    matrix = w.reshape(len(w), -1)
    matrix = np.pad(matrix, ((0, -len(w) % columns), (0, 0)))
    return np.ascontiguousarray(matrix.reshape(-1, columns, matrix.shape[1]).swapaxes(1, 2))


def run(x, w, stride=1, padding=0, dilation=1, dtype="f32", symbols=()):
    """The kernel's result and the exact one. `symbols` are dims of `x` of which the kernel does not know the size."""
    spread = lambda v: tuple(v) if isinstance(v, tuple) else (v,) * (x.ndim - 2)
    options = (spread(stride), spread(padding), spread(dilation))
    x, w = x.astype(TYPES[dtype]), w.astype(TYPES[dtype])
    columns = COLUMNS // 2 if dtype == "f64" else COLUMNS
    packed = panels(w, columns if 2 * len(w) > columns else columns // 2)
    attributes = (len(w), w.shape[2:], *options)
    exact = PackedConv.reference(x.astype(float), packed.astype(float), None, *attributes)
    names = {d: f"d{i}" for i, d in enumerate(symbols)}
    x_shape = [names.get(d, n) for d, n in enumerate(x.shape)]
    y_shape = [names.get(d, n) if d != 1 else n for d, n in enumerate(exact.shape)]
    types = [(dtype, x_shape), (dtype, packed.shape)]
    body = f"{root(x_shape, packed.shape, y_shape, *attributes, dtype)}\nreturn %y : {tensor(dtype, y_shape)}"
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
        ((1, 3, 8, 9), (COLUMNS, 3, 3, 3), dict(padding=1)),
        ((2, 5, 7, 7), (COLUMNS + 8, 5, 3, 3), dict(padding=1)),  # the last panel fits one vector
        ((1, 3, 23, 21), (3 * COLUMNS - 1, 3, 7, 7), dict(padding=3, stride=2)),
        ((2, 40, 7, 7), (9, 40, 1, 1), dict()),  # in place
        ((1, 5, 14, 13), (2 * COLUMNS, 5, 1, 1), dict(stride=2)),
        ((1, 3, 16, 24), (5, 3, 4, 4), dict(stride=4)),  # in place, by a table
        ((1, 2, 20, 40), (6, 2, 3, 2), dict(padding=(2, 1), dilation=(2, 3), stride=(1, 2))),
        ((2, 3, 301), (COLUMNS, 3, 5), dict(padding=2, stride=3)),
        ((1, 2, 5, 6, 7), (COLUMNS, 2, 2, 3, 3), dict(padding=(0, 1, 1), stride=(1, 2, 1))),
        ((1, 150, 13, 12), (COLUMNS + 3, 150, 3, 3), dict(padding=1)),  # blocks of K and of positions
        ((1, 700, 5, 5), (COLUMNS, 700, 1, 1), dict()),
        ((1, 4, 3, 3), (COLUMNS, 4, 3, 3), dict()),  # one position
        ((1, 5, 96, 96), (COLUMNS // 2, 5, 3, 3), dict(padding=1)),  # one vector of channels, rows of whole tiles
        ((2, 4, 9, 49), (COLUMNS // 2, 4, 2, 3), dict(stride=(1, 2), dilation=(2, 1))),  # ... by two phases
        ((1, 4, 11, 24), (COLUMNS // 2 - 1, 4, 3, 1), dict()),  # ... in place
        (
            (1, 150, 8, 48),
            (COLUMNS, 150, 3, 5),
            dict(padding=(1, 6), dilation=(1, 3)),
        ),  # rows of whole tiles, blocks of K
        ((1, 3, 71), (COLUMNS, 3, 24), dict()),  # more taps than are unrolled
    ],
)
def test_equals_float64(x, w, options):
    got, exact = run(normal(*x), normal(*w, seed=1), **options)
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype, tolerance", [("f64", 1e-12), ("bf16", 1e-2)])
def test_other_types(dtype, tolerance):
    got, exact = run(normal(1, 6, 9, 9), normal(COLUMNS + 1, 6, 3, 3, seed=1), padding=1, dtype=dtype)
    np.testing.assert_allclose(got, exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("x", [(1, 3, 1, 1), (2, 3, 5, 9), (1, 3, 20, 30)])
@pytest.mark.parametrize("channels, symbols", [(COLUMNS, (0, 2, 3)), (COLUMNS // 2, (0, 2, 3)), (COLUMNS // 2, (0, 2))])
def test_symbolic_batch_and_sizes(x, channels, symbols):
    got, exact = run(normal(*x), normal(channels, 3, 3, 3, seed=1), padding=1, symbols=symbols)
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


def test_what_surrounds_it_is_fused():
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(8, 40, 3, padding=1)
    model = torch.nn.Sequential(torch.nn.ReLU(), conv, torch.nn.BatchNorm2d(40), torch.nn.Hardswish()).eval()
    x = torch.randn(2, 8, 9, 11)
    with torch.no_grad():
        compiled = lamina.compile(model, (x,))
        got, exact = compiled(x), model.double()(x.double())
    main = compiled.ir("kernels").split("func.func")[1]
    assert "packed_conv" in compiled.ir("kernels") and main.count("lamina.launch") == 1
    np.testing.assert_allclose(got.numpy(), exact.numpy(), rtol=1e-4, atol=1e-5)
