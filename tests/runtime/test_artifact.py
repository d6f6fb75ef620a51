"""Artifacts: what is stored, how it is chosen, and that every wrong file is refused with its reason."""

import json
import os
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.hang import HANG

import lamina
from lamina.compiler.artifact_file import Code, EntryCode, write_artifact
from lamina.compiler.zip_writer import write_store
from lamina.runtime import machine
from lamina.runtime.artifact import read_artifact
from lamina.runtime.errors import ArtifactError, LaminaRuntimeError
from lamina.runtime.machine import host_arch

from .conftest import Function


@pytest.fixture(scope="module")
def program(compiled):
    f = Function((4,))
    return compiled(f, [("y", f.call("mul", f.input("x"), f.weight("w")), "")], symbols=[])


@pytest.fixture(scope="module")
def good(saved, program):
    return saved({"main": program}, {"w": np.arange(4, dtype=np.float32), "same": np.arange(4, dtype=np.float32)})


def rewritten(path, tmp_path, change=None, members=None):
    """A copy with another manifest (and members), whole as a zip file."""
    with zipfile.ZipFile(path) as z:
        content = {n: z.read(n) for n in z.namelist()}
    if change:
        manifest = json.loads(content["manifest.json"])
        change(manifest)
        content["manifest.json"] = json.dumps(manifest).encode()
    content.update(members or {})
    write_store(tmp_path / "changed.lamina", [(n, [c]) for n, c in content.items() if c is not None])
    return tmp_path / "changed.lamina"


def test_members(good):
    with zipfile.ZipFile(good) as z:
        assert z.namelist() == ["manifest.json", "code/main.test.so", "weights/0"]  # equal weights once
    artifact = read_artifact(good, verify=True)
    assert artifact.entries == ("main",) and artifact.targets("main") == ("test",)
    assert artifact.weight("w").tolist() == [0, 1, 2, 3]
    assert artifact.weight("w").__array_interface__["data"][0] % 64 == 0
    assert not artifact.weight("w").flags.writeable


def test_equal_input_gives_equal_bytes(saved, program, good):
    weights = {"same": np.arange(4, dtype=np.float32), "w": np.arange(4, dtype=np.float32)}
    assert saved({"main": program}, weights).read_bytes() == good.read_bytes()


def test_permissions_are_those_of_a_normal_file(good, tmp_path):
    (tmp_path / "normal").touch()
    assert good.stat().st_mode == (tmp_path / "normal").stat().st_mode


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "uint8", "bool", "bfloat16", ">f4"])
def test_weights_of_every_type(dtype, program, tmp_path):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    weights = {
        "w": np.zeros(4, np.float32),
        "v": np.array([[0, 1], [1, 0]]).astype(dtype),
        "e": np.zeros((0, 3), dtype),
    }
    entry = EntryCode({"test": Code(*program, host_arch())})
    write_artifact(tmp_path / "a.lamina", {"main": entry}, weights)
    artifact = read_artifact(tmp_path / "a.lamina", verify=True)
    for name in ("v", "e"):
        np.testing.assert_array_equal(artifact.weight(name), weights[name])


@pytest.mark.parametrize("length", [0, 1, 10, 100, -1, -22, -100, -500])
def test_truncated(good, tmp_path, length):
    (tmp_path / "cut").write_bytes(good.read_bytes()[:length])
    with pytest.raises(ArtifactError, match="is empty|truncated or damaged|is not a .lamina file"):
        read_artifact(tmp_path / "cut")


def test_foreign_files(tmp_path):
    (tmp_path / "text").write_text("hello, this is no artifact")
    with pytest.raises(ArtifactError, match="text is not a .lamina file"):
        read_artifact(tmp_path / "text")
    write_store(tmp_path / "zip", [("readme", [b"x"])])
    with pytest.raises(ArtifactError, match="is a zip file but no artifact"):
        read_artifact(tmp_path / "zip")
    with pytest.raises(ArtifactError, match="cannot open .*missing: No such file"):
        read_artifact(tmp_path / "missing")
    with pytest.raises(ArtifactError, match="cannot open"):
        read_artifact(tmp_path)
    with pytest.raises(TypeError, match="not int"):  # the number of a file that is open
        read_artifact(0)
    with zipfile.ZipFile(tmp_path / "deflated", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("manifest.json", "{}" * 100)
    with pytest.raises(ArtifactError, match="truncated or damaged"):
        read_artifact(tmp_path / "deflated")


def test_altered_code_is_not_loaded(good, tmp_path):
    raw = bytearray(good.read_bytes())
    raw[raw.index(b"\x7fELF") + 700] ^= 1
    (tmp_path / "bad.lamina").write_bytes(raw)
    with pytest.raises(ArtifactError, match="the code 'code/main.test.so' is damaged"):
        lamina.load(tmp_path / "bad.lamina")


def test_altered_weights_are_found_when_asked(good, tmp_path):
    raw = bytearray(good.read_bytes())
    raw[raw.index(np.arange(4, dtype=np.float32).tobytes()) + 1] ^= 1
    (tmp_path / "bad.lamina").write_bytes(raw)
    lamina.load(tmp_path / "bad.lamina")
    with pytest.raises(ArtifactError, match="the weights 'weights/0' are damaged"):
        lamina.load(tmp_path / "bad.lamina", verify=True)


def test_altered_manifest(good, tmp_path):
    raw = bytearray(good.read_bytes())
    raw[raw.index(b'"format"') + 3] ^= 1
    (tmp_path / "bad.lamina").write_bytes(raw)
    with pytest.raises(ArtifactError, match="the manifest is damaged"):
        read_artifact(tmp_path / "bad.lamina")


def _program(manifest):
    return manifest["entries"]["main"]["programs"]["test"]


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda m: m.update(schema=9), "written by a newer Lamina .schema 9, this one reads 1.: upgrade"),
        (lambda m: m.update(format="other"), "its manifest is of another format"),
        (lambda m: _program(m)["plan"].update(abi=2), "kernel ABI 2, this runtime has 1"),
        (lambda m: _program(m).update(arch="vax"), "no code for this .* machine: test is for vax"),
        (lambda m: _program(m).update(flags=["avx1024"]), "test needs avx1024"),
        (lambda m: m["entries"].clear(), "has no entry 'main'"),
        (lambda m: m.pop("entries"), "the manifest is damaged"),
        (lambda m: _program(m).update(code="nowhere"), "the manifest is damaged"),
        (lambda m: _program(m).update(plan=[]), "the manifest is damaged"),
        (lambda m: m["weights"]["w"].update(dtype="f8"), "the manifest is damaged"),
        (lambda m: m["weights"]["w"].update(shape=[5]), "weight 'w' has 16 bytes, expected 20"),
        (lambda m: m["weights"].pop("w"), "the manifest is damaged"),
        (lambda m: _program(m)["plan"]["buffers"][0].update(shape=["__import__('os')"]), "is not a size expression"),
    ],
)  # fmt: skip
def test_strange_manifests(good, tmp_path, change, message):
    with pytest.raises(ArtifactError, match=message):
        lamina.load(rewritten(good, tmp_path, change))


def test_manifest_that_is_no_json(good, tmp_path):
    with pytest.raises(ArtifactError, match="the manifest is damaged"):
        read_artifact(rewritten(good, tmp_path, members={"manifest.json": b"\xff{"}))
    with pytest.raises(ArtifactError, match="the manifest is damaged"):
        read_artifact(rewritten(good, tmp_path, members={"manifest.json": b"[1]"}))


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_manifest_loads_or_is_refused(good, tmp_path, data):
    """One value anywhere in the manifest replaced or removed."""

    def change(manifest):
        at, path = manifest, []
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            path.append(data.draw(st.sampled_from(keys)))
            inner = at[path[-1]]
            if not isinstance(inner, (dict, list)) or not inner or data.draw(st.integers(0, 3)) == 0:
                break
            at = inner
        value = data.draw(st.sampled_from([None, 0, -1, 2**70, 1.5, "", "s9", [], [1], {}, {"a": 1}, "remove"]))
        if value == "remove":
            del at[path[-1]]
        else:
            at[path[-1]] = value

    try:
        lamina.load(rewritten(good, tmp_path, change))
    except LaminaRuntimeError:
        pass


def test_writing_checks_weights(program, tmp_path):
    entry = EntryCode({"test": Code(*program, host_arch())})
    with pytest.raises(ArtifactError, match="needs weight 'w', which is not given"):
        write_artifact(tmp_path / "x", {"main": entry}, {})
    with pytest.raises(ArtifactError, match=re.escape("weight 'w' is f64[4], expected f32[4]")):
        write_artifact(tmp_path / "x", {"main": entry}, {"w": np.zeros(4)})


def test_the_most_demanding_runnable_target_is_chosen(program, tmp_path, monkeypatch):
    def code(*flags):
        return Code(*program, host_arch(), flags)

    programs = {
        "v2": code("sse4"),
        "v3": code("sse4", "avx2"),
        "v4": code("sse4", "avx2", "avx512f"),
        "arm": Code(*program, "arm"),
    }
    write_artifact(tmp_path / "x", {"main": EntryCode(programs)}, {"w": np.zeros(4, np.float32)})
    artifact = read_artifact(tmp_path / "x")
    monkeypatch.setattr(machine, "host_flags", lambda: frozenset(("sse4", "avx2")))
    assert artifact.choose("main") == "v3" and artifact.choose("main", "v2") == "v2"
    with pytest.raises(ArtifactError, match="v4 needs avx512f"):
        artifact.choose("main", "v4")
    with pytest.raises(ArtifactError, match="has no code for 'v5'; it has arm, v2, v3, v4"):
        artifact.choose("main", "v5")


def test_loading_imports_only_numpy_and_the_standard_library(good):
    program = (
        f"import sys, lamina\nm = lamina.load({os.fspath(good)!r})\nimport numpy as np\n"
        "assert m(np.ones(4, np.float32)).tolist() == [0, 1, 2, 3]\n"
        "top = {n.partition('.')[0] for n in sys.modules}\n"
        "bad = top & {'torch', 'mlir', 'llvmlite', 'click', 'ml_dtypes', 'rich'}\n"
        "assert not bad, bad\n"
        "assert 'lamina.compiler' not in sys.modules and 'lamina.dialects' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG)
