"""Programs on which compilers were wrong in aliasing, strides, sizes and randomness."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from .case import case

_lib = {}


def _alias_call(f):
    base = torch.ones(8)
    x = base[:4]
    y = base[2:6]
    f(torch.ones(4), torch.ones(4))
    return f(x, y)


def _syn_call(f):
    b = torch.arange(24, dtype=torch.float64).reshape(4, 6).clone()
    return f(b, b[1:])


_lib = {}


@case("A1", caller=_alias_call)
def _():
    def f(x, y):
        x.mul_(2)
        return x + y

    return f, ()


@case("A2", mutated=True)
def _():
    def f(x):
        v = x.unfold(1, 1, 5)
        v.add_(v)
        return x

    return f, (torch.arange(1, 25).reshape(4, 6),)


@case("A3", mutated=True)
def _():
    def f(a):
        a.diagonal().add_(1.0)
        return a

    return f, (torch.randn(2, 4),)


@case("A4", mutated=True, strides=True)
def _():
    def f(x, a, i):
        y = x.permute(1, 0)
        y.index_add_(0, i, a)
        return y

    return f, (torch.ones(3, 5), torch.arange(1.0, 10.0).reshape(3, 3), torch.tensor([0, 4, 2]))


@case("A9", caller=_syn_call)
def _():
    def f(t0, ta):
        t0.add_(100)
        return ta[0]

    return f, ()


@case("A10")
def _():
    def f(x):
        base = x + 1
        alias = base.view(-1)
        alias.resize_(12)
        return base + 1

    return f, (torch.zeros(1),)


@case("A11", mutated=True)
def _():
    if "foo" not in _lib:

        @torch.library.custom_op("anch::foo_in", mutates_args={"x1", "x2"})
        def foo(x1: torch.Tensor, x2: torch.Tensor) -> None:
            x1.add_(1)
            x2.add_(2)

        @torch.library.custom_op("anch::bar_out", mutates_args={"out"})
        def bar(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
            out.copy_(a + b + 2)

        _lib["foo"] = (foo, bar)
    foo, bar = _lib["foo"]

    def f(x, out):
        x1 = x[0]
        x2 = x[1]
        foo(x1, x2)
        bar(x1[0], x2[0], out)
        return out

    return f, (torch.arange(9.0).reshape(3, 3), torch.zeros(3, 3))


@case("S1")
def _():
    return (lambda x: torch.as_strided(torch.roll(x, -1, 0), (5, 10), (4, 1), 0)), (
        torch.arange(100).reshape(2, 5, 2, 5).to(memory_format=torch.channels_last),
    )


@case("S2", strides=True, nograd=True, tol=1e-4)
def _():
    torch.manual_seed(0)
    m = nn.Sequential(nn.Conv2d(16, 64, 3, 1, 1), nn.PixelShuffle(2), nn.ReLU()).eval()
    return m, (torch.rand(1, 16, 32, 36),)


@case("S3", strides=True, nograd=True)
def _():
    torch.manual_seed(0)
    m = nn.Conv2d(0, 8, (3, 3), stride=(2, 1)).eval()
    return m, (torch.randn(3, 0, 16, 16),)


@case("S6", strides=True, nograd=True, tol=1e-4)
def _():
    torch.manual_seed(0)
    m = (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        .eval()
        .to(memory_format=torch.channels_last)
    )
    return m, (torch.randn(2, 3, 16, 16).to(memory_format=torch.channels_last),)


@case("Z1")
def _():
    return (
        lambda x: (
            x.mean(0),
            x.sum(-1),
            x.amax(0),
            x.var(0, unbiased=False),
            x.softmax(0),
            x.cumsum(0),
            x.flip(0),
            x.sort(0)[0],
            x.argmax(0),
        )
    ), (torch.tensor(3.14),)


@case("Z2")
def _():
    return (lambda: (torch.tensor(5.0).cumsum(0), torch.full((), 5.0).cumsum(-1))), ()


@case("Z3")
def _():
    return (lambda x: x.argmin(1).view(0, 1) if False else x.argmin(1).view([0, 3])), (torch.rand(0, 3),)


@case("Z4")
def _():
    return (lambda x: torch.unfold_copy(x, 1, 0, 7)), (torch.rand(1, 0),)


@case("Z5", err=True)
def _():
    return (lambda x: F.interpolate(x, size=(4, 4), mode="nearest")), (torch.rand(1, 3, 0, 5),)


@case("Z6")
def _():
    return (
        lambda x, y: (
            x.sum(0),
            x.prod(1),
            x.mean(1),
            x @ y,
            torch.cat([x, x]),
            x.all(),
            x.any(),
            F.softmax(x, 1),
            x.var(1),
        )
    ), (torch.rand(0, 4), torch.rand(4, 5))


@case("Z7", err=True)
def _():
    return (lambda x: x.amax(0)), (torch.rand(0, 4),)


@case("Z8")
def _():
    return (
        lambda x, w: (
            x @ w,
            w.new_zeros(3, 0) @ w.new_zeros(0, 2),
            torch.bmm(w.new_zeros(2, 3, 0), w.new_zeros(2, 0, 4)),
        )
    ), (torch.rand(3, 0), torch.rand(0, 2))


@case("R1", cfg=dict(inductor=dict(fallback_random=True)), seed=0)
def _():
    m = nn.Sequential(nn.Dropout(0.5)).train()
    return m, (torch.ones(64),)


@case("R2", cfg=dict(inductor=dict(fallback_random=True)), seed=0)
def _():
    return (
        lambda p: (torch.bernoulli(p), torch.rand(5), torch.randn(5), torch.randint(0, 9, (5,)), torch.randperm(7))
    ), (torch.full((32,), 0.3),)


@case(
    "R5",
    seed=0,
    caller=lambda f: (lambda y, g: torch.equal(y != 0, g != 0) and torch.tensor(1))(
        *(lambda x: (lambda y: (y.detach(), torch.autograd.grad(y.sum(), x)[0]))(f(x)))(
            torch.ones(512, requires_grad=True)
        )
    ),
)
def _():
    return (lambda x: F.dropout(x, 0.3, True)), ()
