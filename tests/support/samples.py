"""An op's samples as arrays, as torch calls and as kernels: what tests over the whole registry share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from mlir import ir

from lamina.dialects.dtypes import DTYPES, FLOAT8, FROM_TORCH, is_float
from lamina.dialects.interpret import numpy_dtype
from lamina.dialects.op import Op, Sample
from lamina.dialects.record import TensorType
from lamina.passes.linalg.linalg_builder import LinalgBuilder, Tensor

# relative tolerance and absolute floor per dtype: "bounded" is a few ulp, "order" allows for reordered sums
_BOUNDED = {"f64": 2e-15, "f32": 1.2e-6, "f16": 2e-3, "bf16": 1.6e-2}
_ORDER = {"f64": 1e-12, "f32": 2e-5, "f16": 4e-3, "bf16": 2e-2}


def operands(sample: Sample, seed: int = 0) -> list[np.ndarray | None]:
    """The sample's operands; random ones are the same in every call."""
    rng = np.random.default_rng(seed)
    return [_operand(o, sample, rng) for o in sample.operands]


def _operand(spec: Any, sample: Sample, rng: np.random.Generator) -> np.ndarray | None:
    if spec is None:
        return None
    if callable(spec):
        return np.asarray(spec(rng))
    dtype, shape = spec
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape).astype(bool))
    if is_float(dtype):
        return np.asarray(rng.uniform(sample.low, sample.high, shape)).astype(numpy_dtype(dtype))
    low = max(0, int(sample.low)) if DTYPES[dtype].kind == "uint" else int(sample.low)
    return np.asarray(rng.integers(low, max(int(sample.high), low + 1), shape)).astype(numpy_dtype(dtype))


def type_of(x: np.ndarray) -> TensorType:
    """The TensorType of an array."""
    return TensorType(next(d.name for d in DTYPES.values() if d.numpy == str(x.dtype)), x.shape)


def to_torch(x: np.ndarray) -> torch.Tensor:
    """An array as a tensor (of ml_dtypes' types too)."""
    x = np.array(x, copy=True, order="C")
    name = type_of(x).dtype
    if name == "bf16" or name in FLOAT8:
        return torch.from_numpy(x.view(f"u{x.itemsize}")).view(getattr(torch, DTYPES[name].torch))
    return torch.from_numpy(x)


def from_torch(x: torch.Tensor) -> np.ndarray:
    """A tensor as an array (of ml_dtypes' types too)."""
    x = x.detach().contiguous()
    name = FROM_TORCH[str(x.dtype).removeprefix("torch.")]
    if name == "bf16" or name in FLOAT8:
        return x.view(getattr(torch, f"uint{8 * x.itemsize}")).numpy().view(numpy_dtype(name))
    return x.numpy()


def eager(op: type[Op], sample: Sample) -> list[np.ndarray]:
    """What torch computes for the sample."""
    tensors = [None if x is None else to_torch(x) for x in operands(sample)]
    assert op.torch is not None
    made = op.torch(*tensors, **attributes(op, sample))
    return [from_torch(t) for t in (made if isinstance(made, (tuple, list)) else (made,))]


def attributes(op: type[Op], sample: Sample) -> dict[str, Any]:
    """The sample's attributes with defaults filled in."""
    types = [None if x is None else type_of(x) for x in operands(sample)]
    return op.resolve(types, sample.attributes)[0]


def inferred(op: type[Op], sample: Sample) -> tuple[TensorType, ...]:
    """The result types of the sample."""
    return op.resolve([None if x is None else type_of(x) for x in operands(sample)], sample.attributes)[1]


def without_f64(op: type[Op]) -> list[Sample]:
    """The samples of `op` that have no f64 operand or result: GPUs have no f64 math functions of ours."""
    return [
        s
        for s in op.samples
        if all(t.dtype != "f64" for t in [*(type_of(x) for x in operands(s) if x is not None), *inferred(op, s)])
    ]


def reference(op: type[Op], sample: Sample) -> list[np.ndarray]:
    """What the op's numpy reference computes for the sample."""
    with np.errstate(all="ignore"):
        made = op.reference(**op.bind(operands(sample)), **attributes(op, sample))
    return [np.asarray(m) for m in (made if isinstance(made, tuple) else (made,))]


def assert_close(actual: np.ndarray, expected: np.ndarray, numerics: str) -> None:
    """Equal shapes and dtypes, and values equal in the tier `numerics` ("exact", "bounded", "order")."""
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    dtype = type_of(actual).dtype
    if not is_float(dtype):
        np.testing.assert_array_equal(actual, expected)
        return
    a, e = (x.astype(np.float64) for x in (actual, expected))
    if numerics == "exact":
        np.testing.assert_array_equal(a, e)
        return
    tolerance = (_BOUNDED if numerics == "bounded" else _ORDER)[dtype]
    floor = tolerance if numerics == "order" else tolerance * 1e-2
    np.testing.assert_allclose(a, e, rtol=tolerance, atol=floor)


def kernel_module(op: type[Op], samples: Sequence[Sample], kind: str = "loops", wide_sums: bool = False) -> ir.Module:
    """One linalg-level kernel `k` that computes all samples: operands and results in a row (contracts, section 5)."""
    types = [type_of(x) for s in samples for x in operands(s) if x is not None]
    results = [t for s in samples for t in inferred(op, s)]

    def body(b: LinalgBuilder, *arguments: Tensor) -> list[Tensor]:
        given = iter(arguments)
        made: list[Tensor] = []
        for s in samples:
            bound = op.bind([None if x is None else next(given) for x in operands(s)])
            assert op.lower is not None
            lowered = op.lower(b, **bound, **attributes(op, s))
            made += lowered if isinstance(lowered, tuple) and not isinstance(lowered, Tensor) else (lowered,)
        return made

    return build_kernel(types, results, body, kind=kind, label=op.name, wide_sums=wide_sums)


def build_kernel(
    types: Sequence[TensorType],
    results: Sequence[TensorType],
    body: Callable[..., Any],
    symbols: Sequence[str] = (),
    kind: str = "loops",
    label: str = "k",
    wide_sums: bool = False,
) -> ir.Module:
    """A module with the linalg-level kernel `k` whose results are `body(builder, *arguments)`."""
    context = ir.Context()
    context.enable_multithreading(False)
    location = ir.Location.unknown(context)
    module = ir.Module.create(location)
    builder = LinalgBuilder(ir.InsertionPoint(module.body), {}, location, wide_sums=wide_sums)
    tensor = builder.cache.tensor
    with context, location:
        arguments = [*map(tensor, types), *[ir.IndexType.get()] * len(symbols)]
        signature = ir.FunctionType.get(arguments, [*map(tensor, results)])
        function = ir.Operation.create(
            "func.func",
            attributes={
                "sym_name": ir.StringAttr.get("k"),
                "function_type": ir.TypeAttr.get(signature),
                "lamina.kind": ir.StringAttr.get(kind),
                "lamina.symbols": ir.ArrayAttr.get([ir.StringAttr.get(s) for s in symbols]),
                "lamina.label": ir.StringAttr.get(label),
                "lamina.arg_dims": _dims(types),
                "lamina.result_dims": _dims(results),
                "lamina.arg_dtypes": _names(types),
                "lamina.result_dtypes": _names(results),
            },
            regions=1,
            ip=ir.InsertionPoint(module.body),
        )
        block = function.regions[0].blocks.append(*arguments, arg_locs=[location] * len(arguments))
    builder.ip = ir.InsertionPoint(block)
    builder.symbols = dict(zip(symbols, list(block.arguments)[len(types) :]))
    made = body(builder, *(Tensor(v, t) for v, t in zip(block.arguments, types)))
    made = [made] if isinstance(made, Tensor) else list(made)
    assert [m.type for m in made] == list(results)
    ir.Operation.create("func.return", operands=[m.value for m in made], ip=builder.ip, loc=location)
    module.operation.verify()
    return module


def _dims(types: Sequence[TensorType]) -> ir.Attribute:
    return ir.ArrayAttr.get([ir.ArrayAttr.get([ir.StringAttr.get(str(d)) for d in t.shape]) for t in types])


def _names(types: Sequence[TensorType]) -> ir.Attribute:
    return ir.ArrayAttr.get([ir.StringAttr.get(t.dtype) for t in types])
