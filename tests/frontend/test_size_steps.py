"""Native code computes what Python would for other sizes: values, words, arenas, and all words of a GPU's launches."""

import ctypes

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.fake_cuda import FakeDriver
from torch import nn

from lamina.compiler.api import compile_graph, compile_llvm
from lamina.compiler.native import size_steps_ir
from lamina.dialects import dims
from lamina.frontend.calls import launcher
from lamina.frontend.calls.gpu_follow import follow_launches
from lamina.frontend.calls.size_steps import SizeSteps
from lamina.runtime.arena import plan_offsets
from lamina.runtime.gpu import cuda
from lamina.runtime.gpu.launches import Launches
from lamina.runtime.gpu.program import GpuProgram
from lamina.runtime.gpu.table import STEP_WORDS
from lamina.runtime.loader import Image

SYMBOLS = ("s0", "s1")


@pytest.fixture(scope="module")
def native():
    """`run(steps, symbols) -> bool`: compute everything for other symbols."""
    text = size_steps_ir._STEPS + (
        "define i1 @steps(ptr %s, i64 %n, ptr %v) { %r = call i1 @entry_steps(ptr %s, i64 %n, ptr %v)\n ret i1 %r }"
    )
    image = Image(compile_llvm(text, ["steps"]), "steps")
    function = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(image.address("steps"))

    def run(words, symbols):
        (ctypes.c_int64 * len(symbols)).from_address(words["follow_values"])[:] = symbols
        return function(words["follow_step_table"], words["follow_steps"], words["follow_values"])

    run.image = image
    return run


def combined(parts):
    a, b, what = parts
    functions = {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b}
    if what in ("floordiv", "mod"):
        b = dims.dim_max(b, 1)
    return functions[what]() if what in functions else dims.apply(what, a, b)


LEAVES = st.sampled_from([dims.symbol(s) for s in SYMBOLS]) | st.integers(-7, 7)
OPERATIONS = st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "max", "min"])
DIMS = st.recursive(LEAVES, lambda d: st.tuples(d, d | st.integers(1, 9), OPERATIONS).map(combined), max_leaves=8)
VALUES = st.tuples(st.integers(0, 50), st.integers(0, 50))


@given(st.lists(DIMS, min_size=1, max_size=5), VALUES, VALUES)
def test_values_are_those_of_python(native, given_dims, now, then):
    steps = SizeSteps(SYMBOLS, now)
    words = (ctypes.c_int64 * len(given_dims))()
    for n, dim in enumerate(given_dims):
        steps.put(steps.value(dim), ctypes.addressof(words) + 8 * n)
    expected = [dims.evaluate(d, dict(zip(SYMBOLS, then))) for d in given_dims]
    assert native(steps.words([(0, 0), (0, 1)]), then)
    assert list(words) == expected


def test_nothing_is_put_where_a_check_fails(native):
    steps, word = SizeSteps(("s0",), (3,)), ctypes.c_int64(3)
    steps.put(0, ctypes.addressof(word))
    steps.check(0, steps.value(10))
    words = steps.words([(0, 0)])
    assert native(words, (10,)) and word.value == 10
    assert not native(words, (11,)) and word.value == 10


BUFFER = st.tuples(st.integers(0, 9), st.integers(0, 900), st.integers(0, 12), st.integers(0, 5))


@given(st.lists(BUFFER, min_size=1, max_size=25), st.integers(0, 30), st.integers(0, 30))
def test_buffers_of_other_sizes_do_not_overlap(native, buffers, now, then):
    lives = [(first, first + length) for *_, first, length in buffers]
    steps = SizeSteps(("s0",), (now,))
    sizes = [steps.aligned(steps.value(dims.symbol("s0") * a + b), 64) for a, b, *_ in buffers]
    offsets, total = steps.arena(sizes, lives)
    if all(steps.values[s] for s in sizes):
        assert steps.values[total] == plan_offsets([steps.values[s] for s in sizes], lives)[1]
    found = (ctypes.c_int64 * (2 * len(buffers) + 1))()
    for n, value in enumerate([*offsets, *sizes, total]):
        steps.put(value, ctypes.addressof(found) + 8 * n)
    assert native(steps.words([(0, 0)]), (then,))
    spans = [(found[n], found[n] + found[n + len(buffers)]) for n in range(len(buffers))]
    for i, (begin, end) in enumerate(spans):
        assert begin % 64 == 0 and end <= found[2 * len(buffers)]
        for j in range(i):
            together = lives[i][0] <= lives[j][1] and lives[j][0] <= lives[i][1]
            assert (
                not together or end <= spans[j][0] or spans[j][1] <= begin or begin == end or spans[j][0] == spans[j][1]
            )


class Layer(nn.Module):
    """Products by the copy engine, rows and a residual."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x)))).softmax(-1)


def test_a_gpus_launches_follow_the_sizes(native, monkeypatch):
    """Every word that a walk of other sizes has, grids in the driver's structures and tensor maps included."""
    parts = []
    compile_part = launcher.compile_part
    monkeypatch.setattr(
        launcher, "compile_part", lambda part, *a, **k: parts.append(part) or compile_part(part, *a, **k)
    )
    x = torch.randn(2, 300, 64, dtype=torch.bfloat16)
    with torch.no_grad():
        torch.compile(Layer().bfloat16(), backend="lamina", dynamic=True)(x)
    program = compile_graph(parts[0].graph, "sm_90a")
    encoded = []
    monkeypatch.setattr(
        FakeDriver, "_cuTensorMapEncodeTiled", lambda self, *a: encoded.append(tensor_map(a)), raising=False
    )
    FakeDriver().install(monkeypatch)
    loaded = GpuProgram(program.manifest, program.image, cuda.device(0))
    names = [s["name"] for s in loaded.plan["symbols"]]
    places = [s["dim"] for s in loaded.plan["symbols"]]
    example = tuple((2, 300)[p] for p in places)

    def made(symbols):
        return Launches(loaded.device, loaded.walk(symbols, whole=True), graphs=False)

    steps, launches, fixed = SizeSteps(names, example), made(example), list(encoded)
    arena = follow_launches(loaded, launches, steps)
    total = ctypes.c_int64()
    steps.put(arena, ctypes.addressof(total))
    words = steps.words([(0, 0)] * len(names))
    for sizes in ((1, 1), (3, 700), (5, 17)):
        symbols = tuple(sizes[p] for p in places)
        encoded.clear()
        other = made(symbols)
        expected = sorted(e for e in encoded if e not in fixed)
        encoded.clear()
        assert native(words, symbols)
        assert sorted(e for e in encoded if e not in fixed) == expected and expected
        assert shapes(launches) == shapes(other)
        first = launches.walk.fixed + len(launches.walk.offsets)
        ours, theirs = (list(l.walk.table)[first:] for l in (launches, other))
        assert [n for n in ours if n < 1 << 30] == [n for n in theirs if n < 1 << 30]  # not addresses of status words
        assert 0 < total.value <= 2 * other.walk.bytes


def tensor_map(given):
    """What a call of cuTensorMapEncodeTiled says: sizes, strides, box."""
    _, kind, rank, _, sizes, strides, box, *_ = given
    longs = (list((ctypes.c_uint64 * n).from_address(a)) for n, a in ((rank, sizes), (rank - 1, strides)))
    return kind, *longs, list((ctypes.c_uint32 * rank).from_address(box))


def shapes(launches):
    """Of every step: grid, block and shared memory; and the grids in configs."""
    walk = launches.walk
    table = (ctypes.c_int64 * (STEP_WORDS * len(walk.steps))).from_address(launches.words["step_table"])
    rows = [list(table[n * STEP_WORDS + 1 : n * STEP_WORDS + 8]) for n in range(len(walk.steps))]
    return rows, [list(s.config.shape) for s in walk.steps if s.config is not None]
