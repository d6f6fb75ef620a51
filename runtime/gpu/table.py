"""The tables by which native code launches programs on GPUs: what Python writes and the code of entries reads.

`LAUNCH_SLOTS` are in the tables of all such entries (`compiler/native/gpu_launch_ir.py`), torch's too; `SLOTS` are the table of the
entry that artifacts carry (`compiler/native/gpu_entry_ir.py`), whose name is that of the layout.
"""

from __future__ import annotations

from ..array_table import BYTES_DATA as BYTES_DATA  # where a bytes object keeps its content

ENTRY = "lamina_gpu_entry_4"

# Functions of the driver (`Device.functions`); 0 where it has none: `launch_overlapping`, `move_map`, which no row needs then.
DRIVER_SLOTS = (
    "current_context",  # (&context)
    "set_context",  # (context)
    "launch_kernel",  # (function, grid, block, dynamic shared memory, stream, parameters, extra)
    "launch_overlapping",  # (&config, function, parameters, extra)
    "copy_async",  # (to, from, bytes, stream)
    "move_map",  # (descriptor, base)
    "graph_launch",  # (graph, stream)
    "set_node",  # (graph, node, parameters)
    "is_capturing",  # (stream, &mode)
    "take_memory",  # (&pointer, bytes, pool, stream)
    "give_memory",  # (pointer, stream)
)

LAUNCH_SLOTS = (
    *DRIVER_SLOTS,
    # what `current_context` finds on the program's device; 1 while a thread launches; failed checks
    "device_context", "busy", "status_words", "status_count",
    # the arena's buffers in the table of pointers: each in the arena (-1) or the buffer of a slot, and its offset there
    "arena_bytes", "arena_count", "arena_first", "arena_homes", "arena_offsets",
    # what is launched
    "steps", "step_table", "maps", "map_table",
    # its graph (0: none), nodes, and the pointers of the last call
    "graph", "nodes", "node_table", "varying", "previous",
)  # fmt: skip
# function, grid, block, shared memory, &parameters, &config (0: none) | 0, to slot, from slot, bytes, offset
STEP_WORDS = 10
CONFIG_STREAM = 32  # where a config of a launch (cuda.LaunchConfig) keeps the stream
MAP_WORDS = 3  # &descriptor, slot of its base, base now
NODE_WORDS = 4  # node, &its parameters (graph.py), &slots it reads, their number

SLOTS = (
    # functions of CPython
    "vectorcall", "long_value", "compare", "clear_error", "save_thread", "restore_thread",
    *LAUNCH_SLOTS,
    # the device: its pool of memory, its object, its DLPack device; what arguments must be aligned to, less one
    "pool", "device", "dlpack_device", "alignment",
    # facts of Python: a class, and where a DeviceArray keeps its fields
    "int_class", "array_device", "array_dtype", "array_pointer", "array_shape", "array_stream",
    # the call as memoised; stream: this call's
    "arguments", "argument_table", "outputs", "output_table", "buffers", "stream",
    "valid", "finish", "slow",
)  # fmt: skip
SLOT = {name: i for i, name in enumerate(SLOTS)}

# Rows of arguments: kind, then
#   int:        value
#   ours:       class, buffer, shape (a tuple), dtype (a str)
#   exchanged:  class, buffer, what reads it as a DLTensor, dtype, dims, &sizes, &strides, what tells its stream
INT, OURS, EXCHANGED = 0, 1, 2
ARGUMENT_WORDS = 9
OUTPUT_WORDS = 2  # bytes, buffer

# DLTensor (DLPack 1): data, device (type, id), dims, dtype (code, bits, lanes), &sizes, &strides, offset of the data
DL_BYTES, DL_DATA, DL_DEVICE, DL_DIMS, DL_DTYPE, DL_SIZES, DL_STRIDES, DL_OFFSET = 48, 0, 8, 16, 20, 24, 32, 40
