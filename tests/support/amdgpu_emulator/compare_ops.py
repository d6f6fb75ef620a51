"""Comparisons: a bit for each lane, into scalar registers or EXEC."""

from __future__ import annotations

import numpy as np

from .chips import Chip
from .disassembly import Instruction
from .operands import TYPES, U32, Operand, parse_operand
from .registers import EXEC, VCC
from .registry import Run, builds
from .vector_alu import source

_RELATIONS = {"lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_RELATIONS |= {"ne": np.not_equal, "lg": lambda x, y: (x < y) | (x > y)}
_RELATIONS |= {"o": lambda x, y: (x == x) & (y == y), "u": lambda x, y: (x != x) | (y != y)}
_RELATIONS |= {"nge": lambda x, y: ~(x >= y), "nlg": lambda x, y: ~((x < y) | (x > y)), "ngt": lambda x, y: ~(x > y)}
_RELATIONS |= {"nle": lambda x, y: ~(x <= y), "neq": lambda x, y: ~(x == y), "nlt": lambda x, y: ~(x < y)}
_RELATIONS |= {"t": lambda x, y: np.ones(np.broadcast(x, y).shape, bool)}
_RELATIONS |= {"f": lambda x, y: np.zeros(np.broadcast(x, y).shape, bool), "tru": _RELATIONS["t"]}


def in_class(x: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Whether x is of one of ten classes, a bit each: signalling NaN, quiet NaN, -inf … +inf."""
    smallest = np.finfo(x.dtype).tiny
    magnitude, negative = np.abs(x), np.signbit(x)
    quiet_bit = {2: 9, 4: 22, 8: 51}[x.dtype.itemsize]
    bits = x.view(f"u{x.dtype.itemsize}")
    quiet = (bits >> bits.dtype.type(quiet_bit) & bits.dtype.type(1)).astype(bool)
    normal, denormal = (magnitude >= smallest) & (magnitude < np.inf), (magnitude > 0) & (magnitude < smallest)
    tests = [np.isnan(x) & ~quiet, np.isnan(x) & quiet, x == -np.inf, normal & negative, denormal & negative]
    tests += [(x == 0) & negative, (x == 0) & ~negative, denormal & ~negative, normal & ~negative, x == np.inf]
    found = np.zeros(np.broadcast(x, classes).shape, bool)
    for i, test in enumerate(tests):
        found |= test & (classes >> np.uint32(i) & np.uint32(1)).astype(bool)
    return found


@builds(r"v_cmpx?_\w+_([fiu](16|32|64))")
def compare(instruction: Instruction, chip: Chip) -> Run:
    """`v_cmp_lt_f32 mask, x, y`; `v_cmpx` writes EXEC (on gfx9, the mask too)."""
    relation, kind = instruction.name.split("_")[2:4]
    to_exec = instruction.name.startswith("v_cmpx")
    dtype, texts = TYPES[kind], list(instruction.operands)
    to: Operand | None = parse_operand(texts.pop(0)) if len(texts) == 3 else Operand("vcc", "s", VCC)
    if to_exec and (chip.generation > 9 or to.row == EXEC):
        to = None
    x = source(instruction, 0, parse_operand(texts[0]), dtype)
    y = source(instruction, 1, parse_operand(texts[1]), U32 if relation == "class" else dtype)
    test = in_class if relation == "class" else _RELATIONS[relation]

    def run(w) -> None:
        found = np.broadcast_to(test(x(w), y(w)), w.mask.shape)
        if to:
            w.write_lanes(to.row, found)
        if to_exec:
            w.write_lanes(EXEC, found)

    return run
