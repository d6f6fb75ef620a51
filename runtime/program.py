"""A loaded program on raw pointers: what `lamina.load` and the torch frontend have in common.

    program = LoadedProgram(compiled.manifest, compiled.image)
    constants = program.initialize([pointer of each weight])    # once per version of the weights
    prepared = program.prepare((2, 128))                        # once per tuple of symbol values
    program.run(prepared, [pointer of each input], [pointer of each output buffer], constants)

`prepared.buffers` says what output buffers to allocate, `prepared.outputs` which part of which buffer each result is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from .arena import ALIGN, allocate, plan_offsets, thread_arena
from .arrays import ITEM_SIZE, row_major
from .errors import ArtifactError, LaminaIndexError, LaminaRuntimeError
from .loader import Image
from .sizes import compile_sizes
from .threads import ABI, Contexts

_MEMO = 4096  # tuples of symbol values remembered per program

_Entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class BufferSpec(NamedTuple):
    """An output buffer to allocate: contiguous, uninitialised."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int


class OutputSpec(NamedTuple):
    """A result: a view of buffer `index` of `space` ("output", "input", "weight", "persistent"), in elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    space: str
    index: int
    offset: int
    strides: tuple[int, ...]
    mutates: str | None
    whole: bool  # an output buffer as it is


class Prepared(NamedTuple):
    """Everything about a call that depends on the sizes alone."""

    symbols: tuple[int, ...]
    buffers: tuple[BufferSpec, ...]
    outputs: tuple[OutputSpec, ...]
    arena_bytes: int
    dims: ctypes.Array  # symbols, then arena offsets
    dims_address: int


class Constants(NamedTuple):
    """Pointers to weights and persistent buffers, and what keeps them alive."""

    pointers: tuple[int, ...] = ()
    owners: tuple[Any, ...] = ()


class PlannedProgram:
    """What programs on CPUs and GPUs have in common: a plan, whose sizes are known once those of its symbols are."""

    def __init__(self, manifest: Mapping[str, Any], name: str):
        plan = manifest["plan"]
        if plan["abi"] != ABI:
            raise ArtifactError(f"the code has kernel ABI {plan['abi']}, this runtime has {ABI}; compile it again")
        self.manifest, self.plan = manifest, plan
        self.name = name or manifest.get("name", "main")
        self._symbols = [s["name"] for s in plan["symbols"]]
        self._evaluate: Callable[..., tuple[int, ...]] = compile_sizes(self._expressions(), self._symbols)
        self._lifetimes = [(b["first"], b["last"]) for b in plan["arena"]]
        self._prepared: dict[tuple[int, ...], Prepared] = {}
        self.constants = Constants()

    def prepare(self, symbols: tuple[int, ...]) -> Prepared:
        """Sizes, output specs and arena offsets for the values of `plan["symbols"]`; memoised."""
        prepared = self._prepared.get(symbols)
        if prepared is None:
            prepared = self._prepare(symbols)
            if len(self._prepared) >= _MEMO:
                self._prepared.clear()
            self._prepared[symbols] = prepared
        return prepared

    def failure(self, status: int, entry: str = "main") -> LaminaRuntimeError:
        """The error for a status that an entry returned: what failed, in which kernel, from which source line."""
        number, code = status >> 8, status & 0xFF
        launches = (self.plan if entry == "main" else self.plan["init"])["launches"]
        text, exception = self.plan["status"].get(str(code), [f"run-time check {code} failed", "RuntimeError"])
        where = f"launch {number}"
        if number < len(launches):
            file, line, op = launches[number]["location"]
            where = f"kernel '{launches[number]['label']}'"
            where += f" at {file}:{line}" if file else ""
            where += f" ({op})" if op else ""
        kind = LaminaIndexError if exception == "IndexError" else LaminaRuntimeError
        return kind(f"{text} in {where}")

    def _expressions(self) -> list[int | str]:
        plan = self.plan
        flat: list[int | str] = []
        for tensor in (*plan["buffers"], *plan["outputs"]):
            flat += tensor["shape"]
        for output in plan["outputs"]:
            flat += [output["offset"], *output["strides"]]
        return flat + [b["bytes"] for b in plan["arena"]]

    def _prepare(self, symbols: tuple[int, ...]) -> Prepared:
        plan = self.plan
        values = iter(self._evaluate(*symbols))

        def take(count: int) -> tuple[int, ...]:
            return tuple(next(values) for _ in range(count))

        shapes = [take(len(b["shape"])) for b in plan["buffers"]]
        buffers = tuple(
            BufferSpec(b["dtype"], shape, prod(shape) * ITEM_SIZE[b["dtype"]])
            for b, shape in zip(plan["buffers"], shapes)
        )
        shapes = [take(len(o["shape"])) for o in plan["outputs"]]
        outputs = []
        for o, shape in zip(plan["outputs"], shapes):
            (offset,), strides = take(1), take(len(shape))
            space, index = o["storage"]
            whole = space == "output" and (offset, strides) == (0, row_major(shape))
            whole = whole and (o["dtype"], shape) == buffers[index][:2]
            outputs.append(OutputSpec(o["name"], o["dtype"], shape, space, index, offset, strides, o["mutates"], whole))
        offsets, total = plan_offsets(take(len(plan["arena"])), self._lifetimes)
        dims = (ctypes.c_int64 * (len(symbols) + len(offsets) + 1))(*symbols, *offsets)
        return Prepared(symbols, buffers, tuple(outputs), max(total, ALIGN), dims, ctypes.addressof(dims))


class LoadedProgram(PlannedProgram):
    """A program in memory, callable from any number of threads. Its addresses are valid as long as it lives."""

    def __init__(self, manifest: Mapping[str, Any], image: bytes | Image, name: str = ""):
        super().__init__(manifest, name)
        plan = self.plan
        self.image = image if isinstance(image, Image) else Image(image, self.name)
        self.contexts = Contexts(self.image)
        self.main_address = self.image.address("lamina_main")
        self._main = _Entry(self.main_address)
        self._init = _Entry(self.image.address("lamina_init")) if plan["init"] else None
        self._pointers = ctypes.c_void_p * (
            len(plan["inputs"]) + len(plan["weights"]) + len(plan["persistent"]) + len(plan["buffers"]) + 1
        )

    def initialize(self, weights: Sequence[int], owners: Sequence[Any] = (), threads: int | None = None) -> Constants:
        """Compute what depends on the weights alone from their pointers, into new memory.

        `owners` are kept alive with the result. Sets nothing: pass the result to `run`, or assign it to `constants`.
        """
        plan = self.plan
        if len(weights) != len(plan["weights"]):
            raise LaminaRuntimeError(f"program '{self.name}' has {len(plan['weights'])} weights, got {len(weights)}")
        sizes = [prod(p["shape"]) * ITEM_SIZE[p["dtype"]] for p in plan["persistent"]]
        offsets, total = plan_offsets(sizes, [(0, 0)] * len(sizes))
        block, base = allocate(total)
        pointers = (*weights, *(base + offset for offset in offsets))
        if self._init is not None:
            arena = plan["init"]["arena"]
            lifetimes = [(b["first"], b["last"]) for b in arena]
            scratch, size = plan_offsets([b["bytes"] for b in arena], lifetimes)
            memory, address = allocate(size)
            array = (ctypes.c_void_p * (len(pointers) + 1))(*pointers, address)
            dims = (ctypes.c_int64 * (len(scratch) + 1))(*scratch)
            status = self._init(self.contexts.current(threads), ctypes.addressof(array), ctypes.addressof(dims))
            del memory
            if status:
                raise self.failure(status, "init")
        return Constants(pointers, (block, *owners))

    def run(
        self,
        prepared: Prepared,
        inputs: Sequence[int],
        outputs: Sequence[int],
        constants: Constants | None = None,
        threads: int | None = None,
    ) -> None:
        """Run once. Nothing is checked: pointers must be to contiguous tensors of the prepared sizes.

        A scalar input's pointer is to its value as an int64. LaminaRuntimeError when a check in the program fails.
        """
        memory, arena = thread_arena(prepared.arena_bytes)
        pointers = self._pointers(*inputs, *(constants or self.constants).pointers, *outputs, arena)
        status = self._main(self.contexts.current(threads), ctypes.addressof(pointers), prepared.dims_address)
        del memory
        if status:
            raise self.failure(status)
