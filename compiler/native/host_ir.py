"""The host program as LLVM IR: `lamina_main` and `lamina_init` (docs/contracts.md §8).

Both fill an array with the values of all sizes, and hand a table of launches to `lamina_walk` (walk_ir.py),
which calls the kernels. A launch is {kernel, first operand, operands, first size, sizes}; operands and sizes are
numbers into one list of buffers and into the array of values. So the code is as long for a thousand launches as for
one and compiles in milliseconds:

    values = [symbols..., constants and expressions used as sizes...]
    status = lamina_walk(ctx, buffers, arena, offsets, values, table)
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from ...dialects import dims
from ...dialects.dim_fold import fold
from ...dialects.dims import Dim
from ..plan import SPACES

_parse = functools.lru_cache(maxsize=4096)(dims.parse)

_HEAD = """
%Launch = type { ptr, i64, i64, i64, i64 }
%Table = type { i64, i64, i64, ptr, ptr, ptr }
declare i32 @lamina_walk(ptr, ptr, ptr, ptr, ptr, ptr)
declare ptr @memcpy(ptr, ptr, i64)
"""

# {name} of the entry, {symbols} and {values}: their numbers, {most} operands and {sizes} of a launch, {base}: number of
# buffers before the arena
_ENTRY = """
@{name}.operands = private unnamed_addr constant [{operand_count} x i64] [{operands}]
@{name}.sizes = private unnamed_addr constant [{size_count} x i64] [{size_numbers}]
@{name}.launches = private unnamed_addr constant [{launch_count} x %Launch] [{launches}]
@{name}.table = private unnamed_addr constant %Table {{
  i64 {launches_left}, i64 {most}, i64 {sizes}, ptr @{name}.launches, ptr @{name}.operands, ptr @{name}.sizes }}

define i32 @{name}(ptr %ctx, ptr %buffers, ptr %dims) nounwind {{
entry:
  %values = alloca [{values} x i64]
  %arena.at = getelementptr ptr, ptr %buffers, i64 {base}
  %arena = load ptr, ptr %arena.at
  %offsets = getelementptr i64, ptr %dims, i64 {symbols}
{prologue}
  %status = call i32 @lamina_walk(ptr %ctx, ptr %buffers, ptr %arena, ptr %offsets, ptr %values, ptr @{name}.table)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %out, label %done
done:
{epilogue}
  br label %out
out:
  ret i32 %status
}}
"""


def host_ir(plan: dict[str, Any]) -> str:
    """LLVM IR text of the host program of `plan`; kernels are declared, not defined."""
    symbols = [s["name"] for s in plan["symbols"]]
    counts = [len(plan["inputs"]), len(plan["weights"]), len(plan["persistent"])]
    parts = [_HEAD]
    parts.append(_entry("lamina_main", plan, symbols, [*counts, len(plan["buffers"])]))
    init = plan["init"] or {"launches": [], "before": [], "after": []}
    parts.append(_entry("lamina_init", init, [], [0, *counts[1:], 0]))
    kernels = dict.fromkeys(launch["kernel"] for part in (plan, init) for launch in part["launches"])
    parts += [f'declare i32 @"{kernel}"(ptr, ptr, ptr)\n' for kernel in kernels]
    return "".join(parts)


def _entry(name: str, part: dict[str, Any], symbols: Sequence[str], counts: Sequence[int]) -> str:
    """One entry; `counts` are the numbers of inputs, weights, persistent and output buffers."""
    code = _Code(symbols, counts)
    code.copies(part["before"])
    prologue_copies = code.lines
    code.lines = []
    code.copies(part["after"])
    epilogue, code.lines = code.lines, []

    operands: list[int] = []
    numbers: list[int] = []
    launches = []
    for launch in part["launches"]:
        kernel, args, sizes = launch["kernel"], launch["args"], launch["dims"]
        row = (len(operands), len(args), len(numbers), len(sizes))
        launches.append(f'%Launch {{ ptr @"{kernel}", ' + ", ".join(f"i64 {v}" for v in row) + " }")
        operands += [code.operand(*place) for place in args]
        numbers += [code.value_number(_parse(s)) for s in sizes]
    prologue = [*code.values_code(), *prologue_copies]
    return _ENTRY.format(
        name=name,
        operand_count=max(1, len(operands)),
        operands=_numbers(operands),
        size_count=max(1, len(numbers)),
        size_numbers=_numbers(numbers),
        launch_count=max(1, len(launches)),
        launches=", ".join(launches) or "%Launch zeroinitializer",
        launches_left=len(launches),
        most=max([1, *(len(launch["args"]) for launch in part["launches"])]),
        sizes=max([1, *(len(launch["dims"]) for launch in part["launches"])]),
        values=max(1, len(code.values)),
        base=sum(counts),
        symbols=len(symbols),
        prologue="\n".join(prologue),
        epilogue="\n".join(epilogue),
    )


class _Code:
    """Straight-line code of one entry: size values and copies."""

    def __init__(self, symbols: Sequence[str], counts: Sequence[int]):
        self.symbols = {s: i for i, s in enumerate(symbols)}
        self.first: dict[str, int] = dict(zip(SPACES, (sum(counts[:i]) for i in range(len(counts)))))
        self.values: dict[Dim, int] = {}
        self.lines: list[str] = []
        self._named = 0

    def operand(self, space: str, index: int) -> int:
        """The number of a buffer in the table of operands; arena buffers are complements."""
        return ~index if space == "arena" else self.first[space] + index

    def value_number(self, dim: Dim) -> int:
        """The place of `dim` in the array of size values."""
        return self.values.setdefault(dim, len(self.values))

    def values_code(self) -> list[str]:
        """Code that fills the array of size values."""
        kept, self.lines = self.lines, []
        for dim, number in self.values.items():
            value = self.expression(dim)
            at = self.name(f"getelementptr i64, ptr %values, i64 {number}")
            self.lines.append(f"  store i64 {value}, ptr {at}")
        lines, self.lines = self.lines, kept
        return lines

    def copies(self, copies: Iterable[dict[str, Any]]) -> None:
        """`memcpy` for each copy of the plan."""
        for copy in copies:
            to, source = self.pointer(*copy["to"]), self.pointer(*copy["from"])
            offset = self.expression(_parse(copy["offset"]))
            source = self.name(f"getelementptr i8, ptr {source}, i64 {offset}")
            size = self.expression(_parse(copy["bytes"]))
            self.name(f"call ptr @memcpy(ptr {to}, ptr {source}, i64 {size})")

    def pointer(self, space: str, index: int) -> str:
        if space == "arena":
            at = self.name(f"getelementptr i64, ptr %offsets, i64 {index}")
            offset = self.name(f"load i64, ptr {at}")
            return self.name(f"getelementptr i8, ptr %arena, i64 {offset}")
        at = self.name(f"getelementptr ptr, ptr %buffers, i64 {self.first[space] + index}")
        return self.name(f"load ptr, ptr {at}")

    def expression(self, dim: Dim) -> str:
        """Code for a size expression; returns its value. A division by zero (of an empty tensor) gives no trap."""

        def binary(name: str, a: str, b: str) -> str:
            return self.name(f"{name} i64 {a}, {b}")

        return fold(dim, self.leaf, self.function, functools.partial(binary, "add"), functools.partial(binary, "mul"))

    def leaf(self, x: int | str) -> str:
        if isinstance(x, int):
            return str(x)
        at = self.name(f"getelementptr i64, ptr %dims, i64 {self.symbols[x]}")
        return self.name(f"load i64, ptr {at}")

    def function(self, function: str, a: Dim, b: Dim) -> str:
        x, y = self.expression(a), self.expression(b)
        if function in ("max", "min"):
            test = self.name(f"icmp {'sgt' if function == 'max' else 'slt'} i64 {x}, {y}")
            return self.name(f"select i1 {test}, i64 {x}, i64 {y}")
        zero = self.name(f"icmp eq i64 {y}, 0")
        y = self.name(f"select i1 {zero}, i64 1, i64 {y}")
        rest = self.name(f"srem i64 {x}, {y}")
        negative = self.name(f"icmp slt i64 {rest}, 0")  # divisors are positive: round to minus infinity
        if function == "mod":
            up = self.name(f"add i64 {rest}, {y}")
            return self.name(f"select i1 {negative}, i64 {up}, i64 {rest}")
        quotient = self.name(f"sdiv i64 {x}, {y}")
        down = self.name(f"sub i64 {quotient}, 1")
        return self.name(f"select i1 {negative}, i64 {down}, i64 {quotient}")

    def name(self, code: str) -> str:
        self._named += 1
        self.lines.append(f"  %v{self._named} = {code}")
        return f"%v{self._named}"


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(f"i64 {v}" for v in values) or "i64 0"
