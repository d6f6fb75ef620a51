"""Matrix instructions: D = A·B + C, of which each lane holds a few elements. Products and sums are in f64 here.

MFMA (CDNA) of M×N×K with `b` blocks, lane l, vector element v, with j = l / M:
    A[l % M, v + kv·(j / b)] of block j % b; B likewise with its columns; kv elements of K in a lane
    D[8·(r / 4) + 4·(l / 32) + r % 4, l % 32] for 32×32, [4·(l / 16) + r % 4, l % 16] for 16×16 of block r / 4,
    [r, l % 4] for 4×4 of block l / 4; for f64, [4·r + l / 16, l % 16]
WMMA (RDNA) of 16×16×16, lane l:
    gfx11: A[l % 16, v], the same in both halves of the wave; D[2·r + l / 16, l % 16]
    gfx12: A[l % 16, v + kv·(l / 16)]; D[8·(l / 16) + r, l % 16]
Source: AMD's "Matrix Instruction Calculator" and ISA documents.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np

from .chips import Chip
from .conversion_ops import fp8_type
from .disassembly import Instruction
from .operands import F16, F32, F64, I8, I32, I64, U8, U16, U32, Operand, parse_operand, vector_reader
from .registry import Run, builds, refuse
from .vector_alu import flags
from .waves import Waves

_BF16 = np.dtype(ml_dtypes.bfloat16)
_TYPES = {"f32": F32, "xf32": F32, "f16": F16, "bf16": _BF16, "bf16_1k": _BF16, "f64": F64, "i8": I8}
_MFMA = re.compile(
    r"v_mfma_(f32|f64|i32)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?(f32|xf32|f16|bf16_1k|bf16|f64|i8|[bf]f?p?8_\w+)"
)
_WMMA = re.compile(r"v_wmma_(f32|f16|bf16|i32)_16x16x16_(f16|bf16|iu8|(?:fp8|bf8)_(?:fp8|bf8))")


def elements(w: Waves, operand: Operand, dtype: np.dtype) -> np.ndarray:
    """(waves, lanes, elements) of the registers of an operand."""
    words = np.stack([w.vector(row) for row in operand.rows], -1)
    return np.ascontiguousarray(words).view(dtype)


def _addend(w: Waves, operand: Operand, dtype: np.dtype, count: int) -> np.ndarray:
    if operand.kind == "v":
        return elements(w, operand, dtype)
    return np.broadcast_to(vector_reader(operand, dtype)(w)[..., None], (w.count, w.width, count))


def _sum(product: np.ndarray, addend: np.ndarray, result: np.dtype) -> np.ndarray:
    """product + addend, rounded once; integers (exact in f64 until here) wrap around."""
    return (product.astype(I64 if result == I32 else F64) + addend).astype(result)


def _to_xf32(x: np.ndarray) -> np.ndarray:
    """f32 with 10 bits of mantissa, rounded to even."""
    bits = x.view(U32)
    return (bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1)) & np.uint32(0xFFFFE000)).view(F32)


def _store(w: Waves, operand: Operand, value: np.ndarray) -> None:
    words = np.ascontiguousarray(value).view(U32)
    for i, row in enumerate(operand.rows):
        w.write_vector(row, words[:, :, i])


def _require_full(w: Waves, instruction: Instruction) -> None:
    """Matrix instructions ignore EXEC or need it full: with lanes off, compiled code is wrong."""
    off = ~w.mask.all(1) & w.active
    if off.any():
        raise w.fail(f"{instruction.name} runs with lanes off", int(np.argmax(off)))


def _mfma_types(name: str, chip: Chip) -> tuple[np.dtype, np.dtype]:
    if "8_" in name and name[:2] in ("fp", "bf") and "16" not in name:
        a, b = name.split("_")
        return fp8_type(chip, a == "bf8"), fp8_type(chip, b == "bf8")
    return _TYPES[name], _TYPES[name]


def mfma_places(m: int, blocks: int, registers: int, wide: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(block, row, column) of D for each (lane, element)."""
    lane, r = np.arange(64)[:, None], np.arange(registers)[None, :]
    column = np.broadcast_to(lane % m, (64, registers))
    if m == 32:
        return np.broadcast_to(r // 16, column.shape), 8 * (r % 16 // 4) + 4 * (lane // 32) + r % 4, column
    if m == 16:
        if wide:
            return np.zeros_like(column), 4 * r + lane // 16, column
        return np.broadcast_to(r // 4, column.shape), 4 * (lane // 16) + r % 4, column
    return np.broadcast_to(lane // 4, column.shape), np.broadcast_to(r, column.shape), column


@builds(r"v_mfma_\w+")
def mfma(instruction: Instruction, chip: Chip) -> Run:
    """`v_mfma_f32_32x32x8_f16 d, a, b, c`; gfx90a writes the name without the last underscore."""
    match = _MFMA.fullmatch(instruction.name)
    if not match or any(
        instruction.modifiers.get(k, "0") not in ("0", "[0,0,0]") for k in ("cbsz", "abid", "blgp", "neg")
    ):
        raise refuse(instruction, "the form")
    m, n, k = (int(x) for x in match.groups()[1:4])
    if m != n or (match[1] == "f64" and m == 4):
        raise refuse(instruction, "the layout")
    d, a, b, c = (parse_operand(t) for t in instruction.operands)
    types = _mfma_types(match[6], chip)
    result = {"f32": F32, "f64": F64, "i32": I32}[match[1]]
    each = 4 * a.count // types[0].itemsize  # elements of K in a lane
    blocks = (64 // m) // (k // each)
    if int(match[5] or blocks) != blocks:
        raise refuse(instruction, "the number of blocks")
    count = 4 * d.count // result.itemsize
    group = np.arange(64) // m
    block, step = (group % blocks)[:, None], group // blocks
    inner = step[:, None] * each + np.arange(each)
    outer = (np.arange(64) % m)[:, None]
    places = mfma_places(m, blocks, count, match[1] == "f64")
    narrow = _to_xf32 if match[6] == "xf32" else lambda x: x

    def matrix(w: Waves, operand: Operand, dtype: np.dtype) -> np.ndarray:
        made = np.zeros((w.count, blocks, m, k))
        made[:, block, outer, inner] = narrow(elements(w, operand, dtype))
        return made

    def run(w: Waves) -> None:
        _require_full(w, instruction)
        product = matrix(w, a, types[0]) @ matrix(w, b, types[1]).swapaxes(2, 3)
        _store(w, d, _sum(product[:, places[0], places[1], places[2]], _addend(w, c, result, count), result))

    return run


@builds(r"v_wmma_\w+")
def wmma(instruction: Instruction, chip: Chip) -> Run:
    """`v_wmma_f32_16x16x16_f16 d, a, b, c`."""
    match = _WMMA.fullmatch(instruction.name)
    if not match or "neg_hi" in instruction.modifiers:
        raise refuse(instruction, "the form")
    d, a, b, c = (parse_operand(t) for t in instruction.operands)
    new = chip.generation >= 12
    result = {"f32": F32, "f16": F16, "bf16": _BF16, "i32": I32}[match[1]]
    negative = flags(instruction, "neg_lo", [0] * 3)
    if match[2] == "iu8":
        types = tuple(I8 if sign else U8 for sign in negative[:2])
    elif any(negative):
        raise refuse(instruction, "the negation")
    elif "8" in match[2].split("_")[0]:
        types = tuple(fp8_type(chip, part == "bf8") for part in match[2].split("_"))
    else:
        types = (_TYPES[match[2]],) * 2
    lane = np.arange(32)
    inner = np.arange(8)[None, :] + 8 * (lane // 16)[:, None] if new else np.broadcast_to(np.arange(16), (32, 16))
    outer, column = np.broadcast_to((lane % 16)[:, None], inner.shape), np.broadcast_to(lane[:, None] % 16, (32, 8))
    r = np.arange(8)[None, :]
    row = 8 * (lane // 16)[:, None] + r if new else 2 * r + (lane // 16)[:, None]
    half = flags(instruction, "op_sel", [0] * 3)[2]  # gfx11: which half of a register a 16-bit D and C use

    def matrix(w: Waves, operand: Operand, dtype: np.dtype) -> np.ndarray:
        values = elements(w, operand, dtype)
        bits = values.view(U8)
        if not new and (bits[:, :16] != bits[:, 16:])[w.active].any():
            raise w.fail(f"{operand.text} of {instruction.name} differs between the halves of a wave", 0)
        made = np.zeros((w.count, 16, 16))
        made[:, outer, inner] = values
        return made

    def run(w: Waves) -> None:
        _require_full(w, instruction)
        product = (matrix(w, a, types[0]) @ matrix(w, b, types[1]).swapaxes(1, 2))[:, row, column]
        if result.itemsize == 4 or new:
            _store(w, d, _sum(product, _addend(w, c, result, 8), result))
            return
        addend = elements(w, c, result)[:, :, half::2] if c.kind == "v" else _addend(w, c, F16, 8)
        value = (product + addend).astype(result).view(U16).astype(U32) << np.uint32(16 * half)
        keep = np.uint32(0xFFFF if half else 0xFFFF0000)
        for i, to in enumerate(d.rows):
            w.write_vector(to, w.v[to] & keep | value[:, :, i])

    return run
