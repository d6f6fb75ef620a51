"""On systems that cannot load ELF images, compiling ahead says so and torch.compile runs in eager."""

from types import SimpleNamespace

import pytest
import torch

import lamina
from lamina.runtime.errors import LaminaRuntimeError

X = torch.linspace(-3, 3, 7)


@pytest.fixture(autouse=True)
def macos(monkeypatch):
    monkeypatch.setattr("lamina.runtime.loader.sys", SimpleNamespace(platform="darwin"))


def test_ahead_of_time():
    with pytest.raises(LaminaRuntimeError, match="this system is darwin: it needs Mach-O images"):
        lamina.compile(torch.nn.Softsign(), (X,))(X)


def test_just_in_time():
    torch._dynamo.reset()
    before = len(lamina.stats()["failures"])
    found = torch.compile(torch.nn.functional.softsign, backend="lamina")(X)
    torch.testing.assert_close(found, torch.nn.functional.softsign(X))
    failures = lamina.stats()["failures"][before:]
    assert len(failures) == 1 and "Mach-O" in failures[0]
