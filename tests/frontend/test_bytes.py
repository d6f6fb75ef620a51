"""bool and integers of 8 bits in ops that are emitted directly, where MLIR's types tell neither bool nor the sign."""

import pytest
import torch

from .conftest import check

BYTES = torch.tensor([-5, 3, -100, 7, 100, 0, -1], dtype=torch.int8)
WHERE = torch.tensor([0, 0, 2, 1, 0, 0, 0])
ADDS = {
    "scatter_add": lambda x: x.scatter_add(0, WHERE, x),
    "scatter_reduce": lambda x: x.scatter_reduce(0, WHERE, x, "sum", include_self=False),
    "index_put": lambda x: x.index_put((WHERE,), x, accumulate=True),
    "put": lambda x: x.put(WHERE, x, accumulate=True),
}
CASTS = {
    "u8": lambda x: x.to(torch.uint8),
    "i8": lambda x: x.to(torch.int8),
    "bool": lambda x: x > 3,
    "shifted": lambda x: x >> 1,
}


@pytest.mark.parametrize("add", ADDS.values(), ids=ADDS)
def test_sum_of_trues_is_true(add):
    """The byte of it is 1, as every reader of a bool expects."""
    stats = check(lambda x: add(x != 0).view(torch.uint8), BYTES)
    assert stats["fallback"].keys() <= {"aten.view.dtype"} and not stats["failures"]


@pytest.mark.parametrize("x", [BYTES, BYTES.view(torch.uint8)], ids=["i8", "u8"])
@pytest.mark.parametrize("cast", CASTS.values(), ids=CASTS)
def test_order_of_what_a_kernel_has_cast(cast, x):
    def function(x):
        y = cast(x)
        everywhere = y.sort()[0], y.cummax(0)[0], y.scatter_reduce(0, WHERE, y, "amin")
        if y.dtype == torch.bool:  # eager has no more of it
            return everywhere
        ends = torch.tensor([1, 100, 120]).to(y.dtype)
        return *everywhere, y.topk(3)[0], torch.bucketize(y, ends), torch.searchsorted(everywhere[0], y)

    stats = check(function, x)
    assert not stats["fallback"] and not stats["failures"]


def test_constant_of_bytes():
    ends = torch.tensor([1, 100, 250], dtype=torch.uint8)
    stats = check(lambda x: torch.bucketize(x, ends), BYTES.view(torch.uint8))
    assert not stats["fallback"] and not stats["failures"]
