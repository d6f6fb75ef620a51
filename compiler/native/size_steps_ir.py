"""Sizes computed by native code, as LLVM IR: what lets one table of an entry serve calls of all sizes.

`frontend/calls/size_steps.py` writes the steps. They read and write an array of values, which begins with the symbols:

    ADD … MAX       values[to] = values[a] op values[b]; a division by 0 belongs to an empty tensor, and is one by 1
    CHECK           values[a] <= values[b], or nothing more is done
    PUT, PUT_HALF   the 8 or 4 bytes at address b = values[a]
    ENCODE          unless values[a] is 0, a tensor map is made again by the 13 words at address b: cuTensorMapEncodeTiled,
                    then its arguments, where the tensor's address is that of a word which holds it

    i1 @entry_follow(ptr %t, ptr %args)   the table is for the sizes of these arguments now; false: take the slow path

A table whose slot `follow_symbols` is 0 is for one tuple of sizes. Steps run only if a symbol differs from that of the call
before (`follow_now`: the words agree with the values).
"""

from __future__ import annotations

from collections.abc import Mapping

from .entry_ir import every, load_slot, load_word

FOLLOW_SLOTS = (
    # the symbols and where they are: an argument and its dim (-1: an int); values, of which they are the first; steps
    "follow_symbols", "follow_rows", "follow_values", "follow_steps", "follow_step_table", "follow_now",
)  # fmt: skip
ADD, MUL, FLOORDIV, MOD, MIN, MAX, CHECK, PUT, PUT_HALF, ENCODE = range(10)
STEP_WORDS = 4  # what, a, b, to
SYMBOL_WORDS = 2  # argument, dim


def follow_ir(slots: Mapping[str, int]) -> str:
    """The functions, for tables with these slots, which are those of entries under torch."""
    return _STEPS + _symbol(slots) + _symbols(slots) + _follow(slots)


def _binary(name: str, code: str) -> str:
    return f"""{name}:
  {code}
  store i64 %{name}.r, ptr %pd
  br label %c
"""


# Runs the steps; false as soon as a check fails.
_STEPS = (
    every(
        "entry_steps",
        "ptr %steps, i64 %n, ptr %values",
        "",
        "n",
        f"""%ri = mul i64 %i, {STEP_WORDS}
  %row = getelementptr i64, ptr %steps, i64 %ri
  {load_word("what", "row", 0)}
  {load_word("ia", "row", 1)}
  {load_word("ib", "row", 2)}
  {load_word("id", "row", 3)}
  %pa = getelementptr i64, ptr %values, i64 %ia
  %a = load i64, ptr %pa
  %address = inttoptr i64 %ib to ptr
  switch i64 %what, label %second [i64 {PUT}, label %put i64 {PUT_HALF}, label %half i64 {ENCODE}, label %encode]
put:
  store i64 %a, ptr %address
  br label %c
half:
  %h = trunc i64 %a to i32
  store i32 %h, ptr %address
  br label %c
second:
  %pb = getelementptr i64, ptr %values, i64 %ib
  %b = load i64, ptr %pb
  %pd = getelementptr i64, ptr %values, i64 %id
  %less = icmp sle i64 %a, %b
  switch i64 %what, label %no [i64 {ADD}, label %add i64 {MUL}, label %mul
    i64 {FLOORDIV}, label %quotient i64 {MOD}, label %rest i64 {MIN}, label %min i64 {MAX}, label %max
    i64 {CHECK}, label %check]
{_binary("add", "%add.r = add i64 %a, %b")}{_binary("mul", "%mul.r = mul i64 %a, %b")}
{_binary("min", "%min.r = select i1 %less, i64 %a, i64 %b")}{_binary("max", "%max.r = select i1 %less, i64 %b, i64 %a")}
{_binary("quotient", "%quotient.r = call i64 @entry_floordiv(i64 %a, i64 %b)")}
{
            _binary(
                "rest",
                '''%q = call i64 @entry_floordiv(i64 %a, i64 %b)
  %none = icmp eq i64 %b, 0
  %by = select i1 %none, i64 1, i64 %b
  %product = mul i64 %q, %by
  %rest.r = sub i64 %a, %product''',
            )
        }
check:
  br i1 %less, label %c, label %no
encode:
  %unused = icmp eq i64 %a, 0
  br i1 %unused, label %c, label %used
used:
  {load_word("function", "address", 0, "ptr")}
  {load_word("map", "address", 1, "ptr")}
  {load_word("type", "address", 2, "i32")}
  {load_word("rank", "address", 3, "i32")}
  {load_word("base.at", "address", 4, "ptr")}
  %base = load i64, ptr %base.at
  {load_word("sizes", "address", 5, "ptr")}
  {load_word("strides", "address", 6, "ptr")}
  {load_word("box", "address", 7, "ptr")}
  {load_word("elements", "address", 8, "ptr")}
  {load_word("interleave", "address", 9, "i32")}
  {load_word("swizzle", "address", 10, "i32")}
  {load_word("promotion", "address", 11, "i32")}
  {load_word("fill", "address", 12, "i32")}
  %code = call i32 %function(ptr %map, i32 %type, i32 %rank, i64 %base, ptr %sizes, ptr %strides, ptr %box, ptr %elements,
                             i32 %interleave, i32 %swizzle, i32 %promotion, i32 %fill)
  %made = icmp eq i32 %code, 0
  br i1 %made, label %c, label %no""",
    )
    + """
; floor(a / b), b = 0 as 1
define internal i64 @entry_floordiv(i64 %a, i64 %b) nounwind {
  %none = icmp eq i64 %b, 0
  %by = select i1 %none, i64 1, i64 %b
  %q = sdiv i64 %a, %by
  %r = srem i64 %a, %by
  %whole = icmp eq i64 %r, 0
  %signs = xor i64 %r, %by
  %apart = icmp slt i64 %signs, 0
  %exact = xor i1 %whole, true
  %down = and i1 %apart, %exact
  %less = sext i1 %down to i64
  %floor = add i64 %q, %less
  ret i64 %floor
}
"""
)


def _symbol(slots: Mapping[str, int]) -> str:
    return f"""
; the int %o, or the size of the tensor %o at %dim; stored in %to, or false
define internal i1 @entry_symbol(ptr %t, ptr %o, i64 %dim, ptr %to) nounwind {{
  %tmp = alloca i64
  %int = icmp slt i64 %dim, 0
  br i1 %int, label %class, label %tensor
class:
  %known = call i1 @entry_long(ptr %t, ptr %o, ptr %to)
  ret i1 %known
tensor:
  %ok = call i1 @tensor(ptr %t, ptr %o)
  br i1 %ok, label %rank, label %no
rank:
  %h = call ptr @handle(ptr %t, ptr %o)
  {load_slot(slots, "fd", "get_dim")}
  %r0 = call i32 %fd(ptr %h, ptr %tmp)
  %nd = load i64, ptr %tmp
  %has = icmp slt i64 %dim, %nd
  br i1 %has, label %size, label %no
size:
  {load_slot(slots, "fs", "get_sizes")}
  %r1 = call i32 %fs(ptr %h, ptr %tmp)
  %sizes = load ptr, ptr %tmp
  %sa = getelementptr i64, ptr %sizes, i64 %dim
  %s = load i64, ptr %sa
  store i64 %s, ptr %to
  ret i1 true
no: ret i1 false
}}
"""


def _symbols(slots: Mapping[str, int]) -> str:
    """Can all symbols be read from these arguments? Those that changed are stored, and the words are no longer theirs."""
    return every(
        "entry_symbols",
        "ptr %t, ptr %args",
        f"""%tmp = alloca i64
  {load_slot(slots, "n", "follow_symbols", "i64")}
  {load_slot(slots, "rows", "follow_rows")}
  {load_slot(slots, "values", "follow_values")}""",
        "n",
        f"""%ri = mul i64 %i, {SYMBOL_WORDS}
  %row = getelementptr i64, ptr %rows, i64 %ri
  {load_word("argument", "row", 0)}
  {load_word("dim", "row", 1)}
  %oa = getelementptr ptr, ptr %args, i64 %argument
  %o = load ptr, ptr %oa
  %read = call i1 @entry_symbol(ptr %t, ptr %o, i64 %dim, ptr %tmp)
  br i1 %read, label %compare, label %no
compare:
  %new = load i64, ptr %tmp
  %pv = getelementptr i64, ptr %values, i64 %i
  %old = load i64, ptr %pv
  %same = icmp eq i64 %new, %old
  br i1 %same, label %c, label %change
change:
  store i64 %new, ptr %pv
  {load_slot(slots, "was", "follow_now", "i64")}
  store i64 0, ptr %was.a
  br label %c""",
    )


def _follow(slots: Mapping[str, int]) -> str:
    return f"""
; the table's words for the sizes of these arguments
define internal i1 @entry_follow(ptr %t, ptr %args) nounwind {{
  %read = call i1 @entry_symbols(ptr %t, ptr %args)
  br i1 %read, label %compared, label %no
compared:
  {load_slot(slots, "n", "follow_symbols", "i64")}
  %none = icmp eq i64 %n, 0
  {load_slot(slots, "now", "follow_now", "i64")}
  %current = icmp ne i64 %now, 0
  %done = or i1 %none, %current
  br i1 %done, label %yes, label %run
run:
  {load_slot(slots, "count", "follow_steps", "i64")}
  {load_slot(slots, "steps", "follow_step_table")}
  {load_slot(slots, "values", "follow_values")}
  %ran = call i1 @entry_steps(ptr %steps, i64 %count, ptr %values)
  br i1 %ran, label %ready, label %no
ready:
  store i64 1, ptr %now.a
  br label %yes
yes: ret i1 true
no: ret i1 false
}}
"""
