"""A pool of pthreads as LLVM IR, for processes with neither torch nor OpenMP: `lamina_pool_create` and `@pool_run`.

A pool serves one region at a time; a second caller meanwhile does its own work. Workers look for work for a moment
before they sleep, as OpenMP's do, and so does the caller for them to finish: threads that look take no lock, so that none
waits for one in the kernel. The pool holds the function to run, so images of different builds can share it: its layout is
part of the ABI (docs/contracts.md §7). Threads are detached and end with the process.
"""

from __future__ import annotations

from .struct_ir import Struct

_SPIN = 2000  # a worker's looks at the pool before it sleeps: about 20-60 µs, longer than the time between two kernels of a graph
# the caller's looks for a worker to finish: longer than one takes to wake. A caller that slept meanwhile woke when the worker
# slept again: every region of a loop of short ones took 105 µs
_WAIT = 20_000
_WAITS, _LOOKS = 1, 2  # `busy`, by a caller that is to be signalled, as all were once, or not
_PAUSE = {  # not inline assembly: emitting that needs an assembly parser
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ("call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"),
}

# locks have 64 bytes each; glibc's are 40 and 48
_LOCK = "[8 x i64]"
POOL = Struct(
    "Pool",
    {
        "mutex": _LOCK,
        "wake": _LOCK,  # there is work
        "done": _LOCK,
        "generation": "i64",
        "left": "i64",  # workers that have not finished
        "function": "ptr",
        "argument": "ptr",
        "workers": "i64",
        "busy": "i64",  # 0: free
    },
)
_CODE = """
{type}
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

; looks at a word for a while, until it is (%equal) or is not %value
define internal void @spin(ptr %at, i64 %value, i1 %equal, i64 %most) nounwind {{
entry:
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %j, %again ]
  %now = load atomic i64, ptr %at acquire, align 8
  %same = icmp eq i64 %now, %value
  %found = icmp eq i1 %same, %equal
  br i1 %found, label %out, label %again
again:
  {pause}
  %j = add i64 %i, 1
  %go = icmp ult i64 %j, %most
  br i1 %go, label %look, label %out
out:
  ret void
}}

define internal ptr @pool_worker(ptr %pool) nounwind {{
entry:
  {worker}
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %now, %run ], [ %now, %last ], [ %now, %signal ]
  call void @spin(ptr %generation.at, i64 %seen, i1 false, i64 {spin})
  %looked = load atomic i64, ptr %generation.at acquire, align 8
  %found = icmp ne i64 %looked, %seen
  br i1 %found, label %run, label %lock
lock:
  %locked = call i32 @pthread_mutex_lock(ptr %pool)
  br label %check
check:
  %generation = load atomic i64, ptr %generation.at monotonic, align 8
  %new = icmp ne i64 %generation, %seen
  br i1 %new, label %woken, label %sleep
sleep:
  %slept = call i32 @pthread_cond_wait(ptr %wake.at, ptr %pool)
  br label %check
woken:
  %unlocked = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %run
run:
  %now = phi i64 [ %looked, %idle ], [ %generation, %woken ]
  %function = load ptr, ptr %function.at
  %argument = load ptr, ptr %argument.at
  call void %function(ptr %argument)
  %left = atomicrmw sub ptr %left.at, i64 1 seq_cst
  %is.last = icmp eq i64 %left, 1
  br i1 %is.last, label %last, label %idle
last:
  %busy = load atomic i64, ptr %busy.at seq_cst, align 8
  %looks = icmp eq i64 %busy, {looks}
  br i1 %looks, label %idle, label %signal
signal:
  %relocked = call i32 @pthread_mutex_lock(ptr %pool)
  %signalled = call i32 @pthread_cond_signal(ptr %done.at)
  %released = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %idle
}}

define internal void @pool_run(ptr %pool, ptr %state) nounwind {{
entry:
  {run}
  %taken = cmpxchg ptr %busy.at, i64 0, i64 {looks} seq_cst monotonic
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
  %woken = call i32 @pthread_cond_broadcast(ptr %wake.at)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %pool)
  call void @work(ptr %state)
  call void @spin(ptr %left.at, i64 0, i1 true, i64 {wait})
  %left.now = load atomic i64, ptr %left.at acquire, align 8
  %finished = icmp eq i64 %left.now, 0
  br i1 %finished, label %leave, label %lock
lock:
  store atomic i64 {waits}, ptr %busy.at seq_cst, align 8
  %relocked = call i32 @pthread_mutex_lock(ptr %pool)
  br label %check
check:
  %left = load atomic i64, ptr %left.at seq_cst, align 8
  %none = icmp eq i64 %left, 0
  br i1 %none, label %done, label %wait
wait:
  %waited = call i32 @pthread_cond_wait(ptr %done.at, ptr %pool)
  br label %check
done:
  %released = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %leave
leave:
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
  {init}
  %r0 = call i32 @pthread_mutex_init(ptr %pool, ptr null)
  %r1 = call i32 @pthread_cond_init(ptr %wake.at, ptr null)
  %r2 = call i32 @pthread_cond_init(ptr %done.at, ptr null)
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


def pool_ir(arch: str) -> str:
    """LLVM IR text that `support_ir` includes; refers to its `@work`."""
    pause, declaration = _PAUSE.get(arch, ("", ""))
    fields = {
        "worker": POOL.at("pool", "wake", "done", "generation", "left", "function", "argument", "busy"),
        "run": POOL.at("pool", "wake", "done", "generation", "left", "function", "argument", "workers", "busy"),
        "init": POOL.at("pool", "wake", "done", "workers"),
    }
    return (
        _CODE.format(type=POOL.type, pause=pause, spin=_SPIN, wait=_WAIT, waits=_WAITS, looks=_LOOKS, **fields)
        + declaration
        + "\n"
    )
