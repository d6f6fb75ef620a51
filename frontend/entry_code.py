"""LLVM IR of the native entry: one checked, table-driven C function behind every compiled part.

It has CPython's METH_FASTCALL signature, so a part is a builtin: 0.4 µs a call, where ctypes and `data_ptr()` from
Python take some µs. Everything it needs lies in a table of 8-byte slots, whose address is the content of `self` (a bytes
object): addresses of functions, expected arguments, memoised sizes. Nothing is imported, so the image links against nothing.

    for each argument   exact type, number of dims, sizes and strides as memoised; ints equal;
                        weights: same object, same pointer, same version
    shared cells        [0] busy: another thread runs a program, [1] the arena, which all tables share, [2] a failure's status
    anything else       the next table, at last the Python slow path (`slow` slot), which also memoises
    then                outputs from torch's allocator, the program, a tuple of tensors
"""

from __future__ import annotations

# Slots of the table, in order.
SLOTS = (
    # functions
    "get_data_ptr", "get_dim", "get_sizes", "get_strides", "empty_strided", "delete_tensor", "wrap",
    "tuple_new", "tuple_set", "vectorcall", "long_value", "save_thread", "restore_thread", "get_threads",
    # facts of torch and Python
    "tensor_class", "parameter_class", "int_class", "tensor_offset", "version_outer", "version_inner",
    # the program
    "main", "context", "threads", "buffers", "dims",
    # the signature as memoised
    "arguments", "argument_table", "outputs", "output_table",
    # state
    "valid", "shared", "arena_buffer", "epoch_cell", "epoch", "release", "slow",
)  # fmt: skip
# Where the content of a bytes object starts.
BYTES_DATA = bytes.__basicsize__ - 1
SLOT = {name: i for i, name in enumerate(SLOTS)}

# Rows of the argument table: kind; then by kind; then the slot of `buffers` that gets the pointer.
TENSOR, INT, WEIGHT = 0, 1, 2
ARGUMENT_WORDS = 6  # tensor: dims, &sizes, &strides, buffer | int: value | weight: object, pointer, version
OUTPUT_WORDS = 5  # dims, &sizes, &strides, dtype code, buffer


def entry_ir() -> str:
    """The module; it defines `lamina_entry`."""
    return HELPERS + _PERFORM + _ENTRY + RESULTS


def load_slot(result: str, number: int, type: str = "ptr") -> str:
    """IR that loads slot `number` of the table %t."""
    return f"%{result}.a = getelementptr i64, ptr %t, i64 {number}\n  %{result} = load {type}, ptr %{result}.a"


def _slot(result: str, name: str, type: str = "ptr") -> str:
    return load_slot(result, SLOT[name], type)


def load_word(result: str, row: str, index: int, type: str = "i64") -> str:
    """IR that loads a word of the table row %`row`."""
    return f"%{result}.a = getelementptr i64, ptr %{row}, i64 {index}\n  %{result} = load {type}, ptr %{result}.a"


HELPERS = f"""
; do n numbers of two arrays agree?
define internal i1 @same(ptr %a, ptr %b, i64 %n) {{
e: br label %l
l: %i = phi i64 [0, %e], [%j, %c]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %c0, label %yes
c0:
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
; exactly a Tensor or a Parameter?
define internal i1 @tensor(ptr %t, ptr %o) {{
  %ta = getelementptr i8, ptr %o, i64 8
  %type = load ptr, ptr %ta
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
  %szok = call i1 @same(ptr %sz, ptr %w2, i64 %nd)
  br i1 %szok, label %strides, label %no
strides:
  {_slot("ft", "get_strides")}
  %r2 = call i32 %ft(ptr %h, ptr %tmp)
  %st = load ptr, ptr %tmp
  %stok = call i1 @same(ptr %st, ptr %w3, i64 %nd)
  br i1 %stok, label %put, label %no
put:
  %p = call ptr @data(ptr %t, ptr %h)
  store ptr %p, ptr %dst
  ret i1 true
int:
  %ta = getelementptr i8, ptr %o, i64 8
  %type = load ptr, ptr %ta
  {_slot("ic", "int_class")}
  %isint = icmp eq ptr %type, %ic
  br i1 %isint, label %value, label %no
value:
  {_slot("fl", "long_value")}
  store i32 0, ptr %tmp
  %v = call i64 %fl(ptr %o, ptr %tmp)
  %vok = icmp eq i64 %v, %w1
  ret i1 %vok
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

_PERFORM = f"""
; the program; a failure's status is left for Python to raise, since the program may have written to arguments
define internal i32 @perform(ptr %t, ptr %buffers, ptr %shared) {{
  store i64 1, ptr %shared
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
  br i1 %long, label %free, label %held
held:
  %status.held = call i32 %main(ptr %context, ptr %buffers, ptr %dims)
  br label %ran
free:
  {_slot("save", "save_thread")}
  {_slot("restore", "restore_thread")}
  %state = call ptr %save()
  %status.free = call i32 %main(ptr %context, ptr %buffers, ptr %dims)
  call void %restore(ptr %state)
  br label %ran
ran:
  %status = phi i32 [%status.held, %held], [%status.free, %free]
  %code = zext i32 %status to i64
  %code.a = getelementptr i64, ptr %shared, i64 2
  store i64 %code, ptr %code.a
  store i64 0, ptr %shared
  ret i32 %status
}}
"""

_ENTRY = f"""
define ptr @lamina_entry(ptr %self, ptr %args, i64 %n) {{
entry:
  %cell0 = getelementptr i8, ptr %self, i64 {BYTES_DATA}
  %t = load ptr, ptr %cell0
  {_slot("buffers", "buffers")}
  {_slot("valid", "valid", "i64")}
  {_slot("shared", "shared")}
  %busy = load i64, ptr %shared
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
  br i1 %ok, label %threads, label %slow
threads:
  %count = alloca i32
  {_slot("fth", "get_threads")}
  %rth = call i32 %fth(ptr %count)
  %th32 = load i32, ptr %count
  %th = zext i32 %th32 to i64
  {_slot("thwant", "threads", "i64")}
  %thok = icmp eq i64 %th, %thwant
  br i1 %thok, label %args0, label %slow
args0:
  {_slot("rows", "argument_table")}
  br label %arg
arg:
  %i = phi i64 [0, %args0], [%i1, %argok]
  %imore = icmp slt i64 %i, %n
  br i1 %imore, label %argcheck, label %outs
argcheck:
  %oa = getelementptr ptr, ptr %args, i64 %i
  %o = load ptr, ptr %oa
  %ri = mul i64 %i, {ARGUMENT_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  %good = call i1 @check(ptr %t, ptr %o, ptr %row, ptr %buffers)
  br i1 %good, label %argok, label %slow
argok:
  %i1 = add i64 %i, 1
  br label %arg
outs:
  {_slot("outputs", "outputs", "i64")}
  {_slot("orows", "output_table")}
  {_slot("empty", "empty_strided")}
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
  %rc = call i32 %empty(i64 %ond, ptr %osz, ptr %ost, i32 %odt, i32 0, i32 -1, ptr %ha)
  %rcok = icmp eq i32 %rc, 0
  br i1 %rcok, label %outok, label %undo
outok:
  %oh = load ptr, ptr %ha
  %op = call ptr @data(ptr %t, ptr %oh)
  %od = getelementptr ptr, ptr %buffers, i64 %obuf
  store ptr %op, ptr %od
  %j1 = add i64 %j, 1
  br label %out
run:
  %status = call i32 @perform(ptr %t, ptr %buffers, ptr %shared)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %results, label %undo
"""

# How every entry ends: blocks `results` and `undo` (after `alloc` with %j outputs, or after `run`) and `slow`.
RESULTS = f"""
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
undo:
  ; a failed call: release the outputs made so far, then let the slow path do it again and raise
  %made = phi i64 [%j, %alloc], [%outputs, %run]
  {_slot("drop2", "delete_tensor")}
  br label %free
free:
  %f = phi i64 [0, %undo], [%f1, %freebody]
  %fmore = icmp slt i64 %f, %made
  br i1 %fmore, label %freebody, label %slow
freebody:
  %fa = getelementptr ptr, ptr %handles, i64 %f
  %fh = load ptr, ptr %fa
  %fd = call i32 %drop2(ptr %fh)
  %f1 = add i64 %f, 1
  br label %free
slow:
  {_slot("callable", "slow")}
  {_slot("vector", "vectorcall")}
  %answer = call ptr %vector(ptr %callable, ptr %args, i64 %n, ptr null)
  ret ptr %answer
}}
"""
