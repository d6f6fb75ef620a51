"""The host launcher of programs on GPUs, as LLVM IR: for entries under torch and for those that artifacts carry.

It works by a table (`runtime/gpu/table.py`: `LAUNCH_SLOTS`) and calls the driver by addresses there, so that CUDA and HIP
differ in the table alone and nothing is imported.

    @launch_quiet    no failed run-time check is waiting to be raised
    @launch_perform  all work of a call on a stream:
      @launch_arena    the buffers of the arena
      @launch_maps     descriptors of tensors that have moved
      @launch_enqueue  without the GIL, one of:
        @launch_walk     one of the driver's launch functions or a copy for each step, where its grid is not empty
        @launch_replay   the graph of the steps; nodes whose pointers differ from the last call's are set first

They return the driver's code: 0, or the first error's. The entry defines who the memory comes from:

    i32 @arena_take(ptr %t, i64 %bytes, ptr %stream, ptr %block)   stores a handle and an address in %block
    void @arena_give(ptr %t, ptr %stream, ptr %block)

`entry_ir` is the entry itself, around what the module defines as @entry_here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ...runtime.gpu.table import BYTES_DATA, CONFIG_STREAM, MAP_WORDS, NODE_WORDS, STEP_WORDS
from .entry_ir import each, every, for_all, load_field, load_slot, load_word

_Slot = Callable[..., str]  # load_slot of one table


def launch_ir(slots: Mapping[str, int]) -> str:
    """The functions, for tables with these slots."""
    slot = partial(load_slot, slots)
    return "".join(make(slot) for make in (_quiet, _arena, _maps, _step, _walk, _nodes, _replay, _enqueue, _perform))


def entry_ir(slots: Mapping[str, int], name: str) -> str:
    """The entry `name`: @entry_here, which takes the same, while the program's device is the thread's current one.

    Another one that was current is so again afterwards, whatever happens in between: torch's current device is the same thing.
    """
    slot = partial(load_slot, slots)
    return f"""
define ptr @{name}(ptr %self, ptr %args, i64 %n) nounwind {{
entry:
  %found.at = alloca ptr
  store ptr null, ptr %found.at
  {load_field("t", "self", BYTES_DATA)}
  {slot("ask", "current_context")}
  {slot("context", "device_context")}
  %asked = call i32 %ask(ptr %found.at)
  %found = load ptr, ptr %found.at
  %here = icmp eq ptr %found, %context
  br i1 %here, label %call, label %elsewhere
call:
  %made = tail call ptr @entry_here(ptr %self, ptr %args, i64 %n)
  ret ptr %made
elsewhere:
  {slot("set", "set_context")}
  %moved = call i32 %set(ptr %context)
  %result = call ptr @entry_here(ptr %self, ptr %args, i64 %n)
  %back = call i32 %set(ptr %found)
  ret ptr %result
}}
"""


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


def _arena(slot: _Slot) -> str:
    """The buffers of an arena at %base; some lie in results that are written later (`runtime/arena.py`)."""
    loads = (slot("count", "arena_count", "i64"), slot("first", "arena_first", "i64"), slot("homes", "arena_homes"))
    return for_all(
        "launch_arena",
        "ptr %t, ptr %buffers, i64 %base",
        "\n  ".join((*loads, slot("offsets", "arena_offsets"))),
        "count",
        """%oa = getelementptr i64, ptr %offsets, i64 %i
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
  br label %c""",
    )


def _maps(slot: _Slot) -> str:
    """Descriptors of tensors that have moved."""
    return each(
        "launch_maps",
        "ptr %t, ptr %buffers",
        "\n  ".join((slot("maps", "maps", "i64"), slot("rows", "map_table"), slot("move", "move_map"))),
        "maps",
        f"""%ri = mul i64 %i, {MAP_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {load_word("map", "row", 0, "ptr")}
  {load_word("slot", "row", 1)}
  {load_word("now", "row", 2)}
  %ba = getelementptr i64, ptr %buffers, i64 %slot
  %b = load i64, ptr %ba
  %same = icmp eq i64 %b, %now
  br i1 %same, label %c, label %moved
moved:
  %r = call i32 %move(ptr %map, i64 %b)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %keep, label %failed
keep:
  store i64 %b, ptr %now.a
  br label %c""",
    )


def _step(slot: _Slot) -> str:
    """One step: nothing of an empty grid, a launch that may overlap the one before or not, or a copy."""
    return f"""
define internal i32 @launch_step(ptr %t, ptr %row, ptr %buffers, ptr %stream) nounwind {{
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
  br i1 %empty, label %nothing, label %some
nothing: ret i32 0
some:
  {load_word("ps", "row", 8, "ptr")}
  {load_word("config", "row", 9, "ptr")}
  %plain = icmp eq ptr %config, null
  br i1 %plain, label %alone, label %overlapping
overlapping:
  %sa = getelementptr i8, ptr %config, i64 {CONFIG_STREAM}
  store ptr %stream, ptr %sa
  {slot("overlap", "launch_overlapping")}
  %r2 = call i32 %overlap(ptr %config, ptr %f, ptr %ps, ptr null)
  ret i32 %r2
alone:
  {load_word("by", "row", 5, "i32")}
  {load_word("bz", "row", 6, "i32")}
  {load_word("sh", "row", 7, "i32")}
  %gx = trunc i64 %a to i32
  %gy = trunc i64 %b to i32
  %gz = trunc i64 %c to i32
  %bx = trunc i64 %d to i32
  {slot("launch", "launch_kernel")}
  %r0 = call i32 %launch(ptr %f, i32 %gx, i32 %gy, i32 %gz, i32 %bx, i32 %by, i32 %bz, i32 %sh,
                         ptr %stream, ptr %ps, ptr null)
  ret i32 %r0
copying:
  %ta = getelementptr i64, ptr %buffers, i64 %a
  %to = load i64, ptr %ta
  %fa = getelementptr i64, ptr %buffers, i64 %b
  %from = load i64, ptr %fa
  %source = add i64 %from, %d
  {slot("copy", "copy_async")}
  %r1 = call i32 %copy(i64 %to, i64 %source, i64 %c, ptr %stream)
  ret i32 %r1
}}
"""


def _walk(slot: _Slot) -> str:
    """Every step on %stream."""
    return each(
        "launch_walk",
        "ptr %t, ptr %buffers, ptr %stream",
        slot("steps", "steps", "i64") + "\n  " + slot("rows", "step_table"),
        "steps",
        f"""%ri = mul i64 %i, {STEP_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  %r = call i32 @launch_step(ptr %t, ptr %row, ptr %buffers, ptr %stream)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %c, label %failed""",
    )


def _nodes(slot: _Slot) -> str:
    """The nodes of %graph whose pointers are not those of the call before."""
    same = every(
        "launch_same_pointers",
        "ptr %slots, i64 %count, ptr %buffers, ptr %previous",
        "",
        "count",
        """%sa = getelementptr i64, ptr %slots, i64 %i
  %slot = load i64, ptr %sa
  %na = getelementptr i64, ptr %buffers, i64 %slot
  %now = load i64, ptr %na
  %pa = getelementptr i64, ptr %previous, i64 %slot
  %then = load i64, ptr %pa
  %eq = icmp eq i64 %now, %then
  br i1 %eq, label %c, label %no""",
    )
    return same + each(
        "launch_nodes",
        "ptr %t, ptr %buffers, ptr %graph, ptr %previous",
        "\n  ".join((slot("nodes", "nodes", "i64"), slot("rows", "node_table"), slot("set", "set_node"))),
        "nodes",
        f"""%ri = mul i64 %i, {NODE_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {load_word("handle", "row", 0, "ptr")}
  {load_word("params", "row", 1, "ptr")}
  {load_word("slots", "row", 2, "ptr")}
  {load_word("count", "row", 3)}
  %same = call i1 @launch_same_pointers(ptr %slots, i64 %count, ptr %buffers, ptr %previous)
  br i1 %same, label %c, label %change
change:
  %r = call i32 %set(ptr %graph, ptr %handle, ptr %params)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %c, label %failed""",
    )


def _replay(slot: _Slot) -> str:
    """The graph on %stream, with the pointers of this call."""
    return f"""
define internal i32 @launch_replay(ptr %t, ptr %buffers, ptr %stream) nounwind {{
  {slot("graph", "graph")}
  {slot("varying", "varying", "i64")}
  {slot("previous", "previous")}
  %same = call i1 @entry_same(ptr %buffers, ptr %previous, i64 %varying)
  br i1 %same, label %go, label %change
change:
  %r0 = call i32 @launch_nodes(ptr %t, ptr %buffers, ptr %graph, ptr %previous)
  %ok = icmp eq i32 %r0, 0
  br i1 %ok, label %remember, label %failed
remember:
  %size = mul i64 %varying, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %previous, ptr %buffers, i64 %size, i1 false)
  br label %go
go:
  {slot("launch", "graph_launch")}
  %r1 = call i32 %launch(ptr %graph, ptr %stream)
  ret i32 %r1
failed:
  store i64 0, ptr %graph.a  ; its nodes are of two calls: never again
  ret i32 %r0
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def _enqueue(slot: _Slot) -> str:
    """The graph of a call if there is one and %stream is not being captured, else its steps."""
    return f"""
define internal i32 @launch_enqueue(ptr %t, ptr %buffers, ptr %stream) nounwind {{
  %mode = alloca i32
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
  ret i32 %r0
direct:
  %r1 = call i32 @launch_walk(ptr %t, ptr %buffers, ptr %stream)
  ret i32 %r1
}}
"""


def _perform(slot: _Slot) -> str:
    return f"""
; all work of a call on %stream; the caller holds the word `busy`
define internal i32 @launch_perform(ptr %t, ptr %buffers, ptr %stream) nounwind {{
entry:
  %block = alloca [2 x ptr]
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
  call void @launch_arena(ptr %t, ptr %buffers, i64 %base)
  %placed = call i32 @launch_maps(ptr %t, ptr %buffers)
  %placedok = icmp eq i32 %placed, 0
  br i1 %placedok, label %ready, label %release
ready:
  {slot("save", "save_thread")}
  {slot("restore", "restore_thread")}
  %state = call ptr %save()
  %r = call i32 @launch_enqueue(ptr %t, ptr %buffers, ptr %stream)
  call void %restore(ptr %state)
  br label %release
release:
  %result = phi i32 [%placed, %put], [%r, %ready]
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
