"""Call a compiled part with torch tensors on a GPU: torch's allocator, torch's current stream.

    call = CudaNative(part, program, frozen)
    buffers = call(*tensors, *int symbols)

Kernels expect buffers aligned to 16 bytes: a tensor that starts elsewhere (a slice of another) is copied first. A
failed run-time check is raised by the next call of the part. Calls are made by a native entry where it can be had
(cuda_entry.py), else by `CudaNative.__call__`, which means the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ...dialects.dtypes import size as item_size
from ...dialects.strides import row_major
from ...runtime.errors import LaminaRuntimeError
from ...runtime.gpu import cuda, hip
from ...runtime.gpu.drivers import Device
from ...runtime.gpu.program import DEVICE_ALIGN, GpuProgram
from ...runtime.program import Constants, OutputSpec
from .. import values, weights
from ..part import Part
from .launcher import Native
from .signature import evaluate, laid_out


def device_of(part: Part) -> torch.device | None:
    """The GPU that a part's tensors are on; None for the CPU."""
    nodes = [*part.inputs, *(o.node for o in part.outputs)]
    found = [v.device for n in nodes if isinstance(v := n.meta.get("val"), torch.Tensor)]
    return next((d for d in found if d.type == "cuda"), None)


def index_of(device: torch.device) -> int:
    """The number of a GPU; `cuda` alone is torch's current one."""
    return torch.cuda.current_device() if device.index is None else device.index


@functools.cache
def target_for(index: int) -> str:
    """The target for GPU number `index`. A torch built for ROCm calls AMD's GPUs "cuda" too."""
    if torch.version.hip is None:
        return cuda.target_of(cuda.device(index))
    return hip.architecture(torch.cuda.get_device_properties(index).gcnArchName)


def gpu(index: int) -> Device:
    """GPU number `index` of torch as the runtime knows it."""
    return cuda.device(index) if torch.version.hip is None else hip.device(index)


def load(
    part: Part, manifest: dict[str, Any], image: bytes, device: torch.device, frozen: bool, graphs: bool
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A part compiled for a GPU, ready to be called; with `graphs`, its launches become a CUDA graph."""
    from . import cuda_entry

    torch.cuda.init()
    native = CudaNative(part, GpuProgram(manifest, image, gpu(index_of(device))), frozen)
    return cuda_entry.bind(native, graphs) or native


def current_stream(index: int) -> int:
    """The handle of torch's current stream on GPU number `index`."""
    return torch._C._cuda_getCurrentRawStream(index)


def _reads_patches(program: GpuProgram) -> bool:
    """True if a kernel has a descriptor in im2col mode."""
    stages = (stage for header in program.headers.values() for stage in header["stages"])
    return any("steps" in entry for stage in stages for entry in stage["tma"])


class CudaNative(Native):
    """A loaded part on a GPU."""

    program: GpuProgram

    def __init__(self, part: Part, program: GpuProgram, frozen: bool = False):
        super().__init__(part, program, frozen)
        if _reads_patches(program):  # their descriptors are encoded in Python only
            self.symbolic = None
        self.device = torch.device("cuda", program.device.index)

    def __call__(self, *args: Any) -> tuple[torch.Tensor, ...]:
        self._check_devices(args)
        with self.program.device.use():
            return self._call(args)

    def _check_devices(self, args: tuple[Any, ...]) -> None:
        for node, tensor in zip(self.part.inputs, args):
            if tensor.device != self.device:
                raise RuntimeError(f"'{node.name}' is on {tensor.device} and the code for {self.device}; move it there")

    def _call(self, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        call = self.call(self.signature.symbols(args))
        tensors = [_aligned(laid_out(*given)) for given in zip(args, call.sizes, call.strides, self.signature.names)]
        stream = current_stream(self.device.index)
        constants = self.constants(tensors)
        addresses = [t.data_ptr() for t in tensors] + [0] * (len(args) - len(tensors))  # kernels get symbols by value
        inputs = [addresses[i] for i in self.input_arguments]
        made = [
            torch.empty_strided(size, stride, dtype=dtype, device=self.device) for size, stride, dtype in call.buffers
        ]
        outputs = [t.data_ptr() for t in made]
        try:
            self.program.run(call.prepared, inputs, outputs, constants, stream=stream, allocate=self._allocate)
        except LaminaRuntimeError as error:  # the exception types are eager's
            raise (IndexError if isinstance(error, IndexError) else RuntimeError)(str(error)) from None
        with torch.no_grad():
            for spec, target in zip(self.part.outputs, self.signature.targets):
                if spec.mutates is not None and tensors[target] is not args[target]:  # type: ignore[index]
                    args[target].copy_(tensors[target])  # type: ignore[index]
        known = self.signature.named(call.prepared.symbols)
        plain = (o for o in self.part.outputs if o.mutates is None)
        sources = {"output": made, "input": [tensors[i] if i < len(tensors) else None for i in self.input_arguments]}
        return tuple(
            made[index] if index >= 0 else self._copied(result, spec, sources, constants, known)
            for (index, result), spec in zip(call.results, plain)
        )

    def _allocate(self, size: int) -> tuple[int, Any]:
        block = torch.empty(max(size, 1), dtype=torch.uint8, device=self.device)
        return block.data_ptr(), block

    def constants(self, tensors: list[torch.Tensor]) -> Constants:
        """Pointers of weights and of what is made of them, which is made again when a weight has changed."""
        chosen = [tensors[i] for i in self.weight_arguments]
        pointers = [t.data_ptr() for t in chosen]
        if not self.has_init:
            return Constants(tuple(pointers), tuple(chosen))
        key = weights.fingerprint(chosen, self.frozen)
        if self._constants is None or key is None or self._constants[0] != key:
            stream = current_stream(self.device.index)
            made = self.program.initialize(pointers, (), stream=stream, allocate=self._allocate)
            self._constants = key, made
        return Constants((*pointers, *self._constants[1].pointers[len(pointers) :]), self._constants[1].owners)

    def _copied(
        self, output: OutputSpec, spec: Any, sources: dict[str, list[Any]], constants: Constants, known: dict[str, int]
    ) -> torch.Tensor:
        """A result that lies in somebody else's memory, copied."""
        size, stride = evaluate(spec.size, known), evaluate(spec.stride, known)
        result = torch.empty_strided(size, stride, dtype=spec.dtype, device=self.device)
        if not result.numel():
            return result
        if output.space in sources:
            base = sources[output.space][output.index]
            dtype = values.torch_dtype(output.dtype)
            if base.dtype is not dtype:
                base = base.view(dtype)
            source = torch.as_strided(base, output.shape, output.strides, base.storage_offset() + output.offset)
            torch.as_strided(result, output.shape, row_major(output.shape)).copy_(source)
            return result
        count = len(self.program.plan["weights"])
        number = output.index + (count if output.space == "persistent" else 0)
        if tuple(output.strides) != row_major(output.shape):
            raise RuntimeError(f"result '{output.name}' is a view of a constant that no copy can make")
        bytes_ = item_size(output.dtype)
        self.program.device.copy(
            result.data_ptr(),
            constants.pointers[number] + output.offset * bytes_,
            result.numel() * bytes_,
            current_stream(self.device.index),
        )
        return result


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor`, or a copy of it with the same strides where it does not start at a multiple of 16 bytes."""
    if tensor.data_ptr() % DEVICE_ALIGN == 0:
        return tensor
    with torch.no_grad():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(
            tensor
        )
