"""Stored zip files: other tools read them, members are aligned, and damage is found."""

import os
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.compiler import zip_writer
from lamina.compiler.zip_writer import write_store
from lamina.runtime.errors import ArtifactError
from lamina.runtime.zip_store import read_store

MEMBERS = [
    ("manifest.json", [b"{}"]),
    ("code/main.so", [b"\x7fELF", b"rest" * 9]),
    ("weights/0", [bytes(1000)]),
    ("e", []),
]


@pytest.fixture(params=[0xFFFFFFFF, 40, 2], ids=["plain", "some ZIP64", "all ZIP64"])
def path(request, tmp_path, monkeypatch):
    monkeypatch.setattr(zip_writer, "_LIMIT", request.param)  # sizes that need ZIP64, without the gigabytes
    write_store(tmp_path / "x.zip", MEMBERS)
    return tmp_path / "x.zip"


def test_zipfile_reads_it(path):
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        assert z.namelist() == [name for name, _ in MEMBERS]
        assert all(z.read(name) == b"".join(pieces) for name, pieces in MEMBERS)


def test_read_back_and_aligned(path):
    data = path.read_bytes()
    members = read_store(memoryview(data), "x")
    for name, pieces in MEMBERS:
        at = members[name]
        assert at.offset % 64 == 0 and data[at.offset : at.offset + at.size] == b"".join(pieces)


def test_failed_write_leaves_nothing(tmp_path):
    def members():
        yield "a", [b"1"]
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        write_store(tmp_path / "x", members())
    assert not list(tmp_path.iterdir())


def _bytes(tmp):
    write_store(tmp / "y", MEMBERS)
    return (tmp / "y").read_bytes()


def test_what_cannot_be_written_names_the_file(tmp_path):
    def full():
        yield MEMBERS[0]
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/x'"):
        write_store(tmp_path / "x", full())
    with pytest.raises(OSError, match=f"No such file or directory: '{tmp_path}/absent/x'"):
        write_store(tmp_path / "absent" / "x", MEMBERS)
    assert not list(tmp_path.iterdir())


def test_a_device_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="this is no regular file: .*pipe"):
        write_store(tmp_path / "pipe", MEMBERS)


@settings(max_examples=300)
@given(st.data())
def test_damage_never_does_worse_than_an_error(tmp_path_factory, data):
    raw = bytearray(_SAMPLE.setdefault("bytes", _bytes(tmp_path_factory.mktemp("zip"))))
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
        with pytest.raises(ArtifactError):
            read_store(memoryview(bytes(raw)), "x")
        return
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        members = read_store(memoryview(bytes(raw)), "x")
    except ArtifactError:
        return
    assert all(m.offset + m.size <= len(raw) for m in members.values())


_SAMPLE: dict[str, bytes] = {}
