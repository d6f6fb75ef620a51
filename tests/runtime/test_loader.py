"""Images load from memory and from a file, several at a time, and say what is wrong."""

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


def test_images_loaded_through_one_descriptor_number_stay_apart(build):
    images = [Image(constant(build, i)) for i in range(40)]
    assert [call(i) for i in images] == list(range(40))


def test_without_memfd(build, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    assert call(Image(constant(build, 7))) == 7


def test_close_and_load_again(build):
    first = Image(constant(build, 1))
    first.close()
    assert call(Image(constant(build, 2))) == 2


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


@pytest.mark.parametrize("system, images", [("darwin", "Mach-O"), ("win32", "PE")])
def test_systems_without_elf_say_what_is_missing(saved, compiled, monkeypatch, system, images):
    f = Function((4,))
    path = saved({"main": compiled(f, [("y", f.call("twice", f.input("x")), "")])})
    monkeypatch.setattr("lamina.runtime.loader.sys", SimpleNamespace(platform=system))
    with pytest.raises(
        LaminaRuntimeError, match=f"'main' is for Linux .ELF., and this system is {system}.*{images} images"
    ):
        lamina.load(path)
