"""What native entries share, as LLVM IR: that for numpy arrays (`array_entry_ir.py`) and those of parts under torch.

An entry is a builtin of CPython (`runtime/entry.py`) that reads a table %t of 8-byte slots. Tables differ: functions here
take `slots`, the numbers of a table's slots by name. A slot that they load has the same name in all tables.

    @entry_same       two arrays of numbers agree
    @entry_long       the value of a Python int
    @entry_int        a Python int has the memoised value
    @entry_arguments  each argument is as its row expects
    @entry_perform    the program, with the GIL or without
    @entry_release    the outputs of a failed call go
    block `failed`    Python raises what the program's status says
    block `slow`      the next table, at last Python

All are internal and inlined into the one entry that calls them.
"""

from __future__ import annotations

from collections.abc import Mapping

# Where every Python object keeps its class.
CLASS = 8


def load_slot(slots: Mapping[str, int], result: str, name: str, type: str = "ptr") -> str:
    """IR that loads a slot of the table %t; its address is %`result`.a."""
    return f"%{result}.a = getelementptr i64, ptr %t, i64 {slots[name]}\n  %{result} = load {type}, ptr %{result}.a"


def load_word(result: str, row: str, index: int, type: str = "i64") -> str:
    """IR that loads a word of the table row %`row`."""
    return f"%{result}.a = getelementptr i64, ptr %{row}, i64 {index}\n  %{result} = load {type}, ptr %{result}.a"


def load_field(result: str, object: str, offset: int, type: str = "ptr") -> str:
    """IR that loads the field of the Python object %`object` at `offset` bytes."""
    return f"%{result}.a = getelementptr i8, ptr %{object}, i64 {offset}\n  %{result} = load {type}, ptr %{result}.a"


def every(name: str, parameters: str, loads: str, count: str, look: str) -> str:
    """`i1 @name(parameters)`: do all %i below %`count` pass? `look` goes to %c if one does, and to %no if it does not."""
    return _loop("i1", name, parameters, loads, count, look, "yes: ret i1 true\nno: ret i1 false")


def each(name: str, parameters: str, loads: str, count: str, work: str) -> str:
    """`i32 @name(parameters)`: `work` for all %i below %`count`, whose code is %r; goes to %c, or to %failed to end with it."""
    return _loop("i32", name, parameters, loads, count, work, "yes: ret i32 0\nfailed: ret i32 %r")


def for_all(name: str, parameters: str, loads: str, count: str, work: str) -> str:
    """`void @name(parameters)`: `work` for all %i below %`count`; goes to %c."""
    return _loop("void", name, parameters, loads, count, work, "yes: ret void")


def _loop(result: str, name: str, parameters: str, loads: str, count: str, body: str, end: str) -> str:
    return f"""
define internal {result} @{name}({parameters}) nounwind {{
e:
  {loads}
  br label %l
l: %i = phi i64 [0, %e], [%j, %c]
  %more = icmp slt i64 %i, %{count}
  br i1 %more, label %body, label %yes
body:
  {body}
c: %j = add i64 %i, 1
  br label %l
{end}
}}
"""


# Do n numbers of two arrays agree?
SAME = every(
    "entry_same",
    "ptr %a, ptr %b, i64 %n",
    "",
    "n",
    """%pa = getelementptr i64, ptr %a, i64 %i
  %pb = getelementptr i64, ptr %b, i64 %i
  %va = load i64, ptr %pa
  %vb = load i64, ptr %pb
  %eq = icmp eq i64 %va, %vb
  br i1 %eq, label %c, label %no""",
)


def int_check(slots: Mapping[str, int]) -> str:
    """Is %o exactly an int? `i1 @entry_long(%t, %o, %to)` stores its value, of 8 bytes, `i1 @entry_int(%t, %o, %want)` compares it."""
    return f"""
define internal i1 @entry_long(ptr %t, ptr %o, ptr %to) nounwind {{
  %overflow = alloca i32
  {load_field("type", "o", CLASS)}
  {load_slot(slots, "class", "int_class")}
  %is = icmp eq ptr %type, %class
  br i1 %is, label %value, label %no
value:
  {load_slot(slots, "get", "long_value")}
  store i32 0, ptr %overflow
  %v = call i64 %get(ptr %o, ptr %overflow)
  store i64 %v, ptr %to
  %over = load i32, ptr %overflow
  %fits = icmp eq i32 %over, 0
  ret i1 %fits
no: ret i1 false
}}
define internal i1 @entry_int(ptr %t, ptr %o, i64 %want) nounwind {{
  %value = alloca i64
  %is = call i1 @entry_long(ptr %t, ptr %o, ptr %value)
  br i1 %is, label %compare, label %no
compare:
  %v = load i64, ptr %value
  %ok = icmp eq i64 %v, %want
  ret i1 %ok
no: ret i1 false
}}
"""


def arguments_check(slots: Mapping[str, int], check: str, words: int) -> str:
    """`i1 @entry_arguments(%t, %args, %n, %buffers)`: does function `check` accept each argument, by its row of `words`?"""
    return every(
        "entry_arguments",
        "ptr %t, ptr %args, i64 %n, ptr %buffers",
        load_slot(slots, "rows", "argument_table"),
        "n",
        f"""%oa = getelementptr ptr, ptr %args, i64 %i
  %o = load ptr, ptr %oa
  %ri = mul i64 %i, {words}
  %row = getelementptr i64, ptr %rows, i64 %ri
  %ok = call i1 @{check}(ptr %t, ptr %o, ptr %row, ptr %buffers)
  br i1 %ok, label %c, label %no""",
    )


def perform(slots: Mapping[str, int]) -> str:
    """`i32 @entry_perform(%t, %buffers, %shared)`: the program's status; `release`: without the GIL, since it takes long.

    The caller holds the word `busy`.
    """
    return f"""
define internal i32 @entry_perform(ptr %t, ptr %buffers, ptr %shared) nounwind {{
  %arena.a = getelementptr i64, ptr %shared, i64 1
  %arena = load ptr, ptr %arena.a
  {load_slot(slots, "ab", "arena_buffer", "i64")}
  %ad = getelementptr ptr, ptr %buffers, i64 %ab
  store ptr %arena, ptr %ad
  {load_slot(slots, "main", "main")}
  {load_slot(slots, "context", "context")}
  {load_slot(slots, "dims", "dims")}
  {load_slot(slots, "release", "release", "i64")}
  %long = icmp ne i64 %release, 0
  br i1 %long, label %free, label %held
held:
  %status.held = call i32 %main(ptr %context, ptr %buffers, ptr %dims)
  ret i32 %status.held
free:
  {load_slot(slots, "save", "save_thread")}
  {load_slot(slots, "restore", "restore_thread")}
  %state = call ptr %save()
  %status.free = call i32 %main(ptr %context, ptr %buffers, ptr %dims)
  call void %restore(ptr %state)
  ret i32 %status.free
}}
"""


def release(slots: Mapping[str, int], name: str, returns: str) -> str:
    """`@entry_release(%t, %handles, %n)`: call the function in slot `name`, which returns a `returns`, on n handles."""
    return for_all(
        "entry_release",
        "ptr %t, ptr %handles, i64 %n",
        load_slot(slots, "drop", name),
        "n",
        f"""%ha = getelementptr ptr, ptr %handles, i64 %i
  %h = load ptr, ptr %ha
  call {returns} %drop(ptr %h)
  br label %c""",
    )


def ready(slots: Mapping[str, int], busy: str) -> str:
    """The loads with which an entry of one argument before the others begins, and its first question.

    On to block `facts` if the table is filled, nobody is in it (%busy, which `busy` loads) and %n is what it expects.
    """
    return f"""{load_slot(slots, "valid", "valid", "i64")}
  {busy}
  {load_slot(slots, "want", "arguments", "i64")}
  {load_slot(slots, "buffers", "buffers")}
  %given = sub i64 %n, 1
  %ok0 = icmp ne i64 %valid, 0
  %ok1 = icmp eq i64 %busy, 0
  %ok2 = icmp eq i64 %given, %want
  %ok01 = and i1 %ok0, %ok1
  %ok = and i1 %ok01, %ok2
  br i1 %ok, label %facts, label %slow"""


def failed(slots: Mapping[str, int]) -> str:
    """The block in which a call ends whose program has failed with %status: its outputs go, and the slot `failed` raises.

    The program may have written to arguments, so it is not run again. The status is an argument, since a word in
    memory would be taken by whichever thread comes first.
    """
    return f"""
failed:
  call void @entry_release(ptr %t, ptr %handles, i64 %outputs)
  {load_slot(slots, "number.new", "new_long")}
  {load_slot(slots, "raise", "failed")}
  {load_slot(slots, "raise.call", "vectorcall")}
  {load_slot(slots, "number.drop", "decrement")}
  %code = zext i32 %status to i64
  %code.at = alloca ptr
  %number = call ptr %number.new(i64 %code)
  store ptr %number, ptr %code.at
  %no.number = icmp eq ptr %number, null
  br i1 %no.number, label %no.more, label %tell
tell:
  %raised = call ptr %raise.call(ptr %raise, ptr %code.at, i64 1, ptr null)
  call void %number.drop(ptr %number)
  ret ptr %raised
no.more:
  ret ptr null
"""


def slow(slots: Mapping[str, int]) -> str:
    """The last block of an entry: the same call of what the slot `slow` names."""
    return f"""
slow:
  {load_slot(slots, "callable", "slow")}
  {load_slot(slots, "vector", "vectorcall")}
  %answer = call ptr %vector(ptr %callable, ptr %args, i64 %n, ptr null)
  ret ptr %answer
}}
"""
