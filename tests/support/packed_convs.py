"""Convolutions with packed weights as kernels, in buffers that end at guard pages, beside eager in float64."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import torch
from support.guarded import guarded
from support.run_kernel import compile_kernel
from support.tile_kernels import kernel, tensor

from lamina.dialects.mlir_context import context
from lamina.targets import get_target

COLUMNS = 2 * get_target("native").features.lanes()  # of a panel of f32
TYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers, the same in every call."""
    return np.random.default_rng(seed).standard_normal(shape)


def panels(w: np.ndarray, columns: int) -> np.ndarray:
    """`w` as `pack` leaves it."""
    lines = np.pad(w.reshape(len(w), -1), ((0, -len(w) % columns), (0, 0)))
    return np.ascontiguousarray(lines.reshape(-1, columns, lines.shape[1]).swapaxes(1, 2))


def run_packed_conv(
    op: str,
    channels: int,
    x: np.ndarray,
    w: np.ndarray,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    dtype: str = "f32",
    symbols: Sequence[int] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel of `op`, whose images have their channels in dim `channels`, makes of `x` and `w`, and the exact result.

    `symbols` are dims of `x` of which the kernel does not know the size.
    """
    x, w = x.astype(TYPES[dtype]), w.astype(TYPES[dtype])
    options = [tuple(v) if isinstance(v, tuple) else (v,) * (x.ndim - 2) for v in (stride, padding, dilation)]
    columns = COLUMNS // 2 if dtype == "f64" else COLUMNS
    packed = panels(w, columns if 2 * len(w) > columns else columns // 2)
    second = lambda a: torch.from_numpy(np.moveaxis(a.astype(float), channels, 1).copy())
    convolve = (torch.conv1d, torch.conv2d, torch.conv3d)[x.ndim - 3]
    exact = np.moveaxis(convolve(second(x), second(w), None, *options).numpy(), 1, channels)
    names = {d: f"d{i}" for i, d in enumerate(symbols)}
    x_shape, y_shape = ([names.get(d, n) for d, n in enumerate(a.shape)] for a in (x, exact))
    windows = zip(("kernel", "stride", "padding", "dilation"), (second(w).shape[2:], *options))
    attributes = ", ".join(f"{name} = array<i64: {', '.join(map(str, values))}>" for name, values in windows)
    y = tensor(dtype, y_shape)
    body = (
        f'%y = "lamina.{op}"(%0, %1) {{size = {len(w)} : i64, {attributes}}} : '
        f"({tensor(dtype, x_shape)}, {tensor(dtype, packed.shape)}) -> {y}\nreturn %y : {y}"
    )
    types = [(dtype, x_shape), (dtype, packed.shape)]
    text = kernel("conv", types, [(dtype, y_shape)], body, tuple(names.values()))
    out = guarded(np.zeros(exact.shape, TYPES[dtype]))
    sizes = {name: x.shape[d] for d, name in names.items()}
    compile_kernel(text, context=context()).run([guarded(x), guarded(packed), out], sizes)
    return out.astype(float), exact
