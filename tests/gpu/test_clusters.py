"""Reductions by clusters of blocks, simulated on the CPU and compared with numpy, and what NVIDIA's assembler makes of them."""

import functools
import re

import numpy as np
import pytest
from support import fake_cuda
from support.fake_program import run_on_fake
from support.graph_kernel import graph_module, graph_of
from support.ptx import assembled, needs_ptxas
from support.simulated import check, random

from lamina.dialects.mlir_context import context
from lamina.dialects.record import Graph, TensorType

CLUSTERS = "{aligned=true clusters=true}"
DIM = "nvvm.cluster_dim = array<i32: 8, 1, 1>"
# whole vectors of all threads; odd; whose last blocks have fewer or none; several rows
SIZES = [(8192,), (4097,), (8196,), (32764,), (3, 9001)]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("op", ["sum", "argmax", "amax"])
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_long_rows_that_a_cluster_can_hold_are_one_launch(op, shape, dtype):
    graph = graph_of(op, (dtype, shape), dims=(len(shape) - 1,), keepdim=False)
    text = check(graph, random((dtype, shape)), 2e-4, CLUSTERS)
    assert text.count("gpu.func @") == 1 and DIM in text


@pytest.mark.parametrize(("shape", "stages"), [((4096,), 1), ((131076,), 2), ((17, 9001), 2)], ids=str)
def test_other_rows_stay_with_blocks_and_stages(shape, stages):
    """One that a block takes as soon, one that a cluster cannot hold, more than there are clusters at once."""
    graph = graph_of("sum", ("f32", shape), dims=(len(shape) - 1,), keepdim=False)
    text = check(graph, random(("f32", shape)), 2e-4, CLUSTERS)
    assert text.count("gpu.func @") == stages and DIM not in text


def test_the_longest_row_of_a_cluster():
    text = check(
        graph_of("sum", ("f32", (131072,)), dims=(0,), keepdim=False), random(("f32", (131072,))), 2e-4, CLUSTERS
    )
    assert text.count("gpu.func @") == 1 and "known_block_size = array<i32: 1024, 1, 1>" in text


def mean_loss(count, weighted=False):
    """The mean of losses where the target is not -100, of the weights of targets if those are given."""
    g = Graph()
    losses, targets = (g.add_input(n, TensorType(t, (count,))) for n, t in (("losses", "f32"), ("targets", "i64")))
    valid = g.add("cast", g.add("ne", targets, g.add("full", shape=(), value=-100, dtype="i64")), dtype="f32")
    if weighted:
        valid = g.add("mul", valid, g.add_input("weights", TensorType("f32", (count,))))
    total, number = (g.add("sum", x, dims=(0,), keepdim=False, dtype="f32") for x in (losses, valid))
    g.add_output(g.add("div", total, number, rounding="none"))
    return g


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", ["none", "some", "all"])
@pytest.mark.parametrize("count", [8192, 4097, 32768])
def test_losses_and_their_number_meet_in_a_cluster(count, ignored, weighted):
    losses, weights = random(("f32", (count,)), ("f32", (count,)))
    targets = np.arange(count)
    targets[{"none": slice(0), "some": slice(1, None, 3), "all": slice(None)}[ignored]] = -100
    losses[targets == -100] = 0
    arrays = [losses, targets, *([abs(weights)] if weighted else [])]
    text = check(mean_loss(count, weighted), arrays, 2e-4, CLUSTERS)
    assert text.count("gpu.func @") == 1 and DIM in text


def test_a_row_that_its_threads_write_stays_with_one_block():
    """A softmax needs the maximum and the sum in all threads."""
    text = check(graph_of("softmax", ("f32", (1, 8192)), dim=1), random(("f32", (1, 8192))), options=CLUSTERS)
    assert DIM not in text


def test_passes_that_need_one_another_stay_with_one_block():
    graph = graph_of("var_mean", ("f32", (8192,)), dims=(0,), keepdim=False, correction=1.0)
    text = check(graph, random(("f32", (8192,))), 2e-4, CLUSTERS)
    assert DIM not in text and text.count("gpu.func @") == 1


def test_a_program_runs_clusters_one_after_another(monkeypatch):
    monkeypatch.setattr(fake_cuda, "run_stage", functools.partial(fake_cuda.run_stage, in_turn=True))
    (x,) = random(("f32", (3, 9001)))
    (made,) = run_on_fake(graph_of("sum", ("f32", (3, 9001)), dims=(1,), keepdim=False), [x], monkeypatch, "sm_90")
    np.testing.assert_allclose(made, x.astype(np.float64).sum(1), atol=1e-3)


@needs_ptxas
@pytest.mark.parametrize("count", [8192, 4097, 32768])
def test_kernels_with_clusters_assemble(count):
    with context():
        made = assembled(graph_module(mean_loss(count)), "sm_90", "loops")
        older = assembled(graph_module(mean_loss(count)), "sm_80", "loops")
    assert re.search(r"\.reqnctapercluster 8", made.ptx) and "cluster" not in older.ptx
    first, second = (made.ptx.index(f"barrier.cluster.{x}") for x in ("arrive.relaxed", "wait"))
    assert first < made.ptx.index("griddepcontrol.wait") < made.ptx.index("ld.global") < second
    assert second < made.ptx.index("st.shared::cluster") < made.ptx.rindex("barrier.cluster.wait")
    assert made.stages[0]["grid"] == ["8", "1", "1"]
