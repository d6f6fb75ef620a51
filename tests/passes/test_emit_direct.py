"""Direct ops (sort, scan, scatter …) emitted as loops: every sample equals eager, in chunks, with sizes static or not."""

import numpy as np
import pytest
from mlir import ir
from support.run_kernel import KernelFailed, compile_module
from support.samples import assert_close, attributes, eager, operands, to_torch, type_of

from lamina.dialects import dims, mlir_context
from lamina.dialects.mlir_ops import create
from lamina.dialects.op import all_ops
from lamina.dialects.record import TensorType
from lamina.dialects.status import GATHER_OUT_OF_RANGE, INDEX_OUT_OF_RANGE
from lamina.passes.direct.emit_direct import EMITTERS
from lamina.passes.linalg.ir_cache import IrCache

OPS = all_ops()


def direct_module(op, types, attributes, symbols=()):
    """A kernel of one direct op on tensors of `types`."""
    context = mlir_context.context()
    context.enable_multithreading(False)
    names = lambda texts: ir.ArrayAttr.get([ir.StringAttr.get(str(t)) for t in texts])
    shapes = lambda ts: ir.ArrayAttr.get([names(t.shape) for t in ts])
    with context, ir.Location.unknown():
        module, cache = ir.Module.create(), IrCache(context)
        results = op.resolve(types, attributes)[1]
        present = [t for t in types if t is not None]
        inputs = [*map(cache.tensor, present), *[ir.IndexType.get()] * len(symbols)]
        outs = [cache.tensor(t) for t in results]
        function = ir.Operation.create(
            "func.func",
            attributes={
                "sym_name": ir.StringAttr.get("k"),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, outs)),
                "lamina.kind": ir.StringAttr.get(op.name),
                "lamina.symbols": names(symbols),
                "lamina.arg_dims": shapes(present),
                "lamina.result_dims": shapes(results),
                "lamina.arg_dtypes": names(t.dtype for t in present),
                "lamina.result_dtypes": names(t.dtype for t in results),
            },
            regions=1,
            ip=ir.InsertionPoint(module.body),
        )
        block = function.regions[0].blocks.append(*inputs, arg_locs=[ir.Location.unknown()] * len(inputs))
        arguments = iter(block.arguments)
        values = [None if t is None else next(arguments) for t in types]
        ip = ir.InsertionPoint(block)
        root = create(op, values, op.resolve(types, attributes)[0], outs, ir.Location.unknown(), ip)
        root.attributes["lamina.operand_dtypes"] = names(t.dtype for t in present)
        ir.Operation.create("func.return", operands=list(root.results), ip=ip)
    return context, module


def compiled(op, types, attributes, symbols=()):
    context, module = direct_module(op, types, attributes, symbols)
    with context:
        return compile_module(module)


CASES = [(name, i) for name in EMITTERS for i in range(len(OPS[name].samples))]


@pytest.mark.parametrize("name,number", CASES, ids=[f"{n}-{i}" for n, i in CASES])
def test_sample_equals_eager(name, number):
    op = OPS[name]
    sample = op.samples[number]
    given = operands(sample)
    kernel = compiled(op, [None if x is None else type_of(x) for x in given], attributes(op, sample))
    made = kernel(*[x for x in given if x is not None])
    for actual, expected in zip(made if isinstance(made, tuple) else (made,), eager(op, sample), strict=True):
        assert_close(actual, expected, op.numerics)


def symbolic(op, arrays, attributes):
    """The kernel for symbolic sizes, one symbol per different size above 1, and the sizes' values."""
    sizes = sorted({n for x in arrays for n in x.shape if n > 1})
    names = {n: f"d{i}" for i, n in enumerate(sizes)}
    types = [
        TensorType(type_of(x).dtype, tuple(dims.symbol(names[n]) if n > 1 else n for n in x.shape)) for x in arrays
    ]
    return compiled(op, types, attributes, list(names.values())), {v: k for k, v in names.items()}


DYNAMIC = [
    ("sort", {"dim": 1}, lambda rng: [rng.standard_normal((3, 200, 2)).astype(np.float32)]),
    ("topk", {"dim": -1, "k": 5}, lambda rng: [rng.standard_normal((3, 50)).astype(np.float32)]),
    ("cumsum", {"dim": 0}, lambda rng: [rng.standard_normal((20, 150)).astype(np.float32)]),
    ("cummax", {"dim": 1}, lambda rng: [rng.standard_normal((5, 30)).astype(np.float32)]),
    ("scatter", {"dim": 0, "reduce": "add"}, lambda rng: [
        rng.standard_normal((6, 5)).astype(np.float32), rng.integers(0, 6, (9, 4)), rng.standard_normal((9, 5)).astype(np.float32)]),
    ("index_put", {"dims": (0,), "accumulate": True}, lambda rng: [
        rng.standard_normal((6, 5)).astype(np.float32), rng.standard_normal((9, 5)).astype(np.float32), rng.integers(-6, 6, (9,))]),
    ("embedding_bag", {"mode": "mean"}, lambda rng: [
        rng.standard_normal((7, 140)).astype(np.float32), rng.integers(0, 7, 12), np.array([0, 3, 3, 8])]),
    ("searchsorted", {"right": True}, lambda rng: [np.arange(9.0), rng.uniform(-1, 10, (4, 6))]),
]  # fmt: skip


@pytest.mark.parametrize("name,given,make", DYNAMIC, ids=[d[0] for d in DYNAMIC])
def test_symbolic_sizes(name, given, make):
    op = OPS[name]
    arrays = make(np.random.default_rng(1))
    tensors = [to_torch(x) for x in arrays] + [None] * (name == "embedding_bag")
    if name == "embedding_bag":
        types = [
            TensorType(type_of(x).dtype, tuple(dims.symbol(f"d{i}{j}") for j in range(x.ndim)))
            for i, x in enumerate(arrays)
        ]
        sizes = {f"d{i}{j}": n for i, x in enumerate(arrays) for j, n in enumerate(x.shape)}
        kernel = compiled(op, [*types, None], given, list(sizes))
    else:
        kernel, sizes = symbolic(op, arrays, given)
    made = kernel(*arrays, sizes=sizes)
    expected = op.torch(*tensors, **given)
    for actual, value in zip(
        made if isinstance(made, tuple) else (made,), expected if isinstance(expected, tuple) else (expected,)
    ):
        assert_close(actual, value.numpy(), "order")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "uint8", "bool"])
@pytest.mark.parametrize("descending", [False, True])
def test_long_sorts_are_stable(dtype, descending):
    rng = np.random.default_rng(2)
    x = rng.integers(0, 50, (2, 1001)).astype(dtype)
    values, indices = compiled(OPS["sort"], [type_of(x)], {"descending": descending})(x)
    expected = to_torch(x).sort(dim=-1, stable=True, descending=descending)
    np.testing.assert_array_equal(values, expected.values.numpy())
    np.testing.assert_array_equal(indices, expected.indices.numpy())


def test_long_topk_sorts():
    x = np.random.default_rng(3).permutation(500).astype(np.int64)
    values, indices = compiled(OPS["topk"], [type_of(x)], {"k": 100})(x)
    np.testing.assert_array_equal(values, np.arange(499, 399, -1))
    np.testing.assert_array_equal(x[indices], values)


@pytest.mark.parametrize("index_error, check", [(True, INDEX_OUT_OF_RANGE), (False, GATHER_OUT_OF_RANGE)])
def test_an_index_out_of_range_fails_and_writes_nothing_outside(index_error, check):
    x, index, src = np.zeros((4, 3), np.float32), np.array([[0, 4, -1]]), np.ones((1, 3), np.float32)
    attributes = {"dim": 0, "index_error": index_error}
    kernel = compiled(OPS["scatter"], [type_of(x), type_of(index), type_of(src)], attributes)
    with pytest.raises(KernelFailed, match=f"status {check.code}"):
        kernel(x, index, src)


@pytest.mark.parametrize("name", ["index_put", "slice_scatter"])
def test_in_place(name):
    """The result's buffer is the operand's: only the updates are written."""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    new = -np.ones((1, 3), np.float32)
    if name == "index_put":
        kernel = compiled(OPS[name], [type_of(x), type_of(new), TensorType("i64", (1,))], {"dims": (0,)})
        arrays = [x, new, np.array([2]), x]
    else:
        kernel = compiled(OPS[name], [type_of(x), type_of(new)], {"starts": (2, 0), "steps": (1, 1)})
        arrays = [x, new, x]
    expected = x.copy()
    expected[2] = -1
    kernel.run(arrays, {})
    np.testing.assert_array_equal(x, expected)
