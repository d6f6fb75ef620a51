"""Architectures beyond the zoo are right under torch.compile, with no more in eager than is known."""

import pytest

pytest.importorskip("transformers", reason="the architectures are built from its configs")

from architectures import WIDER
from architectures.survey import survey

FAST = ("nn.TransformerEncoder, padding",)
# What may run in eager: Fourier transforms, and the views around complex numbers.
EAGER = {
    "aten._fft_c2c.default",
    "aten.view_as_complex.default",
    "aten.view_as_real.default",
}


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.full) for n in WIDER])
def test_architecture(name):
    report = survey(name)
    if report["verdict"] == "absent":
        pytest.skip(report["detail"])
    assert report["verdict"] == "right", report["detail"]
    assert not report["failures"] and not report["plain"]
    assert report["fallback"].keys() <= EAGER
