"""Images for the runtime's tests: LLVM IR text through llvmlite and the linker."""

import pytest
from llvmlite import binding as llvm

from lamina.targets.linker import link

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()


@pytest.fixture(scope="session")
def build():
    """build(*texts) → image: each text one object."""
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel="small")

    def run(*texts: str) -> bytes:
        objects = []
        for text in texts:
            module = llvm.parse_assembly(text)
            module.triple, module.data_layout = target.triple, str(machine.target_data)
            module.verify()
            objects.append(machine.emit_object(module))
        return link(objects)

    return run
