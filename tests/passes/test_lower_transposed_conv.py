"""Transposed convolutions become plain ones that give the same numbers."""

import numpy as np
import pytest
import torch
from support.interpret_module import interpret

from lamina.dialects.mlir_context import context
from lamina.dialects.record import Graph, TensorType
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
    ],
)
def test_equals_eager(x, w, options):
    n = len(x) - 2
    full = (
        dict(stride=(1,) * n, padding=(0,) * n, dilation=(1,) * n, output_padding=(0,) * n, groups=1, transposed=True)
        | options
    )
    rng = np.random.default_rng(0)
    bias = w[1] * full["groups"]
    arrays = [rng.standard_normal(s) for s in (x, w, (bias,))]
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
