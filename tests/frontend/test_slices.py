"""Slices of symbolic sizes: where they begin, at every size, whether torch guards on it or not."""

import pytest
import torch
from torch.fx.experimental import _config

from lamina.frontend.stats import COUNTERS

from .conftest import check

SLICES = {
    "last five hundred": lambda x, y: x[-500:] * 2,
    "the same, every other": lambda x, y: x[-9::2] * 2,
    "between ends": lambda x, y: x[-9:-2] * 2,
    "from the third": lambda x, y: x[3:] * 2,
    "up to five hundred": lambda x, y: x[:500] * 2,
    "up to the smaller": lambda x, y: x[: min(500, x.shape[0])] * 2,
    "as many as another has": lambda x, y: x[-y.shape[0] :] * 2,
    "behind as many": lambda x, y: x[y.shape[0] :] * 2,
    "narrow": lambda x, y: x.narrow(0, -3, 2) * 2,
    "element": lambda x, y: x[-2] * 2,
    "written": lambda x, y: torch.slice_scatter(x, x[-9:] * 2, 0, -9),
}


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "oblivious"])
@pytest.mark.parametrize("name", SLICES)
def test_slice(name, guarded, monkeypatch):
    monkeypatch.setenv("LAMINA_INTERPRET", "1")
    torch._dynamo.reset()
    COUNTERS.reset()
    f = SLICES[name]
    with _config.patch(backed_size_oblivious=not guarded):
        compiled = torch.compile(f, backend="lamina", dynamic=True)
        for size in (7, 600, 8):
            x, y = torch.randn(size, 4), torch.randn(5, 2)
            torch.testing.assert_close(compiled(x, y), f(x, y), rtol=0, atol=0)
    if guarded or name != "as many as another has":  # an unguarded -n may be 0
        assert not COUNTERS.snapshot()["fallback"]


def test_size_that_only_the_extent_of_an_input_is():
    """Windows over n elements are n - 1, in strides: the tensor has n elements, but no dim of that size."""
    stats = check(lambda x: x.unfold(1, 2, 1).mT @ x.unfold(1, 2, 1), torch.arange(3)[None], dynamic=True)
    assert not stats["failures"]


def test_strides_of_ones_own_are_compiled():
    check(lambda x: torch.as_strided(x * 2, (3, 2), (1, 2), 1), torch.randn(4, 5))
    assert not COUNTERS.snapshot()["fallback"]


def test_products_of_parts_of_one_tensor_of_symbolic_size():
    """Their strides are no view of dims, since the tensor's length is a symbol: such products were plain loops."""

    def scores(joint):
        queries, keys, values = joint.permute(2, 0, 3, 1, 4).unbind(0)
        torch._dynamo.graph_break()
        return (queries @ keys.mT) * 0.5, keys.mT @ values

    x = torch.randn(2, 7, 3, 4, 5)
    stats = check(scores, x, dynamic=True, tolerance=1e-4)
    assert not stats["plain_kernels"] and not stats["failures"]
    check(
        lambda x: torch.as_strided(x, (5, 9, 4), (3, 1, 2), 2) @ torch.as_strided(x, (4, 6), (7, 1), 1), torch.randn(60)
    )
    assert not COUNTERS.snapshot()["plain_kernels"]
