"""Images are mapped as they ask: data, functions of the system, rights of pages; what is none is an error."""

import ctypes
import re
import struct

import pytest

from lamina.runtime import elf_image
from lamina.runtime.elf_image import map_image

INT = ctypes.CFUNCTYPE(ctypes.c_int64)
# a counter, zero-filled data, a table of addresses, functions of libm and of the compiler's library
CODE = """
@count = internal global i64 41
@zeros = internal global [100000 x i64] zeroinitializer
@table = internal constant [2 x ptr] [ptr @next, ptr @last]
declare double @cosh(double)

define i64 @next() {
  %old = load volatile i64, ptr @count
  %new = add i64 %old, 1
  store volatile i64 %new, ptr @count
  ret i64 %new
}
define i64 @last() {
  %at = getelementptr i64, ptr @zeros, i64 99999
  %value = load volatile i64, ptr %at
  ret i64 %value
}
define i64 @by_table(i64 %i) {
  %at = getelementptr ptr, ptr @table, i64 %i
  %function = load ptr, ptr %at
  %value = call i64 %function()
  ret i64 %value
}
define double @of_the_system(double %x) {
  %y = call double @cosh(double %x)
  ret double %y
}
define i64 @quotient(i64 %high, i64 %low, i64 %by) {
  %a = zext i64 %high to i128
  %b = shl i128 %a, 64
  %c = zext i64 %low to i128
  %d = or i128 %b, %c
  %e = zext i64 %by to i128
  %f = udiv i128 %d, %e
  %g = trunc i128 %f to i64
  ret i64 %g
}
define ptr @where_data_is() {
  ret ptr @count
}
"""


@pytest.fixture(scope="module")
def image(build):
    return build(CODE)


def test_data_tables_and_functions_of_the_system(image):
    symbols, _memory = map_image(image)
    by_table = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(symbols["by_table"])
    assert [by_table(0), by_table(0), by_table(1)] == [42, 43, 0]
    of_the_system = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(symbols["of_the_system"])
    assert of_the_system(1.0) == pytest.approx(1.5430806348152437, rel=1e-15)
    quotient = ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_uint64] * 3)(symbols["quotient"])
    assert quotient(3, 5, 7) == ((3 << 64) + 5) // 7


def test_images_have_data_of_their_own(image):
    images = [map_image(image) for _ in range(2)]
    first, second = (INT(symbols["next"]) for symbols, _ in images)
    assert [first(), first(), second()] == [42, 43, 42]


def test_no_page_is_writable_and_executable(image):
    symbols, _memory = map_image(image)

    def rights(address):
        with open("/proc/self/maps") as file:
            for low, high, found in re.findall(r"^(\w+)-(\w+) (....)", file.read(), re.M):
                if int(low, 16) <= address < int(high, 16):
                    return found

    data = ctypes.CFUNCTYPE(ctypes.c_size_t)(symbols["where_data_is"])()
    assert (rights(symbols["next"]), rights(data)) == ("r-xp", "rw-p")


def test_macos_is_told_of_code_and_has_its_functions_in_the_process(image, monkeypatch):
    class System:
        """The process, as macOS shows it: this system's functions, one more, and one by another name."""

        told = []

        def sys_icache_invalidate(self, start, size):
            self.told.append((start.value, size.value))

        def __getattr__(self, name):
            if name == "cosh":
                raise AttributeError(name)
            name = "cosh" if name == "__cosh" else name
            return getattr(ctypes.CDLL("libgcc_s.so.1" if name.startswith("__") else None), name)

    elf_image._function.cache_clear()
    monkeypatch.setattr(elf_image, "_library", lambda name, system=System(): None if name else system)
    try:
        symbols, _memory = map_image(image)
    finally:
        elf_image._function.cache_clear()
    assert INT(symbols["next"])() == 42
    ((start, size),) = System.told
    assert all(start <= symbols[name] < start + size for name in ("next", "of_the_system", "quotient"))


def test_what_the_system_lacks_is_named(image):
    with pytest.raises(ValueError, match="this system has no function 'cos_'"):
        map_image(image.replace(b"\0cosh\0", b"\0cos_\0"))


def test_a_cut_image_is_an_error(image):
    for size in range(0, loaded_bytes(image), 97):
        with pytest.raises(ValueError, match="it is (no ELF image|damaged)"):
            map_image(image[:size])


def test_an_image_for_another_machine_is_an_error(image):
    for number in (8, 40, 0xF3F3):
        with pytest.raises(ValueError, match="it is no ELF image for "):
            map_image(image[:18] + number.to_bytes(2, "little") + image[20:])


def test_a_machine_that_has_no_images_is_named(image, monkeypatch):
    monkeypatch.setattr(elf_image, "host_arch", lambda: "loongarch64")
    with pytest.raises(ValueError, match="it is no ELF image for loongarch64"):
        map_image(image)


def loaded_bytes(image: bytes) -> int:
    """The end of what segments hold; after it there are tables for debuggers."""
    start, count = struct.unpack_from("<Q", image, 32)[0], struct.unpack_from("<H", image, 56)[0]
    headers = [struct.unpack_from("<IIQQQQ", image, start + 56 * i) for i in range(count)]
    return max(offset + size for kind, _, offset, _, _, size in headers if kind == 1)
