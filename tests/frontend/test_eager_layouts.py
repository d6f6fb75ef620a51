"""Results have eager's strides where torch itself traces others: of operands in other orders of memory than their dims."""

import pytest
import torch
import torch.nn.functional as F

import lamina
from lamina.frontend import dynamo  # noqa: F401


def turned(*order, seed=0, positive=True):
    """A tensor of 3 x 4 x 5 whose dims are in memory in `order`."""
    sizes = (3, 4, 5)
    back = sorted(range(3), key=lambda d: order[d])
    x = torch.rand([sizes[d] for d in order], generator=torch.Generator().manual_seed(seed)) + 0.5
    return x.permute(back)


def assert_as_eager(fn, *args):
    expected = fn(*args)
    failures = len(lamina.stats()["failures"])
    got = torch.compile(fn, backend="lamina")(*args)
    assert (got.stride(), got.dtype) == (expected.stride(), expected.dtype)
    torch.testing.assert_close(got, expected)
    assert len(lamina.stats()["failures"]) == failures


@pytest.mark.parametrize("fn", [lambda x: x // 2, lambda x: torch.xlogy(x, 2), lambda x: torch.copysign(x, -1.0)])
def test_numbers_beside_tensors(fn, monkeypatch):
    monkeypatch.setenv("LAMINA_INTERPRET", "1")
    assert_as_eager(fn, turned(1, 0, 2))


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1), (0, 2, 1)])
@pytest.mark.parametrize("fn", [F.logsigmoid, lambda x: torch.pow(2.0, x), lambda x: 3**x, lambda x: 1**x])
def test_row_major_whatever_is_read(fn, order, monkeypatch):
    monkeypatch.setenv("LAMINA_INTERPRET", "1")
    assert_as_eager(fn, turned(*order))
    assert_as_eager(lambda x: fn(x).transpose(0, 2) + x.transpose(0, 2), turned(*order))


FUNCTIONS = {
    "copysign": torch.copysign,
    "floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "floor_divide": torch.floor_divide,
    "heaviside": torch.heaviside,
    "logaddexp": torch.logaddexp,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "xlog1py": torch.special.xlog1py,
    "xlogy": torch.xlogy,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operands_that_disagree(name, monkeypatch):
    monkeypatch.setenv("LAMINA_INTERPRET", "1")
    x, y = turned(1, 0, 2), turned(2, 0, 1, seed=1)
    for other in (y, y[0], y[:, :1], torch.tensor(2.0)):
        assert_as_eager(FUNCTIONS[name], x, other)
        assert_as_eager(FUNCTIONS[name], other, x)


def test_compiled():
    assert_as_eager(lambda x, y: torch.xlogy(F.logsigmoid(x) * 2, torch.pow(2.0, y)), turned(1, 0, 2), turned(2, 0, 1))
