"""The entry for numpy arrays that every image carries, as LLVM IR: a checked, table-driven builtin of CPython.

    PyObject *lamina_array_entry_2(PyObject *self, PyObject **args, Py_ssize_t n)        args: out, inputs

A call from numpy costs about a microsecond, where checks and pointers in Python cost five. Nothing of CPython is
imported: addresses of functions lie in the table (`runtime/array_table.py`), so that images link against nothing.

    facts            the threads are those of the memoised context: torch is imported or not, its count, no fork (epoch)
    each input       an ndarray, nothing derived; dims, sizes, strides, dtype as memoised; aligned; if it is written,
                     writeable and apart from all others
    each output      `numpy.empty`, or the caller's `out` if it is the same kind of array and apart from all inputs
    anything else    the next table or Python (`slow`); Python raises what fails (`failed`)
"""

from __future__ import annotations

from functools import partial

from ...runtime import array_table as layout
from .array_checks_ir import ARRAY_CHECKS_IR
from .entry_ir import CLASS, failed, load_field, load_slot, load_word, perform, ready, release, slow

_slot = partial(load_slot, layout.SLOT)

_OUTPUT = f"""
; a reference to the array for output %j, whose pointer is stored; null if the caller's does not fit or there is no memory
define internal ptr @entry_output(ptr %t, ptr %out, i64 %j, ptr %buffers) nounwind {{
  %call = alloca [2 x ptr]
  {_slot("rows", "output_table")}
  {_slot("outputs", "outputs", "i64")}
  %ri = mul i64 %j, {layout.OUTPUT_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {load_word("dtype", "row", 3, "ptr")}
  {load_word("slot", "row", 5)}
  {_slot("none", "none")}
  %fresh = icmp eq ptr %out, %none
  br i1 %fresh, label %make, label %given
make:
  {load_word("shape", "row", 4, "ptr")}
  {_slot("empty", "empty")}
  {_slot("vector", "vectorcall")}
  %second = getelementptr ptr, ptr %call, i64 1
  store ptr %shape, ptr %call
  store ptr %dtype, ptr %second
  %made = call ptr %vector(ptr %empty, ptr %call, i64 2, ptr null)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %no.memory, label %put
no.memory:
  {_slot("clear", "clear_error")}
  call void %clear()
  br label %no
given:
  %one = icmp eq i64 %outputs, 1
  br i1 %one, label %fits, label %several
several:
  {load_field("type", "out", CLASS)}
  {_slot("tc", "tuple_class")}
  %tuple = icmp eq ptr %type, %tc
  br i1 %tuple, label %length, label %no
length:
  {load_field("items", "out", layout.TUPLE_SIZE, "i64")}
  %enough = icmp eq i64 %items, %outputs
  br i1 %enough, label %item, label %no
item:
  %first = getelementptr i8, ptr %out, i64 {layout.TUPLE_ITEMS}
  %item.a = getelementptr ptr, ptr %first, i64 %j
  %element = load ptr, ptr %item.a
  br label %fits
fits:
  %o = phi ptr [%out, %given], [%element, %item]
  {load_word("dims", "row", 0)}
  {load_word("sizes", "row", 1, "ptr")}
  {load_word("strides", "row", 2, "ptr")}
  {load_word("bytes", "row", 6)}
  %ok = call i1 @entry_array(ptr %t, ptr %o, i64 %dims, ptr %sizes, ptr %strides, ptr %dtype, i64 {layout.ALIGNED | layout.WRITEABLE})
  br i1 %ok, label %place, label %no
place:
  {load_field("p", "o", layout.DATA, "i64")}
  %apart = call i1 @entry_apart(ptr %t, i64 %p, i64 %bytes, i64 -1, ptr %buffers)
  br i1 %apart, label %take, label %no
take:
  {_slot("increment", "increment")}
  call void %increment(ptr %o)
  br label %put
put:
  %result = phi ptr [%made, %make], [%o, %take]
  {load_field("data", "result", layout.DATA)}
  %at = getelementptr ptr, ptr %buffers, i64 %slot
  store ptr %data, ptr %at
  ret ptr %result
no: ret ptr null
}}
"""

_ENTRY = f"""
define ptr @{layout.ENTRY}(ptr %self, ptr %args, i64 %n) nounwind {{
entry:
  {load_field("t", "self", layout.BYTES_DATA)}
  {_slot("shared", "shared")}
  {ready(layout.SLOT, "%busy = load i64, ptr %shared")}
facts:
  %out = load ptr, ptr %args
  %inputs = getelementptr ptr, ptr %args, i64 1
  %current = call i1 @entry_current(ptr %t)
  br i1 %current, label %inputs.check, label %slow
inputs.check:
  %good = call i1 @entry_arguments(ptr %t, ptr %inputs, i64 %want, ptr %buffers)
  br i1 %good, label %written, label %slow
written:
  %apart = call i1 @entry_written_apart(ptr %t, ptr %buffers)
  br i1 %apart, label %outs, label %slow
outs:
  ; numpy may run Python while it allocates: a call from there must not use the buffers
  store i64 1, ptr %shared
  {_slot("outputs", "outputs", "i64")}
  %handles = alloca ptr, i64 %outputs
  br label %out.next
out.next:
  %j = phi i64 [0, %outs], [%j1, %outok]
  %jmore = icmp slt i64 %j, %outputs
  br i1 %jmore, label %alloc, label %run
alloc:
  %array = call ptr @entry_output(ptr %t, ptr %out, i64 %j, ptr %buffers)
  %none = icmp eq ptr %array, null
  br i1 %none, label %undo, label %outok
outok:
  %ha = getelementptr ptr, ptr %handles, i64 %j
  store ptr %array, ptr %ha
  %j1 = add i64 %j, 1
  br label %out.next
run:
  %status = call i32 @entry_perform(ptr %t, ptr %buffers, ptr %shared)
  store i64 0, ptr %shared
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %results, label %failed
results:
  %single = icmp eq i64 %outputs, 1
  br i1 %single, label %alone, label %pack
alone:
  %only = load ptr, ptr %handles
  ret ptr %only
pack:
  {_slot("tnew", "tuple_new")}
  {_slot("tset", "tuple_set")}
  %tuple = call ptr %tnew(i64 %outputs)
  br label %item
item:
  %k = phi i64 [0, %pack], [%k1, %item.put]
  %kmore = icmp slt i64 %k, %outputs
  br i1 %kmore, label %item.put, label %done
item.put:
  %ka = getelementptr ptr, ptr %handles, i64 %k
  %ko = load ptr, ptr %ka
  %ks = call i32 %tset(ptr %tuple, i64 %k, ptr %ko)
  %k1 = add i64 %k, 1
  br label %item
done:
  ret ptr %tuple
undo:
  ; the call cannot be made here: drop the outputs
  store i64 0, ptr %shared
  call void @entry_release(ptr %t, ptr %handles, i64 %j)
  br label %slow
"""

ARRAY_IR = (
    ARRAY_CHECKS_IR
    + _OUTPUT
    + perform(layout.SLOT)
    + release(layout.SLOT, "decrement", "void")
    + _ENTRY
    + failed(layout.SLOT)
    + slow(layout.SLOT)
)
