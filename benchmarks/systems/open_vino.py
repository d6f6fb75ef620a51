"""OpenVINO: from torch.export, tuned for latency, in f32 where the processor would take bf16 too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .stateless import stateless


def build(model: nn.Module, args: Sequence[Tensor], threads: int) -> Callable[[], Any]:
    """Attention stays whole but for grouped queries, whose sizes OpenVINO 2026.4 does not find."""
    model, args = stateless(model, args)
    program = torch.export.export(model, tuple(args), strict=False)
    try:
        return _compile(program, args, threads)
    except RuntimeError:
        return _compile(program.run_decompositions(), args, threads)


def _compile(program: torch.export.ExportedProgram, args: Sequence[Tensor], threads: int) -> Callable[[], Any]:
    import openvino as ov

    model = ov.convert_model(program)
    model.reshape({i: list(x.shape) for i, x in enumerate(args)})  # it has no sizes
    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    request = ov.Core().compile_model(model, "CPU", options).create_infer_request()
    tensors = [ov.Tensor(x.contiguous().numpy(), shared_memory=False) for x in args]
    for i, x in enumerate(tensors):
        request.set_input_tensor(i, x)
    count = len(model.outputs)

    def call() -> Any:
        request.infer()
        return [request.get_output_tensor(i).data for i in range(count)]

    call()
    return call
