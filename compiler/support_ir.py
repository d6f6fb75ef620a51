"""The code that every image carries beside its kernels: `ctx->parallel_for` for each source of threads, as LLVM IR.

A parallel region splits `[0, total)` into balanced chunks of at least `grain` items, at most four a thread, which the
threads fetch one by one from a counter (`@work`); it returns the first non-zero status. Regions that are one chunk, or
run with one thread, call the body directly. What differs is who calls `@work`:

    lamina_parallel_serial   nobody else
    lamina_parallel_torch    torch's own pool, through `torch_parallel_for` of its C shim (address in `ctx[3]`)
    lamina_parallel_gomp     libgomp or libomp, through `GOMP_parallel` (address in `ctx[3]`)
    lamina_parallel_pool     pthreads that `lamina_pool_create(workers)` started (pool in `ctx[3]`)

A pool serves one region at a time; a second caller meanwhile does its own work. Workers spin for a moment before they
sleep, as OpenMP's do. The pool holds a function to run, so images of different builds can share it: its layout is
part of the ABI (docs/contracts.md §7).
"""

from __future__ import annotations

_SPIN = 2000  # looks at the pool before sleeping: about 20-60 µs, longer than the time between two kernels of a graph
_PAUSE = {  # not inline assembly: emitting that needs an assembly parser
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
}

# ctx slots (contracts §7); a region's state: ctx, body, buffers, dims, total, chunks, next chunk, status
_COMMON = """
%State = type { ptr, ptr, ptr, ptr, i64, i64, i64, i32 }
%Pool = type { [8 x i64], [8 x i64], [8 x i64], i64, i64, ptr, ptr, i64, i64 }

define internal i64 @first_of(i64 %total, i64 %chunks, i64 %chunk) nounwind {
  %size = udiv i64 %total, %chunks
  %rest = urem i64 %total, %chunks
  %less = icmp ult i64 %chunk, %rest
  %extra = select i1 %less, i64 %chunk, i64 %rest
  %start = mul i64 %size, %chunk
  %first = add i64 %start, %extra
  ret i64 %first
}

define internal void @work(ptr %state) nounwind {
entry:
  %ctx = load ptr, ptr %state
  %body.at = getelementptr %State, ptr %state, i32 0, i32 1
  %body = load ptr, ptr %body.at
  %buffers.at = getelementptr %State, ptr %state, i32 0, i32 2
  %buffers = load ptr, ptr %buffers.at
  %dims.at = getelementptr %State, ptr %state, i32 0, i32 3
  %dims = load ptr, ptr %dims.at
  %total.at = getelementptr %State, ptr %state, i32 0, i32 4
  %total = load i64, ptr %total.at
  %chunks.at = getelementptr %State, ptr %state, i32 0, i32 5
  %chunks = load i64, ptr %chunks.at
  %next.at = getelementptr %State, ptr %state, i32 0, i32 6
  %status.at = getelementptr %State, ptr %state, i32 0, i32 7
  br label %fetch
fetch:
  %chunk = atomicrmw add ptr %next.at, i64 1 monotonic
  %more = icmp ult i64 %chunk, %chunks
  br i1 %more, label %run, label %done
run:
  %begin = call i64 @first_of(i64 %total, i64 %chunks, i64 %chunk)
  %after = add i64 %chunk, 1
  %end = call i64 @first_of(i64 %total, i64 %chunks, i64 %after)
  %status = call i32 %body(ptr %ctx, ptr %buffers, ptr %dims, i64 %begin, i64 %end)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %fail, label %fetch
fail:
  %ignored = cmpxchg ptr %status.at, i32 0, i32 %status monotonic monotonic
  br label %fetch
done:
  ret void
}

define internal void @work_range(i64 %begin, i64 %end, ptr %state) nounwind {
  call void @work(ptr %state)
  ret void
}

define i32 @lamina_parallel_serial(ptr %ctx, ptr %body, ptr %buffers, ptr %dims, i64 %total, i64 %grain) nounwind {
entry:
  %some = icmp sgt i64 %total, 0
  br i1 %some, label %run, label %nothing
run:
  %status = call i32 %body(ptr %ctx, ptr %buffers, ptr %dims, i64 0, i64 %total)
  ret i32 %status
nothing:
  ret i32 0
}
"""

# {name} of the provider, {call}: run @work(%state) on up to %threads threads and wait for all of them
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
  store ptr %ctx, ptr %state
  %body.at = getelementptr %State, ptr %state, i32 0, i32 1
  store ptr %body, ptr %body.at
  %buffers.at = getelementptr %State, ptr %state, i32 0, i32 2
  store ptr %buffers, ptr %buffers.at
  %dims.at = getelementptr %State, ptr %state, i32 0, i32 3
  store ptr %dims, ptr %dims.at
  %total.at = getelementptr %State, ptr %state, i32 0, i32 4
  store i64 %total, ptr %total.at
  %chunks.at = getelementptr %State, ptr %state, i32 0, i32 5
  store i64 %chunks, ptr %chunks.at
  %next.at = getelementptr %State, ptr %state, i32 0, i32 6
  store i64 0, ptr %next.at
  %status.at = getelementptr %State, ptr %state, i32 0, i32 7
  store i32 0, ptr %status.at
  {call}
  call void @work(ptr %state)
  %status = load atomic i32, ptr %status.at acquire, align 4
  ret i32 %status
}}
"""
# After `{call}` the caller runs @work once more: it finds nothing unless the provider ran nothing.
_TORCH = """%wanted = call i64 @llvm.smin.i64(i64 %threads, i64 %chunks)
  %error = call i32 %user(i64 0, i64 %wanted, i64 1, ptr @work_range, ptr %state)"""
# always the full team: libgomp ends and restarts threads when the size of the team changes
_GOMP = """%team = trunc i64 %threads to i32
  call void %user(ptr @work, ptr %state, i32 %team, i32 0)"""
_POOL = "call void @pool_run(ptr %user, ptr %state)"

# %Pool: mutex, condition "work", condition "done" (64 bytes each; glibc's are 40 and 48), generation, unfinished
# workers, function, its argument, number of workers, busy
_POOL_CODE = """
declare ptr @calloc(i64, i64)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)

define internal i1 @spin(ptr %at, i64 %value) nounwind {{
entry:
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %j, %again ]
  %now = load atomic i64, ptr %at acquire, align 8
  %changed = icmp ne i64 %now, %value
  br i1 %changed, label %out, label %again
again:
  {pause}
  %j = add i64 %i, 1
  %go = icmp ult i64 %j, {spin}
  br i1 %go, label %look, label %out
out:
  ret i1 %changed
}}

define internal ptr @pool_worker(ptr %pool) nounwind {{
entry:
  %wake = getelementptr %Pool, ptr %pool, i32 0, i32 1
  %done = getelementptr %Pool, ptr %pool, i32 0, i32 2
  %generation.at = getelementptr %Pool, ptr %pool, i32 0, i32 3
  %left.at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %function.at = getelementptr %Pool, ptr %pool, i32 0, i32 5
  %argument.at = getelementptr %Pool, ptr %pool, i32 0, i32 6
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %generation, %finished ]
  %ready = call i1 @spin(ptr %generation.at, i64 %seen)
  %locked = call i32 @pthread_mutex_lock(ptr %pool)
  br label %check
check:
  %generation = load atomic i64, ptr %generation.at monotonic, align 8
  %new = icmp ne i64 %generation, %seen
  br i1 %new, label %run, label %sleep
sleep:
  %woken = call i32 @pthread_cond_wait(ptr %wake, ptr %pool)
  br label %check
run:
  %function = load ptr, ptr %function.at
  %argument = load ptr, ptr %argument.at
  %unlocked = call i32 @pthread_mutex_unlock(ptr %pool)
  call void %function(ptr %argument)
  %relocked = call i32 @pthread_mutex_lock(ptr %pool)
  %before = load atomic i64, ptr %left.at monotonic, align 8
  %left = sub i64 %before, 1
  store atomic i64 %left, ptr %left.at release, align 8
  %last = icmp eq i64 %left, 0
  br i1 %last, label %signal, label %finished
signal:
  %signalled = call i32 @pthread_cond_signal(ptr %done)
  br label %finished
finished:
  %released = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %idle
}}

define internal void @pool_run(ptr %pool, ptr %state) nounwind {{
entry:
  %wake = getelementptr %Pool, ptr %pool, i32 0, i32 1
  %done = getelementptr %Pool, ptr %pool, i32 0, i32 2
  %generation.at = getelementptr %Pool, ptr %pool, i32 0, i32 3
  %left.at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %function.at = getelementptr %Pool, ptr %pool, i32 0, i32 5
  %argument.at = getelementptr %Pool, ptr %pool, i32 0, i32 6
  %workers.at = getelementptr %Pool, ptr %pool, i32 0, i32 7
  %busy.at = getelementptr %Pool, ptr %pool, i32 0, i32 8
  %taken = cmpxchg ptr %busy.at, i64 0, i64 1 acquire monotonic
  %free = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %free, label %start, label %out
start:
  %workers = load i64, ptr %workers.at
  %locked = call i32 @pthread_mutex_lock(ptr %pool)
  store ptr @work, ptr %function.at
  store ptr %state, ptr %argument.at
  store atomic i64 %workers, ptr %left.at monotonic, align 8
  %generation = load atomic i64, ptr %generation.at monotonic, align 8
  %next = add i64 %generation, 1
  store atomic i64 %next, ptr %generation.at release, align 8
  %woken = call i32 @pthread_cond_broadcast(ptr %wake)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %pool)
  call void @work(ptr %state)
  br label %spin
spin:
  %i = phi i64 [ 0, %start ], [ %j, %again ]
  %now = load atomic i64, ptr %left.at acquire, align 8
  %finished = icmp eq i64 %now, 0
  br i1 %finished, label %lock, label %again
again:
  {pause}
  %j = add i64 %i, 1
  %go = icmp ult i64 %j, {spin}
  br i1 %go, label %spin, label %lock
lock:
  %relocked = call i32 @pthread_mutex_lock(ptr %pool)
  br label %check
check:
  %left = load atomic i64, ptr %left.at monotonic, align 8
  %none = icmp eq i64 %left, 0
  br i1 %none, label %leave, label %wait
wait:
  %waited = call i32 @pthread_cond_wait(ptr %done, ptr %pool)
  br label %check
leave:
  %released = call i32 @pthread_mutex_unlock(ptr %pool)
  store atomic i64 0, ptr %busy.at release, align 8
  br label %out
out:
  ret void
}}

define ptr @lamina_pool_create(i64 %wanted) nounwind {{
entry:
  %thread = alloca i64
  %pool = call ptr @calloc(i64 1, i64 ptrtoint (ptr getelementptr (%Pool, ptr null, i32 1) to i64))
  %none = icmp eq ptr %pool, null
  br i1 %none, label %out, label %init
init:
  %wake = getelementptr %Pool, ptr %pool, i32 0, i32 1
  %done = getelementptr %Pool, ptr %pool, i32 0, i32 2
  %workers.at = getelementptr %Pool, ptr %pool, i32 0, i32 7
  %r0 = call i32 @pthread_mutex_init(ptr %pool, ptr null)
  %r1 = call i32 @pthread_cond_init(ptr %wake, ptr null)
  %r2 = call i32 @pthread_cond_init(ptr %done, ptr null)
  br label %next
next:
  %count = phi i64 [ 0, %init ], [ %more, %started ]
  store i64 %count, ptr %workers.at
  %enough = icmp sge i64 %count, %wanted
  br i1 %enough, label %out, label %create
create:
  %rc = call i32 @pthread_create(ptr %thread, ptr null, ptr @pool_worker, ptr %pool)
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %started, label %out
started:
  %id = load i64, ptr %thread
  %detached = call i32 @pthread_detach(i64 %id)
  %more = add i64 %count, 1
  br label %next
out:
  ret ptr %pool
}}
"""


def support_ir(arch: str = "x86_64") -> str:
    """LLVM IR text, without triple and data layout. Equal for all programs: compile it once and link it into each image."""
    providers = (("torch", _TORCH), ("gomp", _GOMP), ("pool", _POOL))
    parts = [_COMMON, *(_PROVIDER.format(name=name, call=call) for name, call in providers)]
    pause, declaration = _PAUSE.get(arch, ("", ""))
    parts.append(_POOL_CODE.format(pause=pause, spin=_SPIN))
    parts.append(f"declare i64 @llvm.smax.i64(i64, i64)\ndeclare i64 @llvm.smin.i64(i64, i64)\n{declaration}\n")
    return "".join(parts)
