"""Prefetches of the rows that a kernel's first blocks read, before they wait for the launch before."""

import pytest
from support.graph_kernel import graph_of

from lamina.compiler.api import show_ir
from lamina.passes.gpu.hopper.first_rows import whole_lines

PREFETCH = "cp.async.bulk.prefetch.L2"


@pytest.mark.parametrize("size", [16, 32, 46, 1026, 8192, 8194, 16388])
def test_lines_are_those_of_the_row(size):
    for row in range(40):
        begin, lines = -(-row * size // 16) * 16, whole_lines(size)
        assert lines > 0 and lines % 16 == 0
        assert row * size <= begin and begin + lines <= (row + 1) * size
        assert size - lines < 32


def softmax(rows, columns, target):
    return show_ir(graph_of("softmax", ("bf16", (rows, columns)), dim=1), "asm", target)


@pytest.mark.parametrize(("rows", "columns"), [(8192, 4096), (8192, 4097), (32769, 1024)])
def test_large_inputs_are_asked_for_before_the_wait(rows, columns):
    before, wait, after = softmax(rows, columns, "sm_90").partition("griddepcontrol.wait;")
    assert wait and before.count(PREFETCH) == 1 and PREFETCH not in after


@pytest.mark.parametrize(("rows", "target"), [(512, "sm_90"), (8192, "sm_80"), (8192, "gfx942")])
def test_no_prefetch_of_what_is_in_the_cache_or_where_launches_do_not_overlap(rows, target):
    assert PREFETCH not in softmax(rows, 4096, target)


def test_blocks_ask_for_whole_rows_of_each_input_that_lies_as_the_result():
    types = ("f32", (8192, 4096)), ("f32", (4096,)), ("f32", (4096,))
    text = show_ir(graph_of("layer_norm", *types, dims=1, eps=1e-5), "asm", "sm_90a")
    assert text.count(PREFETCH) == 1
