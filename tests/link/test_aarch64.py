"""AArch64 images compute the right values, on a small interpreter of llvm-objdump's output."""

import pytest

from lamina.targets.linker import LinkError, link

from .arm import OBJDUMP, Machine
from .programs import CASES, MAIN, SQUARE

pytestmark = pytest.mark.skipif(not OBJDUMP.exists(), reason="needs llvm-objdump")


@pytest.fixture(scope="module")
def machine(assemble, tmp_path_factory):
    triple = "aarch64-unknown-linux-gnu"
    image = link([assemble(MAIN, triple), assemble(SQUARE, triple)])
    path = tmp_path_factory.mktemp("arm") / "image.so"
    return Machine(image, path, {"memcmp": lambda a, b: 100 * a + b})


@pytest.mark.parametrize(
    "name, arguments, expected",
    CASES,
)
def test_runs(machine, name, arguments, expected):
    assert machine.call(name, *arguments) == expected


def test_machines_do_not_mix(assemble):
    with pytest.raises(LinkError, match="is for ELF machine 62, object 0 for 183"):
        link([assemble(SQUARE, "aarch64-unknown-linux-gnu"), assemble(SQUARE.replace("square", "other"))])
