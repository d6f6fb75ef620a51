"""`lamina_walk`, which runs the launches of a host program from its table, as LLVM IR.

for each launch of the table:
    pointers = [buffers[i], or arena + offsets[~i] for i < 0, ...];  sizes = [values[j] ...]
    hook(ctx, number, 0);  status = kernel(ctx, pointers, sizes);  hook(ctx, number, 1)
    if status: return number << 8 | status & 255
"""

from __future__ import annotations

from .struct_ir import Struct

# operands and sizes of a launch: the first number of each, and how many
LAUNCH = Struct("Launch", {"kernel": "ptr", "first": "i64", "count": "i64", "size.first": "i64", "size.count": "i64"})
# most operands and sizes of a launch; the launches; the numbers of operands, and of sizes
TABLE = Struct(
    "Table",
    {
        "launches.left": "i64",
        "most": "i64",
        "most.sizes": "i64",
        "launches": "ptr",
        "operands": "ptr",
        "numbers": "ptr",
    },
)

WALK_IR = f"""
{LAUNCH.type}
{TABLE.type}

define hidden i32 @lamina_walk(ptr %ctx, ptr %buffers, ptr %arena, ptr %offsets, ptr %values, ptr %table) nounwind {{
entry:
  {TABLE.load("table", *TABLE.fields)}
  %pointers = alloca ptr, i64 %most
  %sizes = alloca i64, i64 %most.sizes
  %hook.at = getelementptr ptr, ptr %ctx, i64 4
  br label %next
next:
  %n = phi i64 [ 0, %entry ], [ %n.after, %ran ]
  %more = icmp ult i64 %n, %launches.left
  br i1 %more, label %prepare, label %done
prepare:
  %launch = getelementptr %Launch, ptr %launches, i64 %n
  {LAUNCH.load("launch", *LAUNCH.fields)}
  br label %operand
operand:
  %i = phi i64 [ 0, %prepare ], [ %i.after, %put ]
  %operands.left = icmp ult i64 %i, %count
  br i1 %operands.left, label %get, label %size
get:
  %which.index = add i64 %first, %i
  %which.at = getelementptr i64, ptr %operands, i64 %which.index
  %which = load i64, ptr %which.at
  %in.arena = icmp slt i64 %which, 0
  br i1 %in.arena, label %planned, label %given
given:
  %given.at = getelementptr ptr, ptr %buffers, i64 %which
  %given.pointer = load ptr, ptr %given.at
  br label %put
planned:
  %slot = xor i64 %which, -1
  %offset.at = getelementptr i64, ptr %offsets, i64 %slot
  %offset = load i64, ptr %offset.at
  %planned.pointer = getelementptr i8, ptr %arena, i64 %offset
  br label %put
put:
  %pointer = phi ptr [ %given.pointer, %given ], [ %planned.pointer, %planned ]
  %pointer.at = getelementptr ptr, ptr %pointers, i64 %i
  store ptr %pointer, ptr %pointer.at
  %i.after = add i64 %i, 1
  br label %operand
size:
  %j = phi i64 [ 0, %operand ], [ %j.after, %size.put ]
  %sizes.left = icmp ult i64 %j, %size.count
  br i1 %sizes.left, label %size.put, label %run
size.put:
  %value.index = add i64 %size.first, %j
  %value.number.at = getelementptr i64, ptr %numbers, i64 %value.index
  %value.number = load i64, ptr %value.number.at
  %value.at = getelementptr i64, ptr %values, i64 %value.number
  %value = load i64, ptr %value.at
  %to = getelementptr i64, ptr %sizes, i64 %j
  store i64 %value, ptr %to
  %j.after = add i64 %j, 1
  br label %size
run:
  %hook = load ptr, ptr %hook.at
  %profiled = icmp ne ptr %hook, null
  br i1 %profiled, label %hooked, label %plain
plain:
  %status.plain = call i32 %kernel(ptr %ctx, ptr %pointers, ptr %sizes)
  br label %ran
hooked:
  call void %hook(ptr %ctx, i64 %n, i64 0)
  %status.hooked = call i32 %kernel(ptr %ctx, ptr %pointers, ptr %sizes)
  call void %hook(ptr %ctx, i64 %n, i64 1)
  br label %ran
ran:
  %status = phi i32 [ %status.plain, %plain ], [ %status.hooked, %hooked ]
  %n.after = add i64 %n, 1
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %fail, label %next
fail:
  %number = trunc i64 %n to i32
  %high = shl i32 %number, 8
  %low = and i32 %status, 255
  %code = or i32 %high, %low
  ret i32 %code
done:
  ret i32 0
}}
"""
