"""Attention whose operands' sizes torch knows by different symbols: one graph, with nothing in eager."""

import pytest
import torch
from torch.nn import functional as F

from lamina.frontend.stats import COUNTERS

from .conftest import same


def grown(heads: int, shared: int, length: int) -> tuple[torch.Tensor, ...]:
    """A query of one token, and a cache of keys and values before it with the token's own."""
    shapes = ((2, heads, 1, 8), *((2, shared, length, 8),) * 2, *((2, shared, 1, 8),) * 2)
    return tuple(torch.randn(shape) for shape in shapes)


def attend(query, keys, values, key, value, mask=None, gqa=False):
    keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
    return F.scaled_dot_product_attention(query, keys, values, mask, enable_gqa=gqa), keys, values


@pytest.mark.parametrize(("heads", "shared", "masked"), [(4, 4, False), (4, 2, False), (4, 2, True)])
def test_growing_cache_is_one_graph(heads, shared, masked):
    compiled = torch.compile(attend, backend="lamina")
    with torch.no_grad():
        for length in (4, 5, 6, 9):
            mask = (torch.randn(2, 1, 1, length + 1),) if masked else (None,)
            given = (*grown(heads, shared, length), *mask, heads != shared)
            same(compiled(*given), attend(*given), 2e-5)
    stats = COUNTERS.snapshot()
    assert stats["graphs"] == 2, "one for the first length, one for all others"
    assert not stats["fallback"]


def test_lengths_that_differ_later_are_eagers_error():
    compiled = torch.compile(F.scaled_dot_product_attention, backend="lamina", dynamic=True)
    query, other = torch.randn(3, 4, 8), torch.randn(3, 7, 8)
    with torch.no_grad():
        for keys in (torch.randn(3, 5, 8), torch.randn(3, 6, 8)):
            same(compiled(query, keys, keys + 1), F.scaled_dot_product_attention(query, keys, keys + 1), 2e-5)
        with pytest.raises(RuntimeError, match="size"):
            compiled(query, keys, other)
