"""LLVM IR that launches what a part on a GPU consists of, by the table (`entry_table.py`); `cuda_entry_code` calls it.

    @place   the buffers of the arena, and descriptors of tensors that have moved
    @walk    `cuLaunchKernel` or a copy for each step
    @replay  the CUDA graph of the steps; nodes whose pointers differ from the last call's are set first

Each returns the driver's code: 0, or the first error's.
"""

from __future__ import annotations

from functools import partial

from ..compiler.entry_ir import load_slot, load_word
from .entry_table import CUDA_SLOT, MAP_WORDS, NODE_WORDS, STEP_WORDS

_slot = partial(load_slot, CUDA_SLOT)

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

LAUNCH = _PLACE + _WALK + _REPLAY
