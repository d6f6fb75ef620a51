"""Compile a part and call it with torch tensors.

    call = compile_part(part, options)
    buffers = call(*tensors, *int symbols)

Pointers of the inputs go to the program, outputs come from torch's allocator with eager's sizes and strides. A result
that the compiler made an alias (of an input, a weight, another result) is copied, since eager's is not one. Calls are
made by a native entry where it can be had (native_entry.py), else by `Native.__call__`, which means the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...compiler import pool
from ...compiler.api import Program, compile_graph, target_device
from ...compiler.options import Options, in_process
from ...dialects.dtypes import size as item_size
from ...dialects.strides import row_major
from ...runtime.errors import LaminaRuntimeError
from ...runtime.program import Constants, LoadedProgram, OutputSpec, PlannedProgram, Prepared
from .. import compat, values, weights
from ..part import Part
from ..stats import COUNTERS
from .signature import Signature, evaluate, laid_out
from .symbolic_call import symbolic_call


def count(program: Program) -> None:
    """Count a program in `lamina.stats()`."""
    kernels = program.manifest["kernels"].values()
    COUNTERS.add("cached_parts", program.cached)
    COUNTERS.add("kernels", len(kernels))
    COUNTERS.add("plain_kernels", sum(bool(k["reason"]) for k in kernels))


def prepare(gpu: bool) -> None:
    """Begin to start workers and to compile what calls parts, since a part for the CPU, or a GPU, is about to come."""
    from . import cuda_entry, native_entry

    if not in_process():
        pool.warm(gpu)
        (cuda_entry if gpu else native_entry).prepare()


def compile_part(
    part: Part,
    options: Options = Options(),
    target: str = "native",
    frozen: bool = False,
    graphs: bool = True,
    made: Callable[[Program], None] = count,
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Compile (or find in the cache) and load a part; CompileError if it cannot be compiled.

    `frozen`: weights never change; `graphs`: launch a GPU's kernels as a CUDA graph; `made` is told the program.
    """
    from . import cuda_launcher, native_entry

    device = cuda_launcher.device_of(part)
    if device is not None:
        if target == "native":
            target = cuda_launcher.target_for(cuda_launcher.index_of(device))
        program = compile_graph(part.graph, target, options)
        made(program)
        return cuda_launcher.load(part, program.manifest, program.image, device, frozen, graphs)
    if target_device(target) != "cpu":
        raise LaminaRuntimeError(f"target '{target}' is a GPU and the tensors are on the CPU: move them to cuda")
    program = compile_graph(part.graph, target, options)
    made(program)
    native = Native(part, LoadedProgram(program.manifest, program.image), frozen)
    return native_entry.bind(native) or native


@dataclass(frozen=True)
class Call:
    """Everything about a call that depends on the sizes alone."""

    prepared: Prepared
    sizes: list[tuple[int, ...]]  # of the argument tensors
    strides: list[tuple[int, ...]]
    buffers: list[tuple[tuple[int, ...], tuple[int, ...], torch.dtype]]  # to allocate
    results: list[tuple[int, OutputSpec]]  # buffer of a result, -1: a copy as the program's spec says

    @property
    def order(self) -> list[int]:
        """The buffer of each result."""
        return [index for index, _ in self.results]


class Native:
    """A loaded part: the Python way to call it."""

    program: Any  # a LoadedProgram; in CudaNative a GpuProgram

    def __init__(self, part: Part, program: PlannedProgram, frozen: bool = False):
        self.part, self.program, self.frozen = part, program, frozen
        self.signature = Signature(part)
        names = {i.name: n for n, i in enumerate(part.graph.inputs)}
        plan = program.plan
        self.input_arguments = [names[i["name"]] for i in plan["inputs"]]
        self.weight_arguments = [names[w["name"]] for w in plan["weights"]]
        self.has_init = plan["init"] is not None
        self.symbolic = symbolic_call(self)
        self._calls: dict[tuple[int, ...], Call] = {}
        self._constants: tuple[Any, Constants] | None = None
        if self.has_init:
            weights.watch()

    def __call__(self, *args: Any) -> tuple[torch.Tensor, ...]:
        call = self.call(self.signature.symbols(args))
        tensors = [laid_out(*given) for given in zip(args, call.sizes, call.strides, self.signature.names)]
        constants = self.constants(tensors)
        scalars = [ctypes.c_int64(v) for v in args[len(tensors) :]]
        addresses = [t.data_ptr() for t in tensors] + [ctypes.addressof(s) for s in scalars]
        inputs = [addresses[i] for i in self.input_arguments]
        made = [compat.empty_strided(*spec) for spec in call.buffers]
        outputs = [t.data_ptr() for t in made]
        try:
            self.program.run(call.prepared, inputs, outputs, constants)
        except LaminaRuntimeError as error:
            raise eager_error(error) from None
        for spec, target in zip(self.part.outputs, self.signature.targets):
            if spec.mutates is not None and tensors[target] is not args[target]:  # type: ignore[index]
                args[target].copy_(tensors[target])  # type: ignore[index]
        spaces = {"output": outputs, "input": inputs, "constant": constants.pointers}
        plain = (o for o in self.part.outputs if o.mutates is None)
        known = self.signature.named(call.prepared.symbols)
        return tuple(
            made[index] if index >= 0 else self._copy(result, spec, spaces, known)
            for (index, result), spec in zip(call.results, plain)
        )

    def call(self, symbols: tuple[int, ...]) -> Call:
        """What a call with these symbol values needs; memoised."""
        found = self._calls.get(symbols)
        if found is None:
            if len(self._calls) > 4096:
                self._calls.clear()
            found = self._calls[symbols] = self._plan(symbols)
        return found

    def _plan(self, symbols: tuple[int, ...]) -> Call:
        prepared: Prepared = self.program.prepare(symbols)
        known = self.signature.named(symbols)
        buffers = [(b.shape, row_major(b.shape), values.torch_dtype(b.dtype)) for b in prepared.buffers]
        results, taken = [], set()
        for spec, output in zip(self.part.outputs, prepared.outputs):
            if spec.mutates is not None:
                continue
            own = output.whole and output.index not in taken
            if own:
                taken.add(output.index)
                buffers[output.index] = evaluate(spec.size, known), evaluate(spec.stride, known), spec.dtype
            results.append((output.index if own else -1, output))
        layouts = self.signature.layouts
        sizes, strides = [evaluate(l.shape, known) for l in layouts], [evaluate(l.strides, known) for l in layouts]
        return Call(prepared, sizes, strides, buffers, results)

    def constants(self, tensors: list[torch.Tensor]) -> Constants:
        """Pointers of weights and of what `lamina_init` makes of them, which runs again when a weight has changed."""
        chosen = [tensors[i] for i in self.weight_arguments]
        if not self.has_init:
            return Constants(tuple(t.data_ptr() for t in chosen), tuple(chosen))
        key = weights.fingerprint(chosen, self.frozen)
        if self._constants is None or key is None or self._constants[0] != key:
            made = self.program.initialize([t.data_ptr() for t in chosen], chosen)
            self._constants = key, made
        return self._constants[1]

    def _copy(self, output: OutputSpec, spec: Any, spaces: dict[str, Any], known: dict[str, int]) -> torch.Tensor:
        """A result that lies in somebody else's memory, copied."""
        result = compat.empty_strided(evaluate(spec.size, known), evaluate(spec.stride, known), spec.dtype)
        if not result.numel():
            return result
        weights_count = len(self.program.plan["weights"])
        index = output.index + (weights_count if output.space == "persistent" else 0)
        pointer = spaces["constant" if output.space in ("weight", "persistent") else output.space][index]
        extent = 1 + output.offset + sum((n - 1) * s for n, s in zip(output.shape, output.strides))
        memory = (ctypes.c_char * (extent * item_size(output.dtype))).from_address(pointer)
        flat = torch.frombuffer(memory, dtype=spec.dtype)
        source = torch.as_strided(flat, output.shape, output.strides, output.offset)
        torch.as_strided(result, output.shape, row_major(output.shape)).copy_(source)
        return result


def eager_error(error: LaminaRuntimeError) -> Exception:
    """The error of a call with the type that eager's has."""
    return (IndexError if isinstance(error, IndexError) else RuntimeError)(str(error))
