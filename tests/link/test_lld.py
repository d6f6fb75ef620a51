"""lld links the same objects to images with the same symbols and dynamic relocations, which compute the same."""

import re
import shutil
import subprocess
from pathlib import Path

import llvm
import pytest
from llvmlite import binding

from lamina.targets.linker import link

from . import arm, riscv
from .programs import CASES, MAIN, SQUARE

READELF = Path(llvm.__path__[0]) / "bin" / "llvm-readelf"
LLD = next((tool for tool in ("ld.lld-22", "ld.lld") if shutil.which(tool)), "")
pytestmark = pytest.mark.skipif(not LLD or not READELF.exists(), reason="needs lld and llvm-readelf")


def objects(arch: str) -> list[bytes]:
    triple = f"{arch}-unknown-linux-gnu"
    features = "+m,+a,+f,+d" if arch == "riscv64" else ""
    target = binding.Target.from_triple(triple)
    machine = target.create_target_machine(features=features, opt=2, reloc="pic", codemodel="small")
    made = []
    for text in (MAIN, SQUARE):
        module = binding.parse_assembly(text)
        module.triple, module.data_layout = triple, str(machine.target_data)
        made.append(machine.emit_object(module))
    return made


@pytest.fixture(params=["x86_64", "aarch64", "riscv64"])
def images(request, assemble, tmp_path):
    """The architecture, and the files that our linker and lld made of the same objects."""
    made = objects(request.param)
    files = [tmp_path / f"{i}.o" for i in range(len(made))]
    for file, data in zip(files, made):
        file.write_bytes(data)
    ours, theirs = tmp_path / "ours.so", tmp_path / "lld.so"
    ours.write_bytes(link(made))
    relax = "--relax" if request.param == "x86_64" else "--no-relax"  # as our linker does
    subprocess.run([LLD, "-shared", "-Bsymbolic", "-z", "now", relax, *files, "-o", theirs], check=True)
    return request.param, ours, theirs


def shown(option: str, file: Path) -> str:
    return subprocess.run([READELF, option, "-W", file], capture_output=True, text=True, check=True).stdout


def symbols(file: Path) -> set[tuple[str, ...]]:
    """(type, binding, defined or not, name) of each dynamic symbol."""
    found = re.findall(r"^ +\d+: \w+ +\d+ (\w+) +(\w+) +\w+ +(\w+) (\w+)", shown("--dyn-symbols", file), re.M)
    return {(kind, binding, "UND" if where == "UND" else "", name) for kind, binding, where, name in found}


def relocations(file: Path) -> list[tuple[str, str]]:
    """(type, symbol), where a call stub's slot counts as a slot."""
    found = re.findall(r"^[0-9a-f]+ +[0-9a-f]+ (R_\w+) +(?:[0-9a-f]{16} (\w+))?", shown("-r", file), re.M)
    slot = {"R_X86_64_JUMP_SLOT": "R_X86_64_GLOB_DAT", "R_AARCH64_JUMP_SLOT": "R_AARCH64_GLOB_DAT", "R_RISCV_JUMP_SLOT": "R_RISCV_64"}  # fmt: skip
    return sorted((slot.get(kind, kind), name) for kind, name in found if name or kind.endswith("RELATIVE"))


def test_symbols_and_relocations_agree(images):
    _, ours, theirs = images
    assert symbols(ours) == symbols(theirs)
    assert relocations(ours) == relocations(theirs)


def test_both_compute_the_same(images, dlopen, tmp_path):
    arch, *files = images
    imports = {"memcmp": lambda a, b: 100 * a + b}
    for name, arguments, expected in CASES:
        for file in files:
            image = file.read_bytes()
            if arch == "aarch64":
                assert arm.Machine(image, tmp_path / "copy", imports).call(name, *arguments) == expected
            elif arch == "riscv64":
                assert riscv.Machine(image, imports).call(name, *arguments) == expected
            elif name != "imported":  # the C library's memcmp is another
                assert getattr(dlopen(image), name)(*arguments) == expected
