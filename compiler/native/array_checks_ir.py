"""What the entry for numpy arrays checks (`array_entry_ir.py` says when), as LLVM IR.

    @entry_array          an object is the array expected: an argument, or the caller's `out`
    @entry_check          an argument is as its row expects
    @entry_apart          memory overlaps no argument
    @entry_written_apart  arguments that are written to overlap no other
    @entry_current        the memoised context is the one for a call now

They are internal to the object that every image is linked with; `entry_` keeps their names apart from others there.
"""

from __future__ import annotations

from functools import partial

from ...runtime import array_table as layout
from .entry_ir import CLASS, SAME, arguments_check, every, int_check, load_field, load_slot, load_word

_slot = partial(load_slot, layout.SLOT)

_CHECKS = f"""
; is %o exactly an ndarray with these dims, sizes, strides, dtype and flags?
define internal i1 @entry_array(ptr %t, ptr %o, i64 %dims, ptr %sizes, ptr %strides, ptr %dtype, i64 %flags) nounwind {{
  {load_field("type", "o", CLASS)}
  {_slot("class", "array_class")}
  %typed = icmp eq ptr %type, %class
  br i1 %typed, label %fields, label %no
fields:
  {load_field("od", "o", layout.DTYPE)}
  {load_field("on32", "o", layout.NDIM, "i32")}
  {load_field("of32", "o", layout.FLAGS, "i32")}
  %on = sext i32 %on32 to i64
  %of = zext i32 %of32 to i64
  %set = and i64 %of, %flags
  %ok0 = icmp eq ptr %od, %dtype
  %ok1 = icmp eq i64 %on, %dims
  %ok2 = icmp eq i64 %set, %flags
  %ok01 = and i1 %ok0, %ok1
  %ok = and i1 %ok01, %ok2
  br i1 %ok, label %shape, label %no
shape:
  {load_field("osz", "o", layout.SIZES)}
  {load_field("ost", "o", layout.STRIDES)}
  %szok = call i1 @entry_same(ptr %osz, ptr %sizes, i64 %dims)
  br i1 %szok, label %step, label %no
step:
  %stok = call i1 @entry_same(ptr %ost, ptr %strides, i64 %dims)
  ret i1 %stok
no: ret i1 false
}}
; argument %o as row %row expects it: stores its pointer, or returns false
define internal i1 @entry_check(ptr %t, ptr %o, ptr %row, ptr %buffers) nounwind {{
  {load_word("kind", "row", 0)}
  {load_word("w1", "row", 1)}
  %array = icmp eq i64 %kind, {layout.ARRAY}
  br i1 %array, label %tensor, label %int
tensor:
  {load_word("sizes", "row", 2, "ptr")}
  {load_word("strides", "row", 3, "ptr")}
  {load_word("dtype", "row", 4, "ptr")}
  {load_word("flags", "row", 5)}
  {load_word("slot", "row", 6)}
  %ok = call i1 @entry_array(ptr %t, ptr %o, i64 %w1, ptr %sizes, ptr %strides, ptr %dtype, i64 %flags)
  br i1 %ok, label %put, label %no
put:
  {load_field("data", "o", layout.DATA)}
  %at = getelementptr ptr, ptr %buffers, i64 %slot
  store ptr %data, ptr %at
  ret i1 true
int:
  %equal = call i1 @entry_int(ptr %t, ptr %o, i64 %w1)
  ret i1 %equal
no: ret i1 false
}}
"""

# Do %bytes at %p overlap no argument but number %skip?
_APART = every(
    "entry_apart",
    "ptr %t, i64 %p, i64 %bytes, i64 %skip, ptr %buffers",
    f"""%end = add i64 %p, %bytes
  {_slot("n", "arguments", "i64")}
  {_slot("rows", "argument_table")}""",
    "n",
    f"""%ri = mul i64 %i, {layout.ARGUMENT_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {load_word("kind", "row", 0)}
  {load_word("slot", "row", 6)}
  {load_word("size", "row", 7)}
  %qa = getelementptr i64, ptr %buffers, i64 %slot
  %q = load i64, ptr %qa
  %qend = add i64 %q, %size
  %before = icmp ule i64 %end, %q
  %after = icmp ule i64 %qend, %p
  %same = icmp eq i64 %i, %skip
  %number = icmp eq i64 %kind, {layout.INT}
  %o1 = or i1 %before, %after
  %o2 = or i1 %same, %number
  %fine = or i1 %o1, %o2
  br i1 %fine, label %c, label %no""",
)

# Is every argument that the program writes to apart from the others?
_WRITTEN_APART = every(
    "entry_written_apart",
    "ptr %t, ptr %buffers",
    f"""{_slot("n", "arguments", "i64")}
  {_slot("rows", "argument_table")}""",
    "n",
    f"""%ri = mul i64 %i, {layout.ARGUMENT_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {load_word("written", "row", 8)}
  %w = icmp ne i64 %written, 0
  br i1 %w, label %compare, label %c
compare:
  {load_word("slot", "row", 6)}
  {load_word("size", "row", 7)}
  %pa = getelementptr i64, ptr %buffers, i64 %slot
  %p = load i64, ptr %pa
  %ok = call i1 @entry_apart(ptr %t, i64 %p, i64 %size, i64 %i, ptr %buffers)
  br i1 %ok, label %c, label %no""",
)

_CURRENT = f"""
; is the context that was memoised the one for a call made now?
define internal i1 @entry_current(ptr %t) nounwind {{
  %count = alloca i32
  {_slot("cell", "epoch_cell")}
  {_slot("epoch", "epoch", "i64")}
  %now = load i64, ptr %cell
  {_slot("get", "dict_get")}
  {_slot("modules", "modules")}
  {_slot("name", "torch_name")}
  %torch.now = call ptr %get(ptr %modules, ptr %name)
  {_slot("torch", "torch")}
  %ok0 = icmp eq i64 %now, %epoch
  %ok1 = icmp eq ptr %torch.now, %torch
  %ok = and i1 %ok0, %ok1
  br i1 %ok, label %threads, label %no
threads:
  {_slot("counter", "counter")}
  %fixed = icmp eq ptr %counter, null
  br i1 %fixed, label %yes, label %ask
ask:
  %ignored = call i32 %counter(ptr %count)
  %c32 = load i32, ptr %count
  %c = zext i32 %c32 to i64
  {_slot("want", "threads", "i64")}
  %cok = icmp eq i64 %c, %want
  ret i1 %cok
yes: ret i1 true
no: ret i1 false
}}
"""

ARRAY_CHECKS_IR = "".join(
    (
        SAME,
        int_check(layout.SLOT),
        _CHECKS,
        _APART,
        _WRITTEN_APART,
        _CURRENT,
        arguments_check(layout.SLOT, "entry_check", layout.ARGUMENT_WORDS),
    )
)
