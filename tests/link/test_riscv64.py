"""RISC-V images compute the right values, on a small interpreter."""

import struct

import pytest
from llvmlite import binding as llvm

from lamina.targets.linker import link

from .programs import CASES, MAIN, SQUARE
from .riscv import Machine

SWITCH = """
define i32 @choose(i32 %x) {
  switch i32 %x, label %other [ i32 0, label %a i32 1, label %b i32 2, label %c i32 3, label %d i32 4, label %e ]
a: ret i32 5
b: ret i32 -3
c: ret i32 99
d: ret i32 123456
e:
  %y = call i32 @square(i32 9)
  ret i32 %y
other: ret i32 7
}
declare i32 @square(i32)
"""


@pytest.fixture(scope="module")
def image():
    triple = "riscv64-unknown-linux-gnu"
    target = llvm.Target.from_triple(triple).create_target_machine(
        cpu="generic-rv64", features="+m,+a,+f,+d", opt=2, reloc="pic", codemodel="small"
    )
    objects = []
    for text in (MAIN, SWITCH, SQUARE):
        module = llvm.parse_assembly(text)
        module.triple, module.data_layout = triple, str(target.target_data)
        objects.append(target.emit_object(module))
    return link(objects)


@pytest.mark.parametrize(
    "name, arguments, expected",
    [*CASES, *(("choose", (i,), v) for i, v in enumerate((5, -3, 99, 123456, 81, 7)))],
)
def test_runs(image, name, arguments, expected):
    assert Machine(image, {"memcmp": lambda a, b: 100 * a + b}).call(name, *arguments) == expected


def test_floating_point_abi_is_kept(image):
    assert struct.unpack_from("<I", image, 48)[0] == 4  # double
