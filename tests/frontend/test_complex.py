"""Complex numbers: their parts are compiled, tensors of them keep eager's strides and aliasing, the rest runs in eager."""

import pytest
import torch
from torch.nn import functional as F

import lamina

from .conftest import check

pytestmark = pytest.mark.usefixtures("mode")
C64, C128 = torch.complex64, torch.complex128
VIEWS = {f"aten.{name}.default" for name in ("view_as_real", "view_as_complex", "_conj")}


def z(*shape, dtype=C64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def x(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def in_eager():
    """The ops that ran in eager, other than those that only look at memory otherwise."""
    return set(lamina.stats()["fallback"]) - VIEWS


def rotate(x, turns):
    """Rotary embedding as Llama's authors wrote it."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[:, None]).flatten(-2).type_as(x)


def test_rotary_embedding_by_complex_numbers():
    check(rotate, x(2, 5, 3, 8), torch.polar(torch.ones(5, 4), x(5, 4, seed=1)))
    assert not in_eager()


def test_rotary_embedding_whose_turns_are_computed():
    def function(x):
        angle = torch.outer(torch.arange(5), 0.1 ** torch.arange(4))
        return rotate(x, torch.polar(torch.ones_like(angle), angle))

    check(function, x(2, 5, 3, 8))
    assert not lamina.stats()["fallback"]


ARITHMETIC = {
    "sums": lambda a, b: (a + b, a - b, 1 - a, a + 2, torch.add(a, b, alpha=2 - 1j), a + b.real),
    "products": lambda a, b: (a * b, 1j * a, a * 2, a.real * b, a.imag * 1j, a**2),
    "quotients": lambda a, b: (a / b, a / 2, a / (1 + 2j), a / b.real, 1 / b, 2 / a),
    "matrices": lambda a, b: (a @ b.mT, a @ b.mH, (a[None] @ b.mT[None]), a @ b[0], torch.addmm(a @ b.mT, a, b.mT)),
    "layers": lambda a, b: (F.linear(a, b), F.linear(a, b, b[:, 0])),
    "constants": lambda a, b: (
        torch.ones_like(a) * b,
        torch.zeros(3, 4, dtype=C64) + b,
        torch.full((4,), 1 - 2j) * a,
        torch.full((4,), 3, dtype=C64) * a,
    ),
    "conjugates": lambda a, b: (a.conj() * b, (a * b).conj().resolve_conj(), torch.conj_physical(a)),
    "real_results": lambda a, b: (a.abs(), (a * b).angle(), (a * b).real, (a + b).imag, (a * b).abs() ** 2),
    "functions": lambda a, b: (a.exp(), a.sgn(), (a * 0).sgn(), -a, torch.where(b.real > 0, a, b.real)),
    "views": lambda a, b: ((a * b).T[1:], (a * b).unbind(0)[1] + 1, torch.stack([a, b * 2], -1)[..., 1].T),
    "joined": lambda a, b: (torch.cat([a, b.real]), torch.stack([a, b.real]), a.flip(0) + a.roll(1, 1)),
    "sums_of_many": lambda a, b: ((a * b).sum(), a.sum(0), a.mean(1), a.cumsum(0)),
    "made_new": lambda a, b: (
        torch.zeros_like(a) + b,
        a.new_zeros(2) + 1,
        torch.complex(a.real, b.imag),
        a.to(C128) * b,
    ),
    "inserted": lambda a, b: (
        torch.zeros_like(a).index_copy(0, torch.tensor([1]), b[:1]),
        torch.slice_scatter(a, b[:1], 0, 1, 2),
    ),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name):
    check(ARITHMETIC[name], z(3, 4), z(3, 4, seed=1))


def test_arithmetic_is_compiled():
    check(lambda a, b: ((a * b + 1j).exp() / b).abs(), z(3, 4), z(3, 4, seed=1))
    assert not in_eager()


def test_quotients_of_large_and_small_numbers():
    check(lambda a, b: a / b, z(8) * 1e30, z(8, seed=1) * 1e30)
    check(lambda a, b: a / b, z(8) * 1e-30, z(8, seed=1) * 1e-30)


def test_an_argument_that_is_conjugated_or_strided():
    check(lambda a: a * 2, z(3, 4).conj())
    check(lambda a: a * 2j, z(6, 4)[::2].T)


def test_results_are_laid_out_as_in_eager():
    check(lambda a: (a.T * 2, a.T.contiguous() * 2, torch.view_as_real(a.T * 2)), z(3, 4))


def test_a_number_and_its_parts_share_memory():
    compiled = torch.compile(lambda a: (p := a * 2, p.real, torch.view_as_real(p), p[0])[:4], backend="lamina")
    whole, real, parts, row = compiled(z(3, 4))
    assert len({t.untyped_storage().data_ptr() for t in (whole, real, parts, row)}) == 1
    assert real.stride() == (8, 2) and torch.equal(real, whole.real)


def test_an_argument_that_is_written():
    def function(a, b):
        a.mul_(b)
        return a.abs()

    check(function, z(3, 4), z(3, 4, seed=1))


def test_an_op_without_a_rule_runs_in_eager():
    check(lambda a, b: (a * b).tan() * 2, z(3, 4), z(3, 4, seed=1))
    assert in_eager() == {"aten.tan.default"}


def test_sizes_that_vary():
    check(lambda a, b: (a[:, None] * b).flatten(0, 1).abs(), z(5, 4), z(7, 4, seed=1), dynamic=True)


@pytest.mark.parametrize("function", [rotate, lambda a, b: (torch.view_as_complex(a[:, :, 0, :2]) * b[:, 0]).abs()])
def test_gradients(function):
    given = [t.requires_grad_() for t in (x(2, 5, 3, 8), z(5, 4))]
    compiled = torch.compile(function, backend="lamina")
    for made in zip(*(torch.autograd.grad(f(*given).square().sum(), given) for f in (compiled, function))):
        torch.testing.assert_close(*made, rtol=1e-5, atol=1e-5)


def test_transforms_between_compiled_parts():
    def mixed(x):
        spectrum = torch.fft.rfft(x * 2)
        return torch.fft.irfft(spectrum * spectrum.conj(), n=x.shape[-1]) + 1

    check(mixed, x(3, 12))
    assert in_eager() == {"aten._fft_r2c.default", "aten._fft_c2r.default"}
