"""The entry for numpy arrays that every image carries, as LLVM IR: a checked, table-driven builtin of CPython.

    PyObject *lamina_array_entry_1(PyObject *self, PyObject **args, Py_ssize_t n)        args: out, inputs

A call from numpy costs about a microsecond, where checks and pointers in Python cost five. Nothing of CPython is
imported: addresses of functions lie in the table (`runtime/array_table.py`), so that images link against nothing.

    facts            the threads are those of the memoised context: torch is imported or not, its count, no fork (epoch)
    each input       an ndarray, nothing derived; dims, sizes, strides, dtype as memoised; aligned; if it is written,
                     writeable and apart from all others
    each output      `numpy.empty`, or the caller's `out` if it is the same kind of array and apart from all inputs
    anything else    the next table or Python (`slow`)
"""

from __future__ import annotations

from ..runtime import array_table as layout


def _slot(result: str, name: str, type: str = "ptr") -> str:
    """Load a slot of the table %t."""
    return (
        f"%{result}.a = getelementptr i64, ptr %t, i64 {layout.SLOT[name]}\n  %{result} = load {type}, ptr %{result}.a"
    )


def _word(result: str, row: str, index: int, type: str = "i64") -> str:
    """Load a word of a row."""
    return f"%{result}.a = getelementptr i64, ptr %{row}, i64 {index}\n  %{result} = load {type}, ptr %{result}.a"


def _field(result: str, object: str, offset: int, type: str = "ptr") -> str:
    """Load a field of a Python object."""
    return f"%{result}.a = getelementptr i8, ptr %{object}, i64 {offset}\n  %{result} = load {type}, ptr %{result}.a"


_CHECKS = f"""
; do n numbers of two arrays agree?
define internal i1 @entry_same(ptr %a, ptr %b, i64 %n) nounwind {{
e: br label %l
l: %i = phi i64 [0, %e], [%j, %c]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %compare, label %yes
compare:
  %pa = getelementptr i64, ptr %a, i64 %i
  %pb = getelementptr i64, ptr %b, i64 %i
  %va = load i64, ptr %pa
  %vb = load i64, ptr %pb
  %eq = icmp eq i64 %va, %vb
  br i1 %eq, label %c, label %no
c: %j = add i64 %i, 1
  br label %l
yes: ret i1 true
no: ret i1 false
}}
; is %o exactly an ndarray with these dims, sizes, strides, dtype and flags?
define internal i1 @entry_array(ptr %t, ptr %o, i64 %dims, ptr %sizes, ptr %strides, ptr %dtype, i64 %flags) nounwind {{
  {_field("type", "o", 8)}
  {_slot("class", "array_class")}
  %typed = icmp eq ptr %type, %class
  br i1 %typed, label %fields, label %no
fields:
  {_field("od", "o", layout.DTYPE)}
  {_field("on32", "o", layout.NDIM, "i32")}
  {_field("of32", "o", layout.FLAGS, "i32")}
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
  {_field("osz", "o", layout.SIZES)}
  {_field("ost", "o", layout.STRIDES)}
  %szok = call i1 @entry_same(ptr %osz, ptr %sizes, i64 %dims)
  br i1 %szok, label %step, label %no
step:
  %stok = call i1 @entry_same(ptr %ost, ptr %strides, i64 %dims)
  ret i1 %stok
no: ret i1 false
}}
; argument %o as row %row expects it: stores its pointer, or returns false
define internal i1 @entry_check(ptr %t, ptr %o, ptr %row, ptr %buffers) nounwind {{
  %overflow = alloca i32
  {_word("kind", "row", 0)}
  {_word("w1", "row", 1)}
  %array = icmp eq i64 %kind, {layout.ARRAY}
  br i1 %array, label %tensor, label %int
tensor:
  {_word("sizes", "row", 2, "ptr")}
  {_word("strides", "row", 3, "ptr")}
  {_word("dtype", "row", 4, "ptr")}
  {_word("flags", "row", 5)}
  {_word("slot", "row", 6)}
  %ok = call i1 @entry_array(ptr %t, ptr %o, i64 %w1, ptr %sizes, ptr %strides, ptr %dtype, i64 %flags)
  br i1 %ok, label %put, label %no
put:
  {_field("data", "o", layout.DATA)}
  %at = getelementptr ptr, ptr %buffers, i64 %slot
  store ptr %data, ptr %at
  ret i1 true
int:
  {_field("type", "o", 8)}
  {_slot("ic", "int_class")}
  %is = icmp eq ptr %type, %ic
  br i1 %is, label %value, label %no
value:
  {_slot("fl", "long_value")}
  store i32 0, ptr %overflow
  %v = call i64 %fl(ptr %o, ptr %overflow)
  %vok = icmp eq i64 %v, %w1
  ret i1 %vok
no: ret i1 false
}}
; do %bytes at %p overlap no argument but number %skip?
define internal i1 @entry_apart(ptr %t, i64 %p, i64 %bytes, i64 %skip, ptr %buffers) nounwind {{
e:
  %end = add i64 %p, %bytes
  {_slot("n", "arguments", "i64")}
  {_slot("rows", "argument_table")}
  br label %l
l: %i = phi i64 [0, %e], [%j, %c]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %other, label %yes
other:
  %ri = mul i64 %i, {layout.ARGUMENT_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {_word("kind", "row", 0)}
  {_word("slot", "row", 6)}
  {_word("size", "row", 7)}
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
  br i1 %fine, label %c, label %no
c: %j = add i64 %i, 1
  br label %l
yes: ret i1 true
no: ret i1 false
}}
; is every argument that the program writes to apart from the others?
define internal i1 @entry_written_apart(ptr %t, ptr %buffers) nounwind {{
e:
  {_slot("n", "arguments", "i64")}
  {_slot("rows", "argument_table")}
  br label %l
l: %i = phi i64 [0, %e], [%j, %c]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %look, label %yes
look:
  %ri = mul i64 %i, {layout.ARGUMENT_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {_word("written", "row", 8)}
  %w = icmp ne i64 %written, 0
  br i1 %w, label %compare, label %c
compare:
  {_word("slot", "row", 6)}
  {_word("size", "row", 7)}
  %pa = getelementptr i64, ptr %buffers, i64 %slot
  %p = load i64, ptr %pa
  %ok = call i1 @entry_apart(ptr %t, i64 %p, i64 %size, i64 %i, ptr %buffers)
  br i1 %ok, label %c, label %no
c: %j = add i64 %i, 1
  br label %l
yes: ret i1 true
no: ret i1 false
}}
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

_OUTPUT = f"""
; a reference to the array for output %j, whose pointer is stored; null if the caller's does not fit or there is no memory
define internal ptr @entry_output(ptr %t, ptr %out, i64 %j, ptr %buffers) nounwind {{
  %call = alloca [2 x ptr]
  {_slot("rows", "output_table")}
  {_slot("outputs", "outputs", "i64")}
  %ri = mul i64 %j, {layout.OUTPUT_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {_word("dtype", "row", 3, "ptr")}
  {_word("slot", "row", 5)}
  {_slot("none", "none")}
  %fresh = icmp eq ptr %out, %none
  br i1 %fresh, label %make, label %given
make:
  {_word("shape", "row", 4, "ptr")}
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
  {_field("type", "out", 8)}
  {_slot("tc", "tuple_class")}
  %tuple = icmp eq ptr %type, %tc
  br i1 %tuple, label %length, label %no
length:
  {_field("items", "out", layout.TUPLE_SIZE, "i64")}
  %enough = icmp eq i64 %items, %outputs
  br i1 %enough, label %item, label %no
item:
  %first = getelementptr i8, ptr %out, i64 {layout.TUPLE_ITEMS}
  %item.a = getelementptr ptr, ptr %first, i64 %j
  %element = load ptr, ptr %item.a
  br label %fits
fits:
  %o = phi ptr [%out, %given], [%element, %item]
  {_word("dims", "row", 0)}
  {_word("sizes", "row", 1, "ptr")}
  {_word("strides", "row", 2, "ptr")}
  {_word("bytes", "row", 6)}
  %ok = call i1 @entry_array(ptr %t, ptr %o, i64 %dims, ptr %sizes, ptr %strides, ptr %dtype, i64 {layout.ALIGNED | layout.WRITEABLE})
  br i1 %ok, label %place, label %no
place:
  {_field("p", "o", layout.DATA, "i64")}
  %apart = call i1 @entry_apart(ptr %t, i64 %p, i64 %bytes, i64 -1, ptr %buffers)
  br i1 %apart, label %take, label %no
take:
  {_slot("increment", "increment")}
  call void %increment(ptr %o)
  br label %put
put:
  %result = phi ptr [%made, %make], [%o, %take]
  {_field("data", "result", layout.DATA)}
  %at = getelementptr ptr, ptr %buffers, i64 %slot
  store ptr %data, ptr %at
  ret ptr %result
no: ret ptr null
}}
"""

_ENTRY = f"""
define ptr @{layout.ENTRY}(ptr %self, ptr %args, i64 %n) nounwind {{
entry:
  {_field("t", "self", layout.BYTES_DATA)}
  {_slot("shared", "shared")}
  {_slot("valid", "valid", "i64")}
  {_slot("want", "arguments", "i64")}
  {_slot("buffers", "buffers")}
  %busy = load i64, ptr %shared
  %given = sub i64 %n, 1
  %ok0 = icmp ne i64 %valid, 0
  %ok1 = icmp eq i64 %busy, 0
  %ok2 = icmp eq i64 %given, %want
  %ok01 = and i1 %ok0, %ok1
  %ok = and i1 %ok01, %ok2
  br i1 %ok, label %facts, label %slow
facts:
  {_slot("rows", "argument_table")}
  %out = load ptr, ptr %args
  %inputs = getelementptr ptr, ptr %args, i64 1
  %current = call i1 @entry_current(ptr %t)
  br i1 %current, label %arg, label %slow
arg:
  %i = phi i64 [0, %facts], [%i1, %argok]
  %imore = icmp slt i64 %i, %want
  br i1 %imore, label %argcheck, label %written
argcheck:
  %oa = getelementptr ptr, ptr %inputs, i64 %i
  %o = load ptr, ptr %oa
  %ri = mul i64 %i, {layout.ARGUMENT_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  %good = call i1 @entry_check(ptr %t, ptr %o, ptr %row, ptr %buffers)
  br i1 %good, label %argok, label %slow
argok:
  %i1 = add i64 %i, 1
  br label %arg
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
  %arena.a = getelementptr i64, ptr %shared, i64 1
  %arena = load ptr, ptr %arena.a
  {_slot("ab", "arena_buffer", "i64")}
  %ad = getelementptr ptr, ptr %buffers, i64 %ab
  store ptr %arena, ptr %ad
  {_slot("main", "main")}
  {_slot("context", "context")}
  {_slot("dims", "dims")}
  {_slot("release", "release", "i64")}
  %long = icmp ne i64 %release, 0
  br i1 %long, label %run.free, label %run.held
run.held:
  %status.held = call i32 %main(ptr %context, ptr %buffers, ptr %dims)
  br label %ran
run.free:
  {_slot("save", "save_thread")}
  {_slot("restore", "restore_thread")}
  %state = call ptr %save()
  %status.free = call i32 %main(ptr %context, ptr %buffers, ptr %dims)
  call void %restore(ptr %state)
  br label %ran
ran:
  %status = phi i32 [%status.held, %run.held], [%status.free, %run.free]
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %results, label %failed
failed:
  ; the program has run, and may have written: Python raises, and does not run it again
  %code = zext i32 %status to i64
  %code.a = getelementptr i64, ptr %shared, i64 2
  store i64 %code, ptr %code.a
  br label %undo
results:
  store i64 0, ptr %shared
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
  ; the call cannot be made here, or failed: drop the outputs
  %made = phi i64 [%j, %alloc], [%outputs, %failed]
  store i64 0, ptr %shared
  {_slot("decrement", "decrement")}
  br label %free
free:
  %f = phi i64 [0, %undo], [%f1, %free.one]
  %fmore = icmp slt i64 %f, %made
  br i1 %fmore, label %free.one, label %slow
free.one:
  %fa = getelementptr ptr, ptr %handles, i64 %f
  %fo = load ptr, ptr %fa
  call void %decrement(ptr %fo)
  %f1 = add i64 %f, 1
  br label %free
slow:
  {_slot("callable", "slow")}
  {_slot("vector", "vectorcall")}
  %answer = call ptr %vector(ptr %callable, ptr %args, i64 %n, ptr null)
  ret ptr %answer
}}
"""

ARRAY_IR = _CHECKS + _OUTPUT + _ENTRY
