"""Objects for the linker's tests: LLVM IR text through llvmlite."""

import ctypes

import pytest
from llvmlite import binding as llvm

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()


@pytest.fixture(scope="session")
def assemble():
    def run(text, triple="x86_64-unknown-linux-gnu", codemodel="small", reloc="pic") -> bytes:
        machine = llvm.Target.from_triple(triple).create_target_machine(opt=2, reloc=reloc, codemodel=codemodel)
        module = llvm.parse_assembly(text)
        module.triple, module.data_layout = triple, str(machine.target_data)
        return machine.emit_object(module)

    return run


@pytest.fixture
def dlopen(tmp_path):
    """The system's loader, which C programs use."""

    def open_image(image: bytes) -> ctypes.CDLL:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.so"
        path.write_bytes(image)
        return ctypes.CDLL(str(path))

    return open_image
