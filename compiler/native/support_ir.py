"""The code that every image carries beside its kernels, as LLVM IR: `lamina_walk`, `ctx->parallel_for`, and the entry
for numpy arrays (array_entry_ir.py).

`ctx->parallel_for` has one implementation for each source of threads.

A parallel region splits `[0, total)` into balanced chunks of at least `grain` items, at most four a thread. Each thread
has a *share* of neighbouring chunks and a counter to fetch them from; when its own share is through, it fetches from the
others' (`@work_share`). The longer chunks, by one item, are spread evenly (`@first_of`), so that shares differ by one item. So a thread's memory is contiguous and the same in every call, which caches and prefetchers like, and
no thread waits for one that was interrupted. The region returns the first non-zero status. Regions that are one chunk,
or run with one thread, call the body directly. What differs is who calls it:

    lamina_parallel_serial   nobody else
    lamina_parallel_torch    torch's own pool, through `torch_parallel_for` of its C shim (address in `ctx[3]`)
    lamina_parallel_gomp     libgomp or libomp, through `GOMP_parallel` (address in `ctx[3]`)
    lamina_parallel_pool     pthreads that `lamina_pool_create_2(workers)` started (pool in `ctx[3]`)
"""

from __future__ import annotations

from .array_entry_ir import ARRAY_IR
from .pool_ir import pool_ir
from .struct_ir import Struct
from .walk_ir import WALK_IR

# a region: its ctx (contracts §7), what to run, the next chunk of each share, how many threads have come for a share
STATE = Struct(
    "State",
    {
        "ctx": "ptr",
        "body": "ptr",
        "buffers": "ptr",
        "dims": "ptr",
        "total": "i64",
        "chunks": "i64",
        "shares": "i64",
        "nexts": "ptr",
        "arrived": "i64",
        "status": "i32",
    },
)
_COMMON = f"""
{STATE.type}

define internal i64 @first_of(i64 %total, i64 %chunks, i64 %chunk) nounwind {{
  %size = udiv i64 %total, %chunks
  %rest = urem i64 %total, %chunks
  %start = mul i64 %size, %chunk
  %spread = mul i64 %rest, %chunk
  %chunks.less = sub i64 %chunks, 1
  %rounded = add i64 %spread, %chunks.less
  %extra = udiv i64 %rounded, %chunks
  %first = add i64 %start, %extra
  ret i64 %first
}}

define internal void @work_share(ptr %state, i64 %own) nounwind {{
entry:
  {STATE.load("state", "ctx", "body", "buffers", "dims", "total", "chunks", "shares", "nexts")}
  {STATE.at("state", "status")}
  br label %turn
turn:
  %passed = phi i64 [ 0, %entry ], [ %passed.after, %empty ]
  %turned = add i64 %own, %passed
  %share = urem i64 %turned, %shares
  %share.after = add i64 %share, 1
  %last = call i64 @first_of(i64 %chunks, i64 %shares, i64 %share.after)
  %next.at = getelementptr i64, ptr %nexts, i64 %share
  br label %look
look:
  %seen = load atomic i64, ptr %next.at monotonic, align 8
  %some = icmp ult i64 %seen, %last
  br i1 %some, label %fetch, label %empty
fetch:
  %chunk = atomicrmw add ptr %next.at, i64 1 monotonic
  %mine = icmp ult i64 %chunk, %last
  br i1 %mine, label %run, label %empty
run:
  %begin = call i64 @first_of(i64 %total, i64 %chunks, i64 %chunk)
  %after = add i64 %chunk, 1
  %end = call i64 @first_of(i64 %total, i64 %chunks, i64 %after)
  %status = call i32 %body(ptr %ctx, ptr %buffers, ptr %dims, i64 %begin, i64 %end)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %fail, label %look
fail:
  %ignored = cmpxchg ptr %status.at, i32 0, i32 %status monotonic monotonic
  br label %look
empty:
  %passed.after = add i64 %passed, 1
  %others = icmp ult i64 %passed.after, %shares
  br i1 %others, label %turn, label %done
done:
  ret void
}}

define internal void @work(ptr %state) nounwind {{
  {STATE.at("state", "arrived")}
  %arrived = atomicrmw add ptr %arrived.at, i64 1 monotonic
  call void @work_share(ptr %state, i64 %arrived)
  ret void
}}

define internal void @work_range(i64 %begin, i64 %end, ptr %state) nounwind {{
  call void @work_share(ptr %state, i64 %begin)
  ret void
}}

define i32 @lamina_parallel_serial(ptr %ctx, ptr %body, ptr %buffers, ptr %dims, i64 %total, i64 %grain) nounwind {{
entry:
  %some = icmp sgt i64 %total, 0
  br i1 %some, label %run, label %nothing
run:
  %status = call i32 %body(ptr %ctx, ptr %buffers, ptr %dims, i64 0, i64 %total)
  ret i32 %status
nothing:
  ret i32 0
}}
"""

# {name} of the provider; {begin}: fill %state; {call}: run @work(%state) on up to %threads threads and wait for all of them
_PROVIDER = """
define i32 @lamina_parallel_{name}(ptr %ctx, ptr %body, ptr %buffers, ptr %dims, i64 %total, i64 %grain) nounwind {{
entry:
  %state = alloca %State
  %threads.at = getelementptr i64, ptr %ctx, i64 2
  %threads = load i64, ptr %threads.at
  %user.at = getelementptr ptr, ptr %ctx, i64 3
  %user = load ptr, ptr %user.at
  %positive = call i64 @llvm.smax.i64(i64 %total, i64 0)
  %unit = call i64 @llvm.smax.i64(i64 %grain, i64 1)
  %whole = udiv i64 %positive, %unit
  %most = mul i64 %threads, 4
  %chunks = call i64 @llvm.smin.i64(i64 %whole, i64 %most)
  %many = icmp sgt i64 %chunks, 1
  %several = icmp sgt i64 %threads, 1
  %split = and i1 %many, %several
  br i1 %split, label %parallel, label %alone
alone:
  %serial = call i32 @lamina_parallel_serial(ptr %ctx, ptr %body, ptr %buffers, ptr %dims, i64 %total, i64 %grain)
  ret i32 %serial
parallel:
  %shares = call i64 @llvm.smin.i64(i64 %threads, i64 %chunks)
  %nexts = alloca i64, i64 %shares
  {begin}
  br label %share
share:
  %i = phi i64 [ 0, %parallel ], [ %i.after, %share ]
  %next.at = getelementptr i64, ptr %nexts, i64 %i
  %next = call i64 @first_of(i64 %chunks, i64 %shares, i64 %i)
  store i64 %next, ptr %next.at
  %i.after = add i64 %i, 1
  %more = icmp ult i64 %i.after, %shares
  br i1 %more, label %share, label %go
go:
  {call}
  call void @work_share(ptr %state, i64 0)
  %status = load atomic i32, ptr %status.at acquire, align 4
  ret i32 %status
}}
"""
_BEGIN = STATE.store(
    "state", **{f: f"%{f}" for f in STATE.fields if f not in ("arrived", "status")}, arrived="0", status="0"
)
# After `{call}` the caller looks through the shares once more: it finds nothing unless the provider ran nothing.
# torch's threads have numbers; those of the others take shares as they come
_TORCH = "%error = call i32 %user(i64 0, i64 %shares, i64 1, ptr @work_range, ptr %state)"
# always the full team: libgomp ends and restarts threads when the size of the team changes
_GOMP = """%team = trunc i64 %threads to i32
  call void %user(ptr @work, ptr %state, i32 %team, i32 0)"""
_POOL = "call void @pool_run(ptr %user, ptr %state)"


def support_ir(arch: str = "x86_64") -> str:
    """LLVM IR text, without triple and data layout. Equal for all programs: compile it once and link it into each image."""
    providers = (("torch", _TORCH), ("gomp", _GOMP), ("pool", _POOL))
    parts = [WALK_IR, _COMMON, *(_PROVIDER.format(name=name, begin=_BEGIN, call=call) for name, call in providers)]
    parts += [pool_ir(arch), ARRAY_IR]
    parts.append("declare i64 @llvm.smax.i64(i64, i64)\ndeclare i64 @llvm.smin.i64(i64, i64)\n")
    return "".join(parts)
