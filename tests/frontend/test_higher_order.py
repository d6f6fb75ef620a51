"""Ops whose arguments are graphs: replaced by ordinary ops, or done by eager between compiled graphs."""

import pytest
import torch
from torch._higher_order_ops import map as torch_map
from torch._higher_order_ops import scan, while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import lamina
from lamina.frontend.export import ExportError
from lamina.frontend.higher_order import expand

from .conftest import check

X = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
TRAINED = X.clone().requires_grad_()


def cumulative(x, w=1.0):
    return scan(lambda h, x: ((h * 0.9 + x * w).tanh(), (h * x).cos()), torch.zeros(4), x)


def repeated(x):
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x.sin() + x @ x), (torch.tensor(0), x))


def chosen(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() + 1, (x,))


@pytest.mark.parametrize("f", [cumulative, lambda x: torch_map(lambda r: r.sin() * r.sum(), x)], ids=["scan", "map"])
def test_short_loops_become_ordinary_ops(f):
    assert not check(f, X)["fallback"]
    assert not check(lambda x: f(x), X, dynamic=False)["failures"]


def test_gradients_of_a_scan():
    assert not check(cumulative, TRAINED, grad=True)["fallback"]


def test_long_loops_run_a_compiled_body(monkeypatch):
    monkeypatch.setattr(expand, "UNROLLED", 3)
    found = check(cumulative, X)
    assert found["fallback"].keys() == {"scan"} and found["parts"] == 2


@pytest.mark.parametrize("f", [chosen, repeated], ids=["cond", "while_loop"])
def test_what_depends_on_data_is_chosen_between_compiled_graphs(f):
    for x in (X[:4].abs() / 9, -X[:4].abs() / 9):
        found = check(f, x)
    assert len(found["fallback"]) == 1 and found["compiled_nodes"] and not found["failures"]


def test_gradients_of_a_condition():
    check(chosen, TRAINED, grad=True)


def test_a_loop_of_no_turn_gives_a_copy():
    check(lambda x: while_loop(lambda x: x.sum() < -1e9, lambda x: (x + 1,), (x,)), X)


def test_sizes_of_branches():
    check(
        lambda x, y: torch.cond(x.sum() > 0, lambda x: x.sin() + y, lambda x: x[:, :4].cos(), (x,)), X, X, dynamic=True
    )


def test_regions_compiled_once_are_inlined():
    layers = [torch.nn.Linear(4, 4) for _ in range(3)]

    @torch.compiler.nested_compile_region
    def region(w, b, x):
        return torch.nn.functional.linear(x, w, b).relu()

    def f(x):
        for layer in layers:
            x = region(layer.weight, layer.bias, x)
        return x

    found = check(f, X)
    assert not found["fallback"] and found["parts"] == 1


def test_without_eager_both_branches_are_computed():
    run = lamina.compile(chosen, (X,))
    for x in (X.abs(), -X.abs()):
        torch.testing.assert_close(run(x), chosen(x))


def test_without_eager_a_branch_that_may_raise_is_refused():
    def f(x, i):
        return torch.cond(x.sum() > 0, lambda x, i: x[i], lambda x, i: x[:2] * 1, (x, i))

    with pytest.raises(ExportError, match="control flow"):
        lamina.compile(f, (X, torch.tensor([0, 1])))


# -- flex_attention -------------------------------------------------------------------------------------------
S = 24
Q, K, V = (torch.randn(2, 4, S, 16, generator=torch.Generator().manual_seed(i)) for i in range(3))
SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])


def masked(function):
    return create_block_mask(function, None, None, S, S, device="cpu")


CAUSAL = masked(lambda b, h, i, j: i >= j)
DOCUMENTS = torch.tensor([0] * 10 + [1] * 14)
SCORES = {
    "plain": None,
    "alibi": lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
    "relative": lambda s, b, h, i, j: torch.where(i - j < 5, s - (i - j).abs() * 0.1, -float("inf")),
    "soft cap": lambda s, b, h, i, j: 2 * torch.tanh(s / 2),
    "scaled": lambda s, b, h, i, j: s * 0.5 + 1,
}
MASKS = {
    "all": None,
    "causal": CAUSAL,
    "window": masked(lambda b, h, i, j: (i >= j) & (i - j < 4)),
    "documents": masked(lambda b, h, i, j: DOCUMENTS[i] == DOCUMENTS[j]),
    "a row of nothing": masked(lambda b, h, i, j: (i != 3) & (i >= j)),
}


@pytest.mark.parametrize(
    "score, mask", [(s, "causal") for s in SCORES] + [("plain", m) for m in MASKS] + [("alibi", "window")]
)
def test_flex_attention(score, mask):
    def f(q, k, v):
        return flex_attention(q, k, v, score_mod=SCORES[score], block_mask=MASKS[mask])

    found = check(f, Q, K, V, calls=1)
    assert not found["fallback"] and not found["failures"]


def test_attention_of_a_causal_mask_is_one_kernel():
    assert check(lambda q, k, v: flex_attention(q, k, v, block_mask=CAUSAL), Q, K, V, calls=1)["kernels"] == 1


def test_flex_attention_of_shared_and_turned_heads_and_its_sums():
    def f(q, k, v):
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        return flex_attention(q, k, v, block_mask=CAUSAL, enable_gqa=True, return_lse=True)

    q, k, v = (t.transpose(1, 2).contiguous() for t in (Q, K[:, :2], V[:, :2]))
    assert not check(f, q, k, v)["fallback"]


def test_flex_attention_in_bf16():
    check(
        lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["alibi"]),
        *(t.bfloat16() for t in (Q, K, V)),
        tolerance=2e-2,
    )


def test_flex_attention_of_any_length():
    f = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["alibi"])  # noqa: E731
    compiled = torch.compile(f, backend="lamina", dynamic=True)
    with torch.no_grad():
        for length in (24, 9, 17):
            given = [t[:, :, :length] for t in (Q, K, V)]
            torch.testing.assert_close(compiled(*given), f(*given), rtol=1e-4, atol=1e-5)
    assert not lamina.stats()["fallback"]


def test_flex_attention_ahead_of_time():
    f = lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES["relative"])  # noqa: E731
    torch.testing.assert_close(lamina.compile(f, (Q, K, V))(Q, K, V), f(Q, K, V), rtol=1e-4, atol=1e-5)
