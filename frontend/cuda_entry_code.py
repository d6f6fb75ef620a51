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

from .entry_code import ARGUMENT_WORDS, BYTES_DATA, HELPERS, OUTPUT_WORDS, RESULTS, SLOTS, TENSOR, load_slot, load_word

# What the table holds beyond a CPU's.
CUDA_SLOTS = (
    *SLOTS,
    # functions of torch and of the driver
    "get_device_type", "get_device_index", "get_stream", "current_context",
    "launch_kernel", "copy_async", "move_map", "graph_launch", "set_node", "is_capturing",
    # the device, and what arguments must be aligned to, less one
    "device_type", "device_index", "device_context", "alignment",
    # failed checks, the arena's buffers in the table of pointers
    "busy", "status_words", "status_count", "arena_bytes", "arena_count", "arena_first", "arena_offsets", "byte_code",
    # what is launched
    "steps", "step_table", "maps", "map_table",
    # its graph (0: none), nodes, and the pointers of the last call
    "graph", "nodes", "node_table", "varying", "previous",
)  # fmt: skip
CUDA_SLOT = {name: i for i, name in enumerate(CUDA_SLOTS)}

STEP_WORDS = 9  # function, grid, block, shared memory, &parameters | 0, to slot, from slot, bytes, offset
MAP_WORDS = 3  # &descriptor, slot of its base, base now
NODE_WORDS = 4  # node, &CUDA_KERNEL_NODE_PARAMS, &slots it reads, their number


def cuda_entry_ir() -> str:
    """The module; it defines `lamina_entry`."""
    return HELPERS + _CHECKS + _PLACE + _WALK + _REPLAY + _PERFORM + _ENTRY + RESULTS


def _slot(result: str, name: str, type: str = "ptr") -> str:
    return load_slot(result, CUDA_SLOT[name], type)


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

_PLACE = f"""
; the buffers of an arena at %base, and descriptors of tensors that have moved
define internal i32 @place(ptr %t, ptr %buffers, i64 %base) {{
e:
  {_slot("count", "arena_count", "i64")}
  {_slot("first", "arena_first", "i64")}
  {_slot("offsets", "arena_offsets")}
  {_slot("maps", "maps", "i64")}
  {_slot("rows", "map_table")}
  {_slot("move", "move_map")}
  br label %l
l: %i = phi i64 [0, %e], [%i1, %set]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %set, label %m
set:
  %oa = getelementptr i64, ptr %offsets, i64 %i
  %o = load i64, ptr %oa
  %p = add i64 %base, %o
  %n = add i64 %first, %i
  %pa = getelementptr i64, ptr %buffers, i64 %n
  store i64 %p, ptr %pa
  %i1 = add i64 %i, 1
  br label %l
m: %k = phi i64 [0, %l], [%k1, %next]
  %kmore = icmp slt i64 %k, %maps
  br i1 %kmore, label %look, label %done
look:
  %ri = mul i64 %k, {MAP_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {load_word("map", "row", 0, "ptr")}
  {load_word("slot", "row", 1)}
  {load_word("now", "row", 2)}
  %ba = getelementptr i64, ptr %buffers, i64 %slot
  %b = load i64, ptr %ba
  %same = icmp eq i64 %b, %now
  br i1 %same, label %next, label %moved
moved:
  %c = call i32 %move(ptr %map, i64 %b)
  %ok = icmp eq i32 %c, 0
  br i1 %ok, label %keep, label %failed
keep:
  store i64 %b, ptr %now.a
  br label %next
next:
  %k1 = add i64 %k, 1
  br label %m
done: ret i32 0
failed: ret i32 %c
}}
"""

_WALK = f"""
; every step on %stream
define internal i32 @walk(ptr %t, ptr %buffers, ptr %stream) {{
e:
  {_slot("steps", "steps", "i64")}
  {_slot("rows", "step_table")}
  {_slot("launch", "launch_kernel")}
  {_slot("copy", "copy_async")}
  br label %l
l: %i = phi i64 [0, %e], [%i1, %next]
  %more = icmp slt i64 %i, %steps
  br i1 %more, label %step, label %done
step:
  %ri = mul i64 %i, {STEP_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {load_word("f", "row", 0, "ptr")}
  {load_word("a", "row", 1)}
  {load_word("b", "row", 2)}
  {load_word("c", "row", 3)}
  {load_word("d", "row", 4)}
  %none = icmp eq ptr %f, null
  br i1 %none, label %copying, label %launching
launching:
  {load_word("by", "row", 5, "i32")}
  {load_word("bz", "row", 6, "i32")}
  {load_word("sh", "row", 7, "i32")}
  {load_word("ps", "row", 8, "ptr")}
  %gx = trunc i64 %a to i32
  %gy = trunc i64 %b to i32
  %gz = trunc i64 %c to i32
  %bx = trunc i64 %d to i32
  %r0 = call i32 %launch(ptr %f, i32 %gx, i32 %gy, i32 %gz, i32 %bx, i32 %by, i32 %bz, i32 %sh,
                         ptr %stream, ptr %ps, ptr null)
  br label %look
copying:
  %ta = getelementptr i64, ptr %buffers, i64 %a
  %to = load i64, ptr %ta
  %fa = getelementptr i64, ptr %buffers, i64 %b
  %from = load i64, ptr %fa
  %source = add i64 %from, %d
  %r1 = call i32 %copy(i64 %to, i64 %source, i64 %c, ptr %stream)
  br label %look
look:
  %r = phi i32 [%r0, %launching], [%r1, %copying]
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %next, label %failed
next:
  %i1 = add i64 %i, 1
  br label %l
done: ret i32 0
failed: ret i32 %r
}}
"""

_REPLAY = f"""
; the graph on %stream, with the pointers of this call
define internal i32 @replay(ptr %t, ptr %buffers, ptr %stream) {{
e:
  {_slot("graph", "graph")}
  {_slot("nodes", "nodes", "i64")}
  {_slot("rows", "node_table")}
  {_slot("varying", "varying", "i64")}
  {_slot("previous", "previous")}
  {_slot("set", "set_node")}
  {_slot("launch", "graph_launch")}
  %same = call i1 @same(ptr %buffers, ptr %previous, i64 %varying)
  br i1 %same, label %go, label %l
l: %i = phi i64 [0, %e], [%i1, %next]
  %more = icmp slt i64 %i, %nodes
  br i1 %more, label %node, label %remember
node:
  %ri = mul i64 %i, {NODE_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {load_word("handle", "row", 0, "ptr")}
  {load_word("params", "row", 1, "ptr")}
  {load_word("slots", "row", 2, "ptr")}
  {load_word("count", "row", 3)}
  br label %s
s: %k = phi i64 [0, %node], [%k1, %agrees]
  %kmore = icmp slt i64 %k, %count
  br i1 %kmore, label %compare, label %next
compare:
  %sa = getelementptr i64, ptr %slots, i64 %k
  %slot = load i64, ptr %sa
  %na = getelementptr i64, ptr %buffers, i64 %slot
  %now = load i64, ptr %na
  %pa = getelementptr i64, ptr %previous, i64 %slot
  %then = load i64, ptr %pa
  %k1 = add i64 %k, 1
  %eq = icmp eq i64 %now, %then
  br i1 %eq, label %agrees, label %change
agrees:
  br label %s
change:
  %r0 = call i32 %set(ptr %graph, ptr %handle, ptr %params)
  %ok = icmp eq i32 %r0, 0
  br i1 %ok, label %next, label %failed
next:
  %i1 = add i64 %i, 1
  br label %l
remember:
  %size = mul i64 %varying, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %previous, ptr %buffers, i64 %size, i1 false)
  br label %go
go:
  %r1 = call i32 %launch(ptr %graph, ptr %stream)
  ret i32 %r1
failed:
  store i64 0, ptr %graph.a  ; its nodes are of two calls: never again
  ret i32 %r0
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
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

_ENTRY = f"""
define ptr @lamina_entry(ptr %self, ptr %args, i64 %n) {{
entry:
  %cell0 = getelementptr i8, ptr %self, i64 {BYTES_DATA}
  %t = load ptr, ptr %cell0
  %tmp = alloca ptr
  {_slot("valid", "valid", "i64")}
  {_slot("busy", "busy", "i64")}
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
  br i1 %ok, label %context, label %slow
context:
  {_slot("fc", "current_context")}
  %rctx = call i32 %fc(ptr %tmp)
  %ctx = load ptr, ptr %tmp
  {_slot("wctx", "device_context")}
  %ctxok = icmp eq ptr %ctx, %wctx
  %calm = call i1 @quiet(ptr %t)
  %fit = and i1 %ctxok, %calm
  br i1 %fit, label %args0, label %slow
args0:
  {_slot("buffers", "buffers")}
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
  %good = call i1 @check_here(ptr %t, ptr %o, ptr %row, ptr %buffers)
  br i1 %good, label %argok, label %slow
argok:
  %i1 = add i64 %i, 1
  br label %arg
outs:
  {_slot("outputs", "outputs", "i64")}
  {_slot("orows", "output_table")}
  {_slot("empty", "empty_strided")}
  {_slot("type", "device_type", "i32")}
  {_slot("index", "device_index", "i32")}
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
  %rc = call i32 %empty(i64 %ond, ptr %osz, ptr %ost, i32 %odt, i32 %type, i32 %index, ptr %ha)
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
  {_slot("fst", "get_stream")}
  %rst = call i32 %fst(i32 %index, ptr %tmp)
  %stream = load ptr, ptr %tmp
  %status = call i32 @perform(ptr %t, ptr %buffers, ptr %stream)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %results, label %undo
"""
