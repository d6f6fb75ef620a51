"""Linked images load and compute; what cannot be linked is refused by name."""

import ctypes
import math
import shutil
import struct
import subprocess

import pytest

from lamina.targets.linker import LinkError, link, read_object

TWICE = """
define i32 @twice(i32 %x) {
  %y = call i32 @add(i32 %x, i32 %x)
  ret i32 %y
}
declare i32 @add(i32, i32)
"""
ADD = """
define i32 @add(i32 %x, i32 %y) {
  %z = add i32 %x, %y
  ret i32 %z
}
"""
DATA = """
@counter = global i64 40
@zeros = internal global [4096 x i8] zeroinitializer, align 64
@table = constant [2 x ptr] [ptr @counter, ptr @add]
@k = internal constant [3 x double] [double 1.5, double 2.5, double 3.5]
define i64 @bump() {
  %p = load ptr, ptr @table
  %x = load i64, ptr %p
  %y = add i64 %x, 1
  store i64 %y, ptr %p
  %z = load i8, ptr getelementptr ([4096 x i8], ptr @zeros, i64 0, i64 4095)
  %w = zext i8 %z to i64
  %s = add i64 %y, %w
  ret i64 %s
}
define double @constant(i64 %i) {
  %p = getelementptr [3 x double], ptr @k, i64 0, i64 %i
  %v = load double, ptr %p
  ret double %v
}
define i32 @indirect(i32 %x) {
  %p = load ptr, ptr getelementptr ([2 x ptr], ptr @table, i64 0, i64 1)
  %y = call i32 %p(i32 %x, i32 2)
  ret i32 %y
}
declare i32 @add(i32, i32)
"""
POW = """
declare double @pow(double, double)
@pow_pointer = global ptr @pow
define double @call(double %x, double %y) {
  %z = call double @pow(double %x, double %y)
  ret double %z
}
define double @through_pointer(double %x, double %y) {
  %f = load ptr, ptr @pow_pointer
  %z = call double %f(double %x, double %y)
  ret double %z
}
define ptr @address() { ret ptr @pow }
"""


def program_headers(image):
    count = struct.unpack_from("<H", image, 56)[0]
    return [struct.unpack_from("<IIQQQQQQ", image, 64 + 56 * i) for i in range(count)]


def test_call_between_objects(assemble, dlopen):
    assert dlopen(link([assemble(TWICE), assemble(ADD)])).twice(21) == 42


def test_data_bss_constants_and_pointers(assemble, dlopen):
    lib = dlopen(link([assemble(DATA), assemble(ADD)]))
    lib.bump.restype = ctypes.c_int64
    lib.constant.restype, lib.constant.argtypes = ctypes.c_double, [ctypes.c_int64]
    assert [lib.bump(), lib.bump()] == [41, 42]
    assert [lib.constant(i) for i in range(3)] == [1.5, 2.5, 3.5]
    assert lib.indirect(5) == 7


def test_imports_are_called_and_pointed_to(assemble, dlopen):
    image = link([assemble(POW)])
    assert b"libm.so.6\0" in image and b"libc.so.6\0" not in image
    lib = dlopen(image)
    for name in ("call", "through_pointer"):
        function = getattr(lib, name)
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double] * 2
        assert function(2.0, 0.5) == math.sqrt(2.0)
    lib.address.restype = ctypes.c_void_p
    assert lib.address() == ctypes.c_void_p.in_dll(lib, "pow_pointer").value


def test_no_segment_is_writable_and_executable(assemble):
    loads = [h for h in program_headers(link([assemble(DATA), assemble(ADD), assemble(POW)])) if h[0] == 1]
    assert [h[1] for h in loads] == [4, 5, 6, 6]
    assert all(h[2] % 4096 == h[3] % 4096 for h in loads)
    pages = [(h[3] // 4096, (h[3] + h[6] - 1) // 4096) for h in loads]
    assert all(a[1] < b[0] for a, b in zip(pages, pages[1:]))


def test_tables_of_addresses_become_read_only(assemble, dlopen):
    image = link([assemble(DATA), assemble(ADD)])
    lib = dlopen(image)
    at = ctypes.addressof(ctypes.c_void_p.in_dll(lib, "table"))
    with open("/proc/self/maps") as maps:
        ranges = [line.split()[:2] for line in maps]
    (mode,) = [m for r, m in ranges if int(r.split("-")[0], 16) <= at < int(r.split("-")[1], 16)]
    assert mode.startswith("r--")


def test_equal_objects_give_equal_bytes(assemble):
    objects = [assemble(DATA), assemble(ADD), assemble(POW)]
    assert link(objects) == link(list(objects))


def test_only_named_exports_are_visible(assemble, dlopen):
    lib = dlopen(link([assemble(TWICE), assemble(ADD)], exports=["twice"]))
    assert lib.twice(2) == 4
    with pytest.raises(AttributeError):
        lib.add  # noqa: B018


def test_rename_links_two_copies_of_one_object(assemble, dlopen):
    add = assemble(ADD)
    objects = [read_object(add, f"copy {i}", {"add": f"add{i}"}) for i in range(2)]
    lib = dlopen(link(objects))
    assert lib.add0(1, 2) == lib.add1(1, 2) == 3


def test_a_strong_definition_replaces_a_weak_one(assemble, dlopen):
    weak = "define weak i32 @add(i32 %x, i32 %y) { ret i32 -1 }"
    assert dlopen(link([assemble(weak), assemble(TWICE), assemble(ADD)])).twice(4) == 8


def test_symbols_do_not_leak_between_images(assemble, dlopen):
    other = ADD.replace("add i32", "sub i32")
    first, second = dlopen(link([assemble(ADD)])), dlopen(link([assemble(other), assemble(TWICE)]))
    assert first.add(7, 2) == 9 and second.twice(7) == 0


@pytest.mark.parametrize(
    "texts, options, message",
    [
        ([TWICE], {}, "undefined symbol 'add' (used by object 0"),
        (["declare float @tanhff(float)\ndefine float @f(float %x) { %y = call float @tanhff(float %x)\n ret float %y }"],
         {}, "did you mean tanhf?"),
        ([ADD, ADD], {}, "symbol 'add' is defined twice: in object 0 and in object 1"),
        ([ADD], {"exports": ["main"]}, "no object defines 'main'"),
        (["@x = thread_local global i32 1"], {}, "thread-local"),
        (["@llvm.global_ctors = appending global [1 x {i32, ptr, ptr}] [{i32, ptr, ptr} {i32 1, ptr @f, ptr null}]\n"
          "define void @f() { ret void }"], {}, "constructors"),
        ([], {}, "nothing to link"),
    ],
)  # fmt: skip
def test_refused(assemble, texts, options, message):
    with pytest.raises(LinkError) as error:
        link([assemble(t) for t in texts], **options)
    assert message in str(error.value)


def test_absolute_code_is_refused(assemble):
    text = "@x = internal global i32 0\ndefine ptr @f() { ret ptr @x }"
    with pytest.raises(LinkError, match="reloc=pic"):
        link([assemble(text, reloc="static")])


def test_other_machines_are_refused(assemble):
    with pytest.raises(
        LinkError, match="ELF machine 258 is not supported; supported: x86-64 .62., AArch64 .183., RISC-V .243."
    ):
        link([assemble(ADD, triple="loongarch64-unknown-linux-gnu")])


@pytest.mark.parametrize("cut", [0, 10, 63, 64, 200])
def test_damaged_objects_are_refused(assemble, cut):
    with pytest.raises(LinkError):
        read_object(assemble(ADD)[:cut])


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs binutils")
def test_readelf_finds_nothing_wrong(assemble, tmp_path):
    path = tmp_path / "image.so"
    path.write_bytes(link([assemble(DATA), assemble(ADD), assemble(POW)], soname="image.so"))
    shown = subprocess.run(["readelf", "-aW", path], capture_output=True, text=True, check=True)
    assert shown.stderr == "" and "Warning" not in shown.stdout
    for line in ("Library soname: [image.so]", "R_X86_64_GLOB_DAT", "R_X86_64_RELATIVE", "BIND_NOW"):
        assert line in shown.stdout


@pytest.mark.parametrize("triple", ["x86_64", "aarch64", "riscv64"])
def test_what_becomes_read_only_is_mapped(assemble, triple):
    image = link([assemble(t, f"{triple}-unknown-linux-gnu") for t in (DATA, ADD)])
    (start, count) = struct.unpack_from("<Q", image, 32)[0], struct.unpack_from("<H", image, 56)[0]
    headers = [struct.unpack_from("<IIQQQQQQ", image, start + 56 * i) for i in range(count)]
    loads = [(h[3], h[3] + h[6]) for h in headers if h[0] == 1]
    ((low, high),) = [(h[3], h[3] + h[6]) for h in headers if h[0] == 0x6474E552]
    assert any(a <= low and high <= b for a, b in loads)
