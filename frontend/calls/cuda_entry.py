"""A compiled part on a GPU as a CPython builtin: the table behind `cuda_entry_code`, filled in Python.

`bind(native)` is to `CudaNative` what `native_entry.bind` is to `Native`. With `graphs`, a part of static sizes and
several kernels is launched as a CUDA graph, whose nodes get the pointers that differ from the last call's.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...runtime.entry import addresses
from ...runtime.gpu.launches import Launches, program_words
from ...runtime.gpu.program import DEVICE_ALIGN
from .cuda_entry_code import cuda_entry_ir
from .entry_image import entry_image
from .entry_support import Support, support, torch_library
from .entry_table import CUDA_SLOT
from .gpu_follow import follow_launches
from .part_table import PartEntry, PartTable

if TYPE_CHECKING:
    from .cuda_launcher import CudaNative
    from .launcher import Call

# table slot -> exported name, in libtorch_cpu, and in libtorch_cuda or libtorch_hip
_TORCH = {"get_device_type": "aoti_torch_get_device_type", "get_device_index": "aoti_torch_get_device_index"}
_TORCH_GPU = {"get_stream": "aoti_torch_get_current_cuda_stream"}


def bind(native: CudaNative, graphs: bool) -> Callable[..., Any] | None:
    """The builtin for `native`; None where this torch or driver lacks something."""
    support = _support(native.program.device.kind)
    try:
        return None if support is None else _entry(native, support, graphs).chain.call
    except AttributeError:
        return None


def _entry(native: CudaNative, support: Support, graphs: bool) -> PartEntry:
    return PartEntry(native, support, lambda: _CudaTable(native, support, graphs))


class _CudaTable(PartTable):
    """One call of a part on a GPU."""

    native: CudaNative
    names = CUDA_SLOT

    def __init__(self, native: CudaNative, support: Support, graphs: bool):
        super().__init__(native, support)
        self.set(**program_words(native.program))
        self._graphs = graphs
        self._made: tuple[tuple[int, ...], Launches] | None = None
        kinds = {"cpu": 0, "cuda": 1}  # c10::DeviceType
        self.set(
            device_type=kinds[native.device.type],
            device_index=-1 if native.device.index is None else native.device.index,
            alignment=DEVICE_ALIGN - 1,
            byte_code=support.dtype_codes[torch.uint8],
        )

    @property
    def busy(self) -> bool:
        """True while another thread launches."""
        return bool(self.slots[CUDA_SLOT["busy"]])

    def memoise(self, args: tuple[Any, ...], call: Call, symbols: tuple[int, ...]) -> None:
        """Fill the table for calls like this one."""
        native = self.native
        tensors = args[: native.signature.tensors]
        self.begin(symbols)
        if self.steps is not None or self._made is None or self._made[0] != symbols:
            graphs = self._graphs and not native.program.plan["symbols"]
            self._made = (
                symbols,
                Launches(native.program.device, native.program.walk(symbols, self.steps is not None), graphs),
            )
        made = self._made[1]
        constants = native.constants(list(tensors))
        self.buffers = made.walk.table
        words = dict(made.words)
        if self.steps is not None:
            arena = follow_launches(native.program, made, self.steps)
            self.steps.put(arena, ctypes.addressof(self.slots) + 8 * CUDA_SLOT["arena_bytes"])
        rows = self.rows(args, call, constants)
        self.kept.append(made)
        self.set(
            **words,
            **self.follow(args, call),
            buffers=ctypes.addressof(made.walk.table),
            **rows,
        )


def prepare() -> None:
    """Begin to compile the entry."""
    entry_image(cuda_entry_ir, "cuda_entry")


@functools.cache
def _support(kind: str) -> Support | None:
    """What tables on devices of a kind share, less what each device adds."""
    library = {"cuda": "cuda", "hip": "hip"}[kind]
    try:
        found = addresses(torch_library("cpu"), _TORCH)
        found |= addresses(torch_library(library), _TORCH_GPU)
    except (OSError, AttributeError):
        return None
    return support(cuda_entry_ir, "cuda_entry", found)
