"""Transpose a square block of vectors in registers.

Inside each 128-bit lane groups of 4 (32-bit) or 2 (64-bit) elements are transposed with unpack-like shuffles, which x86
does in one instruction each; then blocks of 4, 8, ... lanes off the diagonal are swapped (`vperm2f128`, `vshuff32x4`).
"""

from __future__ import annotations

from collections.abc import Sequence

from mlir import ir

from .code import Code


def transpose(code: Code, rows: Sequence[ir.Value], element_bits: int) -> list[ir.Value]:
    """The columns of `rows`: as many vectors as lanes; elements of 32 or 64 bits."""
    width = len(rows)
    group = min(width, 128 // element_bits)
    out = list(rows)
    for first in range(0, width, group):
        out[first : first + group] = _groups(code, out[first : first + group], width)
    size = group
    while size < width:
        for i in (i for i in range(width) if not i & size):
            a, b = out[i], out[i | size]
            out[i] = _shuffle(code, a, b, [l if not l & size else width + l - size for l in range(width)])
            out[i | size] = _shuffle(code, a, b, [l + size if not l & size else width + l for l in range(width)])
        size *= 2
    return out


def _groups(code: Code, rows: list[ir.Value], width: int) -> list[ir.Value]:
    """Transpose each aligned `group x group` block of `group` rows, by zips of pairs of elements, then of halves."""
    group, run = len(rows), 1
    while run < group:
        # lanes go in runs of `run`; zipping row i with row i + run doubles the run
        out = list(rows)
        for i in (i for i in range(group) if not i & run):
            a, b = rows[i], rows[i | run]
            out[i] = _shuffle(code, a, b, _zip(width, group, run, 0))
            out[i | run] = _shuffle(code, a, b, _zip(width, group, run, 1))
        rows, run = out, run * 2
    if group == 4:  # two zips leave the middle rows swapped
        rows = [rows[0], rows[2], rows[1], rows[3]]
    return rows


def _zip(width: int, group: int, run: int, half: int) -> list[int]:
    """Per group: runs of `run` lanes of the low (`half` 0) or high half of both vectors, alternating."""
    lanes = []
    for first in range(0, width, group):
        for start in range(half * group // 2, (half + 1) * group // 2, run):
            lanes += [first + start + k for k in range(run)] + [width + first + start + k for k in range(run)]
    return lanes


def _shuffle(code: Code, a: ir.Value, b: ir.Value, lanes: list[int]) -> ir.Value:
    return code.op("vector.shuffle", [a.type], [a, b], mask=ir.DenseI64ArrayAttr.get(lanes))
