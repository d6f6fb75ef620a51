"""Programs on which compilers were wrong in control flow, errors, symbolic sizes, gradients, threads and whole ops."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from .case import INF, NAN, case


def _dyn_call(f):
    outs = []
    for n in (7, 8, 9, 1, 0, 17, 64):
        outs.append(f(torch.arange(float(n) * 3).reshape(n, 3)))
    return tuple(outs)


def _rec_call(f):

    torch._dynamo.utils.counters.clear()
    outs = [f(torch.randn(n, 16)).shape[0] for n in range(2, 40)]
    return torch.tensor(outs)


@case("L1", slow=True)
def _():
    n = 2**31 + 16
    x = torch.zeros(n, dtype=torch.int8)
    x[-1] = 5
    x[-7] = 3
    return (lambda x: (x[-16:] + 1, x[2**31 :].sum(), x.view(-1, 16)[-1].max())), (x,)


@case("L3")
def _():
    return (lambda x: (x * x, (x.sum(), x.cumsum(0)[-1]), x + 2147483647)), (
        torch.full((9,), 2147483647, dtype=torch.int32),
    )


@case("C1")
def _():
    x = torch.arange(3.0)
    return (lambda p: torch.cond(p, lambda a, b: a + b, lambda a, b: a * b, (x, x))), (torch.tensor(True),)


@case("C2")
def _():
    def f(a, b):
        return torch._higher_order_ops.while_loop(
            lambda i, x, y: i < 3, lambda i, x, y: (i + 1, x + a, y + b), (0, torch.zeros_like(a), torch.zeros_like(b))
        )[1:]

    return f, (torch.ones(2, 2), torch.ones(2, 2) * 2)


@case("C4")
def _():
    def f(x, idx):
        src = x

        def body(i, v):
            return i + 1, torch.scatter(v.clone(), 0, idx, src)

        return torch._higher_order_ops.while_loop(lambda i, v: i < 2, body, (torch.tensor(0), x))[1]

    return f, (torch.arange(16.0).reshape(4, 4), torch.tensor([[0], [1], [2], [3]]))


@case("C5", grad=True)
def _():
    def f(x):
        return torch._higher_order_ops.while_loop(
            lambda i, x: i < 5, lambda i, x: (i + 1, x * 0.9 + 0.1), (torch.tensor(0), x)
        )[1].sum()

    return f, (torch.ones(4, 8).requires_grad_(),)


@case("C6")
def _():
    def f(x):
        if x.sum() > 0:
            return x * 2
        return x - 1

    return f, (torch.randn(8),)


@case("X1", grad=True)
def _():
    return (lambda x, y: (x + 1j * y).pow(4).real.sum()), (
        torch.rand(5).requires_grad_(),
        torch.rand(5).requires_grad_(),
    )


@case("X2")
def _():
    return (lambda x: torch.nan_to_num(x)), (torch.tensor([complex(NAN, 1), complex(1, INF)], dtype=torch.complex128),)


@case("X3", tol=1e-4)
def _():
    def f(q, f_):
        qc = torch.view_as_complex(q.reshape(*q.shape[:-1], -1, 2))
        return torch.view_as_real(qc * f_).flatten(-2)

    return f, (torch.randn(2, 4, 8), torch.polar(torch.ones(4, 4), torch.rand(4, 4)))


@case("E1", err=True)
def _():
    def f(x):
        b = x.unsqueeze(1)
        return torch.cat([b.select(1, 0), b.select(1, 1)], -1)

    return f, (torch.arange(12.0).reshape(3, 4),)


@case("E3", err=True)
def _():
    return (lambda i, w: F.embedding(i, w)), (torch.tensor([2, -2, 4]), torch.rand(5, 2))


@case("E4", err=True)
def _():
    return (lambda x, i: torch.index_select(x, 0, i)), (torch.randn(2, 2, 2, 2), torch.tensor([2]))


@case("Y1", cfg=dict(dynamo=dict(capture_scalar_outputs=True)))
def _():
    return (lambda x: torch.ones(x.item()).sum()), (torch.tensor(5),)


@case("Y4", caller=_dyn_call, dynamic=True)
def _():
    return (lambda x: torch.cat([x, x.cos()], 0).view(-1, 3).sum(0) * x.shape[0]), ()


@case("Y5", caller=_rec_call)
def _():
    return (lambda x: torch.softmax(x @ x.t(), -1)), ()


@case("G1", grad=True)
def _():
    return (lambda x, y: torch.slice_scatter(x, y, 0, 0, 2).sum()), (
        torch.arange(1.0, 6.0).requires_grad_(),
        torch.tensor([10.0, 20.0]).requires_grad_(),
    )


@case("G2", grad=True)
def _():
    return (lambda x, s: torch.diagonal_scatter(x, s).sum()), (
        torch.randn(8, 8).requires_grad_(),
        torch.randn(8).requires_grad_(),
    )


@case("G3")
def _():
    def g(x):
        y = torch.zeros_like(x)
        y[:, 0] += x[:, 2].abs()
        y[:, 0] += x[:, 2].abs()
        return y.sum()

    return (lambda x: torch.func.grad(g)(x)), (torch.tensor([[0.5, -1.0, -2.0], [1.0, 1.0, 3.0]]),)


@case("G4", grad=True)
def _():
    def f(x, idx):
        out = torch.full((1,), -INF)
        return out.index_reduce(0, idx, x, "amax", include_self=False).sum()

    return f, (torch.tensor([0.3, 1.2, -0.4, 0.9, 0.1]).requires_grad_(), torch.zeros(5, dtype=torch.long))


@case("M1", tol=1e-4)
def _():
    bn = nn.BatchNorm1d(10).eval()
    gn = nn.GroupNorm(10, 10).eval()
    elu = nn.ELU()
    return (lambda x: gn(elu(bn(x)))), (torch.ones(6, 10, 12),)


@case("M4", special="threads")
def _():
    return None, ()


@case("O1")
def _():
    return (lambda x: torch.sort(x, stable=True)), (torch.tensor([3, 1, 3, 2, 1, 2, 3, 1]),)


@case("O3", tol=1e-4)
def _():
    torch.manual_seed(0)
    return (
        lambda x: (
            F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            F.interpolate(x, scale_factor=2, mode="bicubic"),
            F.pad(x, (1, 2, 3, 0), mode="reflect"),
            F.unfold(x, 2),
        )
    ), (torch.randn(1, 2, 7, 9),)


@case("O6", tol=1e-3)
def _():
    torch.manual_seed(0)
    m = nn.LSTM(8, 16, 2, batch_first=True).eval()
    return m, (torch.randn(3, 5, 8),)


@case("O7")
def _():
    i = torch.tensor([[0, 1, 1], [2, 0, 2]])
    s = torch.sparse_coo_tensor(i, torch.tensor([3.0, 4.0, 5.0]), (2, 3)).coalesce()
    return (lambda s, d: torch.sparse.mm(s, d)), (s, torch.arange(12.0).reshape(3, 4))
