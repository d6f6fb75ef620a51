"""IREE: exported by iree-turbine with its weights, compiled for this processor, run on its local-task threads."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .stateless import stateless

FLAGS = ["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-opt-data-tiling=true"]


def build(model: nn.Module, args: Sequence[Tensor], threads: int) -> Callable[[], Any]:
    import iree.runtime as rt
    from iree.compiler import compile_file
    from iree.turbine import aot

    model, args = stateless(model, args)
    rt.flags.parse_flags(f"--task_topology_group_count={threads}")
    with tempfile.TemporaryDirectory() as folder:
        source, binary = str(Path(folder) / "model.mlir"), str(Path(folder) / "model.vmfb")
        aot.export(model, args=tuple(args)).save_mlir(source)
        compile_file(source, output_file=binary, target_backends=["llvm-cpu"], input_type="torch", extra_args=FLAGS)
        config = rt.Config("local-task")
        module = rt.VmModule.mmap(config.vm_instance, binary)
        run = rt.load_vm_module(module, config)
    arrays = [rt.asdevicearray(config.device, x.contiguous().numpy()) for x in args]

    def call() -> Any:
        y = run.main(*arrays)
        return y if isinstance(y, (tuple, list)) else [y]

    return call
