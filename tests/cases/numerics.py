"""Programs on which compilers were wrong in values, dtypes and rounding."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from .case import NAN, case


@case(
    "N2",
)
def _():
    return (lambda x: (torch.argmax(x), torch.argmin(x), x.max(0).indices)), (
        torch.tensor([NAN, 4.6, 1.0, 7.0, NAN, 2.0, 3.0, 1.0]),
    )


@case("N3", grad=True)
def _():
    x = torch.ones(2, 6)
    x[0, 3] = 1
    y = torch.ones(2, 6)
    return (lambda x, y: torch.atan2(x, y).amin(1).sum()), (x.requires_grad_(), y.requires_grad_())


@case(
    "N4",
)
def _():
    def f():
        a = torch.ones(2, 2)
        b = torch.log2(torch.atan2(a, a))
        c = torch.arccosh(b)
        return torch.softmax(c, 1)

    return f, ()


@case(
    "N5",
)
def _():
    return (lambda x: (torch.clamp_min(x, 0.5), torch.clamp(x, max=1.5))), (torch.arange(-3, 6),)


@case(
    "D4",
)
def _():
    return (lambda a, b: torch.floor_divide(a, b)), (
        torch.tensor([-2147483648] * 17, dtype=torch.int32),
        torch.tensor([-1] * 17, dtype=torch.int32),
    )


@case("D5", err=True)
def _():
    return (lambda a, b: torch.remainder(a, b)), (
        torch.arange(20, dtype=torch.uint8),
        torch.zeros(20, dtype=torch.uint8),
    )


@case(
    "D6",
)
def _():
    a = torch.tensor([-7, 7, -7, 7, -8, 8, -1, 1, 0] * 3)
    b = torch.tensor([3, -3, -3, 3, 3, -3, 5, -5, 2] * 3)
    return (lambda a, b: (a // b, a % b, torch.fmod(a, b), torch.div(a, b, rounding_mode="trunc"), a >> 1)), (a, b)


@case(
    "T2",
)
def _():
    return (lambda a, b: a @ b), (torch.ones(1, 1, 2, dtype=torch.int8), torch.ones(1, 2, 2, dtype=torch.int8))


@case(
    "T3",
)
def _():
    return (lambda: torch.ones((2, 4, 4), dtype=torch.bool).cumsum(1, dtype=torch.bfloat16)), ()


@case("T4", err=True)
def _():
    return (lambda a, b: torch.matmul(a, b)), (torch.ones(2, 3, 4).half(), torch.ones(2, 4, 5))


@case(
    "T5",
)
def _():
    return (
        lambda a, b, c: (
            a * b,
            a / 2,
            a + 1.5,
            c + a,
            torch.true_divide(a, a + 1),
            a.sum(),
            b.mean(),
            c.sum(),
            (c + c),
            torch.where(c, a, b),
        )
    ), (torch.arange(1, 6, dtype=torch.int32), torch.rand(5), torch.tensor([True, False, True, True, False]))


@case(
    "U1",
)
def _():
    def f(x):
        v = torch.neg(x)
        return v, torch.lt(v, torch.tensor(4, dtype=torch.uint8))

    return f, (torch.tensor(6, dtype=torch.uint8),)


@case(
    "U2",
)
def _():
    return (lambda x: (x + x).to(torch.int16)), (torch.full((33,), 128, dtype=torch.uint8),)


@case(
    "U3",
)
def _():
    def f(x):
        y = -x.abs()
        return torch.cat([y, y]).sum()

    return f, (torch.tensor([200, 200], dtype=torch.uint8),)


@case(
    "U4",
)
def _():
    def f(x):
        c = torch.tensor(7, dtype=torch.uint8)
        return c + x, torch.neg(c), torch.neg(c) + x

    return f, (torch.randn(2, 2),)


@case(
    "U5",
)
def _():
    return (lambda x: (x.byte(), x.to(torch.int8), x.to(torch.int32))), (
        torch.tensor(
            [-1.5, -2.9, 0.3, 1.7, 250.2, -0.1, 3.0, 4.0, 7.9, -100.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 18.0]
        ),
    )


@case(
    "B1",
)
def _():
    torch.manual_seed(0)
    t = torch.randint(2, (7, 32), dtype=torch.bool)
    return (lambda x: (x.max(0).indices, x.min(0).indices, x.max(0).values)), (t,)


@case("P1", tol=0)
def _():
    torch.manual_seed(119)
    return (lambda x, w, b: (x @ w).to(torch.bfloat16) + b), (
        torch.randn(2, 15, 32),
        torch.randn(32, 17),
        torch.randn(17),
    )


@case("P3", tol=0)
def _():
    return (lambda x: x.to(torch.bfloat16).to(torch.float32)), (torch.randn(4, 4),)


@case("P4", tol=1e-5)
def _():
    torch.manual_seed(0)
    return nn.InstanceNorm2d(3), (torch.randn(1, 3, 1024, 1024),)


@case("P5", tol=0)
def _():
    torch.manual_seed(42)
    return (lambda x: x / 101), (torch.rand(5, 5),)


@case("P6", tol=1e-3)
def _():
    return (lambda x: (x.sum(), x.mean(), x.var(), x.cumsum(0)[-1])), (torch.full((1 << 20,), 0.1) + 1000.0,)


@case("P7", tol=1e-6)
def _():
    def f(l, y, a, b):
        x = l[..., 16]
        p = F.softplus(x) + 1e-4
        r = F.softplus(y) + 1e-4
        return torch.stack(
            [torch.special.gammaln(p + a.view(1, -1)), torch.special.erf(x * b.view(1, -1)), torch.special.xlogy(p, r)],
            -1,
        )

    torch.manual_seed(0)
    return f, (torch.randn(4, 8, 32), torch.randn(4, 8), torch.rand(8), torch.rand(8))
