"""The tables of native entries under torch: what `native_entry.py` and `cuda_entry.py` write and the code of entries reads."""

from __future__ import annotations

from ...compiler.native.size_steps_ir import FOLLOW_SLOTS
from ...runtime.gpu.table import LAUNCH_SLOTS

# Slots of the table, in order.
SLOTS = (
    # functions
    "get_data_ptr", "get_dim", "get_sizes", "get_strides", "empty_strided", "delete_tensor", "wrap",
    "tuple_new", "tuple_set", "vectorcall", "long_value", "new_long", "decrement", "save_thread", "restore_thread",
    "get_threads",
    # facts of torch and Python
    "tensor_class", "parameter_class", "int_class", "tensor_offset", "version_outer", "version_inner",
    # the program
    "main", "context", "threads", "buffers", "dims",
    # the signature as memoised
    "arguments", "argument_table", "outputs", "output_table",
    # state
    "valid", "shared", "arena_buffer", "epoch_cell", "epoch", "release", "slow", "failed",
    # how all this follows the sizes
    *FOLLOW_SLOTS,
)  # fmt: skip
# Where the content of a bytes object starts.
BYTES_DATA = bytes.__basicsize__ - 1
SLOT = {name: i for i, name in enumerate(SLOTS)}

# Rows of the argument table: kind; then by kind; then the slot of `buffers` that gets the pointer.
TENSOR, INT, WEIGHT = 0, 1, 2
ARGUMENT_WORDS = 6  # tensor: dims, &sizes, &strides, buffer | int: value | weight: object, pointer, version
OUTPUT_WORDS = 5  # dims, &sizes, &strides, dtype code, buffer

# What the table holds beyond a CPU's.
CUDA_SLOTS = (
    *SLOTS,
    *LAUNCH_SLOTS,
    # functions of torch
    "get_device_type", "get_device_index", "get_stream",
    # the device, what arguments must be aligned to, less one, and what arenas are of
    "device_type", "device_index", "alignment", "byte_code",
)  # fmt: skip
CUDA_SLOT = {name: i for i, name in enumerate(CUDA_SLOTS)}
