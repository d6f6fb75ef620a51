"""The entry for GPUs that artifacts carry for hosts, as LLVM IR: a checked, table-driven builtin of CPython.

    PyObject *lamina_gpu_entry_4(PyObject *self, PyObject **args, Py_ssize_t n)        args: stream, inputs

Nothing is imported: addresses of CPython's and the driver's functions lie in the table (`runtime/gpu/table.py`), so that
one shared object serves all programs, CUDA and HIP. It launches as entries under torch do (`gpu_launch_ir.py`).

    around it all    the device is this thread's current one
    facts            the stream is an int; no failed run-time check waits to be raised
    each input       a DeviceArray whose content this stream makes, or an array that its class reads as a DLTensor for
                     this stream; shape and dtype as memoised; on the device; aligned
    each output      memory of the device's pool, in the order of the stream
    anything else    the next table or Python (`slow`)
"""

from __future__ import annotations

from functools import partial

from ...runtime.gpu import table as layout
from .entry_ir import CLASS, SAME, arguments_check, for_all, int_check, load_field, load_slot, load_word, ready, slow
from .gpu_launch_ir import entry_ir, launch_ir

_slot = partial(load_slot, layout.SLOT)
_EQUAL = 2  # Py_EQ


def _load_array(result: str, field: str, type: str = "ptr") -> str:
    """IR that loads the field of the DeviceArray %o whose place slot `array_FIELD` tells."""
    place = _slot(f"{result}.at", f"array_{field}", "i64")
    return f"{place}\n  %{result}.p = getelementptr i8, ptr %o, i64 %{result}.at\n  %{result} = load {type}, ptr %{result}.p"


_NUMBER = f"""
; the value of the int %o, for numbers that fit
define internal i64 @entry_number(ptr %t, ptr %o) nounwind {{
  %overflow = alloca i32
  {_slot("get", "long_value")}
  %v = call i64 %get(ptr %o, ptr %overflow)
  ret i64 %v
}}
; stores pointer %p for input %slot if it is aligned
define internal i1 @entry_put(ptr %t, i64 %p, i64 %slot, ptr %buffers) nounwind {{
  {_slot("mask", "alignment", "i64")}
  %low = and i64 %p, %mask
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %yes, label %no
yes:
  %at = getelementptr i64, ptr %buffers, i64 %slot
  store i64 %p, ptr %at
  ret i1 true
no: ret i1 false
}}
"""

_OURS = f"""
; a DeviceArray as row %row expects it
define internal i1 @entry_ours(ptr %t, ptr %o, ptr %row, ptr %buffers) nounwind {{
  {load_word("slot", "row", 2)}
  {load_word("shape", "row", 3, "ptr")}
  {load_word("dtype", "row", 4, "ptr")}
  {_load_array("od", "device")}
  {_slot("device", "device")}
  {_load_array("ot", "dtype")}
  %here = icmp eq ptr %od, %device
  %typed = icmp eq ptr %ot, %dtype
  %ok = and i1 %here, %typed
  br i1 %ok, label %sizes, label %no
sizes:
  {_load_array("os", "shape")}
  %same = icmp eq ptr %os, %shape
  br i1 %same, label %made, label %compare
compare:
  {_slot("equal", "compare")}
  %c = call i32 %equal(ptr %os, ptr %shape, i32 {_EQUAL})
  %agree = icmp eq i32 %c, 1
  br i1 %agree, label %made, label %no
made:
  {_load_array("om", "stream")}
  %by = call i64 @entry_number(ptr %t, ptr %om)
  {_slot("stream", "stream", "i64")}
  %ordered = icmp eq i64 %by, %stream
  br i1 %ordered, label %put, label %no
put:
  {_load_array("op", "pointer")}
  %p = call i64 @entry_number(ptr %t, ptr %op)
  %done = call i1 @entry_put(ptr %t, i64 %p, i64 %slot, ptr %buffers)
  ret i1 %done
no: ret i1 false
}}
"""

_EXCHANGED = f"""
; another library's array as row %row expects it: its class fills a DLTensor, and tells the stream that it works on
define internal i1 @entry_exchanged(ptr %t, ptr %o, ptr %row, ptr %buffers) nounwind {{
  %dl = alloca i8, i64 {layout.DL_BYTES}, align 8
  %on = alloca i64
  {load_word("slot", "row", 2)}
  {load_word("read", "row", 3, "ptr")}
  {load_word("dtype", "row", 4, "i32")}
  {load_word("dims", "row", 5)}
  {load_word("sizes", "row", 6, "ptr")}
  {load_word("strides", "row", 7, "ptr")}
  {load_word("ask", "row", 8, "ptr")}
  %failed = call i32 %read(ptr %o, ptr %dl)
  %was.read = icmp eq i32 %failed, 0
  br i1 %was.read, label %look, label %refused
refused:
  {_slot("forget", "clear_error")}
  call void %forget()
  br label %no
look:
  {load_field("od", "dl", layout.DL_DEVICE, "i64")}
  {load_field("ot", "dl", layout.DL_DTYPE, "i32")}
  {load_field("on32", "dl", layout.DL_DIMS, "i32")}
  %ond = sext i32 %on32 to i64
  {_slot("device", "dlpack_device", "i64")}
  %ok0 = icmp eq i64 %od, %device
  %ok1 = icmp eq i32 %ot, %dtype
  %ok2 = icmp eq i64 %ond, %dims
  %ok01 = and i1 %ok0, %ok1
  %ok = and i1 %ok01, %ok2
  br i1 %ok, label %shape, label %no
shape:
  {load_field("osz", "dl", layout.DL_SIZES)}
  {load_field("ost", "dl", layout.DL_STRIDES)}
  %szok = call i1 @entry_same(ptr %osz, ptr %sizes, i64 %dims)
  br i1 %szok, label %step, label %no
step:
  %row.major = icmp eq ptr %ost, null
  br i1 %row.major, label %work, label %steps
steps:
  %stok = call i1 @entry_same(ptr %ost, ptr %strides, i64 %dims)
  br i1 %stok, label %work, label %no
work:
  %type = trunc i64 %od to i32
  %high = lshr i64 %od, 32
  %index = trunc i64 %high to i32
  store i64 0, ptr %on
  %unknown = call i32 %ask(i32 %type, i32 %index, ptr %on)
  %now = load i64, ptr %on
  {_slot("stream", "stream", "i64")}
  %same = icmp eq i64 %now, %stream
  %told = icmp eq i32 %unknown, 0
  %ordered = and i1 %same, %told
  br i1 %ordered, label %put, label %no
put:
  {load_field("data", "dl", layout.DL_DATA, "i64")}
  {load_field("offset", "dl", layout.DL_OFFSET, "i64")}
  %p = add i64 %data, %offset
  %done = call i1 @entry_put(ptr %t, i64 %p, i64 %slot, ptr %buffers)
  ret i1 %done
no: ret i1 false
}}
"""

_CHECK = f"""
; argument %o as row %row expects it: stores its pointer, or returns false
define internal i1 @entry_check(ptr %t, ptr %o, ptr %row, ptr %buffers) nounwind {{
  {load_word("kind", "row", 0)}
  {load_word("w1", "row", 1)}
  %number = icmp eq i64 %kind, {layout.INT}
  br i1 %number, label %int, label %array
int:
  %equal = call i1 @entry_int(ptr %t, ptr %o, i64 %w1)
  ret i1 %equal
array:
  {load_field("type", "o", CLASS, "i64")}
  %typed = icmp eq i64 %type, %w1
  br i1 %typed, label %which, label %no
which:
  %own = icmp eq i64 %kind, {layout.OURS}
  br i1 %own, label %ours, label %exchanged
ours:
  %a = call i1 @entry_ours(ptr %t, ptr %o, ptr %row, ptr %buffers)
  ret i1 %a
exchanged:
  %b = call i1 @entry_exchanged(ptr %t, ptr %o, ptr %row, ptr %buffers)
  ret i1 %b
no: ret i1 false
}}
"""

_MEMORY = f"""
; the arena of a call, in the order of %stream
define internal i32 @arena_take(ptr %t, i64 %bytes, ptr %stream, ptr %block) nounwind {{
  {_slot("take", "take_memory")}
  {_slot("pool", "pool")}
  %address.a = getelementptr ptr, ptr %block, i64 1
  %c = call i32 %take(ptr %address.a, i64 %bytes, ptr %pool, ptr %stream)
  ret i32 %c
}}
define internal void @arena_give(ptr %t, ptr %stream, ptr %block) nounwind {{
  {_slot("give", "give_memory")}
  %address.a = getelementptr ptr, ptr %block, i64 1
  %address = load ptr, ptr %address.a
  %c = call i32 %give(ptr %address, ptr %stream)
  ret void
}}
"""

_GIVE = for_all(
    "entry_give",
    "ptr %t, ptr %buffers, ptr %stream, i64 %n",
    _slot("rows", "output_table") + "\n  " + _slot("give", "give_memory"),
    "n",
    f"""%ri = mul i64 %i, {layout.OUTPUT_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {load_word("slot", "row", 1)}
  %at = getelementptr ptr, ptr %buffers, i64 %slot
  %p = load ptr, ptr %at
  %code = call i32 %give(ptr %p, ptr %stream)
  br label %c""",
)

_ENTRY = f"""
define internal ptr @entry_here(ptr %self, ptr %args, i64 %n) nounwind {{
entry:
  {load_field("t", "self", layout.BYTES_DATA)}
  {ready(layout.SLOT, _slot("busy", "busy", "i64"))}
facts:
  %first = load ptr, ptr %args
  {load_field("type", "first", CLASS)}
  {_slot("ints", "int_class")}
  %int = icmp eq ptr %type, %ints
  br i1 %int, label %current, label %slow
current:
  %number = call i64 @entry_number(ptr %t, ptr %first)
  %stream = inttoptr i64 %number to ptr
  {_slot("stream.old", "stream", "i64")}
  store i64 %number, ptr %stream.old.a
  %quiet = call i1 @launch_quiet(ptr %t)
  br i1 %quiet, label %inputs, label %slow
inputs:
  %inputs.a = getelementptr ptr, ptr %args, i64 1
  %good = call i1 @entry_arguments(ptr %t, ptr %inputs.a, i64 %want, ptr %buffers)
  br i1 %good, label %outs, label %slow
outs:
  store i64 1, ptr %busy.a
  {_slot("outputs", "outputs", "i64")}
  {_slot("rows", "output_table")}
  {_slot("take", "take_memory")}
  {_slot("pool", "pool")}
  br label %out
out:
  %j = phi i64 [0, %outs], [%j1, %took]
  %jmore = icmp slt i64 %j, %outputs
  br i1 %jmore, label %alloc, label %run
alloc:
  %rj = mul i64 %j, {layout.OUTPUT_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %rj
  {load_word("bytes", "row", 0)}
  {load_word("slot", "row", 1)}
  %at = getelementptr ptr, ptr %buffers, i64 %slot
  %tc = call i32 %take(ptr %at, i64 %bytes, ptr %pool, ptr %stream)
  %tok = icmp eq i32 %tc, 0
  br i1 %tok, label %took, label %undo
took:
  %j1 = add i64 %j, 1
  br label %out
run:
  %status = call i32 @launch_perform(ptr %t, ptr %buffers, ptr %stream)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %results, label %undo
results:
  ; still busy: the pointers are in the table until `finish` has read them, and other threads of Python may run in it
  {_slot("finish", "finish")}
  {_slot("call", "vectorcall")}
  %made = call ptr %call(ptr %finish, ptr null, i64 0, ptr null)
  store i64 0, ptr %busy.a
  ret ptr %made
undo:
  ; a failed call: give back the outputs taken so far, then let Python do it again and raise
  %count = phi i64 [%j, %alloc], [%outputs, %run]
  store i64 0, ptr %busy.a
  call void @entry_give(ptr %t, ptr %buffers, ptr %stream, i64 %count)
  br label %slow
"""


def gpu_entry_ir() -> str:
    """The module; it defines the entry."""
    return "".join(
        (
            SAME,
            int_check(layout.SLOT),
            _NUMBER,
            _OURS,
            _EXCHANGED,
            _CHECK,
            arguments_check(layout.SLOT, "entry_check", layout.ARGUMENT_WORDS),
            _MEMORY,
            _GIVE,
            launch_ir(layout.SLOT),
            _ENTRY,
            slow(layout.SLOT),
            entry_ir(layout.SLOT, layout.ENTRY),
        )
    )
