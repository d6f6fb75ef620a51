"""Products whose operands are computed or are views without strides: never plain, and their values are right."""

import numpy as np
import pytest
from support.run_graph import run_program

from lamina.compiler.api import compile_graph
from lamina.dialects import dims, interpret
from lamina.dialects.interpret import numpy_dtype
from lamina.dialects.record import Graph, Symbol, TensorType


class Products:
    """A graph of products over inputs of one dtype; `check` compiles and runs it."""

    def __init__(self, dtype="f32", symbols=()):
        self.graph, self.dtype, self.arrays = Graph(symbols=list(symbols)), dtype, {}
        self.rng, self.symbols = np.random.default_rng(0), {s.name: 17 for s in symbols}

    def input(self, *shape, dtype=None, kind="input"):
        name, dtype = f"x{len(self.arrays)}", dtype or self.dtype
        sizes = [dims.evaluate(d, self.symbols) for d in shape]
        values = self.rng.integers(-9, 9, sizes) if dtype == "i8" else self.rng.normal(size=sizes)
        self.arrays[name] = values.astype(numpy_dtype(dtype))
        return self.graph.add_input(name, TensorType(dtype, shape), kind)

    def add(self, op, *operands, **attributes):
        return self.graph.add(op, *operands, **attributes)

    def product(self, op, *operands, **attributes):
        made = self.add(op, *operands, **attributes)
        self.graph.add_output(made[0] if isinstance(made, (list, tuple)) else made)

    def check(self, target="native", tolerance=1e-5):
        program = compile_graph(self.graph, target)
        facts = program.manifest["kernels"]
        assert not {k: f["reason"] for k, f in facts.items() if f["plain"]}
        if target == "native":
            expected = interpret.run(self.graph, list(self.arrays.values()))
            for made, e in zip(run_program(program, self.arrays), expected, strict=True):
                made, e = made.astype(np.float64), e.astype(np.float64)
                np.testing.assert_allclose(made, e, rtol=tolerance, atol=tolerance * np.abs(e).max())
        return sorted(f["kind"] for f in facts.values())


def computed(p, m, k, n):
    """Products of `m` rows whose second operand is computed on its way into panels: one kernel each."""
    p.product("matmul", p.input(m, k), p.add("relu", p.input(k, n)))
    turned = p.add("permute", p.add("mul", p.input(n, k), p.input(k)), dims=(1, 0))
    p.product("matmul", p.input(m, k), turned)
    p.product("linear", p.input(m, k), p.add("tanh", p.input(n, k)), None)
    scaled = p.add("mul", p.add("cast", p.input(n, k, dtype="i8"), dtype=p.dtype), p.input(n, 1))
    p.product("linear", p.input(m, k), scaled, p.input(n))
    p.product("matmul", p.input(2, m, k), p.add("neg", p.input(2, k, n)))
    across = p.add("add", p.add("permute", p.input(k, n), dims=(1, 0)), p.input(n, k))  # no side follows memory
    p.product("linear", p.input(m, k), across, None)


@pytest.mark.parametrize("dtype, tolerance", [("f32", 1e-5), ("f64", 1e-12), ("bf16", 2e-2)])
def test_computed_operands_are_packed(dtype, tolerance):
    p = Products(dtype)
    computed(p, 7, 20, 70)
    assert p.check(tolerance=tolerance) == ["matmul"] * 6


def test_computed_operands_of_few_rows_and_of_symbolic_sizes():
    p = Products(symbols=[Symbol("s0", 1, 64, 1, 0, 1)])
    computed(p, 1, dims.symbol("s0"), 70)
    computed(p, 7, 20, dims.symbol("s0"))
    assert p.check() == ["matmul"] * 12


CONV = {"dilation": (1, 1), "transposed": False, "output_padding": (0, 0)}


def first_operands(p, m, k):
    """Products of `m` rows whose first operand is computed, one kernel each; the last has a packed weight."""
    p.product("matmul", p.add("tanh", p.input(m, k)), p.input(k, 70))
    p.product("matmul", p.add("neg", p.input(2, m, k)), p.input(2, k, 9))
    p.product("linear", p.add("mul", p.input(m, k), p.input(m, 1)), p.input(70, k), p.input(70))
    p.product("linear", p.add("relu", p.input(m, 80)), p.input(70, 80, kind="weight"), None)


@pytest.mark.parametrize("m", [1, 40])
def test_first_operands_of_few_columns_are_computed_too(m):
    p = Products()
    first_operands(p, m, 20)
    assert p.check() == ["matmul"] * 5  # one packs the weight


def test_convolutions_compute_their_images():
    p = Products()
    relu = lambda *shape: p.add("relu", p.input(*shape))
    p.product(
        "conv", relu(1, 6, 9, 9), p.input(8, 6, 3, 3), p.input(8), stride=(2, 1), padding=(1, 0), groups=1, **CONV
    )
    p.product("conv", relu(1, 6, 9, 9), p.input(8, 6, 1, 1), None, stride=(1, 1), padding=(0, 0), groups=1, **CONV)
    p.product("conv", relu(1, 8, 9, 9), p.input(8, 1, 3, 3), None, stride=(1, 1), padding=(1, 1), groups=8, **CONV)
    p.product("conv", relu(2, 8, 9, 9), p.input(8, 4, 3, 3), None, stride=(1, 1), padding=(1, 1), groups=2, **CONV)
    assert p.check() == ["conv"] * 4


def test_attention_computes_its_operands():
    p = Products()
    q, k, v = (p.add("mul", p.input(1, 2, n, 16), p.input(1)) for n in (9, 21, 21))
    p.product("attention", q, k, v, None, causal=False, scale=None, gqa=1)
    # one query: keys and values would be read in place
    q, k, v = (p.add("mul", p.input(1, 2, n, 16), p.input(1)) for n in (1, 21, 21))
    p.product("attention", q, k, v, None, causal=False, scale=None, gqa=1)
    assert p.check() == ["attention"] * 2


def test_a_value_that_several_products_read_is_stored():
    p = Products()
    w = p.add("relu", p.input(20, 70))
    p.product("matmul", p.input(7, 20), w)
    p.product("matmul", p.input(9, 20), w)
    assert p.check() == ["loops", "matmul", "matmul"]


def repeated(p, x, heads, times, rows, columns):
    """`x` of `heads` heads, each `times` times: no strides say where the heads lie."""
    stretched = p.add(
        "expand", p.add("reshape", x, shape=(heads, 1, rows, columns)), shape=(heads, times, rows, columns)
    )
    return p.add("reshape", stretched, shape=(heads * times, rows, columns))


def views_without_strides(p, n):
    """Products of operands that are expanded and reshaped: one kernel each."""
    heads = lambda rows, columns: repeated(p, p.input(2, rows, columns), 2, 3, rows, columns)
    p.product("matmul", p.input(6, 7, 20), heads(20, n))
    p.product("matmul", heads(7, 20), p.input(6, 20, n))
    p.product("matmul", p.input(6, 7, 20), p.add("permute", heads(n, 20), dims=(0, 2, 1)))
    four = lambda x: p.add("reshape", x, shape=(1, 6, n, 16))
    p.product(
        "attention", p.input(1, 6, 9, 16), four(heads(n, 16)), four(heads(n, 16)), None, causal=False, scale=None, gqa=1
    )


def test_views_without_strides_are_packed():
    p = Products()
    views_without_strides(p, 70)
    weight = p.add("reshape", repeated(p, p.input(2, 3, 9), 2, 4, 3, 9), shape=(8, 3, 3, 3))
    p.product("conv", p.input(1, 3, 8, 8), weight, None, stride=(1, 1), padding=(1, 1), groups=1, **CONV)
    weight = p.add("reshape", repeated(p, p.input(2, 1, 9), 2, 4, 1, 9), shape=(8, 1, 3, 3))
    p.product("conv", p.input(1, 8, 8, 8), weight, None, stride=(2, 1), padding=(1, 1), groups=8, **CONV)
    assert p.check() == ["attention", "conv", "conv", "matmul", "matmul", "matmul"]


def test_views_without_strides_of_symbolic_sizes_are_packed():
    p = Products(symbols=[Symbol("s0", 1, 64, 1, 0, 0)])
    p.input(dims.symbol("s0"))
    views_without_strides(p, dims.symbol("s0"))
    p.check()


@pytest.mark.parametrize("m, k, n", [(19, 33, 40), (64, 1100, 24), (3, 16, 9), (20, 48, 600)])
def test_products_of_widened_operands_are_exact_and_one_kernel(m, k, n):
    p = Products("i8")
    wide = lambda x: p.add("cast", x, dtype="i32")
    p.product("matmul", wide(p.input(m, k)), wide(p.input(k, n)))
    p.product("matmul", wide(p.input(m, k)), p.add("permute", wide(p.input(n, k)), dims=(1, 0)))
    p.product("matmul", wide(p.input(2, m, k)), wide(p.input(2, k, n)))
    assert p.check(tolerance=0) == ["matmul"] * 3
