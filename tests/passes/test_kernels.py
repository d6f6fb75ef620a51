"""Kernel formation and outlining: values stay, what is fused with what, equal kernels are one, and the work is linear."""

import sys

import numpy as np
import pytest
from mlir import ir
from support.interpret_module import interpret

from lamina.dialects.record import Graph, TensorType
from lamina.passes.graph import rewriter
from lamina.passes.graph.dataflow import entry_functions, functions, read_function
from lamina.passes.graph.form_kernels import group_ops
from lamina.passes.graph.import_graph import import_graph
from lamina.passes.graph.kernel_costs import reads_buffer
from lamina.passes.graph.kernel_groups import Groups
from lamina.passes.graph.verify_lamina import verify_lamina
from lamina.passes.pass_manager import run

from .random_graphs import random_graph

GRAPH = "lamina-canonicalize,lamina-cse,lamina-fold-constants,lamina-sink-reshapes,lamina-raise-reshapes,lamina-canonicalize,lamina-dce"
KERNELS = "lamina-split-init,lamina-form-kernels{{gpu={gpu}}},lamina-outline,lamina-reinplace"


def test_what_waits_does_not_let_later_kernels_come_first():
    """A kernel's last op may come after kernels that need it: those follow it at once, and the rest waits its turn."""

    class Op:
        def __init__(self, index):
            self.index = index

    groups = Groups()
    made = [groups.new("pointwise", ()) for _ in range(4)]
    for group, place, needs in zip(made, (5, 1, 9, 7), ([], [0], [], [1])):
        groups.add(group, Op(place), [made[n] for n in needs])
    assert [made.index(g) for g in groups.ordered()] == [0, 1, 3, 2]


def assert_same(made, expected):
    for i, (m, e) in enumerate(zip(made, expected, strict=True)):
        np.testing.assert_array_equal(m, e, err_msg=f"output {i}")


def check_kernels(module):
    """What emitters rely on: at most one root (two concatenations), its operands are arguments or views of them, no idle kernel."""
    for name, function in functions(module).items():
        if "lamina.kind" not in function.attributes:
            continue
        kernel = read_function(function)
        kind = ir.StringAttr(function.attributes["lamina.kind"]).value
        roots = [n for n in kernel.nodes if n.category in ("matmul", "conv", "attention", "direct", "concat")]
        most = 2 if kind == "concat" else kind != "loops"
        assert (kind != "loops") <= len(roots) <= most, f"@{name} is {kind} with {[n.name for n in roots]}"
        assert kernel.returned, f"@{name} gives nothing"
        for node in kernel.nodes:
            for i, v in enumerate(node.operands):
                if v is not None and reads_buffer(node, i):
                    while kernel.producer[v] is not None and kernel.producer[v].category == "view":
                        v = kernel.producer[v].inputs[0]
                    assert kernel.producer[v] is None, f"{node.name} in @{name} reads a computed value"


@pytest.mark.parametrize("gpu, seed", [(False, n) for n in range(40)] + [(True, n) for n in range(40, 80)])
def test_passes_keep_values(gpu, seed):
    graph, inputs, weights, sizes = random_graph(seed)
    module = import_graph(graph)
    expected = interpret(module, inputs, weights, sizes)
    run(module, GRAPH)
    verify_lamina(module)
    assert_same(interpret(module, inputs, weights, sizes), expected)
    run(module, KERNELS.format(gpu=str(gpu).lower()))
    verify_lamina(module)
    assert_same(interpret(module, inputs, weights, sizes), expected)
    check_kernels(module)
    text = str(module)
    assert str(ir.Module.parse(text, module.context)) == text


def residual_blocks(count):
    """Residual blocks of five ops each, with an input that lives to the end."""
    graph = Graph()
    x = graph.add_input("x", TensorType("f32", (8, 16)))
    w = graph.add_input("w", TensorType("f32", (16, 16)), "weight")
    y = x
    for _ in range(count):
        h = graph.add("linear", graph.add("softmax", y, dim=-1), w, None)
        y = graph.add("mul", graph.add("add", graph.add("tanh", h), x), graph.add("exp", y))
    graph.add_output(y)
    return import_graph(graph)


def grouped(module):
    """The groups of the module's ops, and how many calls, Python's and C's, made them: the same on every machine."""
    flow, calls = read_function(entry_functions(module)[0]), 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        groups = group_ops(flow)
    finally:
        sys.setprofile(None)
    return groups, calls


def test_the_work_of_grouping_grows_as_the_graph_does():
    (_, small), (groups, large) = grouped(residual_blocks(40)), grouped(residual_blocks(160))
    assert len(groups.alive) <= 321
    assert large < 8 * small  # of 4 times the ops; were the work quadratic, 16


def test_reshapes_on_both_sides_of_a_sum_are_sunk_once(monkeypatch):
    """Residuals of [batch, rows, features] beside linear layers of flattened rows: each could sink below the other."""
    graph = Graph()
    x = graph.add("tanh", graph.add_input("x", TensorType("f32", (2, 3, 8))))
    w = graph.add_input("w", TensorType("f32", (8, 8)), "weight")
    for _ in range(3):
        h = graph.add("linear", graph.add("reshape", graph.add("softmax", x, dim=-1), shape=(6, 8)), w, None)
        x = graph.add("add", graph.add("reshape", h, shape=(2, 3, 8)), x)
    graph.add_output(x)
    module = import_graph(graph)
    built = []
    build = rewriter.build
    monkeypatch.setattr(rewriter, "build", lambda *args: built.append(args[0]) or build(*args))
    run(module, "lamina-sink-reshapes")
    assert built.count("add") == 3 and len(built) < 20  # 13; hundreds where two sinks undo each other
