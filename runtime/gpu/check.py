"""The launch tables of a program for a GPU, checked when it is loaded: what a kernel is given must be what it names.

A kernel with another's pointers writes anywhere. Fields that are missing or of other types are errors of Python's that
`artifact.reading` explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ArtifactError
from .cuda import TENSOR_MAP_TYPES

_MOST_THREADS = 1024  # of a block, on all GPUs
_MOST_SHARED = 256 << 10  # bytes of a block, more than any GPU has
_MOST_BOX = 256  # elements of a side
_MOST_DIMS = 5
MOST_BLOCKS = (1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1  # of a grid
_WINDOW = ("lower", "upper", "steps")


def check_launches(
    plan: Mapping[str, Any], spaces: Mapping[str, int], kernels: Mapping[str, Mapping[str, Any]], name: str
) -> None:
    """ArtifactError if a launch or copy of `plan` names what is not there; `spaces` are those given, `kernels` headers."""
    launches, sizes = plan["launches"], {**spaces, "arena": len(plan["arena"])}

    def require(holds: bool, what: str) -> None:
        if not holds:
            raise ArtifactError(f"the launches of program '{name}' are damaged: {what}; compile it again")

    for buffer in plan["arena"]:  # copies after the launches are one step more
        require(0 <= buffer["first"] <= buffer["last"] <= len(launches), "a buffer outlives the program")
    for space, index in [c[end] for key in ("before", "after") for c in plan[key] for end in ("to", "from")]:
        require(space in sizes and 0 <= index < sizes[space], f"a copy of {space} {index}")
    for number, row in enumerate(launches):
        where = f"launch {number} of '{row['kernel']}'"
        require(row["kernel"] in kernels, f"{where}, which is not there")
        header = kernels[row["kernel"]]
        require(len(row["dims"]) == len(header["symbols"]), f"{where} with {len(row['dims'])} sizes")
        for space, index in row["args"]:
            require(space in sizes and 0 <= index < sizes[space], f"{where} on {space} {index}")
        most = {"buffer": len(row["args"]), "scratch": len(header["scratch"]), "symbol": len(row["dims"])}
        for stage in header["stages"]:
            require(_is_stage(stage, most), f"stage '{stage['name']}' of {where}")


def _is_stage(stage: Mapping[str, Any], most: Mapping[str, int]) -> bool:
    """Does a stage name what its launch has, `most` of each, and ask for what a GPU may give?"""
    x, y, z = stage["block"]
    shape = len(stage["grid"]) == 3 and min(x, y, z) > 0 and x * y * z <= _MOST_THREADS
    known = {**most, "tma": len(stage["tma"])}
    named = all(a == "status" or _is_there(a, known) for a in stage["args"])
    return shape and 0 <= stage["shared"] <= _MOST_SHARED and named and all(_is_map(m, most) for m in stage["tma"])


def _is_map(entry: Mapping[str, Any], most: Mapping[str, int]) -> bool:
    rank, box = len(entry["sizes"]), entry["box"]
    windows = [entry[k] for k in _WINDOW if k in entry]  # of a descriptor in im2col mode
    sides = 2 if windows else rank
    shape = 0 < rank <= _MOST_DIMS and len(entry["strides"]) == rank - 1 and len(box) == sides
    whole = not windows or [len(w) for w in windows] == [rank - 2] * len(_WINDOW) and rank > 2
    base, buffers = entry["base"], {k: most[k] for k in ("buffer", "scratch")}
    fits = all(0 < b <= _MOST_BOX for b in box) and entry["type"] in TENSOR_MAP_TYPES
    return shape and whole and fits and _is_there(base, buffers)


def _is_there(role: str, known: Mapping[str, int]) -> bool:
    """Is `kind:number` one of those known?"""
    kind, _, number = role.partition(":")
    return kind in known and number.isdecimal() and int(number) < known[kind]


def check_grid(grid: Sequence[int], name: str) -> None:
    """ArtifactError if a grid has more blocks than launches can have, or fewer than none."""
    if min(grid) < 0 or any(n > most for n, most in zip(grid, MOST_BLOCKS)):
        raise ArtifactError(f"'{name}' would be launched with {'x'.join(map(str, grid))} blocks; no GPU has a grid of so many")  # fmt: skip
