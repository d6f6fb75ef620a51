"""Complex numbers ahead of time, where no eager runs transforms or views."""

import pytest
import torch
from torch import nn

import lamina
from lamina.frontend.export import ExportError

from .test_complex import rotate, x, z


class Transforms(nn.Module):
    """All kinds of transforms, of sizes of one stage, of two and of three, odd ones and a prime one."""

    def forward(self, x):
        parts = []
        for n in (1, 7, 12, 67, 96, 175, 1155):
            spectrum = torch.fft.rfft(x[:, :n], norm="ortho")
            whole = torch.fft.fft(x[:, :n])
            back = torch.fft.ifft(whole * (2 + 1j))
            parts += [spectrum.real, spectrum.imag, whole.imag, back.real, torch.fft.irfft(spectrum * 2, n=n)]
        image = torch.fft.rfft2(x[:, :40].unflatten(1, (4, 10)))
        return *parts, image.abs(), torch.fft.irfft2(image, s=(4, 10)), torch.fft.fftn(x[:, :5]).real


def test_transforms_ahead_of_time():
    model, given = Transforms(), x(3, 1155)
    compiled = lamina.compile(model, (given,))
    for made, expected in zip(compiled(given), model(given.double()), strict=True):
        assert (made - expected).abs().max() <= 1e-6 * expected.abs().max()


class Rotated(nn.Module):
    """Turns kept in a complex buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(5, 4), x(5, 4, seed=1)))

    def forward(self, x):
        return rotate(x, self.turns)


def test_a_complex_buffer_ahead_of_time():
    model, given = Rotated(), x(2, 5, 3, 8)
    torch.testing.assert_close(lamina.compile(model, (given,))(given), model(given))


def test_signals_ahead_of_time():
    class Signal(nn.Module):
        def forward(self, x, window):
            spectrum = torch.stft(x, 32, 8, window=window, return_complex=True)
            return torch.istft(spectrum * 2, 32, 8, window=window), spectrum.abs()

    model, given = Signal(), (x(2, 100), torch.hann_window(32))
    for made, expected in zip(lamina.compile(model, given)(*given), model(*given)):
        torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)


class Negated(nn.Module):
    def forward(self, x):
        return -x


def test_a_complex_argument_ahead_of_time_is_refused():
    with pytest.raises(ExportError, match="view_as_real"):
        lamina.compile(Negated(), (z(3),))


class Accumulated(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3, dtype=torch.complex64))

    def forward(self, x):
        self.total.add_(x)
        return self.total.abs()


def test_a_complex_buffer_that_is_written_is_refused_ahead_of_time():
    with pytest.raises(ExportError, match="view_as_complex"):
        lamina.compile(Accumulated(), (torch.randn(3),))


def test_a_complex_argument_that_nothing_reads_is_refused_by_name():
    class Unread(nn.Module):
        def forward(self, x, spectrum):
            return x * 2

    with pytest.raises(
        ExportError, match="input 'spectrum' cannot be compiled ahead of time: element type torch.complex64"
    ):
        lamina.compile(Unread(), (torch.randn(3), z(3)))
