"""AMD GPUs without one: an interpreter of code objects for gfx90a, gfx942, gfx1100 and gfx1201.

    from support.amdgpu_emulator import launch
    launch(code_object, "kernel", grid=(4,), block=(256,), arguments=[x, y, np.int32(1000)])

runs the machine code itself, decoded by llvm-objdump, and writes to the arrays. All waves of many workgroups run
together, each instruction as a few numpy operations. Beyond what hardware tells, an EmulatorError reports

* an access outside of the arrays (or to LDS or scratch outside of its size), or a write to read-only memory;
* reading a register or LDS that was never written;
* using a register before an `s_waitcnt` covers the load into it;
* LDS used by two waves without a barrier between (words and wider accesses);
* a barrier that not all waves signal, a matrix instruction with lanes off, an instruction the emulator does not know.

Not modelled: the `s_nop` wait states that some results need (LLVM inserts them), caches and the order of global
memory between waves (a store is seen at once), the 1 ulp by which transcendental instructions may be off, other
rounding and denormal modes, waves of 64 lanes on RDNA, preloaded arguments, scratch on gfx90a, time. What is not there
(images, loads straight to LDS, transposing loads, sparse matrices, 4-bit integers) is refused by name.

Read in this order: `launch`, `schedule`, `program`, `waves`, `vector_alu`; the files ending in `_ops` and the memory
ones are tables of instructions.
"""

from . import (
    carry_ops,
    compare_ops,
    conversion_ops,
    division_ops,
    float_ops,
    global_memory,
    integer_ops,
    lane_ops,
    lds,
    matrix_ops,
    packed_ops,
    scalar_memory,
    scalar_ops,
)
from .errors import EmulatorError, UnknownInstruction
from .launch import Emulator, launch, pack_arguments
from .memory import Memory
