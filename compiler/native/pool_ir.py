"""A pool of pthreads as LLVM IR, for processes with neither torch nor OpenMP: `lamina_pool_create_2` and `@pool_run`.

A pool serves one region at a time; a second caller meanwhile does its own work. Workers look for work for a moment
before they sleep, as OpenMP's do. A worker *enters* a region that is open; the caller closes the region when there is nothing
left to fetch, and waits only for those who are inside. So one that is slow to wake, or whose core others use, costs nothing:

    region = number << 16 | open << 15 | how many workers are inside

Threads that look take no lock, so that none waits for one in the kernel. The pool holds the function to run, so images of different
builds can share it: its layout and what is said in `region` are part of the ABI (docs/contracts.md §7), another would have another name.
Threads are detached and end with the process.
"""

from __future__ import annotations

from .struct_ir import Struct

_SPIN = 5000  # a worker's looks at the pool before it sleeps: about 50-150 µs, longer than most kernels that run on one thread
# the caller's looks for a worker to finish: longer than one takes to wake. A caller that slept meanwhile woke when the worker
# slept again: every region of a loop of short ones took 105 µs
_WAIT = 20_000
_TURN = 512  # looks after which a thread lets others of its core run: on a busy machine that may be whom it waits for
_NUMBER, _OPEN = 1 << 16, 1 << 15  # of `region`
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
        "region": "i64",
        "function": "ptr",
        "argument": "ptr",
        "rest": "[5 x i64]",  # of the cache line at which workers look
        "busy": "i64",  # 0: free
        "end": "[7 x i64]",
    },
)
_CODE = """
{type}
declare ptr @aligned_alloc(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @sched_yield()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)

; looks at the bits %mask of a word for a while, until they are (%equal) or are not %value
define internal void @spin(ptr %at, i64 %mask, i64 %value, i1 %equal, i64 %most) nounwind {{
entry:
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %j, %next ]
  %word = load atomic i64, ptr %at acquire, align 8
  %now = and i64 %word, %mask
  %same = icmp eq i64 %now, %value
  %found = icmp eq i1 %same, %equal
  br i1 %found, label %out, label %again
again:
  %j = add i64 %i, 1
  %turn = and i64 %j, {turn}
  %yields = icmp eq i64 %turn, 0
  br i1 %yields, label %yield, label %rest
yield:
  %yielded = call i32 @sched_yield()
  br label %next
rest:
  {pause}
  br label %next
next:
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
  %seen = phi i64 [ 0, %entry ], [ %number, %new ], [ %number, %run ], [ %number, %last ], [ %number, %signal ]
  call void @spin(ptr %region.at, i64 {numbers}, i64 %seen, i1 false, i64 {spin})
  br label %look
look:
  %word = load atomic i64, ptr %region.at acquire, align 8
  %number = and i64 %word, {numbers}
  %same = icmp eq i64 %number, %seen
  br i1 %same, label %lock, label %new
lock:
  %locked = call i32 @pthread_mutex_lock(ptr %pool)
  br label %check
check:
  %checked = load atomic i64, ptr %region.at monotonic, align 8
  %checked.number = and i64 %checked, {numbers}
  %nothing = icmp eq i64 %checked.number, %seen
  br i1 %nothing, label %sleep, label %woken
sleep:
  %slept = call i32 @pthread_cond_wait(ptr %wake.at, ptr %pool)
  br label %check
woken:
  %unlocked = call i32 @pthread_mutex_unlock(ptr %pool)
  br label %look
new:
  %open = and i64 %word, {open}
  %closed = icmp eq i64 %open, 0
  br i1 %closed, label %idle, label %enter
enter:
  %one.more = add i64 %word, 1
  %exchange = cmpxchg ptr %region.at, i64 %word, i64 %one.more seq_cst monotonic
  %entered = extractvalue {{ i64, i1 }} %exchange, 1
  br i1 %entered, label %run, label %look
run:
  %function = load ptr, ptr %function.at
  %argument = load ptr, ptr %argument.at
  call void %function(ptr %argument)
  %before = atomicrmw sub ptr %region.at, i64 1 seq_cst
  %inside = and i64 %before, {open_and_inside}
  %is.last = icmp eq i64 %inside, 1
  br i1 %is.last, label %last, label %idle
last:
  %busy = load atomic i64, ptr %busy.at seq_cst, align 8
  %waits = icmp eq i64 %busy, {waits}
  br i1 %waits, label %signal, label %idle
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
  %locked = call i32 @pthread_mutex_lock(ptr %pool)
  store ptr @work, ptr %function.at
  store ptr %state, ptr %argument.at
  %word = load atomic i64, ptr %region.at monotonic, align 8
  %next = add i64 %word, {next}
  store atomic i64 %next, ptr %region.at release, align 8
  %woken = call i32 @pthread_cond_broadcast(ptr %wake.at)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %pool)
  call void @work(ptr %state)
  %open = atomicrmw and ptr %region.at, i64 {not_open} seq_cst
  %others = and i64 %open, {inside}
  %alone = icmp eq i64 %others, 0
  br i1 %alone, label %leave, label %look
look:
  call void @spin(ptr %region.at, i64 {inside}, i64 0, i1 true, i64 {wait})
  %looked = load atomic i64, ptr %region.at acquire, align 8
  %looked.inside = and i64 %looked, {inside}
  %finished = icmp eq i64 %looked.inside, 0
  br i1 %finished, label %leave, label %lock
lock:
  store atomic i64 {waits}, ptr %busy.at seq_cst, align 8
  %relocked = call i32 @pthread_mutex_lock(ptr %pool)
  br label %check
check:
  %checked = load atomic i64, ptr %region.at seq_cst, align 8
  %checked.inside = and i64 %checked, {inside}
  %none = icmp eq i64 %checked.inside, 0
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

define ptr @lamina_pool_create_2(i64 %wanted) nounwind {{
entry:
  %thread = alloca i64
  %pool = call ptr @aligned_alloc(i64 64, i64 ptrtoint (ptr getelementptr (%Pool, ptr null, i32 1) to i64))
  %none = icmp eq ptr %pool, null
  br i1 %none, label %out, label %init
init:
  call void @llvm.memset.p0.i64(ptr %pool, i8 0, i64 ptrtoint (ptr getelementptr (%Pool, ptr null, i32 1) to i64), i1 false)
  {init}
  %r0 = call i32 @pthread_mutex_init(ptr %pool, ptr null)
  %r1 = call i32 @pthread_cond_init(ptr %wake.at, ptr null)
  %r2 = call i32 @pthread_cond_init(ptr %done.at, ptr null)
  br label %next
next:
  %count = phi i64 [ 0, %init ], [ %more, %started ]
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
        "worker": POOL.at("pool", "wake", "done", "region", "function", "argument", "busy"),
        "run": POOL.at("pool", "wake", "done", "region", "function", "argument", "busy"),
        "init": POOL.at("pool", "wake", "done"),
        "turn": _TURN - 1,
        "numbers": -_NUMBER,
        "open": _OPEN,
        "inside": _OPEN - 1,
        "open_and_inside": _NUMBER - 1,
        "not_open": ~_OPEN,
        "next": _NUMBER + _OPEN,
    }
    return (
        _CODE.format(type=POOL.type, pause=pause, spin=_SPIN, wait=_WAIT, waits=_WAITS, looks=_LOOKS, **fields)
        + declaration
        + "\n"
    )
