"""LLVM IR of the native entry: one checked, table-driven C function behind every compiled part.

It has CPython's METH_FASTCALL signature, so a part is a builtin: 0.4 µs a call, where ctypes and `data_ptr()` from
Python take some µs. Everything it needs lies in a table of 8-byte slots (`entry_table.py`), whose address is the content of
`self` (a bytes object): addresses of functions, expected arguments, memoised sizes. Nothing is imported, so the image links
against nothing. Entries on GPUs begin and end in the same way (`cuda_entry_code.py`).

    symbols             where a table is for all sizes, its words are computed anew when a symbol has changed
    for each argument   exact type, number of dims, sizes and strides as memoised; ints equal;
                        weights: same object, same pointer, same version
    shared cells        [0] busy: another thread runs a program, [1] the arena, which all tables share
    anything else       the next table, at last the Python slow path (`slow` slot), which also memoises
    a failure           the `failed` slot raises
    then                outputs from torch's allocator, the program, a tuple of tensors
"""

from __future__ import annotations

from functools import partial

from ...compiler.native.entry_ir import (
    CLASS,
    SAME,
    arguments_check,
    failed,
    int_check,
    load_field,
    load_slot,
    load_word,
    perform,
    release,
    slow,
)
from ...compiler.native.size_steps_ir import follow_ir
from .entry_table import ARGUMENT_WORDS, BYTES_DATA, INT, OUTPUT_WORDS, SLOT, TENSOR, WEIGHT

_slot = partial(load_slot, SLOT)


def entry_ir() -> str:
    """The module; it defines `lamina_entry`."""
    return (
        HELPERS
        + arguments_check(SLOT, "check", ARGUMENT_WORDS)
        + perform(SLOT)
        + follow_ir(SLOT)
        + opening(_BUSY)
        + _FACTS
        + outputs("i32 0, i32 -1")
        + _RUN
        + failed(SLOT)
        + results()
    )


_HELPERS = f"""
; exactly a Tensor or a Parameter?
define internal i1 @tensor(ptr %t, ptr %o) {{
  {load_field("type", "o", CLASS)}
  {_slot("tc", "tensor_class")}
  {_slot("pc", "parameter_class")}
  %x = icmp eq ptr %type, %tc
  %y = icmp eq ptr %type, %pc
  %z = or i1 %x, %y
  ret i1 %z
}}
; the handle (at::Tensor*) in a Python tensor
define internal ptr @handle(ptr %t, ptr %o) {{
  {_slot("off", "tensor_offset", "i64")}
  %h = getelementptr i8, ptr %o, i64 %off
  ret ptr %h
}}
define internal ptr @data(ptr %t, ptr %h) {{
  %r = alloca ptr
  store ptr null, ptr %r
  {_slot("f", "get_data_ptr")}
  %s = call i32 %f(ptr %h, ptr %r)
  %p = load ptr, ptr %r
  ret ptr %p
}}
; argument %o as row %row expects it: stores its pointer, or returns false
define internal i1 @check(ptr %t, ptr %o, ptr %row, ptr %buffers) {{
  %tmp = alloca i64
  {load_word("kind", "row", 0)}
  {load_word("w1", "row", 1)}
  {load_word("w2", "row", 2, "ptr")}
  {load_word("w3", "row", 3, "ptr")}
  {load_word("slot", "row", 5)}
  %dst = getelementptr ptr, ptr %buffers, i64 %slot
  switch i64 %kind, label %no [i64 {TENSOR}, label %tensor i64 {INT}, label %int i64 {WEIGHT}, label %weight]
tensor:
  %is = call i1 @tensor(ptr %t, ptr %o)
  br i1 %is, label %rank, label %no
rank:
  %h = call ptr @handle(ptr %t, ptr %o)
  {_slot("fd", "get_dim")}
  %r0 = call i32 %fd(ptr %h, ptr %tmp)
  %nd = load i64, ptr %tmp
  %ndok = icmp eq i64 %nd, %w1
  br i1 %ndok, label %sizes, label %no
sizes:
  {_slot("fs", "get_sizes")}
  %r1 = call i32 %fs(ptr %h, ptr %tmp)
  %sz = load ptr, ptr %tmp
  %szok = call i1 @entry_same(ptr %sz, ptr %w2, i64 %nd)
  br i1 %szok, label %strides, label %no
strides:
  {_slot("ft", "get_strides")}
  %r2 = call i32 %ft(ptr %h, ptr %tmp)
  %st = load ptr, ptr %tmp
  %stok = call i1 @entry_same(ptr %st, ptr %w3, i64 %nd)
  br i1 %stok, label %put, label %no
put:
  %p = call ptr @data(ptr %t, ptr %h)
  store ptr %p, ptr %dst
  ret i1 true
int:
  %equal = call i1 @entry_int(ptr %t, ptr %o, i64 %w1)
  ret i1 %equal
weight:
  %oi = ptrtoint ptr %o to i64
  %same = icmp eq i64 %oi, %w1
  br i1 %same, label %where, label %no
where:
  %wh = call ptr @handle(ptr %t, ptr %o)
  %wp = call ptr @data(ptr %t, ptr %wh)
  %wpok = icmp eq ptr %wp, %w2
  br i1 %wpok, label %version, label %no
version:
  {_slot("vo", "version_outer", "i64")}
  {_slot("vi", "version_inner", "i64")}
  %frozen = icmp slt i64 %vo, 0
  br i1 %frozen, label %yes, label %counter
counter:
  %impl = load ptr, ptr %wh
  %ca = getelementptr i8, ptr %impl, i64 %vo
  %c = load ptr, ptr %ca
  %va = getelementptr i8, ptr %c, i64 %vi
  %ver = load i32, ptr %va
  %ver64 = zext i32 %ver to i64
  %want = ptrtoint ptr %w3 to i64
  %verok = icmp eq i64 %ver64, %want
  br i1 %verok, label %yes, label %no
yes:
  store ptr %w2, ptr %dst
  ret i1 true
no: ret i1 false
}}
"""

# The functions that every entry calls.
HELPERS = SAME + int_check(SLOT) + _HELPERS + release(SLOT, "delete_tensor", "i32")

_BUSY = f"""{_slot("shared", "shared")}
  %busy = load i64, ptr %shared"""


def opening(busy: str, defined: str = "ptr @lamina_entry") -> str:
    """How every entry, or what is `defined` behind it, begins: to a branch to `slow` or, with %t, %buffers and a word %tmp, to block `facts`.

    `busy` defines %busy: 0 if the table may be used now. `facts` asks what else must hold, and goes to `arguments`.
    """
    return f"""
define {defined}(ptr %self, ptr %args, i64 %n) {{
entry:
  {load_field("t", "self", BYTES_DATA)}
  %tmp = alloca i64
  {_slot("buffers", "buffers")}
  {_slot("valid", "valid", "i64")}
  {busy}
  {_slot("want", "arguments", "i64")}
  {_slot("cell", "epoch_cell")}
  {_slot("epoch", "epoch", "i64")}
  %now = load i64, ptr %cell
  %ok0 = icmp ne i64 %valid, 0
  %ok1 = icmp eq i64 %busy, 0
  %ok2 = icmp eq i64 %n, %want
  %ok3 = icmp eq i64 %now, %epoch
  %ok01 = and i1 %ok0, %ok1
  %ok23 = and i1 %ok2, %ok3
  %ok = and i1 %ok01, %ok23
  br i1 %ok, label %facts, label %slow
"""


_FACTS = f"""
facts:
  {_slot("fth", "get_threads")}
  %rth = call i32 %fth(ptr %tmp)
  %th32 = load i32, ptr %tmp
  %th = zext i32 %th32 to i64
  {_slot("thwant", "threads", "i64")}
  %thok = icmp eq i64 %th, %thwant
  br i1 %thok, label %arguments, label %slow
"""


def outputs(device: str, loads: str = "") -> str:
    """From block `arguments`, which checks them, to block `run`, where %handles are %outputs tensors on `device`.

    Before, the table follows the sizes of the arguments where it can (`compiler/native/size_steps_ir.py`). `device` is type and index as operands, `loads` defines what they name.
    """
    return f"""
arguments:
  %follows = call i1 @entry_follow(ptr %t, ptr %args)
  br i1 %follows, label %match, label %slow
match:
  %good = call i1 @entry_arguments(ptr %t, ptr %args, i64 %n, ptr %buffers)
  br i1 %good, label %outs, label %slow
outs:
  {_slot("outputs", "outputs", "i64")}
  {_slot("orows", "output_table")}
  {_slot("empty", "empty_strided")}
  {loads}
  %handles = alloca ptr, i64 %outputs
  br label %out
out:
  %j = phi i64 [0, %outs], [%j1, %outok]
  %jmore = icmp slt i64 %j, %outputs
  br i1 %jmore, label %alloc, label %run
alloc:
  %rj = mul i64 %j, {OUTPUT_WORDS}
  %orow = getelementptr i64, ptr %orows, i64 %rj
  {load_word("ond", "orow", 0)}
  {load_word("osz", "orow", 1, "ptr")}
  {load_word("ost", "orow", 2, "ptr")}
  {load_word("odt", "orow", 3, "i32")}
  {load_word("obuf", "orow", 4)}
  %ha = getelementptr ptr, ptr %handles, i64 %j
  %rc = call i32 %empty(i64 %ond, ptr %osz, ptr %ost, i32 %odt, {device}, ptr %ha)
  %rcok = icmp eq i32 %rc, 0
  br i1 %rcok, label %outok, label %undo
outok:
  %oh = load ptr, ptr %ha
  %op = call ptr @data(ptr %t, ptr %oh)
  %od = getelementptr ptr, ptr %buffers, i64 %obuf
  store ptr %op, ptr %od
  %j1 = add i64 %j, 1
  br label %out
"""


_RUN = """
run:
  store i64 1, ptr %shared
  %status = call i32 @entry_perform(ptr %t, ptr %buffers, ptr %shared)
  store i64 0, ptr %shared
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %results, label %failed
"""

_RESULTS = f"""
results:
  {_slot("tnew", "tuple_new")}
  {_slot("tset", "tuple_set")}
  {_slot("wrap", "wrap")}
  {_slot("drop", "delete_tensor")}
  %tuple = call ptr %tnew(i64 %outputs)
  br label %res
res:
  %k = phi i64 [0, %results], [%k1, %resbody]
  %kmore = icmp slt i64 %k, %outputs
  br i1 %kmore, label %resbody, label %done
resbody:
  %ka = getelementptr ptr, ptr %handles, i64 %k
  %kh = load ptr, ptr %ka
  %py = call ptr %wrap(ptr %kh)
  %kd = call i32 %drop(ptr %kh)
  %ks = call i32 %tset(ptr %tuple, i64 %k, ptr %py)
  %k1 = add i64 %k, 1
  br label %res
done:
  ret ptr %tuple
"""


def results(launched: str = "") -> str:
    """How every entry ends: blocks `results`, `undo` for an output that cannot be had, and `slow`.

    `launched`: %run comes to `undo` too, with all outputs, when nothing has been launched.
    """
    undo = f"""
undo:
  %made = phi i64 [%j, %alloc]{launched}
  call void @entry_release(ptr %t, ptr %handles, i64 %made)
  br label %slow
"""
    return _RESULTS + undo + slow(SLOT)
