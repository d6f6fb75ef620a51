"""Transposed convolutions become plain ones that give the same numbers by the same multiplications."""

import numpy as np
import pytest
import torch
from support.interpret_module import interpret

from lamina.dialects.mlir_context import context
from lamina.dialects.record import Graph, TensorType
from lamina.passes.graph.dataflow import functions, read_function
from lamina.passes.graph.import_graph import import_graph
from lamina.passes.graph.lower_transposed_conv import lower_transposed_conv


@pytest.mark.parametrize(
    "x, w, options",
    [
        ((1, 4, 5, 6), (4, 3, 2, 2), dict(stride=(2, 2))),
        ((2, 4, 5, 4), (4, 3, 3, 3), dict(stride=(2, 2), padding=(1, 1), output_padding=(1, 1))),
        ((1, 4, 7, 7), (4, 2, 3, 3), dict(padding=(1, 2))),
        ((1, 4, 7, 7), (4, 2, 3, 3), dict(dilation=(2, 1), padding=(1, 0), groups=2)),
        ((1, 4, 7), (4, 2, 5), dict(stride=(3,), output_padding=(2,))),
        ((1, 4, 5), (4, 2, 1), dict(padding=(1,))),
        ((1, 2, 5), (2, 2, 2), dict(dilation=(3,), output_padding=(2,))),
        ((1, 4, 5), (4, 2, 3), dict(stride=(2,), dilation=(2,), padding=(1,), output_padding=(1,))),
        ((1, 4, 4, 5), (4, 2, 3, 2), dict(stride=(2, 1), dilation=(3, 2), padding=(2, 1), groups=2)),
        ((1, 2, 4), (2, 3, 1), dict(stride=(3,), dilation=(2,), output_padding=(2,))),
        ((1, 4, 3, 4, 3), (4, 2, 3, 3, 3), dict(stride=(1, 2, 1), padding=(1, 1, 1), groups=2)),
        ((1, 2, 6), (2, 3, 8), dict(stride=(3,), padding=(4,))),
        ((1, 2, 6), (2, 3, 7), dict(stride=(5,), padding=(1,), output_padding=(4,))),
        ((1, 2, 5), (2, 3, 3), dict(stride=(6,), dilation=(4,), padding=(2,))),
        ((1, 2, 5), (2, 3, 4), dict(stride=(4,), dilation=(6,), padding=(7,))),
        ((1, 2, 9), (2, 3, 2), dict(stride=(2,), padding=(6,))),
    ],
)
@pytest.mark.parametrize("infinite", [False, True])
def test_equals_eager(x, w, options, infinite):
    """An infinite element of the input, too, is multiplied by no more than in eager."""
    n = len(x) - 2
    full = (
        dict(stride=(1,) * n, padding=(0,) * n, dilation=(1,) * n, output_padding=(0,) * n, groups=1, transposed=True)
        | options
    )
    rng = np.random.default_rng(0)
    bias = w[1] * full["groups"]
    arrays = [rng.standard_normal(s) for s in (x, w, (bias,))]
    if infinite:
        arrays[0].flat[arrays[0].size // 2] = np.inf
    graph = Graph()
    values = [graph.add_input(name, TensorType("f64", a.shape)) for name, a in zip("xwb", arrays)]
    graph.add_output(graph.add("conv", *values, **full))
    module = import_graph(graph, context())
    lower_transposed_conv(module)
    assert "transposed = true" not in str(module)
    (got,) = interpret(module, arrays, {}, {})
    order = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    exact = torch.convolution(*map(torch.from_numpy, arrays), *(full[k] for k in order))
    np.testing.assert_allclose(got, exact.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel, convolutions", [(2, 1), (3, 4), (4, 1)])
def test_a_convolution_for_all_phases_with_as_many_taps(kernel, convolutions):
    graph = Graph()
    x, w = (graph.add_input(n, TensorType("f32", s)) for n, s in (("x", (1, 4, 5, 5)), ("w", (4, 3, kernel, kernel))))
    options = dict(stride=(2, 2), padding=(0, 0), dilation=(1, 1), transposed=True, output_padding=(0, 0))
    graph.add_output(graph.add("conv", x, w, None, **options))
    module = import_graph(graph, context())
    lower_transposed_conv(module)
    nodes = read_function(functions(module)["main"]).nodes
    found = [n.op.operands[1].type.shape[2:] for n in nodes if n.name == "conv"]
    assert len(found) == convolutions
    taps = sum(a * b for a, b in found) if kernel == 3 else 4 * found[0][0] * found[0][1]
    assert taps == kernel * kernel
