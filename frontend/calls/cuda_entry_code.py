"""LLVM IR of the native entry of a part on a GPU, CUDA's or (under a torch for ROCm) HIP's.

It is `entry_code` with the host launcher (`compiler/native/gpu_launch_ir.py`) between the checks and the results:

    around it all     the part's device is this thread's current one
    before            no failed run-time check is waiting to be raised
    each argument     as on a CPU, and on the part's device, aligned as kernels expect
    outputs, arena    from torch's allocator, which reuses memory in the order of the current stream
    steps             launches and copies on the current stream, or the graph of them

While it launches, other threads of Python may run; if one of them calls the part, it takes the slow path (`busy`).
"""

from __future__ import annotations

from functools import partial

from ...compiler.native.entry_ir import arguments_check, load_slot, load_word
from ...compiler.native.gpu_launch_ir import entry_ir, launch_ir
from ...compiler.native.size_steps_ir import follow_ir
from .entry_code import HELPERS, opening, outputs, results
from .entry_table import ARGUMENT_WORDS, CUDA_SLOT, TENSOR

_slot = partial(load_slot, CUDA_SLOT)


def cuda_entry_ir() -> str:
    """The module; it defines `lamina_entry`."""
    return (
        HELPERS
        + _CHECKS
        + arguments_check(CUDA_SLOT, "check_here", ARGUMENT_WORDS)
        + _ARENA
        + launch_ir(CUDA_SLOT)
        + follow_ir(CUDA_SLOT)
        + opening(_slot("busy", "busy", "i64"), "internal ptr @entry_here")
        + _FACTS
        + outputs("i32 %type, i32 %index", _DEVICE)
        + _RUN
        + results(", [%outputs, %run]")
        + entry_ir(CUDA_SLOT, "lamina_entry")
    )


_CHECKS = f"""
; argument %o as row %row expects it, on the part's device and aligned
define internal i1 @check_here(ptr %t, ptr %o, ptr %row, ptr %buffers) {{
  %tmp = alloca i32
  %good = call i1 @check(ptr %t, ptr %o, ptr %row, ptr %buffers)
  br i1 %good, label %what, label %no
what:
  {load_word("kind", "row", 0)}
  %is = icmp eq i64 %kind, {TENSOR}
  br i1 %is, label %type, label %yes
type:
  %h = call ptr @handle(ptr %t, ptr %o)
  {_slot("ft", "get_device_type")}
  %r0 = call i32 %ft(ptr %h, ptr %tmp)
  %dt = load i32, ptr %tmp
  {_slot("wdt", "device_type", "i32")}
  %dtok = icmp eq i32 %dt, %wdt
  br i1 %dtok, label %index, label %no
index:
  {_slot("fi", "get_device_index")}
  %r1 = call i32 %fi(ptr %h, ptr %tmp)
  %di = load i32, ptr %tmp
  {_slot("wdi", "device_index", "i32")}
  %diok = icmp eq i32 %di, %wdi
  br i1 %diok, label %align, label %no
align:
  {load_word("place", "row", 5)}
  %at = getelementptr i64, ptr %buffers, i64 %place
  %p = load i64, ptr %at
  {_slot("mask", "alignment", "i64")}
  %low = and i64 %p, %mask
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %yes, label %no
yes: ret i1 true
no: ret i1 false
}}
"""

_ARENA = f"""
; memory for the arena from torch's allocator, which reuses it in the order of torch's current stream
define internal i32 @arena_take(ptr %t, i64 %bytes, ptr %stream, ptr %block) {{
  %size = alloca i64
  %one = alloca i64
  store i64 %bytes, ptr %size
  store i64 1, ptr %one
  {_slot("empty", "empty_strided")}
  {_slot("code", "byte_code", "i32")}
  {_slot("dt", "device_type", "i32")}
  {_slot("di", "device_index", "i32")}
  %rc = call i32 %empty(i64 1, ptr %size, ptr %one, i32 %code, i32 %dt, i32 %di, ptr %block)
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %take, label %done
take:
  %h = load ptr, ptr %block
  %p = call ptr @data(ptr %t, ptr %h)
  %address.a = getelementptr ptr, ptr %block, i64 1
  store ptr %p, ptr %address.a
  br label %done
done:
  ret i32 %rc
}}
define internal void @arena_give(ptr %t, ptr %stream, ptr %block) {{
  {_slot("drop", "delete_tensor")}
  %h = load ptr, ptr %block
  %dropped = call i32 %drop(ptr %h)
  ret void
}}
"""

_FACTS = """
facts:
  %calm = call i1 @launch_quiet(ptr %t)
  br i1 %calm, label %arguments, label %slow
"""

_DEVICE = f"""{_slot("type", "device_type", "i32")}
  {_slot("index", "device_index", "i32")}"""

_RUN = f"""
run:
  {_slot("fst", "get_stream")}
  %rst = call i32 %fst(i32 %index, ptr %tmp)
  %stream = load ptr, ptr %tmp
  store i64 1, ptr %busy.a
  %status = call i32 @launch_perform(ptr %t, ptr %buffers, ptr %stream)
  store i64 0, ptr %busy.a
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %results, label %undo
"""
