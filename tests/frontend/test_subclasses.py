"""Tensors that are made of others (DTensor is one): AOTAutograd takes them apart, and our parts get what is inside."""

import pytest
import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from lamina.frontend import dynamo  # noqa: F401  (registers the backend)


class Pair(torch.Tensor):
    """Two tensors of one shape; an op of pairs is done on the first ones and on the second ones."""

    @staticmethod
    def __new__(cls, one, two):
        facts = {"strides": one.stride(), "dtype": one.dtype, "device": one.device}
        return torch.Tensor._make_wrapper_subclass(cls, one.shape, requires_grad=one.requires_grad, **facts)

    def __init__(self, one, two):
        self.one, self.two = one, two

    def __tensor_flatten__(self):
        return ["one", "two"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, shape, strides):
        return Pair(inner["one"], inner["two"])

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        def half(name):
            return pytree.tree_map_only(Pair, lambda p: getattr(p, name), (args, kwargs or {}))

        (args1, kwargs1), (args2, kwargs2) = half("one"), half("two")
        one, two = op(*args1, **kwargs1), op(*args2, **kwargs2)
        made = pytree.tree_map(lambda x, y: Pair(x, y) if isinstance(x, torch.Tensor) else x, one, two)
        return return_and_correct_aliasing(op, args, kwargs or {}, made)


def halves(value):
    return [(p.one, p.two) if isinstance(p, Pair) else p for p in pytree.tree_leaves(value)]


def pair():
    generator = torch.Generator().manual_seed(0)
    return Pair(torch.randn(4, 6, generator=generator), torch.randn(4, 6, generator=generator))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sin() + 1,
        lambda x: (x.t(), x[1:] * 2),
        lambda x: x.mul_(2) + 1,
        lambda x: (x + 1, x @ x.t()),
        lambda x: Pair(x.one * 2, x.two.sum(1)).one,
    ],
    ids=["values", "views", "a write", "several", "taken apart by the program"],
)
def test_pairs(function):
    ours, eager = pair(), pair()
    got, expected = torch.compile(function, backend="lamina")(ours), function(eager)
    torch.testing.assert_close(halves((got, ours)), halves((expected, eager)))


def test_a_pair_made_of_plain_tensors():
    x = torch.arange(6.0)
    got = torch.compile(lambda x: Pair(x * 2, x + 1), backend="lamina")(x)
    assert isinstance(got, Pair)
    torch.testing.assert_close(halves(got), [(x * 2, x + 1)])
