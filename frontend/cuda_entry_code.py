"""LLVM IR of the native entry of a part on a GPU: the host launcher.

It is `entry_code` with other work between the checks and the results, on a table with more slots:

    before            no failed run-time check is waiting to be raised; the part's context is this thread's
    each argument     as on a CPU, and on the part's device, aligned as kernels expect
    outputs, arena    from torch's allocator, which reuses memory in the order of the current stream
    steps             `cuLaunchKernel` or a copy for each on the current stream, by the driver's addresses
    or the graph      the CUDA graph of the steps; nodes whose pointers differ from the last call's are set first

While it launches, other threads of Python may run; if one of them calls the part, it takes the slow path (`busy`).
"""

from __future__ import annotations

from functools import partial

from ..compiler.entry_ir import arguments_check, load_slot, load_word
from .cuda_launch_code import LAUNCH
from .entry_code import HELPERS, RESULTS, opening, outputs
from .entry_table import ARGUMENT_WORDS, CUDA_SLOT, TENSOR

_slot = partial(load_slot, CUDA_SLOT)


def cuda_entry_ir() -> str:
    """The module; it defines `lamina_entry`."""
    return (
        HELPERS
        + _CHECKS
        + arguments_check(CUDA_SLOT, "check_here", ARGUMENT_WORDS)
        + LAUNCH
        + _PERFORM
        + opening(_slot("busy", "busy", "i64"))
        + _FACTS
        + outputs("i32 %type, i32 %index", _DEVICE)
        + _RUN
        + RESULTS
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
; has no run-time check failed?
define internal i1 @quiet(ptr %t) {{
e:
  {_slot("words", "status_words")}
  {_slot("count", "status_count", "i64")}
  br label %l
l: %i = phi i64 [0, %e], [%j, %c]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %a = getelementptr i32, ptr %words, i64 %i
  %v = load volatile i32, ptr %a
  %zero = icmp eq i32 %v, 0
  br i1 %zero, label %c, label %no
c: %j = add i64 %i, 1
  br label %l
yes: ret i1 true
no: ret i1 false
}}
"""

_PERFORM = f"""
; all work of a call on %stream; other than 0 is an error's code
define internal i32 @perform(ptr %t, ptr %buffers, ptr %stream) {{
entry:
  %handle = alloca ptr
  %size = alloca i64
  %one = alloca i64
  %mode = alloca i32
  {_slot("busy", "busy", "i64")}
  {_slot("bytes", "arena_bytes", "i64")}
  {_slot("drop", "delete_tensor")}
  store i64 %bytes, ptr %size
  store i64 1, ptr %one
  %some = icmp ne i64 %bytes, 0
  br i1 %some, label %reserve, label %put
reserve:
  {_slot("empty", "empty_strided")}
  {_slot("code", "byte_code", "i32")}
  {_slot("dt", "device_type", "i32")}
  {_slot("di", "device_index", "i32")}
  %rc = call i32 %empty(i64 1, ptr %size, ptr %one, i32 %code, i32 %dt, i32 %di, ptr %handle)
  %rcok = icmp eq i32 %rc, 0
  br i1 %rcok, label %reserved, label %none
reserved:
  %h = load ptr, ptr %handle
  %p = call ptr @data(ptr %t, ptr %h)
  %pi = ptrtoint ptr %p to i64
  br label %put
put:
  %base = phi i64 [0, %entry], [%pi, %reserved]
  store i64 1, ptr %busy.a
  %placed = call i32 @place(ptr %t, ptr %buffers, i64 %base)
  %placedok = icmp eq i32 %placed, 0
  br i1 %placedok, label %ready, label %release
ready:
  {_slot("save", "save_thread")}
  {_slot("restore", "restore_thread")}
  %state = call ptr %save()
  {_slot("graph", "graph")}
  %has = icmp ne ptr %graph, null
  br i1 %has, label %asks, label %direct
asks:
  {_slot("capturing", "is_capturing")}
  %cc = call i32 %capturing(ptr %stream, ptr %mode)
  %m = load i32, ptr %mode
  %free = icmp eq i32 %m, 0
  br i1 %free, label %graphed, label %direct
graphed:
  %r0 = call i32 @replay(ptr %t, ptr %buffers, ptr %stream)
  br label %back
direct:
  %r1 = call i32 @walk(ptr %t, ptr %buffers, ptr %stream)
  br label %back
back:
  %r = phi i32 [%r0, %graphed], [%r1, %direct]
  call void %restore(ptr %state)
  br label %release
release:
  %result = phi i32 [%placed, %put], [%r, %back]
  store i64 0, ptr %busy.a
  br i1 %some, label %free_arena, label %done
free_arena:
  %ah = load ptr, ptr %handle
  %dropped = call i32 %drop(ptr %ah)
  br label %done
done:
  ret i32 %result
none:
  ret i32 %rc
}}
"""

_FACTS = f"""
facts:
  {_slot("fc", "current_context")}
  %rctx = call i32 %fc(ptr %tmp)
  %ctx = load ptr, ptr %tmp
  {_slot("wctx", "device_context")}
  %ctxok = icmp eq ptr %ctx, %wctx
  %calm = call i1 @quiet(ptr %t)
  %fit = and i1 %ctxok, %calm
  br i1 %fit, label %arguments, label %slow
"""

_DEVICE = f"""{_slot("type", "device_type", "i32")}
  {_slot("index", "device_index", "i32")}"""

_RUN = f"""
run:
  {_slot("fst", "get_stream")}
  %rst = call i32 %fst(i32 %index, ptr %tmp)
  %stream = load ptr, ptr %tmp
  %status = call i32 @perform(ptr %t, ptr %buffers, ptr %stream)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %results, label %undo
"""
