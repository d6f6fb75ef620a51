"""Images load from memory and from a file, and say what is wrong."""

import os
from types import SimpleNamespace

import pytest

import lamina
from lamina.runtime.errors import LaminaRuntimeError
from lamina.runtime.loader import Image

from .conftest import Function


def call(image):
    import ctypes

    return ctypes.CFUNCTYPE(ctypes.c_int)(image.address("value"))()


def constant(build, value):
    return build(f"define i32 @value() {{ ret i32 {value} }}")


def test_images_stay_apart(build):
    images = [Image(constant(build, i)) for i in range(40)]
    assert [call(i) for i in images] == list(range(40))


def test_where_memory_may_not_become_code(build, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(13, "not here")

    monkeypatch.setattr("lamina.runtime.elf_image._protect", denied)
    image = Image(constant(build, 7))
    assert call(image) == 7
    with pytest.raises(LaminaRuntimeError, match="no symbol 'other'"):
        image.address("other")
    monkeypatch.setattr("tempfile.NamedTemporaryFile", denied)
    with pytest.raises(
        LaminaRuntimeError, match="cannot load the code of 'net': not here, and not from a file: .*not here"
    ):
        Image(constant(build, 7), "net")


def test_no_descriptor_is_left_open(build):
    data = constant(build, 3)
    before = len(os.listdir("/proc/self/fd"))
    Image(data)
    assert len(os.listdir("/proc/self/fd")) == before


def test_damaged_code_and_missing_symbols(build):
    with pytest.raises(LaminaRuntimeError, match="cannot load the code of 'net'"):
        Image(b"not code", "net")
    with pytest.raises(LaminaRuntimeError, match="no symbol 'other'"):
        Image(constant(build, 1)).address("other")


def test_windows_is_told(saved, compiled, monkeypatch):
    f = Function((4,))
    path = saved({"main": compiled(f, [("y", f.call("twice", f.input("x")), "")])})
    monkeypatch.setattr("lamina.runtime.loader.sys", SimpleNamespace(platform="win32"))
    with pytest.raises(LaminaRuntimeError, match="'main' is for Linux and macOS; Lamina loads none on Windows yet"):
        lamina.load(path)
