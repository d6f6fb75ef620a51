"""AArch64 images compute the right values, on a small interpreter of llvm-objdump's output."""

import pytest

from lamina.targets.linker import LinkError, link

from .arm import OBJDUMP, Machine

pytestmark = pytest.mark.skipif(not OBJDUMP.exists(), reason="needs llvm-objdump")

MAIN = """
@far = internal constant [40000 x i8] zeroinitializer
@numbers = internal constant [3 x i32] [i32 10, i32 20, i32 30]
@table = constant [2 x ptr] [ptr @square, ptr @numbers]
@variable = global i64 7
declare i32 @square(i32)
declare i32 @memcmp(i32, i32)
define i32 @direct(i32 %x) {
  %a = call i32 @square(i32 %x)
  %y = add i32 %a, 1
  ret i32 %y
}
define i32 @tail(i32 %x) {
  %y = tail call i32 @square(i32 %x)
  ret i32 %y
}
define i32 @through_table(i32 %x) {
  %f = load ptr, ptr @table
  %y = call i32 %f(i32 %x)
  ret i32 %y
}
define i32 @constant() {
  %v = load volatile i32, ptr getelementptr ([3 x i32], ptr @numbers, i64 0, i64 2)
  ret i32 %v
}
define i32 @pointer_to_constant() {
  %p = load volatile ptr, ptr getelementptr ([2 x ptr], ptr @table, i64 0, i64 1)
  %q = getelementptr i32, ptr %p, i64 1
  %v = load i32, ptr %q
  ret i32 %v
}
define i64 @read_variable() {
  %v = load volatile i64, ptr @variable
  ret i64 %v
}
define i32 @imported(i32 %x, i32 %y) {
  %v = call i32 @memcmp(i32 %x, i32 %y)
  %w = add i32 %v, 1
  ret i32 %w
}
"""
SQUARE = "define i32 @square(i32 %x) {\n %y = mul i32 %x, %x\n ret i32 %y\n}"


@pytest.fixture(scope="module")
def machine(assemble, tmp_path_factory):
    triple = "aarch64-unknown-linux-gnu"
    image = link([assemble(MAIN, triple), assemble(SQUARE, triple)])
    path = tmp_path_factory.mktemp("arm") / "image.so"
    return Machine(image, path, {"memcmp": lambda a, b: 100 * a + b})


@pytest.mark.parametrize(
    "name, arguments, expected",
    [
        ("direct", (5,), 26),
        ("tail", (6,), 36),
        ("through_table", (7,), 49),
        ("constant", (), 30),
        ("pointer_to_constant", (), 20),
        ("read_variable", (), 7),
        ("imported", (3, 4), 305),
    ],
)
def test_runs(machine, name, arguments, expected):
    assert machine.call(name, *arguments) == expected


def test_machines_do_not_mix(assemble):
    with pytest.raises(LinkError, match="is for ELF machine 62, object 0 for 183"):
        link([assemble(SQUARE, "aarch64-unknown-linux-gnu"), assemble(SQUARE.replace("square", "other"))])
