"""Attention by the matrix instructions and multiply-adds of AMD's waves, executed by the emulator: no further from float64 than twice eager.

Each case runs on one chip, by turns; all chips are for `make test-full`.
"""

import ml_dtypes
import numpy as np
import pytest
import torch
from support import amdgpu_code
from support.amdgpu_code import on_chips
from support.fake_hip import FakeHip
from support.run_amdgpu import run_graph

from lamina.dialects.dims import symbol
from lamina.dialects.record import Graph, Symbol, TensorType

pytestmark = pytest.mark.skipif(bool(amdgpu_code.MISSING), reason=f"needs {amdgpu_code.MISSING}")
NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}


@pytest.fixture
def fake(chip, monkeypatch, tmp_path):
    return FakeHip(chip).install(monkeypatch, tmp_path)


def random(dtype, shape, seed=0):
    rng = np.random.default_rng([seed, *shape])
    return rng.random(shape) > 0.3 if dtype == "bool" else rng.standard_normal(shape).astype(NUMPY[dtype])


def as_torch(array):
    wide = array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array
    made = torch.from_numpy(wide)
    return made.bfloat16() if array.dtype == ml_dtypes.bfloat16 else made


def eager(q, k, v, mask=None, causal=False, gqa=1):
    """`softmax(scale q kT + mask) v` by torch in the operands' dtype, and in f64 with its log-sum-exps."""
    q, k, v, mask = (None if x is None else as_torch(x) for x in (q, k, v, mask))
    options = {"is_causal": causal, "enable_gqa": gqa > 1}
    near = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype), **options
    )
    scores = q.double() @ k.double().repeat_interleave(gqa, -3).mT * q.shape[-1] ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf) if mask.dtype == torch.bool else scores + mask.double()
    if causal:
        scores = torch.where(torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), scores, -torch.inf)
    weights = torch.softmax(scores, -1).nan_to_num()  # a row without keys is 0
    exact = weights @ v.double().repeat_interleave(gqa, -3)
    lse = torch.logsumexp(scores, -1)
    return near.double().nan_to_num().numpy(), exact.numpy(), torch.where(lse.isinf(), 0, lse).numpy()


def check(made, near, exact):
    error, allowed = np.abs(made.astype(np.float64) - exact).max(), 2 * np.abs(near - exact).max()
    assert error <= allowed, f"{error} from float64; eager is {allowed / 2}"


def graph_of(dtype, q, k, mask=None, causal=False, gqa=1, symbols=()):
    g = Graph(symbols=list(symbols))
    operands = [g.add_input(n, TensorType(dtype, shape)) for n, shape in zip("qkv", (q, k, k))]
    operands.append(g.add_input("mask", TensorType(*mask)) if mask else None)
    for result in g.add("attention", *operands, causal=causal, scale=None, gqa=gqa):
        g.add_output(result)
    return g


CASES = {
    "f16": dict(dtype="f16", q=(1, 2, 100, 64), k=(1, 2, 70, 64)),
    "causal_over_blocks": dict(dtype="bf16", q=(2, 150, 128), k=(2, 150, 128), causal=True),
    "grouped_heads_and_a_mask": dict(dtype="bf16", q=(2, 4, 33, 64), k=(2, 2, 50, 64), mask=("f32", (33, 50)), gqa=2),
    "grouped_heads_of_one_batch": dict(dtype="f16", q=(4, 20, 32), k=(2, 40, 32), gqa=2),
    "bool_mask": dict(dtype="f16", q=(2, 20, 32), k=(2, 90, 32), mask=("bool", (2, 20, 90))),
    "one_query_of_odd_heads": dict(dtype="f16", q=(3, 1, 40), k=(3, 129, 40)),
    "more_keys_than_queries": dict(dtype="bf16", q=(1, 40, 128), k=(1, 200, 128), causal=True),
    "fewer_keys_than_queries": dict(dtype="f16", q=(1, 140, 64), k=(1, 33, 64), causal=True),
    "f32": dict(dtype="f32", q=(1, 2, 50, 64), k=(1, 2, 70, 64)),
    "f32_causal": dict(dtype="f32", q=(2, 70, 128), k=(2, 70, 128), causal=True),
    "f32_of_grouped_heads_and_a_mask": dict(
        dtype="f32", q=(1, 4, 33, 24), k=(1, 2, 50, 24), mask=("f32", (33, 50)), gqa=2
    ),
    "wide_heads": dict(dtype="f16", q=(2, 40, 200), k=(2, 70, 200)),
    "wide_heads_causal": dict(dtype="bf16", q=(1, 70, 256), k=(1, 70, 256), causal=True),
    # one query or a few: keys are split over blocks
    "one_query": dict(dtype="f16", q=(2, 1, 64), k=(2, 1100, 64)),
    "one_query_of_grouped_heads": dict(dtype="bf16", q=(1, 8, 1, 128), k=(1, 2, 700, 128), gqa=4),
    "few_queries_and_a_mask": dict(dtype="f32", q=(2, 5, 64), k=(2, 600, 64), mask=("bool", (2, 5, 600))),
}


@pytest.mark.parametrize(("case", "chip"), on_chips(CASES))
def test_attention(case, chip, fake):
    given = CASES[case]
    arrays = [random(given["dtype"], given[name], seed) for seed, name in enumerate("qkk")]
    if "mask" in given:
        arrays.append(random(*given["mask"]))
    if "mask" in given and given["mask"][0] == "bool":
        arrays[3][:, 3] = False  # a row without keys
    made, lse = run_graph(graph_of(**given), arrays, fake)
    near, exact, exact_lse = eager(*arrays, causal=given.get("causal", False), gqa=given.get("gqa", 1))
    check(made, near, exact)
    np.testing.assert_allclose(lse, exact_lse, rtol=1e-5, atol=2e-5)
    added = given["dtype"] == "f32" and not chip.startswith("gfx9")
    assert any(("fmac" if added else "v_mfma" if chip.startswith("gfx9") else "v_wmma") in n for n in fake.executed)
    assert not any(name.startswith("scratch") for name in fake.executed)


@pytest.mark.parametrize(("case", "chip"), on_chips(["f16", "bf16", "f32"]))
def test_maxima_that_grow(case, chip, fake):
    """Scores of later tiles of keys are larger: by so little that sums stay as they are, and by more."""
    arrays = [random(case, (1, n, 64), seed) for seed, n in enumerate((70, 200, 200))]
    arrays[1] = (arrays[1] * np.linspace(0.1, 15, 200)[:, None]).astype(NUMPY[case])
    made, lse = run_graph(graph_of(case, (1, 70, 64), (1, 200, 64)), arrays, fake)
    near, exact, exact_lse = eager(*arrays)
    check(made, near, exact)
    np.testing.assert_allclose(lse, exact_lse, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("case", "chip"), on_chips([(1, 70), (65, 20), (150, 150)]))
def test_symbolic_queries_and_keys(case, chip, fake):
    g = graph_of(
        "f16", (2, symbol("s0"), 64), (2, symbol("s1"), 64),
        symbols=[Symbol("s0", input=0, dim=1), Symbol("s1", input=1, dim=1)],
    )  # fmt: skip
    arrays = [random("f16", (2, n, 64), seed) for seed, n in enumerate((case[0], case[1], case[1]))]
    made, _ = run_graph(g, arrays, fake)
    check(made, *eager(*arrays)[:2])


@pytest.mark.parametrize(("case", "chip"), on_chips([1, 300, 1500]))
def test_one_query_and_symbolic_keys(case, chip, fake):
    g = graph_of("f16", (1, 4, 1, 64), (1, 2, symbol("s0"), 64), symbols=[Symbol("s0", input=1, dim=2)], gqa=2)
    arrays = [random("f16", (1, h, n, 64), seed) for seed, (h, n) in enumerate(((4, 1), (2, case), (2, case)))]
    made, lse = run_graph(g, arrays, fake)
    near, exact, exact_lse = eager(*arrays, gqa=2)
    check(made, near, exact)
    np.testing.assert_allclose(lse, exact_lse, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("case", "chip"), on_chips(["bf16"]))
def test_heads_of_one_projection_stored_by_tokens(case, chip, fake):
    batch, tokens, heads, width = 2, 50, 2, 64
    g = Graph()
    x = g.add_input("x", TensorType(case, (batch, tokens, 3 * heads * width)))
    split = g.add("reshape", x, shape=(batch, tokens, 3, heads, width))
    split = g.add("permute", split, dims=(2, 0, 3, 1, 4))
    size = (1, batch, heads, tokens, width)
    parts = [g.add("slice", split, starts=(i, 0, 0, 0, 0), sizes=size, steps=(1,) * 5) for i in range(3)]
    parts = [g.add("reshape", p, shape=size[1:]) for p in parts]
    made = g.add("attention", *parts, None, causal=False, scale=None, gqa=1)[0]
    g.add_output(g.add("relu", g.add("reshape", g.add("permute", made, dims=(0, 2, 1, 3)), shape=(100, 128))))
    array = random(case, (batch, tokens, 3 * heads * width))
    q, k, v = np.moveaxis(array.reshape(batch, tokens, 3, heads, width), (2, 3), (0, 2))
    near, exact, _ = eager(*(np.ascontiguousarray(p) for p in (q, k, v)))
    by_tokens = lambda y: np.maximum(y.swapaxes(1, 2).reshape(100, 128), 0)
    check(run_graph(g, [array], fake)[0], by_tokens(near), by_tokens(exact))


@pytest.mark.parametrize(("case", "chip"), on_chips(["bf16", "f16"]))
def test_a_nan_stays_in_its_row(case, chip, fake):
    arrays = [random(case, (1, 20, 64), seed) for seed in range(3)]
    arrays[0][0, 3, 5] = np.nan
    made, lse = run_graph(graph_of(case, (1, 20, 64), (1, 20, 64)), arrays, fake)
    rows = np.arange(20) == 3
    np.testing.assert_array_equal(np.isnan(made.astype(np.float32)).all(-1)[0], rows)
    np.testing.assert_array_equal(np.isnan(made.astype(np.float32)).any(-1)[0], rows)
    np.testing.assert_array_equal(np.isnan(lse)[0], rows)
