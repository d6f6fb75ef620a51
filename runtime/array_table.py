"""The table of an entry for numpy arrays: what `runtime/array_entry.py` writes and the code of every image reads.

An entry is called with `(out, *inputs)`. Its name is that of the layout: code and runtime find each other if they agree.
"""

from __future__ import annotations

ENTRY = "lamina_array_entry_2"

SLOTS = (
    # functions
    "vectorcall", "tuple_new", "tuple_set", "save_thread", "restore_thread", "increment", "decrement", "clear_error",
    "long_value", "dict_get", "new_long",
    # facts of numpy and Python: classes, objects
    "array_class", "tuple_class", "int_class", "none", "empty", "modules", "torch_name",
    # the program; torch: its module when the context was chosen; counter: what returns its number of threads
    "main", "context", "torch", "counter", "threads", "epoch_cell", "epoch", "shared", "release",
    # the call as memoised
    "arguments", "argument_table", "outputs", "output_table", "buffers", "dims", "arena_buffer",
    "valid", "slow", "failed",
)  # fmt: skip
SLOT = {name: i for i, name in enumerate(SLOTS)}

# Rows of arguments: kind, then
#   array: dims, &sizes, &strides, dtype, flags that are set, buffer, bytes, 1 if the program writes to it
#   int:   value
ARRAY, INT = 0, 1
ARGUMENT_WORDS = 9
OUTPUT_WORDS = 7  # dims, &sizes, &strides, dtype, shape (a tuple), buffer, bytes

# Where an array object keeps these (PyArrayObject_fields, the same in numpy 1 and 2; the entry is not used if not).
DATA, NDIM, SIZES, STRIDES, DTYPE, FLAGS = 16, 24, 32, 40, 56, 64
ALIGNED, WRITEABLE = 0x100, 0x400
# Where a bytes object keeps its content, a tuple its length and items.
BYTES_DATA, TUPLE_SIZE, TUPLE_ITEMS = 32, 16, 24
