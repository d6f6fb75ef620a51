"""The run-time checks of kernels: the text in `cf.assert`, the code in the status word, and the exception eager raises."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """One kind of check."""

    code: int
    text: str
    exception: str  # the name of the builtin exception class


INDEX_OUT_OF_RANGE = Check(1, "index out of range", "IndexError")
DIVISION_BY_ZERO = Check(2, "ZeroDivisionError", "RuntimeError")
GATHER_OUT_OF_RANGE = Check(3, "index is out of bounds for its dimension", "RuntimeError")

CHECKS = (INDEX_OUT_OF_RANGE, DIVISION_BY_ZERO, GATHER_OUT_OF_RANGE)
OTHER = 255  # a check whose text is not in the table


def code_of(text: str) -> int:
    """The status code of the check with this text."""
    return next((c.code for c in CHECKS if c.text == text), OTHER)


def describe(code: int) -> Check:
    """The check with this status code."""
    return next((c for c in CHECKS if c.code == code), Check(code, f"run-time check {code} failed", "RuntimeError"))
