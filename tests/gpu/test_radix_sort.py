"""A stable radix sort on GPUs, run on the CPU with its threads simulated: the order of words, bit for bit, and what is assembled."""

import re

import numpy as np
import pytest
from mlir import ir
from support.graph_kernel import graph_module, graph_of
from support.ptx import needs_ptxas
from support.simulate_gpu import simulate

from lamina.compiler.api import show_ir
from lamina.passes.gpu.direct.radix_sort import RadixSort
from lamina.passes.gpu.gpu_kernel import GpuKernel
from lamina.passes.loops.kernel_functions import kernels
from lamina.passes.loops.tensor_graph import TensorGraph
from lamina.targets import get_target
from lamina.targets.nvptx_code import assemble

VOTES = {32: "nvvm.vote.sync", 64: "rocdl.ballot"}
TILE = 1024


def in_order(words: np.ndarray, low: int, bits: int, wave: int = 32) -> np.ndarray:
    """`words` by their bits from `low` on, as the stages put them."""
    width, context = 8 * words.itemsize, ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        module = graph_module(graph_of("neg", (f"i{width}", words.shape)))
        (op,) = kernels(module)
        kernel = GpuKernel(TensorGraph(op), wave, ballot=VOTES[wave])
        sort = RadixSort(kernel, len(words), ir.IntegerType.get_signless(width), low, bits)

        def make(stage, positions):
            (given,) = stage.inputs.values()
            return [stage.b.value("memref.load", (given, stage.b.dim(at)), sort.word) for at in positions]

        number, scratch = sort.emit(make), {}
        kernel.finish()
        simulate(module, [words], [(words.shape, words.dtype)], scratch=scratch)
    return scratch[number][: len(words)]


def check(keys: np.ndarray, bits: int, dtype: type = np.int32, wave: int = 32) -> None:
    """The words of a key and, in bits below it, the position, which says whether equal keys kept their order."""
    low = max(1, (len(keys) - 1).bit_length())
    words = (keys.astype(np.uint64) << low | np.arange(len(keys), dtype=np.uint64)).astype(dtype)
    np.testing.assert_array_equal(in_order(words, low, bits, wave), words[np.argsort(keys, kind="stable")])


def keys(count: int, bits: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 1 << bits, count)


@pytest.mark.parametrize("wave", VOTES)
@pytest.mark.parametrize("count", [1, 31, 256, 300, TILE, TILE + 1, 2 * TILE, 2500])
def test_random_keys(count, wave):
    check(keys(count, 9), 9, wave=wave)


@pytest.mark.parametrize("bits", [1, 2, 5, 8, 11, 18])
@pytest.mark.parametrize("count", [700, 2500])
def test_keys_of_any_width(count, bits):
    check(keys(count, bits), bits, np.int64 if bits + count.bit_length() > 31 else np.int32)


@pytest.mark.parametrize("count", [900, 3000])
@pytest.mark.parametrize("name", ["equal", "last", "in_order", "reversed", "runs", "by_turns"])
def test_keys_in_patterns(name, count):
    at = np.arange(count)
    made = {
        "equal": 0 * at,
        "last": 0 * at + 4095,  # as the words that fill the last tile
        "in_order": at,
        "reversed": at[::-1],
        "runs": at // 100 * 37 % 4096,
        "by_turns": at % 2 * 4000,
    }
    check(made[name], 12)


@pytest.mark.parametrize("bits", [2, 8])
def test_many_tiles(bits):
    """More than a thread reads the counts of at once."""
    check(keys(65 * TILE - 3 if bits == 8 else 129 * TILE, bits), bits)


def test_words_of_32_bits_are_unsigned():
    words = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, 1500).astype(np.int32)
    np.testing.assert_array_equal(
        in_order(words, 16, 16), words[np.argsort(words.view(np.uint32) >> 16, kind="stable")]
    )


def added(rows, updates, columns, dtype="f32"):
    types = (dtype, (rows, columns)), (dtype, (updates, columns)), ("i64", (updates,))
    return graph_of("index_put", *types, dims=(0,), accumulate=True)


@needs_ptxas
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("case", [(50304, 65536, 512), (8192, 1000, 256, "bf16"), (1 << 20, 1 << 14, 64, "f64")])
def test_nothing_spills(case, target):
    report = []
    assemble(get_target(target), show_ir(added(*case), "asm", target), report)
    assert set(re.findall(r"(\d+) bytes spill", report[0])) == {"0"}


def test_stages_grow_with_digits_and_one_tile_is_one_stage():
    stages = lambda *case: show_ir(added(*case), "loops", "sm_90a").count("gpu.func")
    copy, sums = 1, 2
    assert stages(8191, 1024, 8) == copy + 1 + sums
    assert stages(255, 1025, 8) == copy + 2 + sums
    assert stages(8191, 1025, 8) == stages(65535, 1025, 8) == copy + 4 + sums
    assert stages(65536, 1025, 8) == copy + 6 + sums


def test_votes_are_those_of_the_chip():
    graph = added(100, 100, 4)
    assert "v_cmp" in show_ir(graph, "asm", "gfx1100") and "rocdl.ballot" in show_ir(graph, "loops", "gfx942")
    assert "vote.sync.ballot.b32" in show_ir(graph, "asm", "sm_80")
