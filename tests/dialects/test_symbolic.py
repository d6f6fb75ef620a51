"""Lowerings with symbolic sizes: one kernel, compiled once, gives eager's values at several sizes."""

import numpy as np
import pytest
import torch
from support.run_kernel import compile_module
from support.samples import build_kernel

from lamina.dialects import dims
from lamina.dialects.dims import symbol
from lamina.dialects.op import registry
from lamina.dialects.record import TensorType

N, M = symbol("d0"), symbol("d1")


def f32(*shape):
    return TensorType("f32", shape)


def lowered(name, **attributes):
    """The op's lowering as a kernel body."""
    op = registry(name)

    def body(b, *xs):
        types = [x.type for x in xs]
        return op.lower(b, **op.bind(xs), **op.resolve(types, attributes)[0])

    return body


# name: operand types, result type, body, eager
CASES = {
    "add": ([f32(N, 4), f32(N, 1)], f32(N, 4), lowered("add"), lambda x, y: x + y),
    "outer": ([f32(N, 1), f32(M)], f32(N, M), lowered("mul"), lambda x, y: x * y),
    "sum_rows": ([f32(N, M)], f32(N), lowered("sum", dims=(1,), keepdim=False, dtype="f32"), lambda x: x.sum(1)),
    "sum_columns": ([f32(N, M)], f32(M), lowered("sum", dims=(0,), keepdim=False, dtype="f32"), lambda x: x.sum(0)),
    "mean_all": ([f32(N, M)], f32(), lowered("mean", dims=(0, 1)), lambda x: x.mean()),
    "argmax": ([f32(N, M)], TensorType("i64", (N,)), lowered("argmax", dims=(1,)), lambda x: x.argmax(1)),
    "softmax": ([f32(N, M)], f32(N, M), lowered("softmax", dim=-1), lambda x: x.softmax(-1)),
    "merge": ([f32(N, M, 4)], f32(N * M * 4), lowered("reshape", shape=(N * M * 4,)), lambda x: x.reshape(-1)),
    "split": ([f32(N, M * 4)], f32(N, M, 4), lowered("reshape", shape=(N, M, 4)), lambda x: x.unflatten(1, (-1, 4))),
    "regroup": ([f32(N * 2, M)], f32(2, N * M), lowered("reshape", shape=(2, N * M)), lambda x: x.reshape(2, -1)),
    "transpose": ([f32(N, M)], f32(M, N), lowered("permute", dims=(1, 0)), lambda x: x.T),
    "expand": ([f32(M)], f32(N, M), lowered("expand", shape=(N, M)), None),
    "slice": (
        [f32(N, M)],
        f32(N - 1, 2),
        lowered("slice", starts=(1, M - 2), sizes=(N - 1, 2), steps=(1, 1)),
        lambda x: x[1:, -2:],
    ),
    "flip": ([f32(N, M)], f32(N, M), lowered("flip", dims=(0, 1)), lambda x: x.flip(0, 1)),
    "concat": ([f32(N, 2), f32(M, 2)], f32(N + M, 2), lowered("concat", dim=0), lambda x, y: torch.cat([x, y])),
    "pad": (
        [f32(N, M)],
        f32(N + 2, M + 1),
        lowered("pad", low=(1, 0), high=(1, 1), value=2.0),
        lambda x: torch.nn.functional.pad(x, (0, 1, 1, 1), value=2.0),
    ),
    "diagonal": (
        [f32(N * N)],
        f32(N),
        lowered("as_strided", shape=(N,), strides=(N + 1,), offset=(0,)),
        lambda x: x.reshape(int(x.numel() ** 0.5), -1).diagonal(),
    ),
}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "loops"])
@pytest.mark.parametrize("name", CASES)
def test_every_size(name, plain):
    types, result, body, eager = CASES[name]
    module = build_kernel(types, [result], body, ("d0", "d1"), "concat" if name == "concat" else "loops", name, plain)
    kernel = compile_module(module, plain=plain)
    for n, m in ((3, 5), (1, 2), (17, 40)):
        values = {"d0": n, "d1": m}
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal([dims.evaluate(d, values) for d in t.shape]).astype(np.float32) for t in types]
        tensors = [torch.from_numpy(a) for a in arrays]
        expected = tensors[0].expand(n, m) if eager is None else eager(*tensors)
        np.testing.assert_allclose(kernel(*arrays, sizes=values), expected.numpy(), rtol=1e-5, atol=1e-5)
