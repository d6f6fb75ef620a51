"""The host launcher of programs on GPUs, as LLVM IR: for entries under torch and for those that artifacts carry.

It works by a table (`runtime/gpu_table.py`: `LAUNCH_SLOTS`) and calls the driver by addresses there, so that CUDA and HIP
differ in the table alone and nothing is imported.

    @launch_quiet    no failed run-time check is waiting to be raised
    @launch_perform  all work of a call on a stream:
      @launch_place    the buffers of the arena, and descriptors of tensors that have moved
      @launch_walk     one of the driver's launch functions or a copy for each step, where its grid is not empty
      @launch_replay   or the graph of the steps; nodes whose pointers differ from the last call's are set first

They return the driver's code: 0, or the first error's. The entry defines who the memory comes from:

    i32 @arena_take(ptr %t, i64 %bytes, ptr %stream, ptr %block)   stores a handle and an address in %block
    void @arena_give(ptr %t, ptr %stream, ptr %block)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ...runtime.gpu_table import CONFIG_STREAM, MAP_WORDS, NODE_WORDS, STEP_WORDS
from .entry_ir import every, load_slot, load_word

_Slot = Callable[..., str]  # load_slot of one table


def launch_ir(slots: Mapping[str, int]) -> str:
    """The functions, for tables with these slots."""
    slot = partial(load_slot, slots)
    return "".join(make(slot) for make in (_quiet, _place, _walk, _replay, _perform))


def _quiet(slot: _Slot) -> str:
    """Has no run-time check failed?"""
    return every(
        "launch_quiet",
        "ptr %t",
        slot("words", "status_words") + "\n  " + slot("count", "status_count", "i64"),
        "count",
        """%a = getelementptr i32, ptr %words, i64 %i
  %v = load volatile i32, ptr %a
  %zero = icmp eq i32 %v, 0
  br i1 %zero, label %c, label %no""",
    )


def _place(slot: _Slot) -> str:
    return f"""
; the buffers of an arena at %base, or in results, and descriptors of tensors that have moved
define internal i32 @launch_place(ptr %t, ptr %buffers, i64 %base) nounwind {{
e:
  {slot("count", "arena_count", "i64")}
  {slot("first", "arena_first", "i64")}
  {slot("homes", "arena_homes")}
  {slot("offsets", "arena_offsets")}
  {slot("maps", "maps", "i64")}
  {slot("rows", "map_table")}
  {slot("move", "move_map")}
  br label %l
l: %i = phi i64 [0, %e], [%i1, %set]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %set, label %m
set:
  %oa = getelementptr i64, ptr %offsets, i64 %i
  %o = load i64, ptr %oa
  %ha = getelementptr i64, ptr %homes, i64 %i
  %h = load i64, ptr %ha
  %in.arena = icmp slt i64 %h, 0
  %any = select i1 %in.arena, i64 0, i64 %h
  %ra = getelementptr i64, ptr %buffers, i64 %any
  %result = load i64, ptr %ra
  %from = select i1 %in.arena, i64 %base, i64 %result
  %p = add i64 %from, %o
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


def _walk(slot: _Slot) -> str:
    return f"""
; every step on %stream
define internal i32 @launch_walk(ptr %t, ptr %buffers, ptr %stream) nounwind {{
e:
  {slot("steps", "steps", "i64")}
  {slot("rows", "step_table")}
  {slot("launch", "launch_kernel")}
  {slot("overlap", "launch_overlapping")}
  {slot("copy", "copy_async")}
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
  %ab = mul i64 %a, %b
  %blocks = mul i64 %ab, %c
  %empty = icmp eq i64 %blocks, 0
  br i1 %empty, label %next, label %some
some:
  {load_word("ps", "row", 8, "ptr")}
  {load_word("config", "row", 9, "ptr")}
  %plain = icmp eq ptr %config, null
  br i1 %plain, label %alone, label %overlapping
overlapping:
  %sa = getelementptr i8, ptr %config, i64 {CONFIG_STREAM}
  store ptr %stream, ptr %sa
  %r2 = call i32 %overlap(ptr %config, ptr %f, ptr %ps, ptr null)
  br label %look
alone:
  {load_word("by", "row", 5, "i32")}
  {load_word("bz", "row", 6, "i32")}
  {load_word("sh", "row", 7, "i32")}
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
  %r = phi i32 [%r0, %alone], [%r2, %overlapping], [%r1, %copying]
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %next, label %failed
next:
  %i1 = add i64 %i, 1
  br label %l
done: ret i32 0
failed: ret i32 %r
}}
"""


def _replay(slot: _Slot) -> str:
    return f"""
; the graph on %stream, with the pointers of this call
define internal i32 @launch_replay(ptr %t, ptr %buffers, ptr %stream) nounwind {{
e:
  {slot("graph", "graph")}
  {slot("nodes", "nodes", "i64")}
  {slot("rows", "node_table")}
  {slot("varying", "varying", "i64")}
  {slot("previous", "previous")}
  {slot("set", "set_node")}
  {slot("launch", "graph_launch")}
  %same = call i1 @entry_same(ptr %buffers, ptr %previous, i64 %varying)
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


def _perform(slot: _Slot) -> str:
    return f"""
; all work of a call on %stream; the caller holds the word `busy`
define internal i32 @launch_perform(ptr %t, ptr %buffers, ptr %stream) nounwind {{
entry:
  %block = alloca [2 x ptr]
  %mode = alloca i32
  {slot("bytes", "arena_bytes", "i64")}
  %some = icmp ne i64 %bytes, 0
  br i1 %some, label %reserve, label %put
reserve:
  %rc = call i32 @arena_take(ptr %t, i64 %bytes, ptr %stream, ptr %block)
  %rcok = icmp eq i32 %rc, 0
  br i1 %rcok, label %reserved, label %none
reserved:
  %address.a = getelementptr i64, ptr %block, i64 1
  %address = load i64, ptr %address.a
  br label %put
put:
  %base = phi i64 [0, %entry], [%address, %reserved]
  %placed = call i32 @launch_place(ptr %t, ptr %buffers, i64 %base)
  %placedok = icmp eq i32 %placed, 0
  br i1 %placedok, label %ready, label %release
ready:
  {slot("save", "save_thread")}
  {slot("restore", "restore_thread")}
  %state = call ptr %save()
  {slot("graph", "graph")}
  %has = icmp ne ptr %graph, null
  br i1 %has, label %asks, label %direct
asks:
  {slot("capturing", "is_capturing")}
  store i32 0, ptr %mode
  %cc = call i32 %capturing(ptr %stream, ptr %mode)
  %m = load i32, ptr %mode
  %free = icmp eq i32 %m, 0
  br i1 %free, label %graphed, label %direct
graphed:
  %r0 = call i32 @launch_replay(ptr %t, ptr %buffers, ptr %stream)
  br label %back
direct:
  %r1 = call i32 @launch_walk(ptr %t, ptr %buffers, ptr %stream)
  br label %back
back:
  %r = phi i32 [%r0, %graphed], [%r1, %direct]
  call void %restore(ptr %state)
  br label %release
release:
  %result = phi i32 [%placed, %put], [%r, %back]
  br i1 %some, label %free_arena, label %done
free_arena:
  call void @arena_give(ptr %t, ptr %stream, ptr %block)
  br label %done
done:
  ret i32 %result
none:
  ret i32 %rc
}}
"""
