"""On systems where no image can be loaded, compiling ahead says so and torch.compile runs in eager."""

from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

import lamina
from lamina.runtime.errors import LaminaRuntimeError
from lamina.tools.targets import targets_command

X = torch.linspace(-3, 3, 7)


@pytest.fixture(autouse=True)
def windows(monkeypatch):
    monkeypatch.setattr("lamina.runtime.loader.sys", SimpleNamespace(platform="win32"))


def test_ahead_of_time():
    with pytest.raises(LaminaRuntimeError, match="is for Linux and macOS; Lamina loads none on Windows yet"):
        lamina.compile(torch.nn.Softsign(), (X,))(X)


def test_the_table_of_targets(monkeypatch):
    monkeypatch.setattr("lamina.tools.targets.sys", SimpleNamespace(platform="win32"))
    rows = CliRunner().invoke(targets_command).output.splitlines()
    assert any("no: not on Windows yet" in row for row in rows)


def test_just_in_time():
    torch._dynamo.reset()
    before = len(lamina.stats()["failures"])
    found = torch.compile(torch.nn.functional.softsign, backend="lamina")(X)
    torch.testing.assert_close(found, torch.nn.functional.softsign(X))
    failures = lamina.stats()["failures"][before:]
    assert len(failures) == 1 and "Windows" in failures[0]
