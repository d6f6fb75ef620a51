"""How the launches of a table follow the symbols: grids, kernels' sizes, the arena, copies and tensor maps as steps.

`follow_launches(program, made, steps)` adds to `steps` all words of `made`, of a whole walk, that depend on sizes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ...compiler.native.size_steps_ir import MIN
from ...dialects import dims
from ...dialects.dims import Dim
from ...runtime.entry import addresses
from ...runtime.gpu import cuda
from ...runtime.gpu.check import MOST_BLOCKS
from ...runtime.gpu.launches import Launches
from ...runtime.gpu.layout import ALIGN
from ...runtime.gpu.program import GpuProgram
from ...runtime.gpu.table import MAP_WORDS, STEP_WORDS
from ...runtime.gpu.walk import Descriptor, Launch
from .size_steps import SizeSteps

_WORD, _HALF = 8, 4  # bytes


class _Follower:
    def __init__(self, program: GpuProgram, made: Launches, steps: SizeSteps):
        self.program, self.made, self.steps, self.layout = program, made, steps, program.layout
        self.known: dict[tuple[Any, ...], list[Dim]] = {}  # a kernel's sizes, by the values of its symbols
        self.maps, self.zero, self.one = 0, steps.value(0), steps.value(1)

    @functools.cached_property
    def encoder(self) -> int:
        """The address of the driver's function that makes tensor maps."""
        return addresses(self.program.device.library, {"encode": "cuTensorMapEncodeTiled"})["encode"]

    def follow(self) -> int:
        """Add all steps; the index of the arena's bytes."""
        layout, steps = self.layout, self.steps
        given = iter(dims.parse(e) for e in layout.expressions)
        sizes = list(islice(given, layout.arena))
        table, at = ctypes.addressof(self.made.walk.table), len(layout.copies[0])
        for row in layout.rows:
            symbols = list(islice(given, row.dims))
            for n, dim in enumerate(symbols, row.at + 1):
                steps.put(steps.value(dim), table + _WORD * n)
            rest = iter(self._sizes(row.kernel, symbols))
            sizes += islice(rest, row.kernel.scratch)
            for stage in row.stages:
                self._launch(at, stage.spec, rest)
                at += 1
        for number in (*range(len(layout.copies[0])), *range(at, len(self.made.walk.steps))):
            for word, dim in enumerate(islice(given, 2), 3):
                self._word(number, word, dim)
        values = [steps.value(s) for s in sizes]
        for value in values:
            steps.check(self.zero, value)
        offsets, total = steps.arena([steps.aligned(v, ALIGN) for v in values], layout.lifetimes)
        for n, offset in enumerate(offsets):
            steps.put(offset, self.made.words["arena_offsets"] + _WORD * n)
        return total

    def _sizes(self, kernel: Any, symbols: list[Dim]) -> list[Dim]:
        """All sizes of a launch of `kernel`."""
        key = kernel, *symbols
        if key not in self.known:
            values = dict(zip(kernel.symbols, (*symbols, self.program.device.sms)))
            self.known[key] = [dims.substitute(dims.parse(e), values) for e in kernel.expressions]
        return self.known[key]

    def _word(self, step: int, word: int, dim: Dim) -> None:
        self.steps.put(self.steps.value(dim), self.made.words["step_table"] + _WORD * (step * STEP_WORDS + word))

    def _launch(self, number: int, spec: Any, rest: Iterator[Dim]) -> None:
        launch = self.made.walk.steps[number]
        assert isinstance(launch, Launch)
        steps, blocks = self.steps, self.one
        for n, (dim, most) in enumerate(zip(islice(rest, 3), MOST_BLOCKS)):
            if isinstance(dim, int):
                continue
            side = steps.value(dim)
            steps.check(self.zero, side)
            steps.check(side, steps.value(most))
            self._word(number, 1 + n, dim)
            if launch.config is not None:
                steps.put(side, ctypes.addressof(launch.config) + _HALF * n, half=True)
            blocks = steps.apply(MIN, blocks, side)
        for entry, descriptor in zip(spec["tma"], launch.descriptors):
            sizes, strides = (list(islice(rest, len(entry[k]))) for k in ("sizes", "strides"))
            if blocks != self.one or any(not isinstance(d, int) for d in (*sizes, *strides)):
                self._encode(blocks, entry, descriptor, sizes, strides)
            self.maps += 1

    def _encode(self, used: int, entry: Any, descriptor: Descriptor, sizes: list[Dim], strides: list[Dim]) -> None:
        steps, rank = self.steps, len(sizes)
        base = self.made.words["map_table"] + _WORD * (MAP_WORDS * self.maps + MAP_WORDS - 1)
        tensor = [self.encoder, descriptor.map.address, cuda.TENSOR_MAP_TYPES[entry["type"]], rank, base]
        tensor += [steps.numbers(sizes), steps.numbers(strides)]
        tensor += [steps.integers(entry["box"]), steps.integers([1] * rank)]
        steps.encode(used, [*tensor, *cuda.tensor_map_memory(entry)])


def follow_launches(program: GpuProgram, made: Launches, steps: SizeSteps) -> int:
    """Add to `steps` all words of `made`, of a whole walk, that depend on sizes; the index of the arena's bytes."""
    return _Follower(program, made, steps).follow()
